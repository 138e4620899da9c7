//! What happened to a job, as its owner reads it.

use std::time::Duration;

use serde_json::json;
use tenure_tests::v1::{Job, JobEvent, JobView, WatchJobRequest};
use tenure_tests::{Caller, Frozen, JobState, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(1);

/// (run, from, to) of each event.
fn shape(events: &[JobEvent]) -> Vec<(i32, JobState, JobState)> {
    events
        .iter()
        .map(|event| (event.run, event.from_state(), event.to_state()))
        .collect()
}

/// The timeline once it has so many events; what workers write of it is some seconds late.
async fn full(caller: &Caller, job_id: &str, events: usize) -> (Job, Vec<JobEvent>) {
    wait_until(format!("{events} events"), BOUND, || async {
        let (job, timeline) = caller.timeline(job_id).await;
        (timeline.len() >= events).then_some((job, timeline))
    })
    .await
}

use JobState::{Cancelled, Pending, Retrying, Running, Success, Timeout, Unspecified};

#[tokio::test]
async fn the_run_of_a_frozen_worker_and_the_one_elsewhere_are_both_told() {
    let frozen_stack = Frozen::begin().await;
    let (ann, job_id) = (&frozen_stack.owner, &frozen_stack.job_id);
    // Who runs it is told at once.
    let (job, events) = full(ann, job_id, 2).await;
    assert_eq!(job.state(), Running);
    assert_eq!(
        shape(&events),
        [(1, Unspecified, Pending), (1, Pending, Running)]
    );
    let frozen = events[1].session.clone();
    assert!(!frozen.is_empty() && !events[1].worker.is_empty());

    frozen_stack.taken_over().await;
    let (done, before) = full(ann, job_id, 6).await;
    assert_eq!(
        shape(&before),
        [
            (1, Unspecified, Pending),
            (1, Pending, Running),
            (1, Running, Timeout),
            (1, Timeout, Pending),
            (2, Pending, Running),
            (2, Running, Success),
        ]
    );
    frozen_stack.thaw().await;
    // And ends in order, so that whatever it had to tell is written.
    let worker = frozen_stack.stack.worker(0);
    assert!(worker.terminate(BOUND).await.success());
    let (after, events) = ann.timeline(job_id).await;
    assert_eq!(after, done, "V3: the late answer has changed the job");
    assert_eq!(events, before, "V3: the late answer has changed the story");

    let other = events[5].session.clone();
    assert_ne!(frozen, other);
    for event in &events[1..=3] {
        assert_eq!(event.session, frozen, "{event:?}");
    }
    for event in &events[4..] {
        assert_eq!(event.session, other, "{event:?}");
    }
    assert_ne!(events[2].worker, events[5].worker);
    let lease = &events[2];
    assert!(lease.message.contains(&lease.worker), "{lease:?}");
    assert_eq!(lease.error.as_ref().expect("why").code, "LEASE_EXPIRED");
    assert!(lease.duration_ms >= 2000, "{lease:?}");
    assert_eq!(
        (events[0].attempt, lease.attempt, events[5].attempt),
        (0, 1, 2)
    );
}

#[tokio::test]
async fn retries_are_told_with_their_errors_and_for_how_long_they_were_held() {
    let stack = Stack::builder()
        .env("TENURE_WORKER__NAME", "import-7")
        .env("TENURE_BACKOFF_BASE", "50ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let job_id = ann
        .submit(
            "fail",
            json!({"times": 2, "code": "DOWN", "message": "it is down"}),
        )
        .await;
    ann.wait_state(&job_id, Success, BOUND).await;
    let (_, events) = full(&ann, &job_id, 7).await;
    assert_eq!(
        shape(&events),
        [
            (1, Unspecified, Pending),
            (1, Pending, Running),
            (1, Running, Retrying),
            (2, Pending, Running),
            (2, Running, Retrying),
            (3, Pending, Running),
            (3, Running, Success),
        ]
    );
    for event in &events[1..] {
        assert_eq!(event.worker, "import-7", "{event:?}");
    }
    for event in [&events[2], &events[4]] {
        let error = event.error.as_ref().expect("an error");
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("DOWN", "it is down")
        );
    }
    let times: Vec<_> = events
        .iter()
        .map(|e| e.time.map(|t| (t.seconds, t.nanos)))
        .collect();
    assert!(times.is_sorted(), "one machine, one clock: {times:?}");

    // One that runs for a while, and one that is cancelled while it does.
    let slow = ann.submit("sleep", json!({"ms": 700})).await;
    let ended = ann.submit("sleep", json!({"ms": 3_600_000})).await;
    ann.wait_state(&ended, Running, BOUND).await;
    ann.cancel(&ended, "enough").await.expect("noted");
    ann.wait_state(&ended, Cancelled, BOUND).await;
    let (_, events) = full(&ann, &ended, 4).await;
    assert_eq!(
        shape(&events),
        [
            (1, Unspecified, Pending),
            (1, Pending, Running),
            (1, Running, Running),
            (1, Running, Cancelled),
        ]
    );
    assert!(events[2].message.contains("enough"), "{:?}", events[2]);
    ann.wait_state(&slow, Success, BOUND).await;
    let (job, events) = ann.timeline(&slow).await;
    let end = events.last().expect("an end");
    assert_eq!((end.to_state(), end.time), (Success, job.finish_time));
    assert!((700..60_000).contains(&end.duration_ms), "{end:?}");
}

#[tokio::test]
async fn a_watch_tells_the_timeline_where_it_is_asked_to() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let job_id = ann.submit("sleep", json!({"ms": 300})).await;
    for view in [JobView::Full, JobView::Basic] {
        let request = WatchJobRequest {
            job_id: job_id.clone(),
            after_revision: 0,
            view: view.into(),
        };
        let answer = ann.jobs().watch_job(request).await;
        let mut changes = answer.expect("a watch").into_inner();
        let mut last = None;
        while let Some(change) = changes.message().await.expect("a change") {
            let job = change.job.as_ref().expect("a job");
            let waits = matches!(job.state(), Pending | Retrying);
            assert_eq!(job.wait.is_some(), waits, "{job:?}");
            assert_eq!(change.timeline.is_empty(), view == JobView::Basic);
            last = Some(change);
        }
        let last = last.expect("the end");
        if view == JobView::Full {
            let told = shape(&last.timeline);
            assert_eq!(told.last(), Some(&(1, Running, Success)));
        }
    }
}
