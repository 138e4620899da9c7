//! Everything that a filter matches, replayed at a rate, through a crash of the admin.

use tenure_tests::v1::bulk_replay::State;
use tenure_tests::v1::control_bulk_replay_request::Verb;
use tenure_tests::v1::{
    BulkReplay, ControlBulkReplayRequest, DeadLetterFilter, DeadLetterOutcome,
    GetBulkReplayRequest, ListBulkReplayOutcomesRequest, PreviewBulkReplayRequest,
    StartBulkReplayRequest,
};
use tenure_tests::{Caller, Refusal, Stack, wait_until};

use crate::{BOUND, failed_jobs};

async fn get(operator: &Caller, id: &str) -> BulkReplay {
    let request = GetBulkReplayRequest {
        bulk_replay_id: id.to_owned(),
    };
    let answer = operator.dead_letters().get_bulk_replay(request).await;
    let bulk = answer.expect("a bulk replay").into_inner().bulk_replay;
    bulk.expect("a bulk replay")
}

fn start(rate_per_second: i32) -> StartBulkReplayRequest {
    StartBulkReplayRequest {
        filter: Some(DeadLetterFilter {
            error_code: "DOWNSTREAM".to_owned(),
            ..DeadLetterFilter::default()
        }),
        rate_per_second,
        reason: "the receiver is back".to_owned(),
        request_id: "night shift".to_owned(),
        ..StartBulkReplayRequest::default()
    }
}

async fn begin(operator: &Caller, request: StartBulkReplayRequest) -> BulkReplay {
    let answer = operator.dead_letters().start_bulk_replay(request).await;
    let bulk = answer.expect("begun").into_inner().bulk_replay;
    bulk.expect("a bulk replay")
}

async fn control(operator: &Caller, id: &str, verb: Verb, rate: i32) -> BulkReplay {
    let request = ControlBulkReplayRequest {
        bulk_replay_id: id.to_owned(),
        verb: verb.into(),
        rate_per_second: rate,
        reason: "as I see it".to_owned(),
    };
    let answer = operator.dead_letters().control_bulk_replay(request).await;
    let bulk = answer.expect("steered").into_inner().bulk_replay;
    bulk.expect("a bulk replay")
}

