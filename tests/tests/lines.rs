//! Order and concurrency by key, through failures, retries, cancels, crashes and replays.

use std::time::Duration;

use serde_json::json;
use tenure_proto::v1::wait::Reason;
use tenure_proto::v1::{
    JobSpec, OrderingPolicy, ReplayDeadLettersRequest, ResolveDeadLettersRequest,
};
use tenure_tests::caller::spec;
use tenure_tests::{JobState, Kind, Sink, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(4);

const KEYS: usize = 100;
const EACH: usize = 100;

fn ordered(key: &str, job: JobSpec) -> JobSpec {
    JobSpec {
        ordering_key: key.to_owned(),
        ..job
    }
}

async fn all_have_ended(stack: &Stack) {
    wait_until("all jobs have ended", BOUND, || async {
        let left = stack
            .number("select count(*) from (select 1 from jobs where finished_at is null limit 1) x")
            .await;
        (left == 0).then_some(())
    })
    .await;
}

/// Numbers without an order that are the same each time.
fn scattered(number: usize) -> u64 {
    (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40
}

/// A mix of jobs that succeed, that fail once or for good, by chance.
fn mixed(number: usize) -> JobSpec {
    match scattered(number) % 20 {
        0 | 1 => spec("fail", json!({"times": 1, "class": "temporary"})),
        2 => spec("fail", json!({"times": 1, "class": "permanent"})),
        3 => spec("sleep", json!({"ms": 20})),
        _ => spec("noop", json!({})),
    }
}

#[tokio::test]
async fn v11_order_holds_in_large_lines_through_failures_retries_cancels_and_crashes() {
    let stack = Stack::builder()
        .workers(2)
        .sweepers(2)
        .lease("3s")
        .env("TENURE_BACKOFF_BASE", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let mut jobs: Vec<(usize, String)> = Vec::new();
    for round in 0..EACH {
        let batch = (0..KEYS).map(|key| ordered(&key.to_string(), mixed(round * KEYS + key)));
        let ids = ann.submit_all(batch.collect()).await;
        jobs.extend(ids.into_iter().enumerate());
    }
    let done = || async {
        stack
            .number("select count(*) from jobs where finished_at is not null")
            .await
    };
    let goes_on = async |beyond: i64| {
        wait_until("the lines go on", BOUND, || async {
            (done().await > beyond).then_some(())
        })
        .await;
    };
    goes_on(500).await;
    stack.worker(0).kill();
    for (number, (_, id)) in jobs.iter().enumerate().rev() {
        if scattered(number).is_multiple_of(31) {
            // Some have ended: that is told, and changes nothing.
            let _ = ann.cancel(id, "not needed").await;
        }
    }
    stack.sweeper(0).kill();
    goes_on(done().await + 500).await;
    stack.worker(0).start().await;
    stack.worker(1).kill();
    stack.sweeper(0).start().await;
    goes_on(done().await + 500).await;
    stack.worker(1).start().await;
    all_have_ended(&stack).await;

    // By key, in the order of the submits.
    let (keys, ids): (Vec<String>, Vec<String>) = jobs
        .iter()
        .map(|(key, id)| (key.to_string(), id.clone()))
        .unzip();
    let early: Vec<(String, i64)> = sqlx::query_as(
        "select key, ord from ( \
           select w.key, w.ord, j.started_at, lag(j.finished_at) over line as before \
           from unnest($1::text[], $2::text[]) with ordinality w (key, job_id, ord) \
           join jobs j on j.job_id = w.job_id::uuid \
           window line as (partition by w.key order by w.ord)) x \
         where started_at < before",
    )
    .bind(&keys)
    .bind(&ids)
    .fetch_all(stack.pool())
    .await
    .expect("an answer");
    assert!(
        early.is_empty(),
        "started before the one in front: {early:?}"
    );
    let retried = stack
        .number("select count(*) from jobs where run > 1 and status = 'success'")
        .await;
    assert!(retried > 500, "{retried} were retried");
    for status in ["failed", "cancelled"] {
        let some: i64 = sqlx::query_scalar("select count(*) from jobs where status = $1")
            .bind(status)
            .fetch_one(stack.pool())
            .await
            .expect("a count");
        assert!(some > 0, "none is {status}");
    }
}

#[tokio::test]
async fn v11_a_line_whose_job_failed_waits_for_an_operator_and_says_so() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let ann = stack.user("ann");
    let bad = ann
        .submit_spec(JobSpec {
            ordering_policy: OrderingPolicy::Block.into(),
            ..ordered(
                "account-7",
                spec("fail", json!({"times": 1, "class": "permanent"})),
            )
        })
        .await;
    ann.wait_state(&bad, JobState::Failed, BOUND).await;
    let next = ann
        .submit_spec(ordered("account-7", spec("noop", json!({}))))
        .await;
    let beside = ann
        .submit_spec(ordered("account-8", spec("noop", json!({}))))
        .await;
    ann.wait_state(&beside, JobState::Success, BOUND).await;
    let waiting = ann.get(&next).await;
    let wait = waiting.wait.expect("a reason");
    assert_eq!(wait.reason(), Reason::Order);
    assert_eq!(wait.blocking_job_id, bad);
    assert!(wait.message.contains("account-7"), "{}", wait.message);
    assert_eq!(waiting.ordering_key, "account-7");
    assert_eq!(ann.get(&bad).await.ordering_policy(), OrderingPolicy::Block);

    // It fails again, and goes on blocking; resolved, it lets the line go.
    let operator = stack.dead_letters();
    let replay = ReplayDeadLettersRequest {
        dead_letter_ids: vec![bad.clone()],
        reason: "once more".to_owned(),
    };
    operator
        .dead_letters()
        .replay_dead_letters(replay)
        .await
        .expect("replayed");
    wait_until("it has failed again", BOUND, || async {
        let job = ann.get(&bad).await;
        (job.state() == JobState::Failed && job.run == 2).then_some(())
    })
    .await;
    assert_eq!(ann.get(&next).await.state(), JobState::Pending);
    let resolve = ResolveDeadLettersRequest {
        dead_letter_ids: vec![bad],
        reason: "done by hand".to_owned(),
    };
    operator
        .dead_letters()
        .resolve_dead_letters(resolve)
        .await
        .expect("resolved");
    ann.wait_state(&next, JobState::Success, BOUND).await;
}

#[tokio::test]
async fn so_many_of_a_key_run_at_once_and_a_dead_worker_gives_its_turns_back() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .workers(2)
        .slots(8)
        .lease("3s")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    let limited = |n: usize| JobSpec {
        concurrency_key: "bank".to_owned(),
        max_concurrency: 3,
        ..spec("effect", json!({"url": sink.url(), "key": n.to_string()}))
    };
    let jobs = ann.submit_all((0..12).map(limited).collect()).await;
    let begun = || (0..12).filter(|n| sink.count(&n.to_string()) > 0).count();
    wait_until("three run", BOUND, || async {
        (begun() == 3).then_some(())
    })
    .await;
    // Others pass them.
    let other = ann.submit("noop", json!({})).await;
    ann.wait_state(&other, JobState::Success, BOUND).await;
    assert_eq!(begun(), 3);
    let waiting = ann.get(&jobs[11]).await;
    assert_eq!(
        waiting.wait.expect("a reason").reason(),
        Reason::Concurrency
    );
    assert_eq!(
        (waiting.concurrency_key.as_str(), waiting.max_concurrency),
        ("bank", 3)
    );

    stack.worker(0).kill();
    stack.worker(1).start().await;
    wait_until("three run elsewhere", BOUND, || async {
        let again = (0..12).filter(|n| sink.count(&n.to_string()) == 2).count();
        (again == 3).then_some(())
    })
    .await;
    assert_eq!(begun(), 3);
    sink.open(true);
    for id in &jobs {
        ann.wait_state(id, JobState::Success, BOUND).await;
    }
    let most = stack
        .number(
            "select max(n) from (select count(*) as n from jobs a join jobs b \
             on b.ordering_key = a.ordering_key and b.started_at <= a.started_at and b.finished_at > a.started_at \
             where a.ordering_key is not null group by a.job_id) x",
        )
        .await;
    assert!(most <= 3, "{most} at once");
}

#[tokio::test]
async fn what_contradicts_itself_about_lines_is_refused() {
    let stack = Stack::builder().workers(0).start().await;
    let ann = stack.user("ann");
    let noop = || spec("noop", json!({}));
    let cases = [
        (
            "job.concurrency_key",
            JobSpec {
                concurrency_key: "c".to_owned(),
                ..ordered("o", noop())
            },
        ),
        (
            "job.ordering_policy",
            JobSpec {
                ordering_policy: OrderingPolicy::Block.into(),
                ..noop()
            },
        ),
        (
            "job.max_concurrency",
            JobSpec {
                max_concurrency: 5,
                ..noop()
            },
        ),
        (
            "job.max_concurrency",
            JobSpec {
                concurrency_key: "c".to_owned(),
                max_concurrency: 10_001,
                ..noop()
            },
        ),
        ("job.ordering_key", ordered(&"k".repeat(256), noop())),
    ];
    for (field, job) in cases {
        let status = ann.try_submit(job).await.expect_err("refused");
        let refusal = tenure_tests::Refusal::of(&status);
        assert!(refusal.names(field), "{field}: {status:?}");
    }
}
