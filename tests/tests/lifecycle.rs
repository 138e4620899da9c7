//! What a job can go through, as its owner sees it.

use std::collections::HashSet;
use std::time::Duration;

use prost_types::Timestamp;
use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::token::now;
use tenure_tests::v1::cancel_job_response::Outcome;
use tenure_tests::v1::{
    DeadLetter, ErrorClass, GetDeadLetterRequest, Job, JobSpec, ListJobsRequest, SubmitJobsRequest,
};
use tenure_tests::{Caller, JobState, Sink, Stack, wait_until, within};

const BOUND: Duration = Duration::from_mins(1);

fn in_seconds(seconds: i64) -> Timestamp {
    Timestamp {
        seconds: now() as i64 + seconds,
        nanos: 0,
    }
}

fn error(job: &Job) -> (&str, ErrorClass) {
    let error = job.last_error.as_ref().expect("an error");
    (error.code.as_str(), error.error_class())
}

fn seconds(time: Option<&Timestamp>) -> f64 {
    let time = time.expect("a time");
    time.seconds as f64 + f64::from(time.nanos) / 1e9
}

/// The dead letter of a job.
async fn letter(operator: &Caller, job_id: &str) -> DeadLetter {
    let request = GetDeadLetterRequest {
        dead_letter_id: job_id.to_owned(),
    };
    let answer = operator.dead_letters().get_dead_letter(request).await;
    answer
        .expect("a letter")
        .into_inner()
        .dead_letter
        .expect("a letter")
}

#[tokio::test]
async fn a_cancel_ends_a_waiting_job_and_is_noted_on_a_running_one() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder().lease("3s").start().await;
    let ann = stack.user("ann");

    let later = JobSpec {
        run_at: Some(in_seconds(3600)),
        ..spec("noop", json!({}))
    };
    let waiting = ann.submit_spec(later).await;
    let answer = ann.cancel(&waiting, "not needed").await.expect("cancelled");
    assert_eq!(answer.outcome(), Outcome::Cancelled);
    let job = answer.job.expect("the job");
    assert_eq!(job.state(), JobState::Cancelled);
    assert!(job.finish_time.is_some() && job.start_time.is_none());
    assert_eq!(error(&job).0, "CANCELLED");
    let message = job.last_error.expect("an error").message;
    assert!(message.contains("not needed"), "{message}");
    let again = ann.cancel(&waiting, "").await.expect("an answer");
    assert_eq!(again.outcome(), Outcome::AlreadyEnded);

    // It runs until its handler hears of the request.
    let sleeping = ann.submit("sleep", json!({"ms": 3_600_000})).await;
    ann.wait_state(&sleeping, JobState::Running, BOUND).await;
    let answer = ann.cancel(&sleeping, "").await.expect("noted");
    assert_eq!(answer.outcome(), Outcome::Requested);
    assert!(answer.job.expect("the job").cancel_requested);
    let job = ann.wait_state(&sleeping, JobState::Cancelled, BOUND).await;
    assert_eq!(job.attempt, 1);

    // A success beats a request.
    let payload = json!({"url": sink.url(), "key": "k"});
    let quick = ann.submit("effect", payload).await;
    wait_until("the effect", BOUND, || async {
        (sink.count("k") == 1).then_some(())
    })
    .await;
    sink.open(true);
    ann.cancel(&quick, "").await.expect("an answer");
    let job = ann.wait_end(&quick, BOUND).await;
    let ledger: String =
        sqlx::query_scalar("select status from processed_events where event_id = $1::uuid")
            .bind(&quick)
            .fetch_one(stack.pool())
            .await
            .expect("the ledger");
    match job.state() {
        JobState::Success => assert_eq!(ledger, "done"),
        JobState::Cancelled => assert_eq!(ledger, "cancelled"),
        other => panic!("{}", other.as_str_name()),
    }
    assert_eq!(sink.count("k"), 1);
}

#[tokio::test]
async fn a_job_starts_at_its_time_and_not_before() {
    let stack = Stack::builder()
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let job = JobSpec {
        run_at: Some(in_seconds(3)),
        ..spec("noop", json!({}))
    };
    let job_id = ann.submit_spec(job).await;
    let waiting = ann.get(&job_id).await;
    assert_eq!(waiting.state(), JobState::Pending);
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let (run_at, started) = (
        seconds(job.run_at.as_ref()),
        seconds(job.start_time.as_ref()),
    );
    assert!(started >= run_at, "started at {started}, due at {run_at}");
    assert_eq!((job.attempt, job.run), (1, 1));
}

