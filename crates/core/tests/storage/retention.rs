//! What retention lets go, and what it keeps: row by row, and walk by walk.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tenure_core::domain::ids::JobId;
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::{Decision, Verb};
use tenure_core::test_util::TestDb;
use uuid::{NoContext, Timestamp, Uuid};

const DAY: Duration = Duration::from_hours(24);
const KEEP: Duration = Duration::from_hours(30 * 24);

/// An id that was made so many days ago.
fn id_of(days: u32) -> Uuid {
    let then = Utc::now() - DAY * days;
    Uuid::new_v7(Timestamp::from_unix(
        NoContext,
        then.timestamp().unsigned_abs(),
        0,
    ))
}

fn ago(days: u32) -> DateTime<Utc> {
    Utc::now() - DAY * days
}

async fn run(store: &Store, sql: &'static str, id: Uuid, at: Option<DateTime<Utc>>, text: &str) {
    sqlx::query(sql)
        .bind(id)
        .bind(at)
        .bind(text)
        .execute(store.pool())
        .await
        .expect(sql);
}

/// A job of that age with a log line and a history entry; `ended`: so many days ago.
async fn job(store: &Store, days: u32, status: &str, ended: Option<u32>) -> Uuid {
    let id = id_of(days);
    run(
        store,
        "insert into jobs (job_id, user_id, queue, job_type, lane, payload, max_attempts, timeout_ms, status, \
         finished_at, wake_at, dedupe_key) values ($1, 'ada', 'default', 'noop', 2, '{}', 3, 1000, $3, $2, \
         case when $2 is null then now() end, $1::text)",
        id,
        ended.map(ago),
        status,
    )
    .await;
    run(
        store,
        "insert into job_logs (job_id, run, at, entry_id, level, message) values ($1, 1, coalesce($2, now()), $1, 'INFO', $3)",
        id,
        None,
        "a line",
    )
    .await;
    run(
        store,
        "insert into job_history (job_id, run, at, entry_id, from_state, to_state, attempt) \
         values ($1, 1, coalesce($2, now()), $1, 'running', $3, 1)",
        id,
        None,
        "retrying",
    )
    .await;
    id
}

async fn letter(store: &Store, job: Uuid, status: &str) {
    run(
        store,
        "insert into dead_letters (id, job_id, message_key, queue_name, payload, error_code, error_class, attempts, \
         replayable, status, last_failed_at) values ($1, $1, $1::text, 'default', '{}', 'PANIC', 'permanent', 3, true, \
         $3, coalesce($2, (select finished_at from jobs where job_id = $1), now()))",
        job,
        None,
        status,
    )
    .await;
}

/// Binds the job's key, or a request id of its name: until then, and after its end.
async fn bind(store: &Store, job: Uuid, until: &str, after_end_days: i32) {
    sqlx::query(
        "insert into job_dedupe (user_id, scope, key, job_id, fingerprint, bound_until, after_end) \
         values ('ada', 'noop', $1::text, $1, 'f', $2::text::timestamptz, make_interval(days => $3))",
    )
    .bind(job)
    .bind(until)
    .bind(after_end_days)
    .execute(store.pool())
    .await
    .expect("binds");
}

/// What keys say of jobs that are gone.
async fn ends(store: &Store) -> Vec<(Uuid, Option<String>)> {
    sqlx::query_as("select job_id, ended from job_dedupe order by job_id")
        .fetch_all(store.pool())
        .await
        .expect("keys")
}

async fn ids(store: &Store, sql: &'static str) -> Vec<Uuid> {
    sqlx::query_scalar(sql)
        .fetch_all(store.pool())
        .await
        .expect(sql)
}

/// Walks to the end, three rows at a time.
async fn walk_jobs(store: &Store) -> u64 {
    let (mut after, mut removed): (Option<JobId>, u64) = (None, 0);
    loop {
        let step = store.prune_jobs(after, KEEP, 3).await.expect("a step");
        removed += step.removed;
        after = step.next;
        if after.is_none() {
            return removed;
        }
    }
}

async fn walk_keys(store: &Store) -> u64 {
    let (mut after, mut removed) = (None, 0);
    loop {
        let step = store.prune_keys(after.as_ref(), 2).await.expect("a step");
        removed += step.removed;
        after = step.next;
        if after.is_none() {
            return removed;
        }
    }
}

