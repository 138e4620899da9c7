//! Pausing queues, and sharing them: users by weight, lanes by weight.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::submits::noops;
use tenure_tests::v1::wait::Reason;
use tenure_tests::v1::{
    JobSpec, Lane, ListQueuesRequest, PauseQueueRequest, Queue, ResumeQueueRequest,
    SubmitJobRequest,
};
use tenure_tests::{Caller, JobState, Kind, Refusal, Stack, wait_until};
use tonic::Code;

const BOUND: Duration = Duration::from_mins(2);

async fn pause(operator: &Caller, queue: &str, reason: &str) -> Result<Queue, tonic::Status> {
    let request = PauseQueueRequest {
        queue: queue.to_owned(),
        reason: reason.to_owned(),
    };
    let answer = operator.queues().pause_queue(request).await?.into_inner();
    Ok(answer.queue.expect("the queue"))
}

async fn resume(operator: &Caller, queue: &str) -> Queue {
    let request = ResumeQueueRequest {
        queue: queue.to_owned(),
    };
    let answer = operator.queues().resume_queue(request).await;
    answer
        .expect("resumed")
        .into_inner()
        .queue
        .expect("the queue")
}

async fn queue(operator: &Caller, name: &str) -> Queue {
    let answer = operator.queues().list_queues(ListQueuesRequest {}).await;
    let queues = answer.expect("a list").into_inner().queues;
    queues
        .into_iter()
        .find(|q| q.name == name)
        .expect("the queue")
}

#[tokio::test]
async fn a_paused_queue_starts_nothing_until_it_is_resumed() {
    let stack = Stack::builder().slots(4).start().await;
    let (ann, operator) = (stack.user("ann"), stack.operator());
    let running = ann.submit("sleep", json!({"ms": 4000})).await;
    ann.wait_state(&running, JobState::Running, BOUND).await;
    let paused = pause(&operator, "default", "new disks")
        .await
        .expect("paused");
    let told = paused.pause.expect("a pause");
    assert!(paused.paused && paused.system_pause.is_none());
    assert_eq!(
        (told.reason.as_str(), told.paused_by.as_str()),
        ("new disks", "olga")
    );
    assert!(told.pause_time.is_some());

    // Known everywhere: the dispatcher says so in its gauge, the gateway to who submits.
    wait_until("the dispatcher's word", BOUND, || async {
        let metrics = stack.sweeper(0).metrics().await;
        let labels = [("queue", "default"), ("by", "hand")];
        (metrics.sum("tenure_queue_paused", &labels) > 0.5).then_some(())
    })
    .await;
    let told = wait_until("a submit that is told", BOUND, || async {
        let request = SubmitJobRequest {
            job: Some(spec("noop", json!({}))),
        };
        let answer = ann.jobs().submit_job(request).await.expect("accepted");
        let answer = answer.into_inner();
        assert_eq!(answer.state(), JobState::Pending);
        answer.queue_paused.then_some(answer.job_id)
    })
    .await;
    ann.submit_all(noops(200)).await;
    let wait = ann.get(&told).await.wait.expect("V5: a reason");
    assert_eq!(wait.reason(), Reason::QueuePaused);
    assert_eq!(
        wait.message,
        "its queue \"default\" is paused by olga: new disks"
    );
    // What runs goes on, and nothing else has begun when it ends.
    ann.wait_state(&running, JobState::Success, BOUND).await;
    let started = "select count(*) from jobs where started_at is not null";
    assert_eq!(stack.number(started).await, 1);
    let lanes = queue(&operator, "default").await.lanes;
    assert!(lanes.iter().map(|lane| lane.waiting).sum::<i64>() > 200);
    // Another queue does not care.
    let other = pause(&operator, "imports", "why not")
        .await
        .expect("paused");
    assert!(other.paused);
    assert!(!resume(&operator, "imports").await.paused);
    assert_eq!(stack.number(started).await, 1);

    assert!(!resume(&operator, "default").await.paused);
    let left = "select count(*) from jobs where status <> 'success'";
    wait_until("all jobs done", BOUND, || async {
        (stack.number(left).await == 0).then_some(())
    })
    .await;
    let twice = "select count(*) from jobs where attempt <> 1";
    assert_eq!(stack.number(twice).await, 0);
    let acts = "select count(*) from job_actions where action in ('pause_queue', 'resume_queue') and actor = 'olga'";
    assert_eq!(stack.number(acts).await, 4);
}

