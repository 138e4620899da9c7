//! The chore of waking on a real database.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::config::Config;
use tenure_core::domain::ids::JobId;
use tenure_core::storage::Store;
use tenure_core::storage::history::HistoryWriter;
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::test_util::TestDb;
use tenure_sweeper::chores::wake::Wake;

const FLUSH: Duration = Duration::from_secs(10);
/// More runs than it takes.
const RUNS: usize = 20;

/// A job that is to be failed as expired when it is woken.
async fn expired(store: &Store) -> JobId {
    let id = JobId::new();
    sqlx::query(
        "insert into jobs (job_id, user_id, queue, lane, job_type, payload, parked, wake_at, expires_at, max_attempts, \
         timeout_ms) values ($1, 'ada', 'default', 2, 'noop', '{}', true, now() - interval '1 s', \
         now() - interval '1 s', 3, 60000)",
    )
    .bind(id.uuid())
    .execute(store.pool())
    .await
    .expect("a job");
    id
}

async fn state(store: &Store, id: JobId) -> String {
    sqlx::query_scalar("select status from jobs where job_id = $1")
        .bind(id.uuid())
        .fetch_one(store.pool())
        .await
        .expect("a state")
}

#[tokio::test]
async fn one_row_that_somebody_locks_keeps_no_other_asleep() {
    let db = TestDb::create().await;
    let store = &db.store;
    let metrics = Arc::new(Metrics::default());
    let history = HistoryWriter::start(store.clone(), metrics.clone());
    let mut wake = Wake::new(
        store.clone(),
        &Config::default(),
        history.clone(),
        metrics.clone(),
    );
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(expired(store).await);
    }
    // Somebody is about to write the row of one of them in the ledger.
    let mut tx = store.pool().begin().await.expect("begins");
    sqlx::query("insert into processed_events (event_id, run, status) values ($1, 1, 'failed')")
        .bind(jobs[1].uuid())
        .execute(&mut *tx)
        .await
        .expect("writes");
    // A statement that has just failed may hold its rows for another moment: what is skipped
    // for that is woken by the next run.
    let mut woken = 0;
    for _ in 0..RUNS {
        woken += wake.run_once().await.expect("a run").woken;
        if woken == 3 {
            break;
        }
    }
    assert_eq!(woken, 3);
    history.flush(FLUSH).await;
    for (place, id) in jobs.iter().enumerate() {
        let told = store.history_of(*id, 10).await.expect("a history");
        let expected = if place == 1 {
            ("pending", 0)
        } else {
            ("failed", 1)
        };
        let found = state(store, *id).await;
        assert_eq!((found.as_str(), told.len()), expected, "job {place}");
    }
    tx.rollback().await.expect("rolls back");
    for _ in 0..RUNS {
        if wake.run_once().await.expect("a run").woken == 1 {
            break;
        }
    }
    assert_eq!(state(store, jobs[1]).await, "failed");
}
