//! `dead-letters show`.

use std::fmt::Write as _;

use anyhow::Context as _;
use tenure_proto::v1;

use super::payload::payload_text;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::{READ_REPEATS, next_text, timeline_table};
use crate::output::{Output, block, escape, pairs, table};
use crate::shell::Line;
use crate::view::dead_letters::{Action, ShownLetter};
use crate::view::{self, Next};

/// `tenure dead-letters show`.
pub(super) async fn show(client: &Client, id: String, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::GetDeadLetterRequest { dead_letter_id: id };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.get_dead_letter(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let letter = answer
        .dead_letter
        .context("the dead-letter admin answered without a dead letter")?;
    let letter = view::DeadLetter::from(letter);
    let shown = ShownLetter {
        next: next(&letter),
        letter,
        actions: answer.actions.into_iter().map(Action::from).collect(),
        timeline: answer
            .timeline
            .into_iter()
            .map(view::JobEvent::from)
            .collect(),
    };
    out.emit(&shown, text)?;
    Ok(Exit::Ok)
}

/// What one can do about a letter.
fn next(letter: &view::DeadLetter) -> Vec<Next> {
    let id = letter.dead_letter_id.as_str();
    let decide = |verb: &str, does: &str| Next {
        command: Line::new(["dead-letters", verb, id]).why().text(),
        does: does.to_owned(),
    };
    let mut steps = Vec::new();
    match letter.status.as_str() {
        "open" => {
            if letter.replayable {
                steps.push(decide("replay", "runs its job again"));
            }
            steps.push(decide("ignore", "sets it aside"));
            steps.push(decide("resolve", "notes that it is dealt with"));
        }
        "ignored" => {
            steps.push(decide("reopen", "opens it again"));
            steps.push(decide("resolve", "notes that it is dealt with"));
        }
        "resolved" => steps.push(decide("reopen", "opens it again")),
        _ => {}
    }
    if let Some(job) = &letter.job_id {
        steps.push(Next {
            command: Line::new(["explain", job]).text(),
            does: "says how its job stands".to_owned(),
        });
    }
    if let Some(cause) = &letter.cause_id {
        steps.push(Next {
            command: Line::new(["dead-letters", "list", "--cause", cause]).text(),
            does: "lists the open letters with the same cause".to_owned(),
        });
    }
    steps
}

fn text(shown: &ShownLetter) -> String {
    let letter = &shown.letter;
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
    let labels: Vec<String> = letter
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    let status = match &letter.status_time {
        Some(time) => format!("{}, since {time}", letter.status),
        None => letter.status.clone(),
    };
    let mut text = pairs([
        ("dead letter", letter.dead_letter_id.clone()),
        ("job", or_empty(&letter.job_id)),
        ("message key", letter.message_key.clone()),
        ("type", or_empty(&letter.job_type)),
        ("queue", letter.queue.clone()),
        ("user", or_empty(&letter.user_id)),
        ("status", status),
        (
            "replayable",
            if letter.replayable { "yes" } else { "no" }.to_owned(),
        ),
        ("last replay", or_empty(&letter.replay_id)),
        ("attempts", letter.attempts.to_string()),
        ("failures", letter.failures.to_string()),
        ("first failure", or_empty(&letter.first_failure_time)),
        ("last failure", or_empty(&letter.last_failure_time)),
        ("cause", or_empty(&letter.cause_id)),
        ("trace", or_empty(&letter.trace_parent)),
        ("labels", labels.join(", ")),
    ]);
    if let Some(error) = &letter.error {
        let (code, class) = (escape(&error.code), escape(&error.error_class));
        let _ = writeln!(text, "\nerror: {code} ({class})");
        text.push_str(&block(&error.message));
    }
    text.push_str(&payload_text(letter));
    if let Some(properties) = &letter.message_properties {
        text.push_str("\nproperties and headers of the message:\n");
        text.push_str(&block(properties.get()));
    }
    if !shown.actions.is_empty() {
        text.push_str("\nwhat was done:\n");
        text.push_str(&actions_table(&shown.actions));
    }
    if letter.job_id.is_some() {
        text.push_str("\nwhat happened to its job:\n");
        text.push_str(&timeline_table(&shown.timeline));
    }
    if !shown.next.is_empty() {
        text.push_str("\nwhat you can do:\n");
        text.push_str(&next_text(&shown.next));
    }
    text
}

fn actions_table(actions: &[Action]) -> String {
    let header = ["TIME", "ACTION", "BY", "FROM → TO", "BULK REPLAY", "REASON"];
    let rows = actions.iter().map(|it| {
        vec![
            it.time.clone().unwrap_or_default(),
            it.action.clone(),
            it.actor.clone().unwrap_or_else(|| "the system".to_owned()),
            format!("{} → {}", it.status_before, it.status_after),
            it.bulk_replay_id.clone().unwrap_or_default(),
            it.reason.clone(),
        ]
    });
    table(&header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(status: v1::DeadLetterStatus) -> view::DeadLetter {
        view::DeadLetter::from(v1::DeadLetter {
            dead_letter_id: "d".to_owned(),
            job_id: "j".to_owned(),
            cause_id: "c".to_owned(),
            status: status.into(),
            replayable: true,
            error: Some(v1::JobError {
                code: "X".to_owned(),
                message: "one\ntwo\u{1b}".to_owned(),
                ..v1::JobError::default()
            }),
            ..v1::DeadLetter::default()
        })
    }

    #[test]
    fn what_can_be_done_follows_from_the_status_and_can_be_typed() {
        use clap::Parser as _;
        let commands = |letter: &view::DeadLetter| {
            let commands = next(letter).into_iter().map(|it| it.command);
            commands.collect::<Vec<_>>()
        };
        let open = commands(&letter(v1::DeadLetterStatus::Open));
        assert!(open[0].contains("replay d"), "{open:?}");
        let mut unreadable = letter(v1::DeadLetterStatus::Open);
        unreadable.replayable = false;
        unreadable.job_id = None;
        let unreadable = commands(&unreadable);
        assert!(
            unreadable.iter().all(|it| !it.contains("replay")),
            "{unreadable:?}"
        );
        let ignored = commands(&letter(v1::DeadLetterStatus::Ignored));
        assert!(ignored[0].contains("reopen d"), "{ignored:?}");
        let replayed = commands(&letter(v1::DeadLetterStatus::Replayed));
        assert_eq!(
            replayed,
            ["tenure explain j", "tenure dead-letters list --cause c"]
        );
        for command in [open, unreadable, ignored, replayed].concat() {
            let line = command.replace('\'', "");
            let parsed = crate::args::Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
        }
    }

    #[test]
    fn all_is_shown_and_nothing_reaches_the_terminal() {
        let letter = letter(v1::DeadLetterStatus::Ignored);
        let text = text(&ShownLetter {
            next: next(&letter),
            letter,
            actions: vec![Action::from(v1::DeadLetterAction {
                action: "ignore".to_owned(),
                reason: "no\u{9b}ise".to_owned(),
                status_before: v1::DeadLetterStatus::Open.into(),
                status_after: v1::DeadLetterStatus::Ignored.into(),
                ..v1::DeadLetterAction::default()
            })],
            timeline: Vec::new(),
        });
        assert!(
            text.contains("\nerror: X (unspecified)\n  one\n  two\\u{1b}\n"),
            "{text}"
        );
        assert!(text.contains(r"no\u{9b}ise"), "{text}");
        assert!(text.contains("the system"), "{text}");
        assert!(text.contains("open → ignored"), "{text}");
        assert!(text.contains("nothing is recorded of its runs"), "{text}");
        assert!(text.contains("  tenure dead-letters reopen d"), "{text}");
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
    }
}
