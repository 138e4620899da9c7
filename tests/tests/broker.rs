//! A broker that is there and takes nothing: blocked, full, or forbidden. Submits are
//! answered all the same, and what was accepted runs when it can.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::services::{MemoryAlarm, allow_writing, close_connections};
use tenure_tests::submits::noops;
use tenure_tests::{Caller, Process, Stack, wait_until, within};

const BOUND: Duration = Duration::from_mins(2);
/// A submit that waited for a broker would take as long as a confirm, again and again.
const ANSWER: Duration = Duration::from_secs(20);

/// Submits so many jobs in one call, which must not hang.
async fn submit(caller: &Caller, count: usize) {
    within("a submit", ANSWER, caller.submit_all(noops(count))).await;
}

async fn gauge(process: &Process, name: &str) -> bool {
    let metrics = process.metrics().await;
    metrics.sum(name, &[("role", "publisher")]) > 0.5
}

#[tokio::test]
async fn a_blocked_broker_is_an_outage_that_stops_no_submit_and_loses_no_job() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    submit(&ann, 20).await;
    stack.all_succeed(20, BOUND).await;

    let alarm = MemoryAlarm::raise().await;
    // The broker tells those who publish, and not before they do.
    wait_until("a gauge that says blocked", BOUND, || async {
        submit(&ann, 1).await;
        gauge(stack.gateway(0), "tenure_broker_blocked")
            .await
            .then_some(())
    })
    .await;
    // It stays so: the connection is kept, and waits.
    submit(&ann, 200).await;
    let sent = "select count(*) from jobs where not parked and status = 'pending'";
    wait_until("all jobs in the backlog", BOUND, || async {
        (stack.number(sent).await == 0).then_some(())
    })
    .await;
    assert!(gauge(stack.gateway(0), "tenure_broker_blocked").await);
    assert!(gauge(stack.gateway(0), "tenure_broker_connected").await);
    // The dispatcher has learned it as well, in the middle of a publish.
    wait_until("a dispatcher that is blocked", BOUND, || async {
        gauge(stack.sweeper(0), "tenure_broker_blocked")
            .await
            .then_some(())
    })
    .await;
    let (live, _) = stack.gateway(0).get("/livez").await;
    assert_eq!(live, 200);

    drop(alarm);
    let log = stack.sweeper(0).log();
    assert!(!log.contains("publishing connection lost"), "it is kept");
    let all = stack.number("select count(*) from jobs").await;
    stack.all_succeed(all, BOUND).await;
    assert!(!gauge(stack.gateway(0), "tenure_broker_blocked").await);
    submit(&ann, 20).await;
    stack.all_succeed(all + 20, BOUND).await;
}

#[tokio::test]
async fn a_worker_that_is_full_again_and_again_keeps_its_connection() {
    let stack = Stack::builder()
        .slots(2)
        .env("TENURE_WORKER__HOLD_UNCLAIMED", "50ms")
        .env("TENURE_GATEWAY__PUBLISH_BUNDLE_MAX", "1")
        .start()
        .await;
    // A message for each job, whoever sends them.
    sqlx::query("update lanes set bundle_max = 1")
        .execute(stack.pool())
        .await
        .expect("small bundles");
    let job = spec("sleep", json!({"ms": 30}));
    stack.user("ann").submit_all(vec![job; 500]).await;
    stack.all_succeed(500, BOUND).await;
    let log = stack.worker(0).log();
    assert!(!log.contains("connection lost"), "{log}");
}

#[tokio::test]
async fn a_broker_that_forbids_publishing_stops_no_submit_and_loses_no_job() {
    let stack = Stack::builder()
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    submit(&ann, 20).await;
    stack.all_succeed(20, BOUND).await;
    allow_writing(stack.vhost_name(), "^$").await;
    // A channel that is in use keeps what it was allowed.
    close_connections(stack.vhost_name()).await;
    submit(&ann, 50).await;
    wait_until("a publish that is refused", BOUND, || async {
        submit(&ann, 1).await;
        let log = stack.gateway(0).log();
        log.contains("ACCESS_REFUSED").then_some(())
    })
    .await;
    submit(&ann, 50).await;
    allow_writing(stack.vhost_name(), ".*").await;
    let all = stack.number("select count(*) from jobs").await;
    stack.all_succeed(all, BOUND).await;
}

#[tokio::test]
async fn queues_that_are_full_refuse_and_lose_no_job() {
    let stack = Stack::builder()
        .env("TENURE_BROKER__MAX_LENGTH", "100")
        .env("TENURE_BROKER__QUEUE_TYPE", "classic")
        .env("TENURE_GATEWAY__PUBLISH_BUNDLE_MAX", "1")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .asleep(tenure_tests::Kind::Worker)
        .start()
        .await;
    // A message for each job, whoever sends them.
    sqlx::query("update lanes set bundle_max = 1")
        .execute(stack.pool())
        .await
        .expect("small bundles");
    let ann = stack.user("ann");
    submit(&ann, 300).await;
    wait_until("messages that are refused", BOUND, || async {
        let mut refused = 0.0;
        for process in [stack.gateway(0), stack.sweeper(0)] {
            let metrics = process.metrics().await;
            refused += metrics.sum("tenure_publish_total", &[("result", "nacked")]);
        }
        (refused > 0.5).then_some(())
    })
    .await;
    stack.worker(0).start().await;
    stack.all_succeed(300, BOUND).await;
}
