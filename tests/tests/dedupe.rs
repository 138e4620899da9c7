//! A key makes one job, however many ask at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::v1::{JobSpec, SubmitJobResponse, SubmitJobsRequest, submit_jobs_response};
use tenure_tests::{Caller, JobState, Refusal, Stack, within};
use tokio::sync::Barrier;
use tonic::Code;

const BOUND: Duration = Duration::from_mins(1);
const TOGETHER: usize = 64;

fn keyed(key: &str, payload: Value) -> JobSpec {
    JobSpec {
        dedupe_key: key.to_owned(),
        ..spec("noop", payload)
    }
}

/// Submits the same job from all of these callers at the same instant.
async fn released_together(callers: Vec<Caller>, job: JobSpec) -> Vec<SubmitJobResponse> {
    let barrier = Arc::new(Barrier::new(callers.len()));
    let calls: Vec<_> = callers
        .into_iter()
        .map(|caller| {
            let (barrier, job) = (barrier.clone(), job.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                caller.try_submit(job).await
            })
        })
        .collect();
    let answers = within("all answers", BOUND, futures::future::join_all(calls)).await;
    answers
        .into_iter()
        .map(|answer| answer.expect("a task").expect("an answer"))
        .collect()
}

fn assert_one_job(answers: &[SubmitJobResponse]) {
    let ids: HashSet<&str> = answers.iter().map(|a| a.job_id.as_str()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let new = answers.iter().filter(|answer| !answer.duplicate).count();
    assert_eq!(new, 1, "answers that say that theirs is the new job");
}

#[tokio::test]
async fn sixty_four_with_one_key_are_one_job_and_sixty_four_answers_that_name_it() {
    let stack = Stack::builder().workers(0).start().await;
    let callers = vec![stack.user("ann"); TOGETHER];
    let answers = released_together(callers, keyed("one", json!({"a": 1}))).await;
    assert_eq!(answers.len(), TOGETHER);
    assert_one_job(&answers);
    assert_eq!(stack.number("select count(*) from jobs").await, 1);
}

#[tokio::test]
async fn two_gateways_at_the_same_instant_make_one_job_of_a_key() {
    let stack = Stack::builder().gateways(2).workers(0).start().await;
    for round in 0..8 {
        let callers = (0..16)
            .map(|n| stack.caller_on(n % 2, "ann", &["submitter"]))
            .collect();
        let key = format!("round {round}");
        assert_one_job(&released_together(callers, keyed(&key, json!({}))).await);
    }
    assert_eq!(stack.number("select count(*) from jobs").await, 8);
}

#[tokio::test]
async fn a_key_with_another_content_is_a_conflict_that_names_the_job() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let first = ann.submit_spec(keyed("k", json!({"a": 1}))).await;
    for state in ["waiting or running", "ended"] {
        let status = ann.try_submit(keyed("k", json!({"a": 2}))).await;
        let refusal = Refusal::of(&status.expect_err("a conflict"));
        assert!(
            refusal.is(Code::AlreadyExists, "DEDUPE_CONFLICT"),
            "{state}: {refusal:?}"
        );
        assert_eq!(refusal.metadata.get("job_id"), Some(&first), "{state}");
        ann.wait_state(&first, JobState::Success, BOUND).await;
    }
    // The key still holds after the end, for the same content as well.
    let again = ann.try_submit(keyed("k", json!({"a": 1}))).await;
    let again = again.expect("the same job");
    assert_eq!((again.job_id, again.duplicate), (first.clone(), true));
    assert_eq!(again.state, i32::from(JobState::Success));

    // A key is one user's and one job type's.
    let other = stack.user("bob").submit_spec(keyed("k", json!({}))).await;
    assert_ne!(other, first);
    let sleep = JobSpec {
        dedupe_key: "k".to_owned(),
        ..spec("sleep", json!({"ms": 1}))
    };
    assert_ne!(ann.submit_spec(sleep).await, first);
}