#[tokio::test]
async fn ended_jobs_go_with_what_hangs_on_them_and_the_rest_stays() {
    let db = TestDb::create().await;
    let store = &db.store;
    let mut gone = Vec::new();
    for (age, ended) in [(90, 31), (40, 32), (33, 33), (60, 45)] {
        gone.push(job(store, age, "success", Some(ended)).await);
    }
    gone.push(job(store, 70, "cancelled", Some(69)).await);
    let resolved = job(store, 80, "failed", Some(79)).await;
    letter(store, resolved, "resolved").await;
    gone.push(resolved);
    // A key that binds nothing any more goes with the job that it named: alone, it would
    // answer the next submit with a job that is gone.
    let keyed = job(store, 52, "success", Some(51)).await;
    bind(store, keyed, "2020-01-01", 1).await;
    gone.push(keyed);
    let for_ever = job(store, 50, "success", Some(49)).await;
    bind(store, for_ever, "infinity", 0).await;
    gone.push(for_ever);

    let mut kept = vec![
        job(store, 40, "success", Some(29)).await,
        job(store, 90, "pending", None).await,
        job(store, 1, "success", Some(0)).await,
    ];
    for status in ["open", "ignored"] {
        let failed = job(store, 85, "failed", Some(84)).await;
        letter(store, failed, status).await;
        kept.push(failed);
    }
    // Its key is bound until forty days after its end, and it alone knows the end.
    let bound = job(store, 50, "success", Some(35)).await;
    bind(store, bound, "2020-01-01", 40).await;
    kept.push(bound);

    assert_eq!(walk_jobs(store).await, gone.len() as u64);
    let mut keys = vec![for_ever, bound];
    keys.sort();
    let left = ids(store, "select job_id from job_dedupe order by 1").await;
    assert_eq!(left, keys);
    kept.sort();
    for sql in [
        "select job_id from jobs order by 1",
        "select job_id from job_logs order by 1",
        "select job_id from job_history order by 1",
    ] {
        assert_eq!(ids(store, sql).await, kept, "{sql}");
    }
    assert_eq!(walk_jobs(store).await, 0);
}

#[tokio::test]
async fn a_job_that_is_replayed_meanwhile_stays() {
    let db = TestDb::create().await;
    let store = &db.store;
    let replayed = job(store, 80, "failed", Some(79)).await;
    letter(store, replayed, "resolved").await;
    // Another transaction has it: it is passed over, without waiting.
    let mut other = store.pool().begin().await.expect("begins");
    sqlx::query("select 1 from jobs where job_id = $1 for no key update")
        .bind(replayed)
        .execute(&mut *other)
        .await
        .expect("locks");
    assert_eq!(walk_jobs(store).await, 0);
    other.rollback().await.expect("ends");
    assert_eq!(walk_jobs(store).await, 1);
}

