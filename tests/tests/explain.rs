//! Why jobs wait, who works, and what operators do about it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::{is_final, spec};
use tenure_tests::v1::wait::Reason;
use tenure_tests::v1::{
    Job, JobSpec, ListJobsRequest, ListWorkersRequest, RescheduleJobRequest, RetryJobNowRequest,
    SetJobMaxAttemptsRequest, SubmitJobsRequest, Wait,
};
use tenure_tests::{Caller, JobState, Kind, Refusal, Stack, wait_until};
use tonic::{Code, Status};

const BOUND: Duration = Duration::from_mins(1);

fn in_seconds(seconds: i64) -> prost_types::Timestamp {
    let now = std::time::SystemTime::now();
    let mut at = prost_types::Timestamp::from(now);
    at.seconds += seconds;
    at
}

async fn why(caller: &Caller, job_id: &str) -> Wait {
    let job = caller.get(job_id).await;
    job.wait
        .clone()
        .unwrap_or_else(|| panic!("V5: no reason: {job:?}"))
}

/// Waits until a job waits for this reason.
async fn waits_for(caller: &Caller, job_id: &str, reason: Reason) -> Wait {
    let what = format!("{} of {job_id}", reason.as_str_name());
    wait_until(what, BOUND, || async {
        let wait = caller.get(job_id).await.wait?;
        (wait.reason() == reason).then_some(wait)
    })
    .await
}

