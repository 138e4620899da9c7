//! docs/ERRORS.md, generated from the list of codes.
use std::fmt::Write as _;

use super::{Audience, Code};

const HEAD: &str = "\
# Errors

<!-- Generated from crates/core/src/error. To renew it: TENURE_UPDATE_DOCS=1 cargo test -p tenure-core error::docs -->

Every refusal of a call and every failure of a job has a code from this list, or one that a handler chose
itself. Codes are stable: programs may match on them. Messages are for people and may change.

- A refused call carries the code as `reason` of a `google.rpc.ErrorInfo` with the domain `tenure`, beside the
  gRPC status. `BadRequest` names the fields that are wrong, `QuotaFailure` the limit that was reached, and
  `RetryInfo` when another try is worth it.
- A job carries it in `last_error`, and its dead letter in `error`.
- *Temporary* means that the same call or job may succeed later, unchanged; jobs are then tried again by
  themselves until their attempts are spent. *Permanent* means that it will not.
- *Reaches*: **callers** see it as the refusal of a call, **jobs** as their last error, **operators** in a
  service's log, at its end, or on a dead letter without a job.
";

/// A part of the document: its title, and which codes stand there.
type Part = (&'static str, fn(Code) -> bool);

/// In the order of the document; a code stands in the first one that takes it.
const PARTS: [Part; 4] = [
    ("Imports", |code| {
        code.as_str().starts_with("CSV_") || code.as_str().starts_with("IMPORT_")
    }),
    ("Webhooks", |code| code.as_str().starts_with("WEBHOOK_")),
    ("Calls and services", |code| {
        matches!(
            code.reaches().first(),
            Some(Audience::Caller | Audience::Operator)
        )
    }),
    ("Jobs", |_| true),
];

/// The order in which the parts are shown.
const SHOWN: [&str; 4] = ["Calls and services", "Jobs", "Imports", "Webhooks"];

/// The whole document.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for title in SHOWN {
        let _ = write!(
            text,
            "\n## {title}\n\n\
             | code | class | gRPC status | reaches | meaning | what to do |\n|---|---|---|---|---|---|\n"
        );
        for code in Code::ALL.iter().filter(|code| part_of(**code) == title) {
            let reaches: Vec<&str> = code.reaches().iter().map(|it| it.as_str()).collect();
            let _ = writeln!(
                text,
                "| `{code}` | {} | `{}` | {} | {} | {} |",
                code.class().as_str(),
                status_name(code.grpc()),
                reaches.join(", "),
                cell(code.meaning()),
                cell(code.advice())
            );
        }
    }
    text
}

fn part_of(code: Code) -> &'static str {
    PARTS
        .iter()
        .find(|(_, takes)| takes(code))
        .map_or("Jobs", |(title, _)| title)
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The status as the gRPC documents write it: `NotFound` is `NOT_FOUND`.
fn status_name(code: tonic::Code) -> String {
    let mut name = String::new();
    for c in format!("{code:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_says_what_the_code_does() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ERRORS.md");
        let want = markdown();
        if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
            std::fs::write(path, &want).expect("docs/ERRORS.md can be written");
        }
        let have = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            have == want,
            "docs/ERRORS.md is out of date; renew it: \
             TENURE_UPDATE_DOCS=1 cargo test -p tenure-core error::docs"
        );
    }

    #[test]
    fn every_code_stands_in_it_once_and_whole() {
        let text = markdown();
        for code in Code::ALL {
            let begin = format!("\n| `{code}` | ");
            assert_eq!(text.matches(&begin).count(), 1, "{code}");
            assert!(code.meaning().ends_with('.'), "{code}: {}", code.meaning());
            assert!(code.advice().ends_with('.'), "{code}: {}", code.advice());
            assert!(!code.meaning().contains("  "), "{code}: {}", code.meaning());
            assert!(!code.reaches().is_empty(), "{code}");
        }
        assert_eq!(status_name(tonic::Code::NotFound), "NOT_FOUND");
        assert_eq!(status_name(tonic::Code::Internal), "INTERNAL");
        assert!(PARTS.iter().all(|(title, _)| SHOWN.contains(title)));
    }
}
