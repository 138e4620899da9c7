//! `dead-letters`.

mod bulk;
mod causes;
mod decide;
mod filter;
mod follow;
mod operations;
mod payload;
mod show;

use chrono::Utc;
use tenure_proto::v1;
use tenure_proto::v1::list_dead_letters_request::Order;

use self::decide::Decision;
use crate::args::{DeadLetterListArgs, DeadLetterVerb};
use crate::choices::StatusArg;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, cut, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::view;

/// So many characters of an error's message stand in a table.
const SHOWN_MESSAGE: usize = 60;

/// `tenure dead-letters`.
pub(crate) async fn run(
    client: &Client,
    verb: DeadLetterVerb,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        DeadLetterVerb::List(args) => list(client, *args, out).await,
        DeadLetterVerb::Causes(args) => causes::list(client, args, out).await,
        DeadLetterVerb::Show { id } => show::show(client, id, out).await,
        DeadLetterVerb::Replay(args) => decide::run(client, Decision::Replay, args, out).await,
        DeadLetterVerb::Ignore(args) => decide::run(client, Decision::Ignore, args, out).await,
        DeadLetterVerb::Resolve(args) => decide::run(client, Decision::Resolve, args, out).await,
        DeadLetterVerb::Reopen(args) => decide::run(client, Decision::Reopen, args, out).await,
        DeadLetterVerb::BulkReplay(args) => bulk::run(client, *args, out).await,
        DeadLetterVerb::Operations { verb } => operations::run(client, verb, out).await,
    }
}

/// `tenure dead-letters list`.
async fn list(
    client: &Client,
    args: DeadLetterListArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut filter = filter::filter(args.filter, Utc::now())?;
    filter.statuses = statuses(&args.statuses);
    let order = if args.oldest_first {
        Order::OldestFirst
    } else {
        Order::LatestFirst
    };
    let (letters, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListDeadLettersRequest {
            page_size,
            page_token,
            filter: Some(filter.clone()),
            order: order.into(),
            ..v1::ListDeadLettersRequest::default()
        };
        let call = |request| {
            let mut letters = client.dead_letters();
            async move { letters.list_dead_letters(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.dead_letters, page.next_page_token))
    })
    .await?;
    let list = view::DeadLetterList {
        dead_letters: letters.into_iter().map(view::DeadLetter::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        if list.dead_letters.is_empty() {
            return NOTHING.to_owned();
        }
        let mut text = letters_table(&list.dead_letters);
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

/// The statuses to ask for; none where any will do.
fn statuses(args: &[StatusArg]) -> Vec<i32> {
    if args.contains(&StatusArg::Any) {
        return Vec::new();
    }
    let statuses = args.iter().filter_map(|status| status.status());
    statuses.map(i32::from).collect()
}

/// Letters, one a line.
fn letters_table(letters: &[view::DeadLetter]) -> String {
    let header = [
        "DEAD LETTER",
        "TYPE",
        "QUEUE",
        "USER",
        "STATUS",
        "FAILURES",
        "LAST FAILURE",
        "CODE",
        "MESSAGE",
    ];
    table(&header, letters.iter().map(row))
}

fn row(letter: &view::DeadLetter) -> Vec<String> {
    let (code, message) = code_and_message(letter.error.as_ref());
    vec![
        letter.dead_letter_id.clone(),
        letter.job_type.clone().unwrap_or_default(),
        letter.queue.clone(),
        letter.user_id.clone().unwrap_or_default(),
        letter.status.clone(),
        letter.failures.to_string(),
        letter.last_failure_time.clone().unwrap_or_default(),
        code,
        message,
    ]
}

/// An error's code, and the beginning of its message.
fn code_and_message(error: Option<&view::JobError>) -> (String, String) {
    error.map_or_else(Default::default, |error| {
        (error.code.clone(), cut(&error.message, SHOWN_MESSAGE))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn parse(line: &[&str]) -> Option<DeadLetterVerb> {
        let line = ["tenure", "dead-letters"].iter().chain(line);
        match Cli::try_parse_from(line).ok()?.verb {
            Verb::DeadLetters { verb } => Some(verb),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn open_letters_are_listed_unless_others_are_asked_for() {
        let listed = |line: &[&str]| match parse(line) {
            Some(DeadLetterVerb::List(args)) => statuses(&args.statuses),
            other => panic!("{other:?}"),
        };
        let open = i32::from(v1::DeadLetterStatus::Open);
        let ignored = i32::from(v1::DeadLetterStatus::Ignored);
        assert_eq!(listed(&["list"]), [open]);
        assert_eq!(
            listed(&["list", "--status", "ignored,open"]),
            [ignored, open]
        );
        assert!(listed(&["list", "--status", "any"]).is_empty());
    }

    #[test]
    fn a_reason_is_required_where_something_changes() {
        for verb in ["replay", "ignore", "resolve", "reopen"] {
            assert!(parse(&[verb, "d", "--reason", "r"]).is_some(), "{verb}");
            assert!(parse(&[verb, "-", "--reason", "r"]).is_some(), "{verb}");
            assert!(parse(&[verb, "d"]).is_none(), "{verb}");
            assert!(parse(&[verb, "--reason", "r"]).is_none(), "{verb}");
        }
        assert!(parse(&["operations", "pause", "o"]).is_none());
        assert!(parse(&["operations", "set-rate", "o", "5", "--reason", "r"]).is_some());
        assert!(parse(&["operations", "set-rate", "o", "0", "--reason", "r"]).is_none());
    }

    #[test]
    fn a_bulk_replay_needs_a_filter_or_all_and_never_both() {
        // What is missing is told by the verb itself.
        assert!(parse(&["bulk-replay"]).is_some());
        assert!(parse(&["bulk-replay", "--all"]).is_some());
        assert!(parse(&["bulk-replay", "--code", "X"]).is_some());
        assert!(parse(&["bulk-replay", "--code", "X", "--all"]).is_none());
        assert!(parse(&["bulk-replay", "--all", "--yes"]).is_none());
        assert!(parse(&["bulk-replay", "--all", "--wait"]).is_none());
        assert!(parse(&["bulk-replay", "--all", "--yes", "--reason", "r", "--wait"]).is_some());
    }

    #[test]
    fn causes_are_groups_too() {
        assert!(matches!(
            parse(&["groups"]),
            Some(DeadLetterVerb::Causes(_))
        ));
    }

    #[test]
    fn a_letter_takes_one_line_however_long_its_message_is() {
        let letter = view::DeadLetter::from(v1::DeadLetter {
            dead_letter_id: "d".to_owned(),
            error: Some(v1::JobError {
                code: "X".to_owned(),
                message: format!("two\nlines\u{1b}[2J {}", "x".repeat(500)),
                ..v1::JobError::default()
            }),
            ..v1::DeadLetter::default()
        });
        let text = letters_table(&[letter]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"two\nlines\u{1b}[2J xxx"), "{text}");
        assert!(text.ends_with("…\n"), "{text}");
    }
}