#[tokio::test]
async fn v4_a_bulk_replay_of_ten_thousand_survives_sigkill_and_takes_each_letter_once() {
    let stack = Stack::builder().dead_letter_admin().slots(16).start().await;
    failed_jobs(&stack, 9_800, "noop", "{}").await;
    // These fail again, with the same code: they match the filter once more.
    let again = r#"{"class": "permanent", "code": "DOWNSTREAM"}"#;
    failed_jobs(&stack, 200, "fail", again).await;
    let operator = stack.dead_letters();
    let preview = PreviewBulkReplayRequest {
        filter: start(0).filter,
    };
    let preview = operator.dead_letters().preview_bulk_replay(preview).await;
    let preview = preview.expect("a preview").into_inner();
    assert_eq!((preview.matching, preview.not_replayable), (10_000, 0));
    assert_eq!(preview.samples.len(), 5);
    let begun = begin(&operator, start(500)).await;
    assert_eq!(begun.matching, 10_000);
    // A repeated call is the same bulk replay.
    assert_eq!(
        begin(&operator, start(500)).await.bulk_replay_id,
        begun.bulk_replay_id
    );
    wait_until("a third of it", BOUND, || async {
        let replayed = stack.number("select count(*) from replays").await;
        (replayed >= 3_000).then_some(())
    })
    .await;
    stack.dead_letter_admin().kill();
    let at_the_kill = stack.number("select count(*) from replays").await;
    assert!(at_the_kill < 10_000, "the kill came too late");
    let moved = stack.number("select examined from bulk_replays").await;
    assert_eq!(
        moved, at_the_kill,
        "the operation and its letters move together"
    );
    stack.dead_letter_admin().start().await;
    let operator = stack.dead_letters();
    let done = wait_until("the end", BOUND, || async {
        let bulk = get(&operator, &begun.bulk_replay_id).await;
        (bulk.state() == State::Done).then_some(bulk)
    })
    .await;
    assert_eq!((done.examined, done.replayed), (10_000, 10_000));
    assert!(done.end_time.is_some());
    wait_until("the end of all jobs", BOUND, || async {
        let live = "select count(*) from jobs where finished_at is null";
        (stack.number(live).await == 0).then_some(())
    })
    .await;
    let once =
        "select count(*) from (select job_id from replays group by job_id having count(*) = 1) r";
    assert_eq!(stack.number(once).await, 10_000);
    assert_eq!(
        stack
            .number("select count(*) from jobs where life = 2")
            .await,
        10_000
    );
    let resolved = "select count(*) from dead_letters where status = 'resolved' and failures = 1";
    assert_eq!(stack.number(resolved).await, 9_800);
    let open = "select count(*) from dead_letters where status = 'open' and failures = 2";
    assert_eq!(
        stack.number(open).await,
        200,
        "they failed again, and are not taken twice"
    );
    let positions = "select count(distinct letter_id) from bulk_replay_outcomes where position between 1 and 10000";
    assert_eq!(stack.number(positions).await, 10_000);
    // The counts follow within seconds.
    wait_until("the counts", BOUND, || async {
        let open = "select coalesce(sum(open), 0)::bigint from dead_letter_causes";
        (stack.number(open).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bulk_replay_is_paused_resumed_and_cancelled() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let ids = failed_jobs(&stack, 300, "noop", "{}").await;
    let operator = stack.dead_letters();
    let begun = begin(&operator, start(5)).await;
    let id = begun.bulk_replay_id;
    wait_until("its first letters", BOUND, || async {
        (get(&operator, &id).await.replayed > 0).then_some(())
    })
    .await;
    let paused = control(&operator, &id, Verb::Pause, 0).await;
    assert_eq!(paused.state(), State::Paused);
    let resumed = control(&operator, &id, Verb::Resume, 100).await;
    assert_eq!(
        (resumed.state(), resumed.rate_per_second),
        (State::Running, 100)
    );
    assert_eq!(resumed.examined, paused.examined, "nothing moved meanwhile");
    wait_until("some more", BOUND, || async {
        (get(&operator, &id).await.replayed > resumed.replayed).then_some(())
    })
    .await;
    let cancelled = control(&operator, &id, Verb::Cancel, 0).await;
    assert_eq!(cancelled.state(), State::Cancelled);
    assert!(cancelled.replayed < 300, "{cancelled:?}");
    let request = ControlBulkReplayRequest {
        bulk_replay_id: id.clone(),
        verb: Verb::Resume.into(),
        reason: "x".to_owned(),
        ..ControlBulkReplayRequest::default()
    };
    let refused = operator.dead_letters().control_bulk_replay(request).await;
    let refusal = Refusal::of(&refused.expect_err("ended"));
    assert_eq!(refusal.reason, "BULK_REPLAY_ENDED");
    let request = ListBulkReplayOutcomesRequest {
        bulk_replay_id: id.clone(),
        page_size: 200,
        ..ListBulkReplayOutcomesRequest::default()
    };
    let outcomes = operator
        .dead_letters()
        .list_bulk_replay_outcomes(request)
        .await;
    let results = outcomes.expect("outcomes").into_inner().results;
    assert_eq!(results.len() as i64, cancelled.examined.min(200));
    for (result, id) in results.iter().zip(&ids) {
        assert_eq!(
            (result.outcome(), &result.dead_letter_id),
            (DeadLetterOutcome::Done, &id.to_string())
        );
    }
    // What was not replayed is as it was.
    let open = stack
        .number("select count(*) from dead_letters where status = 'open'")
        .await;
    assert_eq!(open, 300 - cancelled.replayed);
}