#[tokio::test]
async fn a_job_that_is_not_started_in_time_fails_as_expired() {
    let stack = Stack::builder()
        .workers(0)
        .dead_letter_admin()
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let job = JobSpec {
        expires_at: Some(in_seconds(2)),
        labels: [("from".to_owned(), "test".to_owned())].into(),
        ..spec("noop", json!({"n": 1}))
    };
    let job_id = ann.submit_spec(job).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(error(&job), ("EXPIRED", ErrorClass::Permanent));
    assert_eq!((job.attempt, job.start_time), (0, None));
    let letter = letter(&stack.dead_letters(), &job_id).await;
    assert_eq!(letter.error.expect("an error").code, "EXPIRED");
    assert_eq!(letter.payload, r#"{"n":1}"#);
    assert_eq!(
        (letter.job_id, letter.user_id, letter.attempts),
        (job_id, "ann".into(), 0)
    );
    assert_eq!(letter.labels.get("from").map(String::as_str), Some("test"));
    assert!(letter.replayable);
}

#[tokio::test]
async fn temporary_errors_are_tried_again_and_permanent_ones_are_not() {
    let stack = Stack::builder()
        .dead_letter_admin()
        .env("TENURE_BACKOFF_BASE", "100ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let operator = stack.dead_letters();

    let job_id = ann.submit("fail", json!({"times": 2})).await;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!((job.attempt, job.run), (3, 3));

    // The waits are the schedule's, at least.
    let job_id = ann
        .submit("fail", json!({"times": 1, "code": "DOWN"}))
        .await;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let took = seconds(job.finish_time.as_ref()) - seconds(job.start_time.as_ref());
    assert!(took >= 0.09, "the second run came after {took} s");

    let job_id = ann
        .submit(
            "fail",
            json!({"class": "permanent", "code": "NO_SUCH_THING", "message": "gone"}),
        )
        .await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(error(&job), ("NO_SUCH_THING", ErrorClass::Permanent));
    assert_eq!((job.attempt, job.run), (1, 1));
    let found = letter(&operator, &job_id).await;
    let why = found.error.as_ref().expect("an error");
    assert_eq!(
        (why.code.as_str(), why.message.as_str()),
        ("NO_SUCH_THING", "gone")
    );
    assert_eq!((found.attempts, found.failures), (1, 1));

    let spent = JobSpec {
        max_attempts: 3,
        ..spec("fail", json!({"code": "DOWN"}))
    };
    let job_id = ann.submit_spec(spent).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(error(&job), ("DOWN", ErrorClass::Temporary));
    assert_eq!((job.attempt, job.max_attempts), (3, 3));
    assert_eq!(letter(&operator, &job_id).await.attempts, 3);

    // A payload that its handler cannot read is the caller's mistake.
    let job_id = stack
        .insert_job("ann", "sleep", &json!({"seconds": 1}).to_string())
        .await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(error(&job), ("PAYLOAD_INVALID", ErrorClass::Permanent));
    assert_eq!(job.attempt, 1);
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended() {
    let stack = Stack::builder()
        .lease("3s")
        .env("TENURE_BACKOFF_BASE", "100ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    for job_type in ["sleep", "busy"] {
        let job = JobSpec {
            timeout_ms: 500,
            max_attempts: 2,
            ..spec(job_type, json!({"ms": 3_600_000}))
        };
        let job_id = ann.submit_spec(job).await;
        let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        assert_eq!(
            error(&job),
            ("EXECUTION_TIMEOUT", ErrorClass::Temporary),
            "{job_type}"
        );
        assert_eq!(job.attempt, 2, "{job_type}");
    }
    // The slots are free again.
    let job_id = ann.submit("noop", json!({})).await;
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
}

/// What is told from a revision on, to the end.
async fn told_from(caller: &Caller, job_id: &str, revision: i64) -> Vec<Job> {
    let mut changes = caller.watch(job_id, revision).await.expect("a watch");
    let all = async {
        let mut told = Vec::new();
        while let Some(change) = changes.message().await.expect("a change") {
            told.push(change.job.expect("a job"));
        }
        told
    };
    within("the end of the watch", BOUND, all).await
}

#[tokio::test]
async fn a_watch_goes_on_from_a_revision_on_any_gateway() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder().gateways(2).start().await;
    let ann = stack.user("ann");
    let payload = json!({"url": sink.url(), "key": "k"});
    let job_id = ann.submit("effect", payload).await;
    let mut first = ann.watch(&job_id, 0).await.expect("a watch");
    let seen = within("the running state", BOUND, async {
        loop {
            let change = first
                .message()
                .await
                .expect("a change")
                .expect("not the end");
            let job = change.job.expect("a job");
            if job.state() == JobState::Running {
                return job.revision;
            }
        }
    })
    .await;
    drop(first);
    // The gateway that was watched goes; another one takes the watch up.
    stack.gateway(0).kill();
    let elsewhere = stack.caller_on(1, "ann", &["submitter"]);
    let mut again = elsewhere.watch(&job_id, seen).await.expect("a watch");
    sink.open(true);
    let end = within("the end", BOUND, async {
        let mut last = None;
        while let Some(change) = again.message().await.expect("a change") {
            let job = change.job.expect("a job");
            assert!(job.revision > seen, "{} was told before", job.revision);
            last = Some(job);
        }
        last.expect("a change")
    })
    .await;
    assert_eq!(end.state(), JobState::Success);

    // Of an ended job the present state is told, or nothing new.
    let whole = told_from(&elsewhere, &job_id, 0).await;
    assert_eq!(whole.len(), 1);
    assert_eq!(whole[0].state(), JobState::Success);
    assert!(
        told_from(&elsewhere, &job_id, end.revision)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn lists_have_filters_pages_and_labels() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let labelled = |n: usize| JobSpec {
        labels: [
            (
                "team".to_owned(),
                if n.is_multiple_of(2) { "red" } else { "blue" }.to_owned(),
            ),
            ("n".to_owned(), n.to_string()),
        ]
        .into(),
        ..spec(
            if n.is_multiple_of(3) { "sleep" } else { "noop" },
            json!({"ms": 1}),
        )
    };
    let jobs: Vec<JobSpec> = (0..30).map(labelled).collect();
    let answer = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
    assert_eq!(answer.expect("accepted").into_inner().outcomes.len(), 30);
    let cancelled = ann
        .list(ListJobsRequest {
            page_size: 1,
            ..Default::default()
        })
        .await;
    let cancelled = cancelled.expect("a list").jobs[0].job_id.clone();
    ann.cancel(&cancelled, "").await.expect("cancelled");
    stack.user("bob").submit("noop", json!({})).await;

    let all = pages(
        &ann,
        ListJobsRequest {
            page_size: 7,
            ..Default::default()
        },
    )
    .await;
    assert_eq!(all.len(), 30);
    let ids: HashSet<&String> = all.iter().map(|job| &job.job_id).collect();
    assert_eq!(ids.len(), 30, "a job stands on two pages");
    assert!(
        all.is_sorted_by(|a, b| a.job_id > b.job_id),
        "the newest first"
    );
    assert!(
        all.iter()
            .all(|job| job.payload.is_empty() && job.user_id == "ann")
    );

    let count = async |request: ListJobsRequest| pages(&ann, request).await.len();
    let some = |change: fn(&mut ListJobsRequest)| {
        let mut request = ListJobsRequest {
            page_size: 4,
            ..Default::default()
        };
        change(&mut request);
        request
    };
    assert_eq!(count(some(|r| r.job_type = "sleep".into())).await, 10);
    assert_eq!(count(some(|r| r.queue = "default".into())).await, 30);
    assert_eq!(count(some(|r| r.queue = "imports".into())).await, 0);
    assert_eq!(
        count(some(|r| r.states = vec![JobState::Pending.into()])).await,
        29
    );
    assert_eq!(
        count(some(|r| r.states = vec![JobState::Cancelled.into()])).await,
        1
    );
    assert_eq!(
        count(some(|r| r.labels = [("team".into(), "red".into())].into())).await,
        15
    );
    let both = |r: &mut ListJobsRequest| {
        r.labels = [("team".into(), "red".into()), ("n".into(), "4".into())].into();
    };
    assert_eq!(count(some(both)).await, 1);
    let everybody = pages(&stack.operator(), ListJobsRequest::default()).await;
    assert_eq!(everybody.len(), 31);
    let of_bob = some(|r| r.user_id = "bob".into());
    assert_eq!(pages(&stack.operator(), of_bob).await.len(), 1);
}

/// All jobs of a list, page by page.
async fn pages(caller: &Caller, mut request: ListJobsRequest) -> Vec<Job> {
    let mut all = Vec::new();
    for _ in 0..100 {
        let page = caller.list(request.clone()).await.expect("a page");
        all.extend(page.jobs);
        if page.next_page_token.is_empty() {
            return all;
        }
        request.page_token = page.next_page_token;
    }
    panic!("the pages do not end");
}
