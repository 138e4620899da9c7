//! `dead-letters causes`.

use tenure_proto::v1;
use tenure_proto::v1::list_dead_letter_causes_request::Order;

use super::code_and_message;
use crate::args::CausesArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::view::{self, dead_letters::CauseList};

/// `tenure dead-letters causes`.
pub(super) async fn list(
    client: &Client,
    args: CausesArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let filters = v1::ListDeadLetterCausesRequest {
        queue: args.queue.unwrap_or_default(),
        job_type: args.job_type.unwrap_or_default(),
        error_code: args.code.unwrap_or_default(),
        include_closed: args.closed,
        order: Order::from(args.order).into(),
        ..v1::ListDeadLetterCausesRequest::default()
    };
    let (causes, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListDeadLetterCausesRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut letters = client.dead_letters();
            async move { letters.list_dead_letter_causes(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.causes, page.next_page_token))
    })
    .await?;
    let list = CauseList {
        causes: causes
            .into_iter()
            .map(view::dead_letters::Cause::from)
            .collect(),
        next_page_token: next,
    };
    out.emit(&list, text)?;
    Ok(Exit::Ok)
}

fn text(list: &CauseList) -> String {
    if list.causes.is_empty() {
        return "no cause matches\n".to_owned();
    }
    let header = [
        "OPEN",
        "IGNORED",
        "REPLAYED",
        "RESOLVED",
        "TYPE",
        "CODE",
        "LAST FAILURE",
        "FIRST FAILURE",
        "CAUSE",
        "MESSAGE",
    ];
    let rows = list.causes.iter().map(|cause| {
        let (code, message) = code_and_message(cause.error.as_ref());
        vec![
            cause.open.to_string(),
            cause.ignored.to_string(),
            cause.replayed.to_string(),
            cause.resolved.to_string(),
            cause.job_type.clone().unwrap_or_default(),
            code,
            cause.last_failure_time.clone().unwrap_or_default(),
            cause.first_failure_time.clone().unwrap_or_default(),
            cause.cause_id.clone(),
            message,
        ]
    });
    if list.causes.is_empty() {
        return NOTHING.to_owned();
    }
    let mut text = table(&header, rows);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    text.push_str("`tenure dead-letters list --cause CAUSE` shows the letters of one, `tenure dead-letters bulk-replay --cause CAUSE` what a replay of them would do\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_can_be_copied_whole() {
        let id = "0123456789abcdef".repeat(4);
        let text = text(&CauseList {
            causes: vec![view::dead_letters::Cause::from(v1::DeadLetterCause {
                cause_id: id.clone(),
                open: 12,
                job_type: "t".to_owned(),
                ..v1::DeadLetterCause::default()
            })],
            next_page_token: Some("more".to_owned()),
        });
        let row = text.lines().nth(1).expect("a row");
        assert!(row.starts_with("12"), "{text}");
        assert!(row.split_whitespace().any(|word| word == id), "{text}");
        assert!(text.contains("--page-token more"), "{text}");
    }
}