#[tokio::test]
async fn a_request_id_makes_a_repeated_submit_the_same_job() {
    let stack = Stack::builder().gateways(2).workers(0).start().await;
    let ann = stack.user("ann");
    let asked = |payload: Value| JobSpec {
        request_id: "r-1".to_owned(),
        ..spec("noop", payload)
    };
    let first = ann.submit_spec(asked(json!({"a": 1}))).await;
    let elsewhere = stack.caller_on(1, "ann", &["submitter"]);
    let again = elsewhere.try_submit(asked(json!({"a": 1}))).await;
    let again = again.expect("the same job");
    assert_eq!((again.job_id, again.duplicate), (first.clone(), true));
    let status = ann.try_submit(asked(json!({"a": 2}))).await;
    let refusal = Refusal::of(&status.expect_err("a conflict"));
    assert!(
        refusal.is(Code::AlreadyExists, "REQUEST_ID_CONFLICT"),
        "{refusal:?}"
    );
    assert_eq!(refusal.metadata.get("job_id"), Some(&first));
    let callers = vec![ann; 16];
    let together = JobSpec {
        request_id: "r-2".to_owned(),
        ..spec("noop", json!({}))
    };
    assert_one_job(&released_together(callers, together).await);
    assert_eq!(stack.number("select count(*) from jobs").await, 2);
}

#[tokio::test]
async fn a_key_twice_in_one_call_is_one_job_and_bad_jobs_do_not_spoil_it() {
    let stack = Stack::builder().workers(0).start().await;
    let ann = stack.user("ann");
    let jobs = vec![
        keyed("k", json!({})),
        spec("no_such_type", json!({})),
        keyed("k", json!({})),
        keyed("k", json!({"other": true})),
        spec("noop", json!({})),
    ];
    let answer = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
    let outcomes = answer.expect("outcomes").into_inner().outcomes;
    let told: Vec<Result<(String, bool), String>> = outcomes
        .into_iter()
        .map(|outcome| match outcome.result.expect("a result") {
            submit_jobs_response::outcome::Result::Accepted(a) => Ok((a.job_id, a.duplicate)),
            submit_jobs_response::outcome::Result::Refused(s) => Err(s.message),
        })
        .collect();
    let first = told[0].clone().expect("accepted");
    assert!(!first.1);
    assert!(
        told[1].as_ref().is_err_and(|m| m.contains("no_such_type")),
        "{told:?}"
    );
    assert_eq!(told[2], Ok((first.0.clone(), true)));
    assert!(told[3].is_err(), "{told:?}");
    assert!(
        told[4].as_ref().is_ok_and(|(_, duplicate)| !duplicate),
        "{told:?}"
    );
    assert_eq!(stack.number("select count(*) from jobs").await, 2);
}

#[tokio::test]
async fn a_key_holds_while_its_job_waits_for_a_retry_and_never_keeps_it_from_running() {
    let stack = Stack::builder()
        .lease("3s")
        .env("TENURE_BACKOFF_BASE", "3s")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let job = JobSpec {
        dedupe_key: "k".to_owned(),
        ..spec("fail", json!({"times": 1}))
    };
    let first = ann.submit_spec(job.clone()).await;
    ann.wait_state(&first, JobState::Retrying, BOUND).await;
    for _ in 0..5 {
        let again = ann.try_submit(job.clone()).await.expect("the same job");
        assert_eq!(
            (again.job_id.as_str(), again.duplicate),
            (first.as_str(), true)
        );
    }
    let done = ann.wait_state(&first, JobState::Success, BOUND).await;
    assert_eq!((done.attempt, done.run), (2, 2));

    // A cancel, a time limit and a lost lease pass with the key held, too.
    let sleeping = |key: &str, timeout_ms: i64| JobSpec {
        dedupe_key: key.to_owned(),
        timeout_ms,
        max_attempts: 1,
        ..spec("sleep", json!({"ms": 3_600_000}))
    };
    let cancelled = ann.submit_spec(sleeping("c", 0)).await;
    let overrun = ann.submit_spec(sleeping("t", 300)).await;
    let orphan = ann.submit_spec(sleeping("l", 0)).await;
    ann.wait_state(&cancelled, JobState::Running, BOUND).await;
    ann.cancel(&cancelled, "").await.expect("noted");
    ann.wait_state(&cancelled, JobState::Cancelled, BOUND).await;
    ann.wait_state(&overrun, JobState::Failed, BOUND).await;
    ann.wait_state(&orphan, JobState::Running, BOUND).await;
    stack.worker(0).kill();
    ann.wait_state(&orphan, JobState::Failed, BOUND).await;
    assert_eq!(stack.number("select count(*) from jobs").await, 4);
}