#[tokio::test]
async fn a_pause_is_for_operators_has_a_reason_and_a_queue() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let (ann, operator) = (stack.user("ann"), stack.operator());
    let refused = pause(&ann, "default", "why").await.expect_err("refused");
    let refusal = Refusal::of(&refused);
    assert!(
        refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"),
        "{refusal:?}"
    );
    let refused = pause(&operator, "default", " ").await.expect_err("refused");
    let refusal = Refusal::of(&refused);
    assert!(
        refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT"),
        "{refusal:?}"
    );
    let refused = pause(&operator, "nowhere", "why")
        .await
        .expect_err("refused");
    let refusal = Refusal::of(&refused);
    assert!(refusal.is(Code::NotFound, "QUEUE_NOT_FOUND"), "{refusal:?}");
    let request = ResumeQueueRequest {
        queue: "nowhere".to_owned(),
    };
    let refused = operator.queues().resume_queue(request).await;
    let refusal = Refusal::of(&refused.expect_err("refused"));
    assert!(refusal.is(Code::NotFound, "QUEUE_NOT_FOUND"), "{refusal:?}");
    assert!(!queue(&operator, "default").await.paused);
}

#[tokio::test]
async fn a_queue_whose_results_cannot_be_written_is_paused_until_they_can() {
    let stack = Stack::builder()
        .slots(4)
        .env("TENURE_WORKER__RESULTS_LATE_AFTER", "1s")
        .start()
        .await;
    let (ann, operator) = (stack.user("ann"), stack.operator());
    // Every end of a job is refused as one that may be tried again; all else goes on.
    sqlx::raw_sql(
        "create function no_end() returns trigger language plpgsql as $$ begin \
         if new.finished_at is not null then raise exception 'not now' using errcode = '40001'; end if; \
         return new; end $$; \
         create trigger no_end before update on jobs for each row execute function no_end()",
    )
    .execute(stack.pool())
    .await
    .expect("a trigger");
    ann.submit_all(noops(3)).await;
    let paused = wait_until("a pause by the system", BOUND, || async {
        let queue = queue(&operator, "default").await;
        assert!(queue.pause.is_none());
        queue.system_pause
    })
    .await;
    assert!(paused.reason.contains("to write results"), "{paused:?}");
    assert_eq!(paused.paused_by, "");
    let late = stack.worker(0).metrics().await;
    assert!(late.sum("tenure_results_late_seconds", &[]) >= 1.0);
    let job = ann.submit("noop", json!({})).await;
    let wait = ann.get(&job).await.wait.expect("V5: a reason");
    assert_eq!(wait.reason(), Reason::QueuePaused);
    assert!(
        wait.message.contains("paused by the system: worker"),
        "{wait:?}"
    );
    // An operator who resumes it takes back what an operator has set.
    assert!(resume(&operator, "default").await.paused);

    sqlx::raw_sql("drop trigger no_end on jobs")
        .execute(stack.pool())
        .await
        .expect("drops");
    ann.wait_state(&job, JobState::Success, BOUND).await;
    let right = "select count(*) from jobs where status = 'success' and attempt = 1 and run = 1";
    assert_eq!(stack.number(right).await, 4);
    assert!(!queue(&operator, "default").await.paused);
    let acts = "select count(*) from job_actions where actor = 'system' and action in ('pause_queue', 'resume_queue')";
    assert_eq!(stack.number(acts).await, 2, "it went on and off once");
}

#[tokio::test]
async fn one_result_that_cannot_be_written_keeps_nobody_else_waiting() {
    let stack = Stack::builder()
        .slots(4)
        .env("TENURE_WORKER__RESULTS_LATE_AFTER", "1s")
        .start()
        .await;
    let (ann, bob, operator) = (stack.user("ann"), stack.user("bob"), stack.operator());
    sqlx::raw_sql(
        "create function no_end() returns trigger language plpgsql as $$ begin \
         if new.finished_at is not null and new.user_id = 'ann' then raise exception 'not now' using errcode = '40001'; end if; \
         return new; end $$; \
         create trigger no_end before update on jobs for each row execute function no_end()",
    )
    .execute(stack.pool())
    .await
    .expect("a trigger");
    let stuck = ann.submit("noop", json!({})).await;
    wait_until("a late result", BOUND, || async {
        let metrics = stack.worker(0).metrics().await;
        (metrics.sum("tenure_results_late_seconds", &[]) >= 6.0).then_some(())
    })
    .await;
    assert!(queue(&operator, "default").await.system_pause.is_none());
    for _ in 0..5 {
        let job = bob.submit("noop", json!({})).await;
        bob.wait_state(&job, JobState::Success, BOUND).await;
    }
    let acts = "select count(*) from job_actions where action = 'pause_queue'";
    assert_eq!(stack.number(acts).await, 0);
    sqlx::raw_sql("drop trigger no_end on jobs")
        .execute(stack.pool())
        .await
        .expect("drops");
    let job = ann.wait_state(&stuck, JobState::Success, BOUND).await;
    assert_eq!(job.attempt, 1);
}

