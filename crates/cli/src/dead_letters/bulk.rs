//! `dead-letters bulk-replay`.

use std::fmt::Write as _;

use anyhow::Context as _;
use chrono::Utc;
use tenure_proto::v1;
use uuid::Uuid;

use super::filter::{filter, options};
use super::operations::replay_text;
use super::{code_and_message, follow, letters_table};
use crate::args::BulkReplayArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::{READ_REPEATS, next_text};
use crate::output::{Output, table};
use crate::shell::Line;
use crate::view::bulk_replays::{BulkReplay, CauseCount, Filter, Preview};
use crate::view::{DeadLetter, Next};

/// How often a start is sent again; its request id makes that safe.
const START_REPEATS: u32 = 3;

/// Tells what it would do; with `--yes` begins it, with `--wait` follows it.
pub(super) async fn run(
    client: &Client,
    args: BulkReplayArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let filter = filter(args.filter, Utc::now())?;
    if !args.all && filter == v1::DeadLetterFilter::default() {
        return Err(undecided());
    }
    if !args.yes {
        let next = next(&filter, args.all, args.rate);
        let preview = preview(client, filter).await?;
        let preview = Preview {
            matching: preview.matching,
            count_cap: preview.count_cap,
            not_replayable: preview.not_replayable,
            causes: preview.causes.into_iter().map(CauseCount::from).collect(),
            samples: preview.samples.into_iter().map(DeadLetter::from).collect(),
            next: if preview.matching == 0 {
                Vec::new()
            } else {
                next
            },
        };
        out.emit(&preview, preview_text)?;
        return Ok(Exit::Ok);
    }
    let request_id = args
        .request_id
        .unwrap_or_else(|| Uuid::new_v4().to_string());
    let request = v1::StartBulkReplayRequest {
        filter: Some(filter),
        all: args.all,
        rate_per_second: args.rate.unwrap_or(0),
        reason: args.reason.unwrap_or_default(),
        request_id: request_id.clone(),
    };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.start_bulk_replay(request).await }
    };
    let answer = client.unary(START_REPEATS, request, call).await;
    let answer = answer.map_err(|failure| match failure.exit {
        Exit::TryLater if failure.outcome_unknown => failure.hint(format!(
            "it may have begun all the same; `--request-id {request_id}` makes it safe to send it again, `tenure dead-letters operations list` shows it"
        )),
        _ => failure,
    })?;
    let begun = answer
        .bulk_replay
        .context("the dead-letter admin answered without a bulk replay")?;
    if args.wait {
        return follow::follow(client, begun, out).await;
    }
    out.emit(&BulkReplay::from(begun), replay_text)?;
    Ok(Exit::Ok)
}

/// Nothing says which letters. All of them are meant only where it is said.
fn undecided() -> Failure {
    Failure::usage("say which letters: some of them by a filter, or every open one")
        .hint("`tenure dead-letters bulk-replay --cause CAUSE` (or --type, --code, --queue, --user, --text, …) takes those that match; `tenure dead-letters causes` lists what broke")
        .hint("`tenure dead-letters bulk-replay --all` takes every open letter; both only tell what they would do until `--yes` is given")
}

/// What a bulk replay with this filter would replay now.
pub(super) async fn preview(
    client: &Client,
    filter: v1::DeadLetterFilter,
) -> Result<v1::PreviewBulkReplayResponse, Failure> {
    let request = v1::PreviewBulkReplayRequest {
        filter: Some(filter),
    };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.preview_bulk_replay(request).await }
    };
    client.unary(READ_REPEATS, request, call).await
}

/// The line that does what was previewed.
fn next(filter: &v1::DeadLetterFilter, all: bool, rate: Option<i32>) -> Vec<Next> {
    let line = Line::new(["dead-letters", "bulk-replay"]).flag("--all", all);
    let rate = rate.map(|rate| rate.to_string());
    let line = options(line, &Filter::from(filter.clone()))
        .option("--rate", rate.as_deref())
        .flag("--yes", true)
        .flag("--wait", true)
        .why();
    vec![Next {
        command: line.text(),
        does: "replays them".to_owned(),
    }]
}

fn preview_text(it: &Preview) -> String {
    if it.matching == 0 {
        return "no open letter matches\n".to_owned();
    }
    let at_least = if it.count_cap > 0 && it.matching >= it.count_cap {
        "at least "
    } else {
        ""
    };
    let mut text = format!("would replay {at_least}{} open letters", it.matching);
    if it.not_replayable > 0 {
        let _ = write!(
            text,
            ", but for {} of them that cannot be replayed",
            it.not_replayable
        );
    }
    text.push('\n');
    if !it.causes.is_empty() {
        text.push_str("\ntheir causes:\n");
        let header = ["LETTERS", "TYPE", "CODE", "CAUSE", "MESSAGE"];
        let rows = it.causes.iter().map(|cause| {
            let (code, message) = code_and_message(cause.error.as_ref());
            vec![
                cause.matching.to_string(),
                cause.job_type.clone().unwrap_or_default(),
                code,
                cause.cause_id.clone(),
                message,
            ]
        });
        text.push_str(&table(&header, rows));
    }
    if !it.samples.is_empty() {
        text.push_str("\nsome of them:\n");
        text.push_str(&letters_table(&it.samples));
    }
    text.push_str("\nnothing was changed; to do it:\n");
    text.push_str(&next_text(&it.next));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview_of(matching: i64) -> Preview {
        Preview {
            matching,
            count_cap: 1000,
            not_replayable: 2,
            causes: vec![CauseCount::from(v1::DeadLetterCauseCount {
                cause_id: "c".to_owned(),
                matching: 7,
                ..v1::DeadLetterCauseCount::default()
            })],
            samples: vec![DeadLetter::from(v1::DeadLetter {
                dead_letter_id: "d1".to_owned(),
                ..v1::DeadLetter::default()
            })],
            next: next(
                &v1::DeadLetterFilter {
                    queue: "q".to_owned(),
                    ..v1::DeadLetterFilter::default()
                },
                false,
                Some(5),
            ),
        }
    }

    #[test]
    fn a_preview_says_how_many_which_and_what_to_type() {
        let text = preview_text(&preview_of(9));
        assert!(
            text.starts_with(
                "would replay 9 open letters, but for 2 of them that cannot be replayed\n"
            ),
            "{text}"
        );
        for part in [
            "\ntheir causes:\n",
            "\nd1 ",
            "  tenure dead-letters bulk-replay --queue q --rate 5 --yes --wait --reason 'WHY'",
            "nothing was changed",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = preview_text(&preview_of(1000));
        assert!(text.starts_with("would replay at least 1000 "), "{text}");
        assert_eq!(preview_text(&preview_of(0)), "no open letter matches\n");
    }

    #[test]
    fn without_a_filter_the_choice_is_told() {
        let failure = undecided();
        assert_eq!(failure.exit, Exit::Usage);
        let text = failure.to_text();
        assert!(text.contains("--all` takes every open letter"), "{text}");
        assert!(text.contains("--cause CAUSE"), "{text}");
        assert!(!text.contains("missing"), "{text}");
    }

    #[test]
    fn all_letters_are_meant_only_where_it_says_so() {
        let next = next(&v1::DeadLetterFilter::default(), true, None);
        assert_eq!(
            next[0].command,
            "tenure dead-letters bulk-replay --all --yes --wait --reason 'WHY'"
        );
    }
}
