//! The rejected rows as CSV, for people who mend them in a spreadsheet.
//!
//! Written page by page. Every field is quoted, and one that a spreadsheet would take for a
//! formula begins with an apostrophe.

use std::fmt::Write as _;

use bytes::Bytes;
use futures::stream::Stream;
use tenure_core::domain::ids::JobId;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::imports::{Reject, rejects_after};

/// The rejects that are held at once.
const PAGE: i64 = 500;

/// The byte order mark tells spreadsheets that this is UTF-8.
const HEAD: &str = "\u{feff}\"line\",\"column\",\"reason\",\"message\",\"value\",\"original\"\r\n";

/// The file of an import's rejects.
#[derive(Debug)]
pub(crate) struct RejectsCsv {
    store: Store,
    job_id: JobId,
}

impl RejectsCsv {
    /// The rejects of this job.
    pub(crate) fn new(store: Store, job_id: JobId) -> Self {
        Self { store, job_id }
    }

    /// The content, a page at a time.
    pub(crate) fn content(&self) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        let (store, job_id) = (self.store.clone(), self.job_id);
        futures::stream::try_unfold(None, move |after: Option<i64>| {
            let store = store.clone();
            async move {
                let Some(after) = after else {
                    return Ok(Some((Bytes::from_static(HEAD.as_bytes()), Some(0))));
                };
                let page = rejects_after(&store, job_id, after, PAGE).await?;
                let last = page.last().map(|reject| reject.line);
                Ok(last.map(|last| (lines(&page), Some(last))))
            }
        })
    }
}

fn lines(rejects: &[Reject]) -> Bytes {
    let mut text = String::new();
    for reject in rejects {
        // Writing to a String cannot fail.
        let _ = write!(text, "\"{}\"", reject.line);
        for field in [
            reject.column.as_str(),
            &reject.reason,
            &reject.message,
            reject.value.as_deref().unwrap_or_default(),
            reject.original.as_deref().unwrap_or_default(),
        ] {
            text.push(',');
            push_field(field, &mut text);
        }
        text.push_str("\r\n");
    }
    Bytes::from(text)
}

/// Appends a field in quotes.
fn push_field(field: &str, out: &mut String) {
    out.push('"');
    if is_formula(field) {
        out.push('\'');
    }
    for (index, part) in field.split('"').enumerate() {
        if index > 0 {
            out.push_str("\"\"");
        }
        out.push_str(part);
    }
    out.push('"');
}

/// Whether a spreadsheet might run it, or what it takes for a field of its own: some take
/// `;`, a tab or a line end for a delimiter even within quotes.
fn is_formula(field: &str) -> bool {
    field.starts_with(['\t', '\r']) || field.split([';', '\t', '\r', '\n']).any(begins_formula)
}

/// Whether it begins as a formula does. Some spreadsheets drop what cannot be seen before
/// they look, and some take the wide and small forms of Chinese and Japanese keyboards.
fn begins_formula(field: &str) -> bool {
    let unseen = |c: char| {
        c.is_whitespace()
            || c.is_control()
            || matches!(
                c,
                '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}'
            )
    };
    field.trim_start_matches(unseen).starts_with([
        '=', '+', '-', '@', '＝', '＋', '－', '＠', '﹦', '﹢', '﹣', '﹫',
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_begins_like_a_formula_is_left_alone() {
        for text in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\t1",
            "\r1",
            "  =cmd|' /C calc'!A0",
            "\u{a0}=1",
            "\n=1",
            "\u{feff}=1",
            "\u{200b}-1",
            "＝1",
            " ＋1",
            "－1",
            "＠x",
            "﹦1",
            "\u{180e}﹢1",
            "\u{2063}﹣1",
            "﹫x",
            "a;=1",
            "a\t+1",
            "a\r\n@x",
            "a\n -1",
        ] {
            let mut out = String::new();
            push_field(text, &mut out);
            assert!(out.starts_with("\"'"), "{out:?}");
        }
        for text in ["", "1", "a=b", "'=1", "a\"b", "–1"] {
            let mut out = String::new();
            push_field(text, &mut out);
            assert_eq!(out, format!("\"{}\"", text.replace('"', "\"\"")));
        }
    }

    #[test]
    fn a_line_has_all_of_a_reject() {
        let reject = Reject {
            line: 7,
            column: "a\"b".into(),
            reason: "BAD_DATE".into(),
            message: "is not a date".into(),
            value: Some("=1".into()),
            original: Some("x,\"=1\"\ny".into()),
        };
        let other = Reject {
            line: 9,
            column: String::new(),
            value: None,
            original: None,
            ..reject.clone()
        };
        assert_eq!(
            lines(&[reject, other]),
            "\"7\",\"a\"\"b\",\"BAD_DATE\",\"is not a date\",\"'=1\",\"x,\"\"=1\"\"\ny\"\r\n\
             \"9\",\"\",\"BAD_DATE\",\"is not a date\",\"\",\"\"\r\n"
        );
    }
}
