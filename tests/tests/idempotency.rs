//! One event delivered again and again has one effect.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};
use serde_json::json;
use tenure_tests::amqp::{bundle, envelope, queue_name};
use tenure_tests::{JobState, Kind, Sink, Stack, wait_until};

const BOUND: Duration = Duration::from_secs(90);
const COPIES: usize = 10;

/// What a broker adds to a message that it delivers again.
fn redelivered(count: i64) -> FieldTable {
    let mut headers = FieldTable::default();
    headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(count));
    headers
}

/// Deliveries that the workers have decided on, whatever the decision.
async fn decided(stack: &Stack) -> f64 {
    let mut sum = 0.0;
    for worker in stack.workers() {
        let metrics = worker.metrics().await;
        sum += metrics.sum("tenure_deliveries_total", &[("verdict", "accepted")]);
    }
    sum
}

/// Puts ten copies into two queues of the same workers, and waits until each was decided
/// on and acknowledged.
async fn deliver_copies(stack: &Stack, job_id: &str) {
    let before = decided(stack).await;
    send_copies(stack, job_id).await;
    wait_until("the copies decided on", BOUND, || async {
        (decided(stack).await >= before + COPIES as f64).then_some(())
    })
    .await;
}

async fn send_copies(stack: &Stack, job_id: &str) {
    let broker = stack.broker().await;
    for copy in 0..COPIES {
        let lane = if copy % 2 == 0 { "normal" } else { "high" };
        let headers = redelivered(copy as i64);
        let body = envelope(job_id, 1, "effect", "ann");
        broker
            .send(&queue_name("default", lane), &body, headers)
            .await;
    }
}

async fn empty(stack: &Stack) {
    let broker = stack.broker().await;
    wait_until("empty queues", BOUND, || async {
        for lane in ["high", "normal", "low"] {
            if broker.ready(&queue_name("default", lane)).await > 0 {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn ten_copies_on_two_workers_before_while_and_after_it_runs_are_one_effect() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .workers(2)
        .slots(16)
        .asleep(Kind::Worker)
        .start()
        .await;
    let ann = stack.user("ann");
    let payload = json!({"url": sink.url(), "key": "mail-42"});
    let job_id = ann.submit("effect", payload).await;

    // Before: the copies wait beside the job's own message when the workers come.
    send_copies(&stack, &job_id).await;
    for worker in stack.workers() {
        worker.spawn();
    }
    for worker in stack.workers() {
        worker.ready().await;
    }
    // The job's own message may be among them, or have come too late to be sent at all.
    wait_until("the first effect", BOUND, || async {
        (sink.count("mail-42") > 0).then_some(())
    })
    .await;
    wait_until("the first copies decided on", BOUND, || async {
        (decided(&stack).await >= COPIES as f64).then_some(())
    })
    .await;
    assert_eq!(sink.count("mail-42"), 1, "before it ran");

    // While: the listener has not answered yet.
    deliver_copies(&stack, &job_id).await;
    assert_eq!(ann.get(&job_id).await.state(), JobState::Running);
    assert_eq!(sink.count("mail-42"), 1, "while it ran");

    sink.open(true);
    let done = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!((done.attempt, done.run), (1, 1));

    // After.
    deliver_copies(&stack, &job_id).await;
    empty(&stack).await;
    assert_eq!(sink.count("mail-42"), 1, "after it ran");
    let after = ann.get(&job_id).await;
    assert_eq!(after.revision, done.revision, "a copy has changed the job");
    let ledger: Vec<(String, i32)> =
        sqlx::query_as("select status, run from processed_events where event_id = $1::uuid")
            .bind(&job_id)
            .fetch_all(stack.pool())
            .await
            .expect("the ledger");
    assert_eq!(ledger, [("done".to_owned(), 1)]);
    assert_eq!(
        stack.number("select count(*) from processed_events").await,
        1
    );
}

#[tokio::test]
async fn one_message_fifty_times_over_two_queues_runs_once() {
    let sink = Sink::start(true).await;
    let stack = Stack::builder()
        .workers(2)
        .asleep(Kind::Worker)
        .start()
        .await;
    let ann = stack.user("ann");
    let payload = json!({"url": sink.url(), "key": "fifty"});
    let job_id = ann.submit("effect", payload).await;
    let broker = stack.broker().await;
    for copy in 0..50_i64 {
        // Alone, and together with itself.
        let one = (job_id.as_str(), 1, "effect", "ann");
        let body = if copy % 3 == 0 {
            bundle(&[one, one])
        } else {
            bundle(&[one])
        };
        let (lane, headers) = if copy % 2 == 0 {
            ("normal", redelivered(copy))
        } else {
            ("low", FieldTable::default())
        };
        broker
            .send(&queue_name("default", lane), &body, headers)
            .await;
    }
    for worker in stack.workers() {
        worker.start().await;
    }
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
    empty(&stack).await;
    // 33 with one envelope, 17 with two; the own message may not have been sent at all.
    wait_until("all deliveries decided on", BOUND, || async {
        (decided(&stack).await >= 67.0).then_some(())
    })
    .await;
    assert_eq!(sink.count("fifty"), 1);
    assert_eq!(ann.get(&job_id).await.attempt, 1);
    assert_eq!(
        stack.number("select count(*) from processed_events").await,
        1
    );
}

#[tokio::test]
async fn the_ledger_vetoes_a_run_whose_job_row_says_pending() {
    // As after a restore that brought the job back to before it ran.
    let sink = Sink::start(true).await;
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let payload = json!({"url": sink.url(), "key": "veto"});
    let job_id = ann.submit("effect", payload).await;
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
    sqlx::query(
        "update jobs set status = 'pending', finished_at = null, wake_at = now() + interval '1 hour' \
         where job_id = $1::uuid",
    )
    .bind(&job_id)
    .execute(stack.pool())
    .await
    .expect("the row put back");
    let body = envelope(&job_id, 1, "effect", "ann");
    let broker = stack.broker().await;
    broker
        .send(
            &queue_name("default", "normal"),
            &body,
            FieldTable::default(),
        )
        .await;
    wait_until("the veto", BOUND, || async {
        let metrics = stack.worker(0).metrics().await;
        let vetoes = metrics.sum("tenure_claims_total", &[("verdict", "vetoed")]);
        (vetoes > 0.0).then_some(())
    })
    .await;
    assert_eq!(sink.count("veto"), 1);
    assert_eq!(ann.get(&job_id).await.state(), JobState::Pending);
}
