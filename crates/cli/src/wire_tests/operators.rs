//! What operators ask for reaches the service.

use chrono::Utc;
use clap::Parser as _;
use tenure_proto::v1;

use super::peer::peer;
use crate::args::{CancelArgs, Cli, Verb};
use crate::errors::Exit;
use crate::output::{Format, Output};
use crate::{jobs, operator, queues};

fn parse(line: &[&str]) -> Verb {
    let line = ["tenure"].iter().chain(line);
    Cli::try_parse_from(line).expect("parses").verb
}

fn cancel(line: &[&str]) -> CancelArgs {
    match parse(&[&["cancel"], line].concat()) {
        Verb::Cancel(args) => args,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cancel_by_filter_counts_unless_it_is_told_to_go_on() {
    let (peer, client) = peer().await;
    let mut out = Output::new(Format::Json);
    let filters = [
        "--state",
        "pending,retrying",
        "--type",
        "t",
        "--queue",
        "q",
        "--user",
        "u",
        "--label",
        "a=b",
        "--reason",
        "why",
    ];
    let exit = jobs::cancel_many(&client, cancel(&filters), &mut out).await;
    assert_eq!(exit.expect("counts"), Exit::Ok);
    let yes = [&filters[..], &["--yes"]].concat();
    let exit = jobs::cancel_many(&client, cancel(&yes), &mut out).await;
    assert_eq!(exit.expect("cancels"), Exit::Ok);
    let seen = peer.0.lock().expect("no panic before");
    let pages: Vec<_> = seen
        .cancels
        .iter()
        .map(|it| (it.dry_run, it.page_token.as_str()))
        .collect();
    assert_eq!(
        pages,
        [(true, ""), (true, "second"), (false, ""), (false, "second")]
    );
    let last = &seen.cancels[3];
    let states: Vec<_> = last.states().collect();
    assert_eq!(states, [v1::JobState::Pending, v1::JobState::Retrying]);
    assert_eq!(
        (
            last.job_type.as_str(),
            last.queue.as_str(),
            last.user_id.as_str(),
            last.reason.as_str()
        ),
        ("t", "q", "u", "why")
    );
    assert_eq!(last.labels.get("a").map(String::as_str), Some("b"));
}

#[tokio::test]
async fn a_cancel_by_filter_that_is_refused_halfway_is_told() {
    let (peer, client) = peer().await;
    peer.0.lock().expect("no panic before").refused_page = Some("second".to_owned());
    let mut out = Output::new(Format::Table);
    let failure = jobs::cancel_many(&client, cancel(&["--type", "t", "--yes"]), &mut out)
        .await
        .expect_err("is refused");
    assert_eq!(failure.exit, Exit::NotAllowed);
    assert_eq!(peer.0.lock().expect("no panic before").cancels.len(), 1);
}

#[tokio::test]
async fn times_numbers_and_reasons_reach_the_service() {
    let (peer, client) = peer().await;
    let mut out = Output::new(Format::Table);
    let Verb::RetryNow(args) = parse(&["retry-now", "j", "--reason", "a"]) else {
        panic!("another verb");
    };
    let exit = jobs::retry_now(&client, args, &mut out).await;
    assert_eq!(exit.expect("is done"), Exit::Ok);
    let Verb::Reschedule(args) = parse(&["reschedule", "j", "--in", "1h", "--reason", "b"]) else {
        panic!("another verb");
    };
    let before = Utc::now().timestamp();
    let exit = jobs::reschedule(&client, args, &mut out).await;
    assert_eq!(exit.expect("is done"), Exit::Ok);
    let Verb::SetAttempts(args) = parse(&["set-attempts", "j", "7", "--reason", "c"]) else {
        panic!("another verb");
    };
    let failure = jobs::set_attempts(&client, args, &mut out)
        .await
        .expect_err("an answer without a job");
    assert!(
        failure.message.contains("without a job"),
        "{}",
        failure.message
    );
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.asked[0], ("a".to_owned(), 0));
    assert_eq!(seen.asked[1].0, "b");
    assert!((before + 3600..=before + 3700).contains(&seen.asked[1].1));
    assert_eq!(seen.asked[2], ("c".to_owned(), 7));
}

#[tokio::test]
async fn an_explanation_asks_for_the_timeline_and_a_get_does_not() {
    let (peer, client) = peer().await;
    let mut out = Output::new(Format::Json);
    let (Verb::Explain(explain), Verb::Get(get)) = (parse(&["explain", "j"]), parse(&["get", "j"]))
    else {
        panic!("other verbs");
    };
    jobs::explain(&client, explain, &mut out)
        .await
        .expect("explains");
    jobs::get(&client, get, &mut out).await.expect("shows");
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.views, [v1::JobView::Full, v1::JobView::Basic]);
}

#[tokio::test]
async fn a_pause_of_a_queue_and_its_end_reach_the_service() {
    let (peer, client) = peer().await;
    let mut out = Output::new(Format::Table);
    for line in [
        &["queues", "pause", "q", "--reason", "new disks"][..],
        &["queues", "resume", "q"],
        &["queues"],
    ] {
        let Verb::Queues { verb } = parse(line) else {
            panic!("another verb");
        };
        let exit = queues::run(&client, verb, &mut out).await;
        assert_eq!(exit.expect("is done"), Exit::Ok);
    }
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(
        seen.pauses,
        [
            ("q".to_owned(), Some("new disks".to_owned())),
            ("q".to_owned(), None),
        ]
    );
}

#[tokio::test]
async fn workers_are_for_operators() {
    let (_peer, client) = peer().await;
    let mut out = Output::new(Format::Json);
    let failure = operator::workers(&client, &mut out)
        .await
        .expect_err("is refused");
    assert_eq!(failure.exit, Exit::NotAllowed);
}
