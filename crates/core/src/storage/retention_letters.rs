//! What goes of dead letters and of what operators did, by an explicit policy alone
//! (requirement J5): without one, both are kept for good.

use std::time::Duration;

use uuid::Uuid;

use super::retention::{Step, millis, oldest};
use super::{Store, db_error};
use crate::domain::ids::DeadLetterId;
use crate::error::Result;

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("retention_letters", LETTERS),
    ("retention_letter_actions", LETTER_ACTIONS),
    ("retention_job_actions", JOB_ACTIONS),
    ("retention_replays", REPLAYS),
    ("retention_bulk_outcomes", BULK_OUTCOMES),
    ("retention_bulk_actions", BULK_ACTIONS),
];

/// A letter stays while its job does: a failed job without one could not be explained. What
/// is counted of it, or noted to be, is taken back by a note.
const LETTERS: &str = concat!(
    "with page as materialized (select id from dead_letters where id > $1 and id < ",
    oldest!("$2"),
    " order by id limit $3), \
     l as materialized (select d.id, d.cause_id, d.counted_status, d.queue_name, d.job_type, d.error_code \
     from page p join dead_letters d on d.id = p.id \
     where (d.status = 'resolved' or (d.status = 'ignored' and d.job_id is null)) \
     and coalesce(d.status_changed_at, d.last_failed_at) < now() - $2::bigint * interval '1 ms' \
     and not exists (select 1 from jobs j where j.job_id = d.job_id) order by d.id for update of d skip locked), \
     n as (insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code) \
     select id, -1, cause_id, counted_status, queue_name, coalesce(job_type, ''), error_code from l where counted_status is not null), \
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
        let (last, removed): (Option<Uuid>, i64) = sqlx::query_as(LETTERS)
            .bind(after.map_or(Uuid::nil(), DeadLetterId::uuid))
            .bind(millis(keep))
            .bind(limit)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
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
