//! `dead-letters operations`.

use anyhow::Context as _;
use tenure_proto::v1;
use tenure_proto::v1::control_bulk_replay_request::Verb;

use super::decide::results_table;
use super::filter::options;
use super::follow;
use crate::args::{OperationVerb, OutcomesArgs, Paging};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::{READ_REPEATS, next_text};
use crate::output::{Output, cut, pairs, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::shell::Line;
use crate::view::Next;
use crate::view::bulk_replays::{BulkAction, BulkReplay, BulkReplayList, ShownBulkReplay};
use crate::view::dead_letters::{LetterResult, OutcomeList};

/// So many characters of a reason stand in the table.
const SHOWN_REASON: usize = 40;
const NO_ANSWER: &str = "the dead-letter admin answered without a bulk replay";

/// `tenure dead-letters operations`.
pub(super) async fn run(
    client: &Client,
    verb: OperationVerb,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = |id, verb: Verb, rate, reason| v1::ControlBulkReplayRequest {
        bulk_replay_id: id,
        verb: verb.into(),
        rate_per_second: rate,
        reason,
    };
    let request = match verb {
        OperationVerb::List(paging) => return list(client, paging, out).await,
        OperationVerb::Show { id } => {
            let (bulk, actions) = get_with_actions(client, &id).await?;
            let shown = ShownBulkReplay {
                bulk_replay: BulkReplay::from(bulk),
                actions: actions.into_iter().map(BulkAction::from).collect(),
            };
            out.emit(&shown, shown_text)?;
            return Ok(Exit::Ok);
        }
        OperationVerb::Watch { id } => {
            let bulk = get(client, &id).await?;
            return follow::follow(client, bulk, out).await;
        }
        OperationVerb::Outcomes(args) => return outcomes(client, args, out).await,
        OperationVerb::Pause(args) => request(args.id, Verb::Pause, 0, args.reason),
        OperationVerb::Resume(args) => request(
            args.id,
            Verb::Resume,
            args.rate.unwrap_or_default(),
            args.reason,
        ),
        OperationVerb::Cancel(args) => request(args.id, Verb::Cancel, 0, args.reason),
        OperationVerb::SetRate(args) => request(args.id, Verb::SetRate, args.rate, args.reason),
    };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.control_bulk_replay(request).await }
    };
    // Of an answer that was lost one does not know; `operations show` tells.
    let answer = client.unary(0, request, call).await?;
    let bulk = BulkReplay::from(answer.bulk_replay.context(NO_ANSWER)?);
    out.emit(&bulk, replay_text)?;
    Ok(Exit::Ok)
}

/// Reads a bulk replay.
pub(super) async fn get(client: &Client, id: &str) -> Result<v1::BulkReplay, Failure> {
    Ok(get_with_actions(client, id).await?.0)
}

