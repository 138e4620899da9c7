//! The broker away, or its queues: what was accepted runs.

use std::time::Duration;

use serde_json::json;
use tenure_tests::amqp::queue_name;
use tenure_tests::caller::spec;
use tenure_tests::services::{Stopped, delete_queue};
use tenure_tests::v1::SubmitJobsRequest;
use tenure_tests::{Caller, JobState, Kind, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(2);

/// Submits so many jobs in one call.
async fn submit(caller: &Caller, count: usize) {
    let jobs = vec![spec("noop", json!({})); count];
    let answer = caller.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
    let outcomes = answer.expect("accepted").into_inner().outcomes;
    assert_eq!(outcomes.len(), count);
}

/// Waits until so many jobs have succeeded, each at its first attempt.
async fn all_succeed(stack: &Stack, count: i64) {
    let done = "select count(*) from jobs where status = 'success' and attempt = 1";
    wait_until(format!("{count} jobs done"), BOUND, || async {
        (stack.number(done).await == count).then_some(())
    })
    .await;
    assert_eq!(stack.number("select count(*) from jobs").await, count);
}

#[tokio::test]
async fn an_outage_of_the_broker_stops_no_submit_and_loses_no_job() {
    let stack = Stack::builder().workers(2).start().await;
    let ann = stack.user("ann");
    submit(&ann, 20).await;
    all_succeed(&stack, 20).await;

    let stopped = Stopped::stop("rabbitmq").await;
    // At once, and when every process has seen that the broker is away.
    submit(&ann, 50).await;
    wait_until("the publisher without a connection", BOUND, || async {
        let metrics = stack.gateway(0).metrics().await;
        let up = metrics.sum("tenure_broker_connected", &[("role", "publisher")]);
        (up < 0.5).then_some(())
    })
    .await;
    submit(&ann, 50).await;
    let waiting = ann.submit("noop", json!({})).await;
    assert_eq!(ann.get(&waiting).await.state(), JobState::Pending);
    let (live, _) = stack.gateway(0).get("/livez").await;
    assert_eq!(live, 200);
    stopped.start().await;
    all_succeed(&stack, 121).await;
    submit(&ann, 20).await;
    all_succeed(&stack, 141).await;
}

#[tokio::test]
async fn queues_that_are_deleted_while_jobs_wait_lose_none() {
    let stack = Stack::builder().asleep(Kind::Worker).start().await;
    let ann = stack.user("ann");
    submit(&ann, 100).await;
    let queue = queue_name("default", "normal");
    let broker = stack.broker().await;
    wait_until("messages", BOUND, || async {
        (broker.ready(&queue).await > 0).then_some(())
    })
    .await;
    for lane in ["high", "normal", "low"] {
        delete_queue(stack.vhost_name(), &queue_name("default", lane)).await;
    }
    stack.worker(0).start().await;
    all_succeed(&stack, 100).await;

    // Again, from under the consumers.
    delete_queue(stack.vhost_name(), &queue).await;
    submit(&ann, 100).await;
    all_succeed(&stack, 200).await;
}
