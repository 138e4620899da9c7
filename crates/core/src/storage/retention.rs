//! What may go after its time: ended jobs with their history and logs, the ledger, keys
//! that bind nothing any more, and notifications (requirement J5).
//!
//! Each step looks at a bounded number of rows from a cursor on, by the primary key alone:
//! ids are UUIDv7, so old rows come first and no index is kept for this. What is kept on
//! purpose (a job with an open dead letter) is walked over. Any number of sweepers may do
//! this at once; a row that somebody else has locked is left for the next walk.

use std::time::Duration;

use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::error::Result;

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("retention_jobs_page", JOBS_PAGE),
    ("retention_jobs_lock", LOCK_JOBS),
    ("retention_jobs_sure", SURE),
    ("retention_logs", LOGS),
    ("retention_history", HISTORY),
    ("retention_jobs", JOBS),
    ("retention_events", EVENTS),
    ("retention_keys", KEYS),
    ("retention_notifications", NOTIFICATIONS),
];

/// The most log lines or history entries that one statement removes.
const STEP_ENTRIES: i64 = 5_000;

/// The jobs that one transaction removes, with all that hangs on them.
const JOBS_AT_ONCE: usize = 100;

/// The least UUIDv7 of that long ago.
macro_rules! oldest {
    ($age_ms:literal) => {
        concat!(
            "(lpad(to_hex((extract(epoch from now() - ",
            $age_ms,
            "::bigint * interval '1 ms') * 1000)::bigint), 12, '0') || '00000000000000000000')::uuid"
        )
    };
}

pub(super) use oldest;

/// A job that can be replayed stays: its letter would lead nowhere. Where an operator has
/// dealt with the letter, the job's time counts from then on: they may change their mind.
macro_rules! no_letter_needs_it {
    () => {
        "(j.status <> 'failed' or not exists (select 1 from dead_letters d \
         where d.job_id = j.job_id and (d.status in ('open', 'ignored') \
         or coalesce(d.status_changed_at, d.last_failed_at) >= now() - $2::bigint * interval '1 ms')))"
    };
}

/// While its key is bound by its end, the job is the evidence of that end. A key that is
/// bound for ever needs none.
const JOBS_PAGE: &str = concat!(
    "select j.job_id, coalesce(j.finished_at < now() - $2::bigint * interval '1 ms', false) and ",
    no_letter_needs_it!(),
    " and not exists (select 1 from job_dedupe k where k.user_id = j.user_id and k.scope = j.job_type \
     and k.key = j.dedupe_key and k.job_id = j.job_id and k.bound_until < 'infinity' \
     and greatest(k.bound_until, j.finished_at + coalesce(k.after_end, interval '0')) > now()) as may_go \
     from jobs j where j.job_id > $1 and j.job_id < ",
    oldest!("$2"),
    " order by j.job_id limit $3"
);
/// A statement of its own: whoever decides about a letter holds the lock of its job, and what
/// they have committed before this one got it is seen by the next.
const LOCK_JOBS: &str =
    "select job_id from jobs where job_id = any($1) order by job_id for update skip locked";
/// Looks again at what is locked: a job may have been replayed meanwhile, or its letter
/// opened again.
const SURE: &str = concat!(
    "select j.job_id from jobs j where j.job_id = any($1) and j.finished_at < now() - $2::bigint * interval '1 ms' and ",
    no_letter_needs_it!()
);
/// A job's key goes with it where it binds nothing: the next submit with it would be answered
/// by a job that is gone. One that is bound for longer keeps how the job ended.
const JOBS: &str = "with l as materialized (select j.job_id, j.user_id, j.job_type, j.dedupe_key, j.status \
     from jobs j where j.job_id = any($1)), \
     k as (delete from job_dedupe k using l where k.user_id = l.user_id and k.scope = l.job_type and k.key = l.dedupe_key \
     and k.job_id = l.job_id and k.bound_until <= now()), \
     e as (update job_dedupe k set ended = l.status from l where k.user_id = l.user_id and k.scope = l.job_type \
     and k.key = l.dedupe_key and k.job_id = l.job_id and k.bound_until > now()) \
     delete from jobs j using l where j.job_id = l.job_id";
macro_rules! entries {
    ($table:literal) => {
        concat!(
            "delete from ",
            $table,
            " where ctid = any(array(select ctid from ",
            $table,
            " where job_id = any($1) limit $2 for update skip locked))"
        )
    };
}
const LOGS: &str = entries!("job_logs");
const HISTORY: &str = entries!("job_history");
/// An event outlives its job: it tells a late duplicate of a removed job from a lost row.
const EVENTS: &str = concat!(
    "with page as materialized (select event_id from processed_events where event_id > $1 and event_id < ",
    oldest!("$2"),
    " order by event_id limit $3), \
     d as (delete from processed_events p using page where p.event_id = page.event_id \
     and p.processed_at < now() - $2::bigint * interval '1 ms' \
     and not exists (select 1 from jobs j where j.job_id = p.event_id) returning 1) \
     select (select event_id from page order by event_id desc limit 1), (select count(*) from d)"
);
/// A key goes when it binds nothing: its period is over and its job has ended long enough
/// ago, or is gone. Whoever submits with it meanwhile has it locked.
const KEYS: &str = "\
with page as materialized (select user_id, scope, key from job_dedupe where (user_id, scope, key) > ($1, $2, $3)
    order by user_id, scope, key limit $4),
