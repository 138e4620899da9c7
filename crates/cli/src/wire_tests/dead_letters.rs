//! The verbs about dead letters against a dead-letter admin of the test.

use clap::Parser as _;
use tenure_proto::v1;

use super::admin::admin;
use crate::args::{Cli, Verb};
use crate::client::Client;
use crate::dead_letters;
use crate::errors::{Exit, Failure};
use crate::output::{Format, Output};

/// Runs `tenure dead-letters` with these words.
async fn run(client: &Client, words: &[&str]) -> Result<Exit, Failure> {
    let line = ["tenure", "dead-letters"].iter().chain(words);
    let Verb::DeadLetters { verb } = Cli::try_parse_from(line).expect("parses").verb else {
        panic!("another verb");
    };
    dead_letters::run(client, verb, &mut Output::new(Format::Table)).await
}

#[tokio::test]
async fn all_filters_reach_the_list() {
    let (admin, client) = admin().await;
    let words = [
        "list",
        "--status",
        "open,resolved",
        "--queue",
        "q",
        "--type",
        "t",
        "--user",
        "u",
        "--code",
        "X",
        "--class",
        "permanent",
        "--cause",
        "c",
        "--from",
        "1970-01-01T00:00:01Z",
        "--before",
        "1970-01-01T00:00:02Z",
        "--text",
        "50%_",
        "--oldest-first",
        "--limit",
        "7",
    ];
    assert_eq!(run(&client, &words).await.expect("lists"), Exit::Ok);
    let seen = admin.seen();
    let request = &seen.lists[0];
    let second = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    let expected = v1::DeadLetterFilter {
        statuses: vec![
            v1::DeadLetterStatus::Open.into(),
            v1::DeadLetterStatus::Resolved.into(),
        ],
        queue: "q".to_owned(),
        job_type: "t".to_owned(),
        user_id: "u".to_owned(),
        error_code: "X".to_owned(),
        error_class: v1::ErrorClass::Permanent.into(),
        cause_id: "c".to_owned(),
        failed_from: second(1),
        failed_before: second(2),
        text: "50%_".to_owned(),
    };
    assert_eq!(request.filter.as_ref(), Some(&expected));
    assert_eq!(request.page_size, 7);
    assert_eq!(
        request.order(),
        v1::list_dead_letters_request::Order::OldestFirst
    );
    assert!(request.statuses.is_empty() && request.queue.is_empty());
}

#[tokio::test]
async fn causes_and_letters_are_asked_for_as_they_were_named() {
    use v1::list_dead_letter_causes_request::Order;
    let (admin, client) = admin().await;
    run(
        &client,
        &["groups", "--closed", "--order", "newest", "--code", "X"],
    )
    .await
    .expect("lists");
    run(&client, &["show", "d"]).await.expect("shows");
    let seen = admin.seen();
    let request = &seen.causes[0];
    assert_eq!(
        (
            request.include_closed,
            request.order(),
            request.error_code.as_str()
        ),
        (true, Order::NewestFirst, "X")
    );
    assert_eq!(seen.shown, ["d"]);
}

#[tokio::test]
async fn letters_go_in_thousands_and_one_that_was_not_done_shows_in_the_exit_code() {
    let (admin, client) = admin().await;
    let ids: Vec<String> = (0..2001).map(|id| id.to_string()).collect();
    let mut words = vec!["replay", "--reason", "why"];
    words.extend(ids.iter().map(String::as_str));
    assert_eq!(run(&client, &words).await.expect("replays"), Exit::Ok);
    let why = || "why".to_owned();
    assert_eq!(
        admin.seen().decided,
        [
            ("replay", 1000, why()),
            ("replay", 1000, why()),
            ("replay", 1, why())
        ]
    );
    for verb in ["ignore", "resolve", "reopen"] {
        let exit = run(&client, &[verb, "a", "bad", "--reason", "why"]).await;
        assert_eq!(exit.expect("answers"), Exit::Failed, "{verb}");
        assert_eq!(admin.seen().decided.last(), Some(&(verb, 2, why())));
    }
}

#[tokio::test]
async fn a_refusal_halfway_says_how_far_it_came() {
    let (admin, client) = admin().await;
    admin.seen().refuse_from = Some(1);
    let ids: Vec<String> = (0..1500).map(|id| id.to_string()).collect();
    let mut words = vec!["ignore", "--reason", "why"];
    words.extend(ids.iter().map(String::as_str));
    let failure = run(&client, &words).await.expect_err("is refused");
    assert_eq!(failure.exit, Exit::NotAllowed);
    assert!(
        failure
            .hints
            .iter()
            .any(|hint| hint.contains("1000 of 1500 letters")),
        "{:?}",
        failure.hints
    );
}

#[tokio::test]
async fn a_bulk_replay_is_only_previewed_unless_it_is_wanted() {
    let (admin, client) = admin().await;
    let exit = run(&client, &["bulk-replay", "--code", "X"]).await;
    assert_eq!(exit.expect("previews"), Exit::Ok);
    let seen = admin.seen();
    assert!(seen.starts.is_empty());
    assert_eq!(seen.previews[0].error_code, "X");
}

#[tokio::test]
async fn a_bulk_replay_is_begun_once_and_followed_to_its_end() {
    let (admin, client) = admin().await;
    let words = [
        "bulk-replay",
        "--all",
        "--rate",
        "9",
        "--reason",
        "why",
        "--yes",
        "--wait",
    ];
    assert_eq!(run(&client, &words).await.expect("ends"), Exit::Ok);
    let seen = admin.seen();
    assert_eq!(seen.starts.len(), 2);
    assert!(!seen.starts[0].request_id.is_empty());
    assert_eq!(seen.starts[0], seen.starts[1]);
    let start = &seen.starts[0];
    assert_eq!(
        (start.all, start.rate_per_second, start.reason.as_str()),
        (true, 9, "why")
    );
    assert_eq!(seen.reads, 4);
}

#[tokio::test]
async fn a_bulk_replay_is_steered() {
    use v1::control_bulk_replay_request::Verb as Control;
    let (admin, client) = admin().await;
    for words in [
        vec!["pause", "o", "--reason", "a"],
        vec!["resume", "o", "--rate", "3", "--reason", "b"],
        vec!["cancel", "o", "--reason", "c"],
        vec!["set-rate", "o", "7", "--reason", "d"],
        vec!["outcomes", "o", "--outcome", "key-taken"],
    ] {
        let words = [&["operations"], &words[..]].concat();
        assert_eq!(run(&client, &words).await.expect("is done"), Exit::Ok);
    }
    let failure = run(&client, &["operations", "list"]).await;
    assert_eq!(failure.expect_err("is refused").exit, Exit::NotAllowed);
    let seen = admin.seen();
    let asked: Vec<_> = seen
        .controls
        .iter()
        .map(|it| (it.verb(), it.rate_per_second, it.reason.as_str()))
        .collect();
    assert_eq!(
        asked,
        [
            (Control::Pause, 0, "a"),
            (Control::Resume, 3, "b"),
            (Control::Cancel, 0, "c"),
            (Control::SetRate, 7, "d"),
        ]
    );
    assert_eq!(seen.outcomes[0].outcome(), v1::DeadLetterOutcome::KeyTaken);
}