/// How many jobs of others started between the submit of this user's first job and the
/// start of the last one, and how long that took, in milliseconds.
async fn waited(stack: &Stack, user: &str) -> (i64, i64) {
    sqlx::query_as(
        "with mine as (select min(created_at) as since, max(started_at) as until from jobs where user_id = $1) \
         select (select count(*) from jobs j where j.user_id <> $1 and j.started_at between m.since and m.until), \
         (extract(epoch from m.until - m.since) * 1000)::bigint from mine m",
    )
    .bind(user)
    .fetch_one(stack.pool())
    .await
    .expect("the times")
}

/// A has submitted fifty thousand jobs when B comes with ten; B's last one has started
/// after so many milliseconds, and so many of A's jobs before it.
async fn beside_a_million(slots: usize, job: JobSpec) -> (i64, i64) {
    let stack = Stack::builder().slots(slots).start().await;
    let (ann, bob) = (stack.user("ann"), stack.user("bob"));
    // The dispatcher is at work, and the gateway has heard of it.
    let hinted = "select count(*) from lanes where hint_at > now() - interval '1 s'";
    wait_until("a dispatcher", BOUND, || async {
        (stack.number(hinted).await > 0).then_some(())
    })
    .await;
    let first = ann.submit("noop", json!({})).await;
    ann.wait_state(&first, JobState::Success, BOUND).await;
    ann.submit_all(vec![job.clone(); 50_000]).await;
    bob.submit_all(vec![job; 10]).await;
    let started = "select count(*) from jobs where user_id = 'bob' and started_at is not null";
    wait_until("bob's jobs", BOUND, || async {
        (stack.number(started).await == 10).then_some(())
    })
    .await;
    waited(&stack, "bob").await
}

#[tokio::test]
async fn ten_jobs_beside_a_million_slow_ones_start_within_the_window() {
    let job = spec("sleep", json!({"ms": 20}));
    let (jobs, millis) = beside_a_million(8, job).await;
    println!("{jobs} jobs, {millis} ms");
    // The window's aim is what eight slots take in two seconds, 800 jobs.
    assert!(jobs <= 1600, "{jobs} jobs of the other user went before");
    assert!(millis <= 10_000, "{millis} ms");
}

#[tokio::test]
async fn ten_jobs_beside_a_million_quick_ones_start_within_the_window() {
    let (_, millis) = beside_a_million(64, spec("noop", json!({}))).await;
    println!("{millis} ms");
    assert!(millis <= 10_000, "{millis} ms");
}

#[tokio::test]
async fn lanes_that_are_full_share_by_weight_and_none_starves() {
    let stack = Stack::builder().slots(2).asleep(Kind::Worker).start().await;
    let ann = stack.user("ann");
    for lane in [Lane::High, Lane::Normal, Lane::Low] {
        let job = JobSpec {
            lane: lane.into(),
            ..spec("sleep", json!({"ms": 300}))
        };
        ann.submit_all(vec![job.clone(); 400]).await;
    }
    stack.worker(0).start().await;
    let started = "select count(*) from jobs where started_at is not null";
    wait_until("sixty starts", BOUND, || async {
        (stack.number(started).await >= 60).then_some(())
    })
    .await;
    let counts: Vec<(i16, i64)> = sqlx::query_as(
        "select lane, count(*) from (select lane from jobs where started_at is not null order by started_at limit 60) s \
         group by lane order by lane",
    )
    .fetch_all(stack.pool())
    .await
    .expect("the lanes");
    println!("{counts:?}");
    let share = |lane: i16| {
        counts
            .iter()
            .find(|(l, _)| *l == lane)
            .map_or(0, |(_, n)| *n)
    };
    // 36, 18 and 6 by their weights.
    assert!((26..=46).contains(&share(1)), "{counts:?}");
    assert!((10..=28).contains(&share(2)), "{counts:?}");
    assert!((3..=12).contains(&share(3)), "{counts:?}");
}