async fn sql(stack: &Stack, statement: &'static str) {
    sqlx::query(statement)
        .execute(stack.pool())
        .await
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// V5: what waits says why, and only that.
fn says_why(job: &Job) {
    let waits = matches!(job.state(), JobState::Pending | JobState::Retrying);
    let reason = job.wait.as_ref().map(Wait::reason);
    assert_eq!(reason.is_some(), waits, "{job:?}");
    if let Some(wait) = &job.wait {
        assert_ne!(wait.reason(), Reason::Unspecified, "{job:?}");
        assert!(!wait.message.is_empty(), "{job:?}");
    }
}

#[tokio::test]
async fn v5_each_job_that_waits_says_why() {
    let stack = Stack::builder().slots(4).asleep(Kind::Worker).start().await;
    let ann = stack.user("ann");
    let job = ann.submit("noop", json!({})).await;
    let wait = waits_for(&ann, &job, Reason::NoWorker).await;
    assert!(wait.message.contains("noop"), "{wait:?}");
    let run_at = in_seconds(3600);
    let later = JobSpec {
        run_at: Some(run_at),
        ..spec("noop", json!({}))
    };
    let later = ann.submit_spec(later).await;
    let wait = why(&ann, &later).await;
    assert_eq!(wait.reason(), Reason::Scheduled);
    assert_eq!(wait.until.map(|at| at.seconds), Some(run_at.seconds));

    // A paused queue goes before all else, in each answer.
    let pause =
        "update queues set paused = true, pause_reason = 'new disks' where name = 'default'";
    sql(&stack, pause).await;
    let cancelled = ann.submit("noop", json!({})).await;
    let mut watch = ann.watch(&later, 0).await.expect("a watch");
    let watched = watch.message().await.expect("told").expect("a change").job;
    let listed = ann.list(ListJobsRequest::default()).await.expect("a list");
    assert_eq!(listed.jobs.len(), 3);
    for job in listed.jobs.iter().chain(watched.as_ref()) {
        let wait = job.wait.as_ref().expect("a reason");
        assert_eq!(wait.reason(), Reason::QueuePaused);
        assert!(wait.message.contains("new disks"), "{wait:?}");
    }
    let answer = ann.cancel(&cancelled, "").await.expect("cancelled");
    assert_eq!(answer.job.expect("the job").wait, None);
    sql(
        &stack,
        "update queues set paused = false, pause_reason = null",
    )
    .await;

    // With a worker it runs; the ways to wait for another run.
    stack.worker(0).start().await;
    let done = ann.wait_state(&job, JobState::Success, BOUND).await;
    assert_eq!(done.wait, None);
    let failing = json!({"code": "DOWN", "delay_ms": 3_600_000});
    let failing = ann.submit("fail", failing).await;
    let wait = waits_for(&ann, &failing, Reason::Backoff).await;
    assert!(wait.message.contains("DOWN at 20"), "{wait:?}");
    assert!(wait.message.contains("attempt 2 of"), "{wait:?}");
    assert!(wait.until.is_some(), "{wait:?}");
    let snooze = json!({"class": "snooze", "delay_ms": 3_600_000});
    let snoozed = ann.submit("fail", snooze).await;
    let wait = waits_for(&ann, &snoozed, Reason::Backoff).await;
    assert!(wait.message.contains("put off at 20"), "{wait:?}");
    assert_eq!(ann.get(&snoozed).await.state(), JobState::Pending);

    // All slots taken: what comes now is on its way or in the backlog.
    let mut running = Vec::new();
    for _ in 0..4 {
        running.push(ann.submit("sleep", json!({"ms": 3_600_000})).await);
    }
    for id in &running {
        ann.wait_state(id, JobState::Running, BOUND).await;
    }
    let jobs = vec![spec("noop", json!({})); 600];
    let submitted = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
    assert_eq!(
        submitted.expect("accepted").into_inner().outcomes.len(),
        600
    );
    let seen = parking_lot::Mutex::new(BTreeSet::new());
    wait_until("both reasons", BOUND, || async {
        let mut request = ListJobsRequest {
            page_size: 200,
            ..ListJobsRequest::default()
        };
        loop {
            let page = ann.list(request.clone()).await.expect("a page");
            for job in &page.jobs {
                says_why(job);
                seen.lock().extend(job.wait.as_ref().map(|w| w.reason));
            }
            if page.next_page_token.is_empty() {
                break;
            }
            request.page_token = page.next_page_token;
        }
        let all = [
            Reason::Backlog,
            Reason::Dispatched,
            Reason::Backoff,
            Reason::Scheduled,
        ];
        let all_seen = all.iter().all(|r| seen.lock().contains(&i32::from(*r)));
        all_seen.then_some(())
    })
    .await;

    // An ordered job behind another one.
    let first = ann.submit("noop", json!({})).await;
    let second = ann.submit("noop", json!({})).await;
    for (id, held, seq) in [(&first, false, 1), (&second, true, 2)] {
        sqlx::query("update jobs set ordering_key = 'o:acct-7', order_seq = $3, held = $2, parked = parked and not $2 where job_id = $1::uuid")
            .bind(id)
            .bind(held)
            .bind(seq)
            .execute(stack.pool())
            .await
            .expect("orders");
    }
    let wait = waits_for(&ann, &second, Reason::Order).await;
    assert_eq!(wait.blocking_job_id, first);
    assert!(wait.message.contains("acct-7"), "{wait:?}");
}

#[tokio::test]
async fn operators_see_the_workers_and_others_do_not() {
    let stack = Stack::builder()
        .slots(3)
        .env("TENURE_WORKER__NAME", "import-7")
        .start()
        .await;
    let operator = stack.operator();
    let workers = wait_until("the worker listed", BOUND, || async {
        let answer = operator.workers().list_workers(ListWorkersRequest {}).await;
        let workers = answer.expect("a list").into_inner().workers;
        (!workers.is_empty()).then_some(workers)
    })
    .await;
    let [worker] = workers.as_slice() else {
        panic!("{workers:?}");
    };
    assert_eq!((worker.name.as_str(), worker.slots), ("import-7", 3));
    assert!(worker.job_types.iter().any(|t| t == "noop"), "{worker:?}");
    assert!(worker.queues.iter().any(|q| q == "default"), "{worker:?}");
    assert!(worker.start_time.is_some() && worker.last_contact_time.is_some());
    let refused = stack
        .user("ann")
        .workers()
        .list_workers(ListWorkersRequest {})
        .await;
    let refusal = Refusal::of(&refused.expect_err("refused"));
    assert!(
        refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"),
        "{refusal:?}"
    );
}

async fn retry_now(caller: &Caller, job_id: &str, reason: &str) -> Result<Job, Status> {
    let request = RetryJobNowRequest {
        job_id: job_id.to_owned(),
        reason: reason.to_owned(),
    };
    let answer = caller.jobs().retry_job_now(request).await?.into_inner();
    Ok(answer.job.expect("a job"))
}

async fn reschedule(caller: &Caller, job_id: &str, seconds: i64) -> Result<Job, Status> {
    let request = RescheduleJobRequest {
        job_id: job_id.to_owned(),
        run_at: Some(in_seconds(seconds)),
        reason: String::new(),
    };
    let answer = caller.jobs().reschedule_job(request).await?.into_inner();
    Ok(answer.job.expect("a job"))
}

async fn set_max_attempts(caller: &Caller, job_id: &str, most: i32) -> Result<Job, Status> {
    let request = SetJobMaxAttemptsRequest {
        job_id: job_id.to_owned(),
        max_attempts: most,
        reason: String::new(),
    };
    let answer = caller
        .jobs()
        .set_job_max_attempts(request)
        .await?
        .into_inner();
    Ok(answer.job.expect("a job"))
}

#[tokio::test]
async fn operators_move_waiting_jobs_and_it_shows_in_their_story() {
    let stack = Stack::builder().start().await;
    let (ann, olga) = (stack.user("ann"), stack.operator());
    // A retry in an hour is made due, and succeeds.
    let failing = json!({"times": 1, "code": "DOWN", "delay_ms": 3_600_000});
    let job_id = ann.submit("fail", failing).await;
    ann.wait_state(&job_id, JobState::Retrying, BOUND).await;
    let job = retry_now(&olga, &job_id, "the disk is back")
        .await
        .expect("done");
    assert!(job.state() != JobState::Retrying, "{job:?}");
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let (_, events) = ann.timeline(&job_id).await;
    let act = events.iter().find(|e| e.message.contains("olga"));
    let act = act.unwrap_or_else(|| panic!("{events:?}"));
    assert_eq!(act.message, "olga made it due: the disk is back");
    assert_eq!(
        (act.run, act.from_state(), act.to_state()),
        (2, JobState::Retrying, JobState::Pending)
    );

    // A job is put off, further off, and then made due.
    let later = JobSpec {
        run_at: Some(in_seconds(3600)),
        ..spec("noop", json!({}))
    };
    let job_id = ann.submit_spec(later).await;
    let job = reschedule(&olga, &job_id, 7200).await.expect("done");
    let wait = job.wait.expect("a reason");
    assert_eq!(wait.reason(), Reason::Scheduled);
    assert_eq!(wait.until, job.run_at);
    reschedule(&olga, &job_id, -5).await.expect("done");
    ann.wait_state(&job_id, JobState::Success, BOUND).await;

    // One that would have failed for good gets another attempt while it runs.
    let long = JobSpec {
        max_attempts: 1,
        timeout_ms: 2000,
        ..spec("sleep", json!({"ms": 3_600_000}))
    };
    let job_id = ann.submit_spec(long).await;
    ann.wait_state(&job_id, JobState::Running, BOUND).await;
    let job = set_max_attempts(&olga, &job_id, 2).await.expect("done");
    assert_eq!(job.max_attempts, 2);
    for refused in [
        retry_now(&olga, &job_id, "").await,
        reschedule(&olga, &job_id, 60).await,
    ] {
        let refusal = Refusal::of(&refused.expect_err("it runs"));
        assert!(
            refusal.is(Code::FailedPrecondition, "JOB_STATE_CONFLICT"),
            "{refusal:?}"
        );
        assert!(
            refusal.message.contains("the job is running"),
            "{refusal:?}"
        );
        assert_eq!(refusal.metadata["state"], "running");
        assert_eq!(refusal.retry_after, None);
    }
    let job = ann.wait_state(&job_id, JobState::Retrying, BOUND).await;
    assert_eq!(job.last_error.expect("why").code, "EXECUTION_TIMEOUT");
    let refusal = Refusal::of(
        &set_max_attempts(&olga, &job_id, 1)
            .await
            .expect_err("spent"),
    );
    assert!(refusal.names("max_attempts"), "{refusal:?}");
    ann.cancel(&job_id, "").await.expect("cancelled");
    let refusal = Refusal::of(
        &set_max_attempts(&olga, &job_id, 9)
            .await
            .expect_err("ended"),
    );
    assert!(
        refusal.is(Code::FailedPrecondition, "JOB_STATE_CONFLICT"),
        "{refusal:?}"
    );
    assert!(
        refusal.message.contains("ended in cancelled"),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn what_operators_may_not_do_or_say_is_refused() {
    let stack = Stack::builder().workers(0).start().await;
    let (ann, olga) = (stack.user("ann"), stack.operator());
    let job_id = ann.submit("noop", json!({})).await;
    let nobody = "00000000-0000-7000-8000-000000000000";
    for caller in [&ann, &stack.caller("robot", &["service"])] {
        for refused in [
            retry_now(caller, &job_id, "").await,
            reschedule(caller, &job_id, 60).await,
            set_max_attempts(caller, &job_id, 3).await,
        ] {
            let refusal = Refusal::of(&refused.expect_err("no operator"));
            assert!(
                refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"),
                "{refusal:?}"
            );
        }
    }
    for refused in [
        retry_now(&olga, nobody, "").await,
        reschedule(&olga, nobody, 60).await,
        set_max_attempts(&olga, nobody, 3).await,
    ] {
        let refusal = Refusal::of(&refused.expect_err("no job"));
        assert!(refusal.is(Code::NotFound, "JOB_NOT_FOUND"), "{refusal:?}");
    }
    let long = "x".repeat(256);
    let no_time = RescheduleJobRequest {
        job_id: job_id.clone(),
        ..RescheduleJobRequest::default()
    };
    for (field, refused) in [
        ("job_id", retry_now(&olga, "x", "").await),
        ("reason", retry_now(&olga, &job_id, "a\0b").await),
        ("reason", retry_now(&olga, &job_id, &long).await),
        ("run_at", reschedule(&olga, &job_id, 400 * 86_400).await),
        ("max_attempts", set_max_attempts(&olga, &job_id, 0).await),
        ("max_attempts", set_max_attempts(&olga, &job_id, 101).await),
        ("max_attempts", set_max_attempts(&olga, &job_id, -1).await),
    ] {
        let refusal = Refusal::of(&refused.expect_err(field));
        assert!(refusal.names(field), "{field}: {refusal:?}");
    }
    let refused = olga.jobs().reschedule_job(no_time).await;
    let refusal = Refusal::of(&refused.expect_err("no time"));
    assert!(refusal.names("run_at"), "{refusal:?}");
    let job = ann.get(&job_id).await;
    assert!(!is_final(job.state()) && job.max_attempts == 5, "{job:?}");
    assert_eq!(stack.number("select count(*) from job_actions").await, 0);
}
