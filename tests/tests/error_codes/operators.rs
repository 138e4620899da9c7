//! What operators ask for at the wrong moment.

use serde_json::json;
use tenure_tests::v1::bulk_replay::State;
use tenure_tests::v1::control_bulk_replay_request::Verb;
use tenure_tests::v1::{
    ControlBulkReplayRequest, DeadLetterFilter, GetBulkReplayRequest, RescheduleJobRequest,
    RetryJobNowRequest, SetJobMaxAttemptsRequest, StartBulkReplayRequest,
};
use tenure_tests::{JobState, Refusal, Stack, wait_until};
use tonic::Code;
use uuid::Uuid;

use super::BOUND;

#[tokio::test]
async fn a_job_that_runs_or_has_ended_is_not_moved() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let ended = ann.submit("noop", json!({})).await;
    let running = ann.submit("sleep", json!({"ms": 3_600_000})).await;
    ann.wait_state(&ended, JobState::Success, BOUND).await;
    ann.wait_state(&running, JobState::Running, BOUND).await;
    let mut jobs = stack.operator().jobs();
    for job_id in [&ended, &running] {
        let before = ann.get(job_id).await;
        let retry = RetryJobNowRequest {
            job_id: job_id.clone(),
            reason: "because".to_owned(),
        };
        let refused = jobs.retry_job_now(retry).await.expect_err("too late");
        let refusal = Refusal::of(&refused);
        assert!(
            refusal.is(Code::FailedPrecondition, "JOB_STATE_CONFLICT"),
            "{refusal:?}"
        );
        let later = RescheduleJobRequest {
            job_id: job_id.clone(),
            run_at: Some(std::time::SystemTime::now().into()),
            reason: "because".to_owned(),
        };
        let refused = jobs.reschedule_job(later).await.expect_err("too late");
        let refusal = Refusal::of(&refused);
        assert!(
            refusal.is(Code::FailedPrecondition, "JOB_STATE_CONFLICT"),
            "{refusal:?}"
        );
        assert_eq!(ann.get(job_id).await.revision, before.revision);
    }
    let more = SetJobMaxAttemptsRequest {
        job_id: ended.clone(),
        max_attempts: 50,
        reason: "because".to_owned(),
    };
    let refused = jobs.set_job_max_attempts(more).await.expect_err("too late");
    let refusal = Refusal::of(&refused);
    assert!(
        refusal.is(Code::FailedPrecondition, "JOB_STATE_CONFLICT"),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn a_bulk_replay_that_is_not_there_or_over_is_not_steered() {
    let stack = Stack::builder()
        .workers(0)
        .dead_letter_admin()
        .start()
        .await;
    let letters = stack.dead_letters();
    let control = |id: &str| ControlBulkReplayRequest {
        bulk_replay_id: id.to_owned(),
        verb: Verb::Pause.into(),
        rate_per_second: 0,
        reason: "because".to_owned(),
    };
    let read = async |id: &str| {
        let request = GetBulkReplayRequest {
            bulk_replay_id: id.to_owned(),
        };
        letters.dead_letters().get_bulk_replay(request).await
    };
    let nowhere = Uuid::now_v7().to_string();
    let steered = letters
        .dead_letters()
        .control_bulk_replay(control(&nowhere))
        .await;
    for refused in [
        read(&nowhere).await.expect_err("is not there"),
        steered.expect_err("is not there"),
    ] {
        let refusal = Refusal::of(&refused);
        assert!(
            refusal.is(Code::NotFound, "BULK_REPLAY_NOT_FOUND"),
            "{refusal:?}"
        );
    }

    let start = StartBulkReplayRequest {
        filter: Some(DeadLetterFilter {
            job_type: "noop".to_owned(),
            ..DeadLetterFilter::default()
        }),
        reason: "because".to_owned(),
        ..StartBulkReplayRequest::default()
    };
    let begun = letters.dead_letters().start_bulk_replay(start).await;
    let begun = begun.expect("begins").into_inner().bulk_replay;
    let id = begun.expect("a bulk replay").bulk_replay_id;
    wait_until("the end of the bulk replay", BOUND, || async {
        let answer = read(&id).await.expect("is there").into_inner();
        let bulk = answer.bulk_replay.expect("a bulk replay");
        (bulk.state() == State::Done).then_some(())
    })
    .await;
    let refused = letters
        .dead_letters()
        .control_bulk_replay(control(&id))
        .await
        .expect_err("is over");
    let refusal = Refusal::of(&refused);
    assert!(
        refusal.is(Code::FailedPrecondition, "BULK_REPLAY_ENDED"),
        "{refusal:?}"
    );
}