async fn get_with_actions(
    client: &Client,
    id: &str,
) -> Result<(v1::BulkReplay, Vec<v1::BulkReplayAction>), Failure> {
    let request = v1::GetBulkReplayRequest {
        bulk_replay_id: id.to_owned(),
    };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.get_bulk_replay(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    Ok((answer.bulk_replay.context(NO_ANSWER)?, answer.actions))
}

async fn list(client: &Client, paging: Paging, out: &mut Output) -> Result<Exit, Failure> {
    let (bulks, next) = pages(paging, async |page_size, page_token| {
        let request = v1::ListBulkReplaysRequest {
            page_size,
            page_token,
        };
        let call = |request| {
            let mut letters = client.dead_letters();
            async move { letters.list_bulk_replays(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.bulk_replays, page.next_page_token))
    })
    .await?;
    let list = BulkReplayList {
        bulk_replays: bulks.into_iter().map(BulkReplay::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, list_text)?;
    Ok(Exit::Ok)
}

fn list_text(list: &BulkReplayList) -> String {
    let header = [
        "BULK REPLAY",
        "STATE",
        "EXAMINED",
        "REPLAYED",
        "RATE",
        "BY",
        "STARTED",
        "ENDED",
        "REASON",
    ];
    let rows = list.bulk_replays.iter().map(|it| {
        vec![
            it.bulk_replay_id.clone(),
            it.state.clone(),
            format!("{}/{}", it.examined, it.matching),
            it.replayed.to_string(),
            format!("{}/s", it.rate_per_second),
            it.actor.clone(),
            it.start_time.clone().unwrap_or_default(),
            it.end_time.clone().unwrap_or_default(),
            cut(&it.reason, SHOWN_REASON),
        ]
    });
    let mut text = table(&header, rows);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    text
}

async fn outcomes(client: &Client, args: OutcomesArgs, out: &mut Output) -> Result<Exit, Failure> {
    let outcome = args.outcome.map_or(
        v1::DeadLetterOutcome::Unspecified,
        v1::DeadLetterOutcome::from,
    );
    let (results, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListBulkReplayOutcomesRequest {
            bulk_replay_id: args.id.clone(),
            page_size,
            page_token,
            outcome: outcome.into(),
        };
        let call = |request| {
            let mut letters = client.dead_letters();
            async move { letters.list_bulk_replay_outcomes(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.results, page.next_page_token))
    })
    .await?;
    let list = OutcomeList {
        results: results.into_iter().map(LetterResult::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        if list.results.is_empty() {
            return NOTHING.to_owned();
        }
        let mut text = results_table(&list.results);
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

/// A bulk replay for people.
pub(super) fn replay_text(it: &BulkReplay) -> String {
    facts(it) + &not_the_end(it) + &what_next(it)
}

/// That a replay puts jobs back, and says nothing of how they end.
fn not_the_end(it: &BulkReplay) -> String {
    match it.replayed {
        0 if it.state == "done" => "no letter was replayed\n".to_owned(),
        0 => String::new(),
        _ => "`replayed` counts the jobs that were put back to run, however they end: with `outcomes` \
             a letter is `replayed` while its job has not ended, then `resolved`, or `open` where \
             the job has failed again\n"
            .to_owned(),
    }
}

/// The same with who steered it.
fn shown_text(shown: &ShownBulkReplay) -> String {
    let it = &shown.bulk_replay;
    let mut text = facts(it) + &not_the_end(it);
    if !shown.actions.is_empty() {
        text.push_str("\nwhat was done:\n");
        text.push_str(&actions_table(&shown.actions));
    }
    text + &what_next(it)
}

fn actions_table(actions: &[BulkAction]) -> String {
    let header = ["TIME", "ACTION", "BY", "FROM → TO", "RATE", "REASON"];
    let rows = actions.iter().map(|it| {
        let change = it.state_before.as_ref().map_or_else(
            || format!("→ {}", it.state_after),
            |before| format!("{before} → {}", it.state_after),
        );
        vec![
            it.time.clone().unwrap_or_default(),
            it.action.clone(),
            it.actor.clone(),
            change,
            format!("{}/s", it.rate_per_second),
            cut(&it.reason, SHOWN_REASON),
        ]
    });
    table(&header, rows)
}

fn what_next(it: &BulkReplay) -> String {
    format!("\nwhat you can do:\n{}", next_text(&next(it)))
}

fn facts(it: &BulkReplay) -> String {
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
    let some = |count: i64| Some(count).filter(|count| *count > 0);
    let counted = |count| some(count).map(|count: i64| count.to_string());
    let letters = options(Line::new([]), &it.filter).text();
    let letters = match letters.strip_prefix("tenure ") {
        Some(options) => options.to_owned(),
        None => "all open ones".to_owned(),
    };
    pairs([
        ("bulk replay", it.bulk_replay_id.clone()),
        ("state", it.state.clone()),
        ("letters", letters),
        ("rate", format!("{} a second", it.rate_per_second)),
        ("reason", it.reason.clone()),
        ("by", it.actor.clone()),
        ("started", or_empty(&it.start_time)),
        ("moved last", or_empty(&it.progress_time)),
        ("ended", or_empty(&it.end_time)),
        ("examined", format!("{} of {}", it.examined, it.matching)),
        ("replayed", it.replayed.to_string()),
        ("already done", counted(it.already_done).unwrap_or_default()),
        ("key taken", counted(it.key_taken).unwrap_or_default()),
        (
            "not replayable",
            counted(it.not_replayable).unwrap_or_default(),
        ),
        ("changed", counted(it.changed).unwrap_or_default()),
    ])
}

/// What one can do about a bulk replay.
fn next(it: &BulkReplay) -> Vec<Next> {
    let id = it.bulk_replay_id.as_str();
    let line = |verb| Line::new(["dead-letters", "operations", verb, id]);
    let step = |line: Line, does: &str| Next {
        command: line.text(),
        does: does.to_owned(),
    };
    let cancel = || step(line("cancel").why(), "ends it; what is replayed stays so");
    let outcomes = || {
        step(
            line("outcomes"),
            "lists what became of each letter, and how it stands now",
        )
    };
    match it.state.as_str() {
        "running" => vec![
            step(line("watch"), "follows it until it ends"),
            step(line("pause").why(), "halts it"),
            cancel(),
        ],
        "paused" => vec![step(line("resume").why(), "lets it go on"), cancel()],
        _ if it.key_taken > 0 => vec![
            outcomes(),
            step(
                line("outcomes").option("--outcome", Some("key-taken")),
                "lists those whose dedupe key another job has",
            ),
        ],
        _ => vec![outcomes()],
    }
}

#[cfg(test)]
mod tests {
    use v1::bulk_replay::State;

    use super::*;

    fn bulk(state: State) -> BulkReplay {
        BulkReplay::from(v1::BulkReplay {
            bulk_replay_id: "o".to_owned(),
            state: state.into(),
            matching: 10,
            examined: 4,
            replayed: 3,
            key_taken: 1,
            rate_per_second: 50,
            reason: "it\u{1b}".to_owned(),
            ..v1::BulkReplay::default()
        })
    }

    #[test]
    fn what_can_be_done_follows_from_the_state_and_can_be_typed() {
        use clap::Parser as _;
        for (state, verbs) in [
            (State::Running, vec!["watch", "pause", "cancel"]),
            (State::Paused, vec!["resume", "cancel"]),
            (State::Done, vec!["outcomes", "outcomes"]),
            (State::Cancelled, vec!["outcomes", "outcomes"]),
        ] {
            let next = next(&bulk(state));
            let found: Vec<&str> = next
                .iter()
                .filter_map(|it| it.command.split(' ').nth(3))
                .collect();
            assert_eq!(found, verbs);
            for it in next {
                let line = it.command.replace('\'', "");
                let parsed = crate::args::Cli::try_parse_from(line.split(' '));
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
            }
        }
    }

    #[test]
    fn who_steered_it_is_shown() {
        let action = |before: State, after: State, action: &str| v1::BulkReplayAction {
            action: action.to_owned(),
            actor: "olga\u{1b}".to_owned(),
            state_before: before.into(),
            state_after: after.into(),
            rate_per_second: 7,
            ..v1::BulkReplayAction::default()
        };
        let actions = [
            action(State::Unspecified, State::Running, "start"),
            action(State::Running, State::Paused, "pause"),
        ];
        let text = shown_text(&ShownBulkReplay {
            bulk_replay: bulk(State::Paused),
            actions: actions.into_iter().map(BulkAction::from).collect(),
        });
        assert!(text.contains("→ running"), "{text}");
        assert!(text.contains("running → paused"), "{text}");
        assert!(
            text.contains(r"olga\u{1b}") && text.contains("7/s"),
            "{text}"
        );
        assert!(text.ends_with(&what_next(&bulk(State::Paused))), "{text}");
    }

    #[test]
    fn a_bulk_replay_is_shown_with_its_letters_and_counts() {
        let mut it = bulk(State::Running);
        let text = replay_text(&it);
        assert!(text.contains("all open ones"), "{text}");
        assert!(text.contains("4 of 10"), "{text}");
        assert!(text.contains(r"it\u{1b}"), "{text}");
        assert!(!text.contains("not replayable"), "{text}");
        assert!(text.contains("however they end: with `outcomes`"), "{text}");
        let none = BulkReplay {
            replayed: 0,
            ..bulk(State::Done)
        };
        let text_of_none = replay_text(&none);
        assert!(
            text_of_none.contains("no letter was replayed"),
            "{text_of_none}"
        );
        it.filter.queue = Some("a b".to_owned());
        assert!(replay_text(&it).contains("--queue 'a b'\n"));
        let list = list_text(&BulkReplayList {
            bulk_replays: vec![it],
            next_page_token: None,
        });
        assert!(list.contains("4/10"), "{list}");
        assert!(list.contains(r"it\u{1b}"), "{list}");
    }
}