#[tokio::test]
async fn events_outlive_their_jobs() {
    let db = TestDb::create().await;
    let store = &db.store;
    let with_job = job(store, 90, "success", Some(89)).await;
    let (young, old) = (id_of(70), id_of(70));
    for (event, touched) in [(with_job, 89), (young, 59), (old, 61)] {
        run(
            store,
            "insert into processed_events (event_id, run, status, processed_at) values ($1, 1, $3, $2)",
            event,
            Some(ago(touched)),
            "done",
        )
        .await;
    }
    let (mut after, mut removed) = (None, 0);
    loop {
        let step = store
            .prune_events(after, KEEP * 2, 1)
            .await
            .expect("a step");
        removed += step.removed;
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(removed, 1);
    let mut kept = vec![with_job, young];
    kept.sort();
    let left = ids(store, "select event_id from processed_events order by 1").await;
    assert_eq!(left, kept);
}

#[tokio::test]
async fn v7_keys_go_when_they_bind_nothing() {
    let db = TestDb::create().await;
    let store = &db.store;
    let past = "2020-01-01";
    let mut gone = Vec::new();
    for _ in 0..5 {
        let ended = job(store, 10, "success", Some(9)).await;
        bind(store, ended, past, 1).await;
        gone.push(ended);
    }
    let jobless = id_of(100);
    bind(store, jobless, past, 1).await;
    gone.push(jobless);

    let mut kept = Vec::new();
    for (status, ended, until, after_end) in [
        ("success", Some(9), "2999-01-01", 0),
        ("success", Some(9), "infinity", 0),
        ("success", Some(9), past, 10),
        ("pending", None, past, 0),
        ("retrying", None, past, 0),
    ] {
        let id = job(store, 10, status, ended).await;
        bind(store, id, until, after_end).await;
        kept.push(id);
    }
    assert_eq!(walk_keys(store).await, gone.len() as u64);
    kept.sort();
    let left = ids(store, "select job_id from job_dedupe order by 1").await;
    assert_eq!(left, kept);
}

#[tokio::test]
async fn old_notifications_go_in_steps() {
    let db = TestDb::create().await;
    let store = &db.store;
    for days in [91, 95, 200, 89, 0] {
        sqlx::query(
            "insert into notifications (id, user_id, template, dedupe_key, data) values ($1, 'ada', 't', $1::text, '{}')",
        )
        .bind(id_of(days))
        .execute(store.pool())
        .await
        .expect("stores");
    }
    for removed in [2, 1, 0] {
        let step = store.prune_notifications(DAY * 90, 2).await;
        assert_eq!(step.expect("a step"), removed);
    }
}

#[tokio::test]
async fn closed_letters_go_after_their_job_and_their_counts_with_them() {
    let db = TestDb::create().await;
    let store = &db.store;
    let mut kept = Vec::new();
    for (status, has_job) in [
        ("open", false),
        ("replayed", true),
        ("resolved", true),
        ("ignored", false),
    ] {
        let id = if has_job {
            job(store, 90, "failed", Some(89)).await
        } else {
            id_of(90)
        };
        letter(store, id, status).await;
        kept.push(id);
    }
    let gone = [id_of(90), id_of(91)];
    for id in gone {
        letter(store, id, "resolved").await;
    }
    // An ignored message that could not be read has no job that could come back.
    let unread = id_of(92);
    letter(store, unread, "ignored").await;
    let young = id_of(90);
    letter(store, young, "resolved").await;
    kept.push(young);
    run(
        store,
        "update dead_letters set job_id = case when $3 = id::text then null else job_id end, \
         status_changed_at = coalesce($2, now()) where id <> $1",
        young,
        Some(ago(40)),
        &unread.to_string(),
    )
    .await;
    store.fold_causes(1000, 500).await.expect("counts");
    let (mut after, mut removed) = (None, 0);
    loop {
        let step = store.prune_letters(after, KEEP, 2).await.expect("a step");
        removed += step.removed;
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(removed, 3);
    kept.sort();
    assert_eq!(
        ids(store, "select id from dead_letters order by 1").await,
        kept
    );
    store.fold_causes(1000, 500).await.expect("counts");
    let counts: (i64, i64, i64, i64) = sqlx::query_as(
        "select sum(open)::bigint, sum(ignored)::bigint, sum(replayed)::bigint, sum(resolved)::bigint from dead_letter_causes",
    )
    .fetch_one(store.pool())
    .await
    .expect("counts");
    assert_eq!(counts, (1, 1, 1, 2));
}

#[tokio::test]
async fn what_operators_did_goes_by_age_where_a_policy_says_so() {
    let db = TestDb::create().await;
    let store = &db.store;
    for days in [10, 40, 41] {
        let id = id_of(days);
        run(
            store,
            "insert into dead_letter_actions (action_id, letter_id, action, actor, at, status_before, status_after) \
             values ($1, $1, 'ignore', $3, coalesce($2, now()), 'open', 'ignored')",
            id,
            None,
            "olga",
        )
        .await;
        run(
            store,
            "insert into job_actions (action_id, job_id, action, actor, at, before, after) \
             values ($1, $1, 'retry_now', $3, coalesce($2, now()), '{}', '{}')",
            id,
            None,
            "olga",
        )
        .await;
    }
    assert_eq!(store.prune_audit(KEEP, 1).await.expect("a step"), 2);
    assert_eq!(store.prune_audit(KEEP, 9).await.expect("a step"), 2);
    assert_eq!(store.prune_audit(KEEP, 9).await.expect("a step"), 0);
    for sql in [
        "select action_id from dead_letter_actions",
        "select action_id from job_actions",
    ] {
        assert_eq!(ids(store, sql).await.len(), 1, "{sql}");
    }
}

#[tokio::test]
async fn a_key_that_is_bound_for_longer_keeps_how_its_job_ended() {
    let db = TestDb::create().await;
    let store = &db.store;
    let failed = job(store, 80, "failed", Some(79)).await;
    letter(store, failed, "resolved").await;
    run(
        store,
        "update dead_letters set status_changed_at = $2 where id = $1 and $3 = ''",
        failed,
        Some(ago(78)),
        "",
    )
    .await;
    let cancelled = job(store, 70, "cancelled", Some(69)).await;
    let lasting = job(store, 60, "success", Some(1)).await;
    for id in [failed, cancelled, lasting] {
        bind(store, id, "infinity", 0).await;
    }
    assert_eq!(walk_jobs(store).await, 2);
    assert_eq!(
        ends(store).await,
        [
            (failed, Some("failed".to_owned())),
            (cancelled, Some("cancelled".to_owned())),
            (lasting, None),
        ]
    );
}

#[tokio::test]
async fn a_job_stays_for_its_time_after_its_letter_was_dealt_with() {
    let db = TestDb::create().await;
    let store = &db.store;
    let changed = |id: Uuid, days: u32| {
        run(
            store,
            "update dead_letters set status_changed_at = $2, last_failed_at = now() - interval '79 days' \
             where id = $1 and $3 = ''",
            id,
            Some(ago(days)),
            "",
        )
    };
    let (just_now, long_ago) = (
        job(store, 80, "failed", Some(79)).await,
        job(store, 81, "failed", Some(79)).await,
    );
    for id in [just_now, long_ago] {
        letter(store, id, "resolved").await;
    }
    changed(just_now, 29).await;
    changed(long_ago, 31).await;
    assert_eq!(walk_jobs(store).await, 1);
    assert_eq!(ids(store, "select job_id from jobs").await, [just_now]);
}

#[tokio::test]
async fn a_job_that_somebody_has_locked_keeps_its_logs_and_history() {
    let db = TestDb::create().await;
    let store = &db.store;
    let (held, gone) = (
        job(store, 80, "failed", Some(79)).await,
        job(store, 81, "success", Some(79)).await,
    );
    letter(store, held, "resolved").await;
    run(
        store,
        "update dead_letters set status_changed_at = $2 where id = $1 and $3 = ''",
        held,
        Some(ago(60)),
        "",
    )
    .await;
    // As whoever opens a letter again does.
    let mut other = store.pool().begin().await.expect("a transaction");
    sqlx::query("select 1 from jobs where job_id = $1 for update")
        .bind(held)
        .execute(&mut *other)
        .await
        .expect("locks");
    let step = store.prune_jobs(None, KEEP, 100).await.expect("a step");
    assert_eq!(step.removed, 1);
    other.rollback().await.expect("lets go");
    for sql in [
        "select job_id from jobs",
        "select job_id from job_logs",
        "select job_id from job_history",
    ] {
        assert_eq!(ids(store, sql).await, [held], "{sql}; {gone} is gone");
    }
    assert_eq!(walk_jobs(store).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_a_letter_that_is_reopened_meanwhile_has_its_job() {
    let db = TestDb::create().await;
    let store = &db.store;
    for round in 0..40 {
        let failed = job(store, 80 + round, "failed", Some(79)).await;
        letter(store, failed, "resolved").await;
        run(
            store,
            "update dead_letters set status_changed_at = $2 where id = $1 and $3 = ''",
            failed,
            Some(ago(60)),
            "",
        )
        .await;
        let decision = Decision {
            actor: "olga".to_owned(),
            reason: "after all".to_owned(),
        };
        let letters = [failed];
        let (opened, _) = tokio::join!(
            store.decide_dead_letters(Verb::Reopen, &letters, &decision),
            store.prune_jobs(None, KEEP, 100)
        );
        opened.expect("an answer");
        let without = "select d.id from dead_letters d where d.status = 'open' \
             and not exists (select 1 from jobs j where j.job_id = d.job_id)";
        assert_eq!(ids(store, without).await, [] as [Uuid; 0], "round {round}");
    }
}
