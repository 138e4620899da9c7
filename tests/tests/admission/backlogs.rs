//! Backlogs: a full queue refuses, low work first, and others are not touched.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::v1::{JobSpec, Lane};
use tenure_tests::{Caller, Refusal, Stack, StackBuilder, wait_until};
use tonic::Code;

use super::submit_all;

const BOUND: Duration = Duration::from_mins(1);
const REASON: &str = "QUEUE_FULL";

/// A stack whose default queue takes nothing to the broker.
async fn paused(builder: StackBuilder) -> Stack {
    let stack = builder.start().await;
    sqlx::query("update queues set paused = true where name = 'default'")
        .execute(stack.pool())
        .await
        .expect("paused");
    all_parked(&stack).await;
    stack
}

async fn all_parked(stack: &Stack) {
    wait_until("a queue that is not direct", BOUND, || async {
        let direct = "select count(*) from lanes where queue = 'default' and direct";
        (stack.number(direct).await == 0).then_some(())
    })
    .await;
}

fn low(n: usize) -> Vec<JobSpec> {
    in_lane(Lane::Low, n)
}

fn in_lane(lane: Lane, n: usize) -> Vec<JobSpec> {
    let job = JobSpec {
        lane: lane.into(),
        ..spec("noop", json!({}))
    };
    vec![job; n]
}

/// Until the gateway parks, and not sends, what it takes in: it reads that every 100 ms.
async fn until_parking(stack: &Stack, caller: &Caller) {
    wait_until("parked jobs", BOUND, || async {
        let sent = "select count(*) from jobs where not parked and finished_at is null";
        let before = stack.number(sent).await;
        caller.submit_spec(in_lane(Lane::High, 1).remove(0)).await;
        (stack.number(sent).await == before).then_some(())
    })
    .await;
    // What was sent goes to the workers or comes back; here it is of no interest.
    sqlx::query("delete from jobs")
        .execute(stack.pool())
        .await
        .expect("removed");
    wait_until("a count of nothing", BOUND, || async {
        let counted = "select coalesce(sum(backlog), 0)::bigint from lanes where backlog_at > now() - interval '5 s'";
        (stack.number(counted).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_full_queue_refuses_low_work_first_and_takes_more_when_it_is_emptied() {
    let builder = Stack::builder().env("TENURE_ADMISSION__MAX_BACKLOG_PER_QUEUE", "100");
    let stack = paused(builder).await;
    let ann = stack.user("ann");
    until_parking(&stack, &ann).await;

    let known = || JobSpec {
        request_id: "once".to_owned(),
        ..low(1).remove(0)
    };
    let first = ann.submit_spec(known()).await;
    let (accepted, refused) = submit_all(&ann, low(300)).await;
    // With the one before them.
    let accepted = accepted + 1;
    assert!((60..=80).contains(&accepted), "{accepted}: about 80");
    for refusal in refused {
        assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
        assert_eq!(refusal.quota, ["queue:default"]);
        assert!(refusal.retry_after.is_some());
    }
    // Once the count has it, the numbers are exact as long as one gateway submits.
    let counted = async |jobs: i64| {
        wait_until(format!("a count of {jobs}"), BOUND, || async {
            let sum = "select sum(backlog)::bigint from lanes where queue = 'default'";
            (stack.number(sum).await >= jobs).then_some(())
        })
        .await;
    };
    counted(accepted as i64).await;
    let more = async |lane: Lane, to: i64| {
        wait_until(format!("{to} jobs"), BOUND, || async {
            submit_all(&ann, in_lane(lane, 10)).await;
            (stack.number("select count(*) from jobs").await >= to).then_some(())
        })
        .await;
        assert_eq!(stack.number("select count(*) from jobs").await, to);
        counted(to).await;
    };
    more(Lane::Low, 80).await;
    more(Lane::Normal, 100).await;
    let (none, _) = submit_all(&ann, low(5)).await;
    assert_eq!(none, 0, "low work waits");
    more(Lane::High, 110).await;
    let (none, refused) = submit_all(&ann, in_lane(Lane::High, 5)).await;
    assert_eq!((none, refused.len()), (0, 5));
    // Whose answer was lost is told of the job.
    let again = ann.try_submit(known()).await.expect("its job");
    assert_eq!((again.job_id, again.duplicate), (first, true));

    // Another queue takes its jobs.
    ann.submit_spec(spec("import_csv", import())).await;
    let counted = stack.sweeper(0).metrics().await.sum(
        "tenure_lane_backlog",
        &[("queue", "default"), ("lane", "low")],
    );
    assert!((counted - 80.0).abs() < f64::EPSILON, "{counted}");

    sqlx::query("update queues set paused = false where name = 'default'")
        .execute(stack.pool())
        .await
        .expect("resumed");
    wait_until("room for low work", BOUND, || async {
        ann.try_submit(low(1).remove(0)).await.ok()
    })
    .await;
}

/// A payload that the gateway takes; the job itself comes to nothing.
fn import() -> serde_json::Value {
    json!({"file_id": uuid::Uuid::now_v7().to_string(), "dataset": "d"})
}

#[tokio::test]
async fn a_queue_can_have_a_threshold_of_its_own_and_all_queues_one_together() {
    let builder = Stack::builder().env("TENURE_ADMISSION__MAX_BACKLOG", "40");
    let stack = paused(builder).await;
    let ann = stack.user("ann");
    until_parking(&stack, &ann).await;
    sqlx::query("update queues set max_backlog = 0 where name = 'imports'")
        .execute(stack.pool())
        .await
        .expect("closed");
    wait_until("a closed queue", BOUND, || async {
        let status = ann.try_submit(spec("import_csv", import())).await.err()?;
        let refusal = Refusal::of(&status);
        refusal.is(Code::ResourceExhausted, REASON).then_some(())
    })
    .await;
    wait_until("a full backlog", BOUND, || async {
        let (_, refused) = submit_all(&ann, in_lane(Lane::Normal, 10)).await;
        let last = refused.last()?;
        // In doubt a job counts twice for a moment, so the last one may need another try; and
        // what is counted late may let some through.
        let jobs = stack.number("select count(*) from jobs where queue = 'default'");
        let full = (38..=42).contains(&jobs.await);
        (last.quota == ["admission.max_backlog"] && full).then_some(())
    })
    .await;
}
