//! Failed jobs with their letters, as they are left by the protocol's statements; made by
//! SQL where a test needs thousands.

use tenure_core::storage::dead_letters::Decision;
use tenure_core::test_util::TestDb;
use uuid::Uuid;

pub(crate) fn decision(reason: &str) -> Decision {
    Decision {
        actor: "olga".to_owned(),
        reason: reason.to_owned(),
    }
}

/// Failed jobs with ledger and letter, numbered from 1 on; the first failed first. The
/// message ends with the number. Their letters' ids, in this order.
pub(crate) async fn failed_jobs(db: &TestDb, count: i32, message: &str) -> Vec<Uuid> {
    sqlx::query_scalar(
        "with n as materialized (select n, tenure_uuid7() as id, now() - ($1 - n + 1) * interval '1 second' as at \
         from generate_series(1, $1) n), \
         j as (insert into jobs (job_id, status, run, attempt, max_attempts, lane, created_at, started_at, finished_at, \
         timeout_ms, user_id, queue, job_type, payload) \
         select id, 'failed', 1, 1, 5, 2, at, at, at, 60000, 'ada', 'default', 'noop', '{}' from n), \
         p as (insert into processed_events (event_id, run, status) select id, 1, 'failed' from n), \
         d as (insert into dead_letters (id, job_id, message_key, queue_name, job_type, user_id, payload, error_code, \
         error_class, error_message, attempts, replayable, status, first_failed_at, last_failed_at) \
         select id, id, id::text, 'default', 'noop', 'ada', '{}', 'DOWNSTREAM', 'permanent', $2 || n, 1, true, 'open', at, at \
         from n) \
         select id from n order by n",
    )
    .bind(count)
    .bind(message)
    .fetch_all(db.store.pool())
    .await
    .expect("inserts")
}

/// Runs any SQL, as an operator or a disaster would.
pub(crate) async fn sql(db: &TestDb, sql: &str) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(db.store.pool())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// One number.
pub(crate) async fn count(db: &TestDb, sql: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
        .fetch_one(db.store.pool())
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}
