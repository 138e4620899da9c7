//! What goes of dead letters and of what operators did, by an explicit policy alone
//! (requirement J5): without one, both are kept for good.

use std::time::Duration;

use uuid::Uuid;

use super::dead_letters::FOLD_LOCK;
use super::retention::{Step, millis, oldest};
use super::{Store, db_error};
use crate::domain::ids::DeadLetterId;
use crate::error::Result;

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("retention_letters_lock", LOCK),
    ("retention_letters", LETTERS),
    ("retention_letter_actions", LETTER_ACTIONS),
    ("retention_job_actions", JOB_ACTIONS),
    ("retention_replays", REPLAYS),
    ("retention_bulk_outcomes", BULK_OUTCOMES),
    ("retention_bulk_actions", BULK_ACTIONS),
];

/// The counts of causes are moved by one at a time, the fold or this.
const LOCK: &str = "select pg_try_advisory_xact_lock($1)";
/// A letter stays while its job does: a failed job without one could not be explained. What
/// was counted of it is taken back.
const LETTERS: &str = concat!(
    "with page as materialized (select id from dead_letters where id > $1 and id < ",
    oldest!("$2"),
    " order by id limit $3), \
     l as materialized (select d.id, d.cause_id, d.counted_status from page p join dead_letters d on d.id = p.id \
     where (d.status = 'resolved' or (d.status = 'ignored' and d.job_id is null)) \
     and coalesce(d.status_changed_at, d.last_failed_at) < now() - $2::bigint * interval '1 ms' \
     and not exists (select 1 from jobs j where j.job_id = d.job_id) order by d.id for update of d skip locked), \
     t as (select cause_id, count(*) filter (where counted_status = 'open') as open, \
     count(*) filter (where counted_status = 'ignored') as ignored, \
     count(*) filter (where counted_status = 'replayed') as replayed, \
     count(*) filter (where counted_status = 'resolved') as resolved from l group by cause_id), \
     c as (update dead_letter_causes c set open = c.open - t.open, ignored = c.ignored - t.ignored, \
     replayed = c.replayed - t.replayed, resolved = c.resolved - t.resolved from t where c.cause_id = t.cause_id), \
     x as (delete from dead_letters d using l where d.id = l.id returning 1) \
     select (select id from page order by id desc limit 1), (select count(*) from x)"
);
macro_rules! older {
    ($table:literal, $id:literal) => {
        concat!(
            "delete from ",
            $table,
            " where ctid = any(array(select ctid from ",
            $table,
            " where ",
            $id,
            " < ",
            oldest!("$1"),
            " order by ",
            $id,
            " limit $2 for update skip locked))"
        )
    };
}
const LETTER_ACTIONS: &str = older!("dead_letter_actions", "action_id");
const JOB_ACTIONS: &str = older!("job_actions", "action_id");
const REPLAYS: &str = older!("replays", "replay_id");
const BULK_OUTCOMES: &str = older!("bulk_replay_outcomes", "bulk_replay_id");
const BULK_ACTIONS: &str = older!("bulk_replay_actions", "action_id");

impl Store {
    /// Removes resolved letters among the next `limit`, and ignored ones of messages that
    /// could not be read, where they were closed longer ago than `keep` and have no job any
    /// more.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_letters(
        &self,
        after: Option<DeadLetterId>,
        keep: Duration,
        limit: i64,
    ) -> Result<Step<DeadLetterId>> {
        let mut tx = self.pool().begin().await.map_err(db_error)?;
        let alone: bool = sqlx::query_scalar(LOCK)
            .bind(FOLD_LOCK)
            .fetch_one(&mut *tx)
            .await
            .map_err(db_error)?;
        if !alone {
            // Somebody counts just now: the walk goes on from here.
            tx.rollback().await.map_err(db_error)?;
            return Ok(Step {
                removed: 0,
                next: after,
            });
        }
        let (last, removed): (Option<Uuid>, i64) = sqlx::query_as(LETTERS)
            .bind(after.map_or(Uuid::nil(), DeadLetterId::uuid))
            .bind(millis(keep))
            .bind(limit)
            .fetch_one(&mut *tx)
            .await
            .map_err(db_error)?;
        tx.commit().await.map_err(db_error)?;
        Ok(Step {
            removed: removed.unsigned_abs(),
            next: last.map(DeadLetterId),
        })
    }

    /// Removes up to `limit` rows of each table of what operators did, where they are older
    /// than `keep`; answers how many.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE: of the first table that failed; the others were looked at.
    pub async fn prune_audit(&self, keep: Duration, limit: i64) -> Result<u64> {
        let mut removed = 0;
        let mut failed = None;
        for statement in [
            LETTER_ACTIONS,
            JOB_ACTIONS,
            REPLAYS,
            BULK_OUTCOMES,
            BULK_ACTIONS,
        ] {
            let done = sqlx::query(statement)
                .bind(millis(keep))
                .bind(limit)
                .execute(self.pool())
                .await;
            match done {
                Ok(done) => removed += done.rows_affected(),
                Err(error) => {
                    failed.get_or_insert(db_error(error));
                }
            }
        }
        failed.map_or(Ok(removed), Err)
    }
}