l as materialized (select d.user_id, d.scope, d.key from page p
    join job_dedupe d on d.user_id = p.user_id and d.scope = p.scope and d.key = p.key
    where d.bound_until <= now() and not exists (select 1 from jobs j where j.job_id = d.job_id
        and (j.finished_at is null or j.finished_at + coalesce(d.after_end, interval '0') > now()))
    for update of d skip locked),
d as (delete from job_dedupe d using l where d.user_id = l.user_id and d.scope = l.scope and d.key = l.key returning 1),
e as (select user_id, scope, key from page order by user_id desc, scope desc, key desc limit 1)
select e.user_id, e.scope, e.key, (select count(*) from d) from e";
const NOTIFICATIONS: &str = concat!(
    "delete from notifications where ctid = any(array(select ctid from notifications where id < ",
    oldest!("$1"),
    " order by id limit $2 for update skip locked))"
);

/// What a step did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<C> {
    /// Rows that it removed.
    pub removed: u64,
    /// Where the next one goes on; `None`: the walk is at its end.
    pub next: Option<C>,
}

/// The id of an event.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventCursor(Uuid);

/// The primary key of a dedupe key.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct KeyCursor {
    user_id: String,
    scope: String,
    key: String,
}

impl Store {
    /// Removes ended jobs among the next `limit`, with their logs and history, where they
    /// ended longer ago than `keep`.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; some jobs may be gone then, each with all that hung on it.
    pub async fn prune_jobs(
        &self,
        after: Option<JobId>,
        keep: Duration,
        limit: i64,
    ) -> Result<Step<JobId>> {
        let page: Vec<(Uuid, bool)> = sqlx::query_as(JOBS_PAGE)
            .bind(after.map_or(Uuid::nil(), JobId::uuid))
            .bind(millis(keep))
            .bind(limit)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let next = (page.len() as i64 == limit)
            .then(|| page.last().map(|(job_id, _)| JobId(*job_id)))
            .flatten();
        let old: Vec<Uuid> = page
            .into_iter()
            .filter_map(|(job_id, may_go)| may_go.then_some(job_id))
            .collect();
        let mut removed = 0;
        for part in old.chunks(JOBS_AT_ONCE) {
            removed += self.prune_part(part, keep).await.map_err(db_error)?;
        }
        Ok(Step { removed, next })
    }

    /// Removes these jobs where they are still to go, with their logs and history: all of a
    /// job or nothing. Whoever decides about a letter waits for the lock, or is not waited for.
    async fn prune_part(&self, jobs: &[Uuid], keep: Duration) -> Result<u64, sqlx::Error> {
        let mut tx = self.pool().begin().await?;
        let held: Vec<Uuid> = sqlx::query_scalar(LOCK_JOBS)
            .bind(jobs)
            .fetch_all(&mut *tx)
            .await?;
        let sure: Vec<Uuid> = sqlx::query_scalar(SURE)
            .bind(&held)
            .bind(millis(keep))
            .fetch_all(&mut *tx)
            .await?;
        if sure.is_empty() {
            return Ok(0);
        }
        for statement in [LOGS, HISTORY] {
            loop {
                let gone = sqlx::query(statement)
                    .bind(&sure)
                    .bind(STEP_ENTRIES)
                    .execute(&mut *tx)
                    .await?;
                if gone.rows_affected() < STEP_ENTRIES as u64 {
                    break;
                }
            }
        }
        let removed = sqlx::query(JOBS).bind(&sure).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(removed.rows_affected())
    }

    /// Removes events among the next `limit` that have no job any more and were last
    /// touched longer ago than `keep`.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_events(
        &self,
        after: Option<EventCursor>,
        keep: Duration,
        limit: i64,
    ) -> Result<Step<EventCursor>> {
        let (last, removed): (Option<Uuid>, i64) = sqlx::query_as(EVENTS)
            .bind(after.unwrap_or_default().0)
            .bind(millis(keep))
            .bind(limit)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        Ok(Step {
            removed: removed.unsigned_abs(),
            next: last.map(EventCursor),
        })
    }

    /// Removes dedupe keys and request ids among the next `limit` that bind nothing.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_keys(
        &self,
        after: Option<&KeyCursor>,
        limit: i64,
    ) -> Result<Step<KeyCursor>> {
        let from = after.cloned().unwrap_or_default();
        let row: Option<(String, String, String, i64)> = sqlx::query_as(KEYS)
            .bind(from.user_id)
            .bind(from.scope)
            .bind(from.key)
            .bind(limit)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        Ok(row.map_or(
            Step {
                removed: 0,
                next: None,
            },
            |(user_id, scope, key, removed)| Step {
                removed: removed.unsigned_abs(),
                next: Some(KeyCursor {
                    user_id,
                    scope,
                    key,
                }),
            },
        ))
    }

    /// Removes up to `limit` notifications older than `keep`; answers how many.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_notifications(&self, keep: Duration, limit: i64) -> Result<u64> {
        sqlx::query(NOTIFICATIONS)
            .bind(millis(keep))
            .bind(limit)
            .execute(self.pool())
            .await
            .map(|done| done.rows_affected())
            .map_err(db_error)
    }
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
