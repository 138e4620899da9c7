//! `dead-letters replay`, `ignore`, `resolve` and `reopen`.

use std::collections::BTreeMap;

use tenure_proto::v1;

use crate::args::DecideArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, table};
use crate::progress::{Meter, Unit};
use crate::values::read_ids;
use crate::view::dead_letters::{Decided, LetterResult};

/// So many letters go with one call.
const CHUNK: usize = 1000;

/// What to do about letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// Run their jobs again.
    Replay,
    /// Set them aside.
    Ignore,
    /// Note that they are dealt with.
    Resolve,
    /// Open them again.
    Reopen,
}

/// Does it to all letters that are named, in chunks. What was done before a chunk failed
/// is told all the same.
pub(super) async fn run(
    client: &Client,
    decision: Decision,
    args: DecideArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let ids = read_ids(args.ids)?;
    let mut meter = (ids.len() > CHUNK).then(|| Meter::new("dead letters", Unit::Steps));
    let mut results: Vec<LetterResult> = Vec::with_capacity(ids.len());
    let mut failure = None;
    for chunk in ids.chunks(CHUNK) {
        match send(client, decision, chunk.to_vec(), args.reason.clone()).await {
            Ok(answer) => results.extend(answer.into_iter().map(LetterResult::from)),
            Err(problem) if results.is_empty() => return Err(problem),
            Err(problem) => {
                let hint = format!(
                    "{} of {} letters were looked at before; the same command goes on, and leaves alone what is done",
                    results.len(),
                    ids.len()
                );
                failure = Some(problem.hint(hint));
                break;
            }
        }
        if let Some(meter) = &mut meter {
            meter.set(results.len() as u64, ids.len() as u64, "");
        }
    }
    drop(meter);
    let decided = Decided {
        counts: counts(&results),
        results,
    };
    out.emit(&decided, text)?;
    match failure {
        Some(failure) => Err(failure),
        None => Ok(exit(&decided)),
    }
}

/// A lost answer is asked for again: what the first call did is "already done" then.
async fn send(
    client: &Client,
    decision: Decision,
    dead_letter_ids: Vec<String>,
    reason: String,
) -> Result<Vec<v1::DeadLetterResult>, Failure> {
    macro_rules! call {
        ($request:ident, $method:ident) => {{
            let request = v1::$request {
                dead_letter_ids,
                reason,
            };
            let call = |request| {
                let mut letters = client.dead_letters();
                async move { letters.$method(request).await }
            };
            client.unary(READ_REPEATS, request, call).await?.results
        }};
    }
    Ok(match decision {
        Decision::Replay => call!(ReplayDeadLettersRequest, replay_dead_letters),
        Decision::Ignore => call!(IgnoreDeadLettersRequest, ignore_dead_letters),
        Decision::Resolve => call!(ResolveDeadLettersRequest, resolve_dead_letters),
        Decision::Reopen => call!(ReopenDeadLettersRequest, reopen_dead_letters),
    })
}

fn counts(results: &[LetterResult]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for result in results {
        *counts.entry(result.outcome.clone()).or_default() += 1;
    }
    counts
}

/// Only where all letters are as they should be it worked.
fn exit(decided: &Decided) -> Exit {
    let good = |outcome: &String| matches!(outcome.as_str(), "done" | "already_done");
    if decided.counts.keys().all(good) {
        Exit::Ok
    } else {
        Exit::Failed
    }
}

fn text(decided: &Decided) -> String {
    let mut text = results_table(&decided.results);
    let sums: Vec<String> = decided
        .counts
        .iter()
        .map(|(outcome, count)| format!("{count} {}", crate::output::escape(&words(outcome))))
        .collect();
    text.push_str(&sums.join(", "));
    text.push('\n');
    text
}

/// The outcomes of letters, one a line.
pub(super) fn results_table(results: &[LetterResult]) -> String {
    let header = ["DEAD LETTER", "OUTCOME", "STATUS", "REPLAY", "MESSAGE"];
    let rows = results.iter().map(|it| {
        vec![
            it.dead_letter_id.clone(),
            words(&it.outcome),
            known(&it.status),
            it.replay_id.clone().unwrap_or_default(),
            it.message.clone(),
        ]
    });
    table(&header, rows)
}

/// `key_taken` as people write it. `changed` is said of a letter that had changed before, and
/// was left alone.
fn words(outcome: &str) -> String {
    match outcome {
        "changed" => "not changed".to_owned(),
        other => other.replace('_', " "),
    }
}

/// The status of a letter; a letter that is not there has none.
fn known(status: &str) -> String {
    match status {
        "unspecified" => String::new(),
        status => status.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(outcomes: &[v1::DeadLetterOutcome]) -> Decided {
        let results: Vec<_> = outcomes
            .iter()
            .map(|outcome| {
                LetterResult::from(v1::DeadLetterResult {
                    dead_letter_id: "d".to_owned(),
                    outcome: (*outcome).into(),
                    status: v1::DeadLetterStatus::Open.into(),
                    message: "job\u{1b} x".to_owned(),
                    ..v1::DeadLetterResult::default()
                })
            })
            .collect();
        Decided {
            counts: counts(&results),
            results,
        }
    }

    #[test]
    fn one_letter_that_was_not_done_is_a_failure() {
        use v1::DeadLetterOutcome as Outcome;
        assert_eq!(
            exit(&decided(&[Outcome::Done, Outcome::AlreadyDone])),
            Exit::Ok
        );
        for outcome in [
            Outcome::KeyTaken,
            Outcome::NotReplayable,
            Outcome::Changed,
            Outcome::NotFound,
            Outcome::Unspecified,
        ] {
            assert_eq!(
                exit(&decided(&[Outcome::Done, outcome])),
                Exit::Failed,
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn what_was_left_alone_is_not_said_to_have_changed() {
        let result = |outcome: v1::DeadLetterOutcome, status: v1::DeadLetterStatus, why: &str| {
            LetterResult::from(v1::DeadLetterResult {
                dead_letter_id: "d".to_owned(),
                outcome: outcome.into(),
                status: status.into(),
                message: why.to_owned(),
                ..v1::DeadLetterResult::default()
            })
        };
        let results = vec![
            result(
                v1::DeadLetterOutcome::Changed,
                v1::DeadLetterStatus::Resolved,
                "it is resolved",
            ),
            result(
                v1::DeadLetterOutcome::NotFound,
                v1::DeadLetterStatus::Unspecified,
                "there is none",
            ),
        ];
        let text = text(&Decided {
            counts: counts(&results),
            results,
        });
        let cells = |line: usize| {
            let line = text.lines().nth(line).expect("a line");
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cells(1), "d not changed resolved it is resolved");
        assert_eq!(cells(2), "d not found there is none");
        assert!(text.ends_with("\n1 not changed, 1 not found\n"), "{text}");
    }

    #[test]
    fn each_letter_is_told_and_then_the_sums() {
        use v1::DeadLetterOutcome as Outcome;
        let text = text(&decided(&[Outcome::Done, Outcome::KeyTaken, Outcome::Done]));
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains(r"job\u{1b} x"), "{text}");
        assert!(text.ends_with("\n2 done, 1 key taken\n"), "{text}");
    }
}
