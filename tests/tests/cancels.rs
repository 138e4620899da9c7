//! Cancelling jobs that run, that end just then, and that nobody was there to hear of.

use std::time::{Duration, Instant};

use rand::Rng as _;
use serde_json::json;
use tenure_tests::caller::{is_final, spec};
use tenure_tests::services::Stopped;
use tenure_tests::v1::cancel_job_response::Outcome;
use tenure_tests::{JobState, Kind, Sink, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_running_job_hears_of_its_cancel_long_before_its_lease_is_renewed() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .slots(4)
        .lease("30m")
        .env("TENURE_WORKER__CANCEL_GRACE", "1s")
        .start()
        .await;
    let ann = stack.user("ann");
    let deaf_ms = 20_000;
    let effect = json!({"url": sink.url(), "key": "k"});
    let hour = json!({"ms": 3_600_000});
    // It listens; it computes and looks; it never looks and waits; it does neither.
    let jobs = [
        spec("sleep", hour.clone()),
        spec("busy", hour),
        spec("effect", effect),
        spec("busy", json!({"ms": deaf_ms, "deaf": true})),
    ];
    let mut ids = Vec::new();
    for job in jobs {
        ids.push(ann.submit_spec(job).await);
    }
    for id in &ids {
        ann.wait_state(id, JobState::Running, BOUND).await;
    }
    let begun = Instant::now();
    for id in &ids {
        let answer = ann.cancel(id, "enough").await.expect("noted");
        assert_eq!(answer.outcome(), Outcome::Requested);
        let revision = answer.job.expect("the job").revision;
        let again = ann.cancel(id, "enough").await.expect("noted");
        // It may have ended meanwhile; else it is nothing new to a watcher.
        if again.outcome() == Outcome::Requested {
            let same = again.job.expect("the job");
            assert!(same.revision == revision || is_final(same.state()));
        }
    }
    for id in &ids {
        let job = ann.wait_state(id, JobState::Cancelled, BOUND).await;
        println!("cancelled after {:?}", begun.elapsed());
        assert_eq!((job.attempt, job.run), (1, 1));
        let message = job.last_error.expect("an error").message;
        assert!(message.contains("enough"), "{message}");
    }
    let metrics = stack.worker(0).metrics().await;
    let count = |outcome| metrics.sum("tenure_cancels_total", &[("outcome", outcome)]);
    assert!((count("seen") - 4.0).abs() < 0.5);
    assert!((count("dropped") - 2.0).abs() < 0.5);
    // The deaf one keeps its slot until its thread ends, and changes nothing.
    let slots = async || {
        let metrics = stack.worker(0).metrics().await;
        metrics.sum("tenure_worker_running", &[])
    };
    if begun.elapsed() < Duration::from_millis(deaf_ms / 2) {
        assert!(slots().await > 0.5, "the deaf one's slot is free");
    }
    wait_until("all slots free", BOUND, || async {
        let next = ann.submit("noop", json!({})).await;
        ann.wait_state(&next, JobState::Success, BOUND).await;
        (slots().await < 0.5).then_some(())
    })
    .await;
    for id in &ids {
        assert_eq!(ann.get(id).await.state(), JobState::Cancelled);
    }
}

#[tokio::test]
async fn two_hundred_cancels_near_the_end_are_each_told_what_became_of_the_job() {
    let stack = Stack::builder().slots(64).start().await;
    let ann = stack.user("ann");
    let calls = (0..200).map(|_| {
        let ann = ann.clone();
        async move {
            let id = ann.submit("sleep", json!({"ms": 100})).await;
            let moment = rand::rng().random_range(0..150_000);
            tokio::time::sleep(Duration::from_micros(moment)).await;
            let answer = ann.cancel(&id, "late").await.expect("an answer");
            let end = ann.wait_end(&id, BOUND).await;
            (answer, end)
        }
    });
    let told = futures::future::join_all(calls).await;
    let mut outcomes = [0; 3];
    for (answer, end) in &told {
        let (outcome, state) = (answer.outcome(), end.state());
        match outcome {
            Outcome::Cancelled => {
                outcomes[0] += 1;
                assert_eq!(state, JobState::Cancelled);
            }
            Outcome::Requested => {
                outcomes[1] += 1;
                assert!(matches!(state, JobState::Cancelled | JobState::Success));
            }
            Outcome::AlreadyEnded => {
                outcomes[2] += 1;
                assert_eq!(state, JobState::Success);
            }
            Outcome::Unspecified => panic!("an answer that says nothing"),
        }
    }
    println!("cancelled, requested, already ended: {outcomes:?}");
    // Nothing moved afterwards: no retry, no second run, and the ledger agrees.
    for (_, end) in &told {
        let now = ann.get(&end.job_id).await;
        assert_eq!(
            (now.state(), now.revision, now.run),
            (end.state(), end.revision, 1)
        );
    }
    let disagree = "select count(*) from jobs j left join processed_events p on p.event_id = j.job_id \
         where not case when j.started_at is null then p.event_id is null \
         when j.status = 'success' then p.status = 'done' else p.status = 'cancelled' end";
    assert_eq!(stack.number(disagree).await, 0);
    assert_eq!(stack.number("select count(*) from dead_letters").await, 0);
}

#[tokio::test]
async fn a_failure_or_a_crash_after_the_request_is_a_cancelled_job() {
    let stack = Stack::builder()
        .workers(2)
        .lease("3s")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    // Frozen, it does not hear; its run ends by its time limit or by its death.
    let job = |timeout_ms| tenure_tests::v1::JobSpec {
        timeout_ms,
        max_attempts: 1,
        ..spec("busy", json!({"ms": 3_600_000, "deaf": true}))
    };
    let overrun = ann.submit_spec(job(1500)).await;
    let orphan = ann.submit_spec(job(0)).await;
    for id in [&overrun, &orphan] {
        ann.wait_state(id, JobState::Running, BOUND).await;
        let answer = ann.cancel(id, "enough").await.expect("noted");
        assert_eq!(answer.outcome(), Outcome::Requested);
    }
    ann.wait_state(&overrun, JobState::Cancelled, BOUND).await;
    stack.worker(0).kill();
    let job = ann.wait_state(&orphan, JobState::Cancelled, BOUND).await;
    assert_eq!(job.attempt, 1);
    assert_eq!(stack.number("select count(*) from dead_letters").await, 0);
}

#[tokio::test]
async fn a_cancel_that_nobody_was_there_to_hear_survives_an_outage_of_the_broker() {
    let sink = Sink::start(true).await;
    let stack = Stack::builder().asleep(Kind::Worker).start().await;
    let ann = stack.user("ann");
    let mut ids = Vec::new();
    for n in 0..5 {
        let payload = json!({"url": sink.url(), "key": n.to_string()});
        ids.push(ann.submit("effect", payload).await);
    }
    for id in &ids[..3] {
        let answer = ann.cancel(id, "").await.expect("cancelled");
        assert_eq!(answer.outcome(), Outcome::Cancelled);
    }
    for service in ["rabbitmq", "redis"] {
        Stopped::stop(service).await.start().await;
    }
    stack.worker(0).start().await;
    for id in &ids[3..] {
        ann.wait_state(id, JobState::Success, BOUND * 2).await;
    }
    for (n, id) in ids.iter().enumerate() {
        let started = sink.count(&n.to_string());
        assert_eq!(started, usize::from(n >= 3), "job {n}");
        let state = ann.get(id).await.state();
        assert_eq!(state == JobState::Cancelled, n < 3, "job {n}");
    }
}
