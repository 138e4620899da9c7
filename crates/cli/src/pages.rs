//! Lists of several pages.

use crate::args::Paging;
use crate::errors::Failure;
use crate::output::escape;
use crate::shell::quoted;

/// The most entries of a page.
const PAGE: usize = 200;

/// What stands in the place of a list without entries.
pub(crate) const NOTHING: &str = "nothing matches\n";

/// The line under a list that is not the end.
pub(crate) fn more_text(next: Option<&str>) -> String {
    next.map_or_else(String::new, |token| {
        format!(
            "there are more: --all lists all, --page-token {} goes on\n",
            escape(&quoted(token))
        )
    })
}

/// Reads pages until the limit is reached or there are no more.
pub(crate) async fn pages<T>(
    paging: Paging,
    mut fetch: impl AsyncFnMut(i32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<(Vec<T>, Option<String>), Failure> {
    let limit = if paging.all {
        usize::MAX
    } else {
        paging.limit as usize
    };
    let mut entries = Vec::new();
    let mut token = paging.page_token.unwrap_or_default();
    loop {
        let size = (limit - entries.len()).min(PAGE);
        let (page, next) = fetch(size as i32, token.clone()).await?;
        entries.extend(page);
        if next.is_empty() {
            return Ok((entries, None));
        }
        if entries.len() >= limit {
            return Ok((entries, Some(next)));
        }
        if next == token {
            return Err(Failure::local(
                "the service answered with the same page token again",
            ));
        }
        token = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paging(limit: u32, all: bool) -> Paging {
        Paging {
            limit,
            all,
            page_token: None,
        }
    }

    /// A list of 450 entries, whose tokens are offsets.
    async fn offsets(paging: Paging) -> (Vec<usize>, Option<String>, Vec<i32>) {
        let mut sizes = Vec::new();
        let (entries, next) = pages(paging, async |size, token: String| {
            sizes.push(size);
            let from = token.parse::<usize>().unwrap_or(0);
            let to = (from + size as usize).min(450);
            let next = if to == 450 {
                String::new()
            } else {
                to.to_string()
            };
            Ok(((from..to).collect(), next))
        })
        .await
        .expect("pages");
        (entries, next, sizes)
    }

    #[tokio::test]
    async fn lists_stop_at_the_limit_or_at_the_end() {
        let (entries, next, sizes) = offsets(paging(250, false)).await;
        assert_eq!(
            (entries, next),
            ((0..250).collect(), Some("250".to_owned()))
        );
        assert_eq!(sizes, [200, 50]);
        let (entries, next, _) = offsets(paging(50, true)).await;
        assert_eq!((entries, next), ((0..450).collect(), None));
    }

    #[tokio::test]
    async fn a_page_token_that_comes_again_ends_the_list() {
        let result = pages(paging(50, true), async |_, _| {
            Ok((Vec::<u8>::new(), "same".to_owned()))
        })
        .await;
        assert!(result.is_err());
    }
}
