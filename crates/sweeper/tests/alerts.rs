//! The chore of alerts on a real database.

use std::sync::Arc;

use tenure_core::config::AlertsConfig;
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::{FOLD_BATCH, MAX_CAUSES};
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::test_util::TestDb;
use tenure_sweeper::chores::Chore as _;
use tenure_sweeper::chores::alerts::Alerts;

/// Open letters of one cause that nobody has counted; they failed so many hours ago.
async fn letters(store: &Store, count: i32, hours: i32) {
    sqlx::query(
        "insert into dead_letters (id, message_key, queue_name, payload, error_code, error_class, error_message, \
         attempts, replayable, first_failed_at, last_failed_at) \
         select i, i::text, 'default', '{}', 'PANIC', 'temporary', 'no such index', 3, true, t, t \
         from (select tenure_uuid7() as i, now() - make_interval(hours => $2) as t from generate_series(1, $1)) s",
    )
    .bind(count)
    .bind(hours)
    .execute(store.pool())
    .await
    .expect("letters");
}

/// What leaves notes of letters that are written.
async fn triggers(store: &Store, what: &str) {
    let sql = format!("alter table dead_letters {what} trigger user");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(store.pool())
        .await
        .expect("triggers");
}

async fn raised(store: &Store) -> Vec<String> {
    sqlx::query_scalar("select kind from alerts order by kind")
        .fetch_all(store.pool())
        .await
        .expect("alerts")
}

#[tokio::test]
async fn the_first_start_with_old_letters_is_no_growth_and_no_new_cause() {
    let db = TestDb::create().await;
    let store = &db.store;
    let config = AlertsConfig {
        growth: 100,
        oldest_after: std::time::Duration::from_hours(1000),
        ..AlertsConfig::default()
    };
    let mut alerts = Alerts::new(store.clone(), config, Arc::new(Metrics::default()));
    // What failed first is counted last, of what a release without notes has left.
    triggers(store, "disable").await;
    letters(store, 1_500, 2).await;
    letters(store, 1_500, 3 * 24).await;
    triggers(store, "enable").await;
    for _ in 0..4 {
        alerts.run_once().await.expect("a look");
        store
            .fold_causes(FOLD_BATCH, MAX_CAUSES)
            .await
            .expect("counts");
    }
    alerts.run_once().await.expect("a look");
    assert_eq!(raised(store).await, [] as [&str; 0]);
    // What comes after that is.
    letters(store, 101, 0).await;
    store
        .fold_causes(FOLD_BATCH, MAX_CAUSES)
        .await
        .expect("counts");
    alerts.run_once().await.expect("a look");
    assert_eq!(raised(store).await, ["growth"]);
}
