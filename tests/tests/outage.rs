//! The broker away, or its queues: what was accepted runs.

use std::time::Duration;

use serde_json::json;
use tenure_tests::amqp::queue_name;
use tenure_tests::caller::spec;
use tenure_tests::services::{Stopped, close_connections, delete_queue};
use tenure_tests::submits::noops;
use tenure_tests::v1::JobSpec;
use tenure_tests::{JobState, Kind, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(2);

#[tokio::test]
async fn an_outage_of_the_broker_stops_no_submit_and_loses_no_job() {
    let stack = Stack::builder().workers(2).start().await;
    let ann = stack.user("ann");
    ann.submit_all(noops(20)).await;
    stack.all_succeed(20, BOUND).await;

    let stopped = Stopped::stop("rabbitmq").await;
    // At once, and when every process has seen that the broker is away.
    ann.submit_all(noops(50)).await;
    wait_until("the publisher without a connection", BOUND, || async {
        let metrics = stack.gateway(0).metrics().await;
        let up = metrics.sum("tenure_broker_connected", &[("role", "publisher")]);
        (up < 0.5).then_some(())
    })
    .await;
    ann.submit_all(noops(50)).await;
    let waiting = ann.submit("noop", json!({})).await;
    assert_eq!(ann.get(&waiting).await.state(), JobState::Pending);
    let (live, _) = stack.gateway(0).get("/livez").await;
    assert_eq!(live, 200);
    stopped.start().await;
    stack.all_succeed(121, BOUND).await;
    ann.submit_all(noops(20)).await;
    stack.all_succeed(141, BOUND).await;
}

#[tokio::test]
async fn queues_that_are_deleted_while_jobs_wait_lose_none() {
    let stack = Stack::builder().asleep(Kind::Worker).start().await;
    let ann = stack.user("ann");
    ann.submit_all(noops(100)).await;
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
    stack.all_succeed(100, BOUND).await;

    // Again, from under the consumers.
    delete_queue(stack.vhost_name(), &queue).await;
    ann.submit_all(noops(100)).await;
    stack.all_succeed(200, BOUND).await;
}

#[tokio::test]
async fn bindings_and_an_exchange_that_are_deleted_come_back_by_themselves() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    ann.submit_all(noops(5)).await;
    stack.all_succeed(5, BOUND).await;

    let broker = stack.broker().await;
    broker.unbind("default", "normal").await;
    ann.submit_all(noops(20)).await;
    stack.all_succeed(25, BOUND).await;

    broker.delete_exchange().await;
    ann.submit_all(noops(20)).await;
    stack.all_succeed(45, BOUND).await;
}

/// The server stays and every new session may only read: what a pool finds that has
/// reconnected to a standby.
#[tokio::test]
async fn connections_that_may_only_read_are_replaced_when_the_database_is_whole_again() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let read_only = |value: &str| {
        format!(
            "alter database \"{}\" {value}",
            stack.database_name().replace('"', "\"\"")
        )
    };
    let end_sessions = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
         where datname = current_database() and pid <> pg_backend_pid()";
    let set = read_only("set default_transaction_read_only = on");
    let mut session = stack.pool().acquire().await.expect("a session");
    sqlx::raw_sql(sqlx::AssertSqlSafe(set))
        .execute(&mut *session)
        .await
        .expect("set");
    sqlx::raw_sql(end_sessions)
        .execute(&mut *session)
        .await
        .expect("ended");
    wait_until("refused uploads", BOUND, || async {
        let error = ann.try_upload("a.csv", b"id\n1\n").await.err()?;
        (error.code() == tonic::Code::Unavailable).then_some(())
    })
    .await;
    let reset = read_only("reset default_transaction_read_only");
    sqlx::raw_sql(sqlx::AssertSqlSafe(reset))
        .execute(&mut *session)
        .await
        .expect("reset");
    drop(session);

    wait_until("an upload", BOUND, || async {
        ann.try_upload("b.csv", b"id\n2\n").await.ok()
    })
    .await;
    let mut refused = 0;
    for number in 0..30 {
        let name = format!("{number}.csv");
        refused += usize::from(ann.try_upload(&name, b"id\n3\n").await.is_err());
    }
    assert!(refused <= 1, "{refused} of 30 uploads met an old session");
    ann.submit_all(noops(50)).await;
    stack.all_succeed(50, BOUND).await;
}

#[tokio::test]
async fn an_outage_of_the_database_spends_no_attempt() {
    let stack = Stack::builder()
        .workers(2)
        .lease("3s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    // One attempt each: a counted loss would be the end of the job.
    let once = |ms: u64| JobSpec {
        max_attempts: 1,
        ..spec("sleep", json!({"ms": ms}))
    };
    let mut long = Vec::new();
    for _ in 0..6 {
        long.push(ann.submit_spec(once(4_000)).await);
    }
    for id in &long {
        ann.wait_state(id, JobState::Running, BOUND).await;
    }
    let stopped = Stopped::stop("postgres").await;
    // Every handler is stopped before its lease ends, since it cannot be renewed.
    wait_until("all leases given up", BOUND, || async {
        let mut lost = 0.0;
        for worker in stack.workers() {
            let metrics = worker.metrics().await;
            lost += metrics.sum("tenure_lease_lost_total", &[]);
        }
        (lost >= 6.0).then_some(())
    })
    .await;
    stopped.start().await;
    for id in &long {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (1, 2));
    }
    assert_eq!(stack.number("select count(*) from dead_letters").await, 0);
    let lost = "select coalesce(sum(lost), 0)::bigint from jobs";
    assert_eq!(stack.number(lost).await, 0);
    let metrics = stack.sweeper(0).metrics().await;
    let returned = metrics.sum(
        "tenure_attempts_returned_total",
        &[("kind", "database_restart")],
    );
    assert!((returned - 6.0).abs() < 0.5, "{returned}");
    // And what comes now runs as ever.
    let next = ann.submit_spec(once(1)).await;
    ann.wait_state(&next, JobState::Success, BOUND).await;
}

#[tokio::test]
async fn connections_to_the_broker_that_break_while_jobs_are_retried_double_no_run() {
    let stack = Stack::builder()
        .workers(2)
        .env("TENURE_BACKOFF_BASE", "100ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let jobs = vec![spec("fail", json!({"times": 2})); 30];
    ann.submit_all(jobs).await;
    let done = "select count(*) from jobs where status = 'success'";
    wait_until("thirty jobs done", BOUND, || async {
        close_connections(stack.vhost_name()).await;
        (stack.number(done).await == 30).then_some(())
    })
    .await;
    // Each run was one attempt: none was executed twice, none was skipped.
    let right = "select count(*) from jobs where attempt = 3 and run = 3";
    assert_eq!(stack.number(right).await, 30);
    let ledger = "select count(*) from processed_events where status = 'done' and run = 3";
    assert_eq!(stack.number(ledger).await, 30);
}
