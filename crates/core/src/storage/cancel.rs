//! Cancelling (PROTOCOL.md §14): one statement, never forgotten.

use std::time::Duration;

use super::pool::on_hot;
use super::{DbKind, Store, classify, db_error};
use crate::domain::ids::JobId;
use crate::domain::state::JobState;
use crate::error::{Code, Error, Result};

/// What a cancel sets in a row of `jobs` as `j`; the message is an expression.
macro_rules! cancelled_columns {
    ($message:literal) => {
        concat!(
            "status = case when j.status = 'running' then j.status else 'cancelled' end, \
             cancel_requested_at = coalesce(j.cancel_requested_at, now()), cancel_reason = coalesce(j.cancel_reason, ",
            $message,
            "), \
             finished_at = case when j.status = 'running' then null else now() end, \
             wake_at = case when j.status = 'running' then j.wake_at end, \
             parked = false, held = false, \
             last_error_code = case when j.status = 'running' then j.last_error_code else 'CANCELLED' end, \
             last_error_class = case when j.status = 'running' then j.last_error_class else 'permanent' end, \
             last_error_message = case when j.status = 'running' then j.last_error_message else ",
            $message,
            " end, \
             rev = j.rev + (j.status <> 'running' or j.cancel_requested_at is null)::int"
        )
    };
}
pub(super) use cancelled_columns;

/// What follows from the cancelled jobs in `u` (their ids, states and lives): the ledger, and
/// the letters of those that had been replayed, which have an end now.
macro_rules! cancelled_rest {
    () => {
        "p as (update processed_events p set status = 'cancelled', processed_at = now() from u \
         where p.event_id = u.job_id and u.status = 'cancelled' returning 1), \
         e as (update dead_letters d set status = 'resolved', status_changed_at = now() from u \
         where u.life > 1 and u.status = 'cancelled' and d.job_id = u.job_id and d.status = 'replayed' \
         returning d.id, d.user_id, d.replay_id, d.bulk_replay_id), \
         ea as (insert into dead_letter_actions (action_id, letter_id, action, user_id, status_before, status_after, replay_id, bulk_replay_id) \
         select tenure_uuid7(), id, 'cancelled', user_id, 'replayed', 'resolved', replay_id, bulk_replay_id from e), \
         nt as (insert into line_turns (queue, ordering_key) select distinct queue, ordering_key from u \
         where status = 'cancelled' and ordering_key is not null and order_seq < 0)"
    };
}
pub(super) use cancelled_rest;

/// Nothing of it, where the ledger or a letter was not found: a row that was written while
/// the statement waited for its job is not in the statement's snapshot. All of it is undone
/// then, and the statement is tried again with a newer one. A job that was ever claimed or
/// replayed has its row in the ledger, and one in another life its letter.
macro_rules! cancelled_checked {
    () => {
        "(select case when (select count(*) from u where status = 'cancelled' and (started_at is not null or life > 1)) \
         <> (select count(*) from p) \
         or (select count(*) from u where status = 'cancelled' and life > 1) <> (select count(*) from e) \
         then tenure_fail('cancel: job, ledger and letter disagree') end as checked) k"
    };
}
pub(super) use cancelled_checked;

/// Whether a row with a job's columns is of one that has started and is not in the ledger, or
/// was replayed and has no letter that says so: it was damaged by other means than ours.
macro_rules! damaged {
    ($row:literal) => {
        concat!(
            $row,
            ".status <> 'running' and (",
            $row,
            ".started_at is not null or ",
            $row,
            ".life > 1) and ((select p.event_id from processed_events p where p.event_id = ",
            $row,
            ".job_id) is null or (",
            $row,
            ".life > 1 and (select d.id from dead_letters d where d.job_id = ",
            $row,
            ".job_id and d.status = 'replayed') is null))"
        )
    };
}
pub(super) use damaged;

/// How often a cancel is tried.
const TRIES: u32 = 5;
/// The pause before it is tried again.
const PAUSE: Duration = Duration::from_millis(20);

const CANCEL: &str = concat!(
    "with u as (update jobs j set ",
    cancelled_columns!("$2"),
    " where j.job_id = $1 and j.status in ('pending', 'retrying', 'timeout', 'running') returning j.job_id, j.status, j.life, j.started_at, j.queue, j.ordering_key, j.order_seq), ",
    cancelled_rest!(),
    " select u.status from u cross join ",
    cancelled_checked!(),
    " where k.checked is null"
);

/// Whether a job is damaged, so that no statement may end it.
const DAMAGED: &str = concat!(
    "select ",
    damaged!("j"),
    " from jobs j where j.job_id = $1 and j.finished_at is null"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[("cancel", CANCEL), ("cancel_damaged", DAMAGED)];

/// What a cancel did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// The job is cancelled.
    Now,
    /// It runs; the request is kept, and the job ends in cancelled unless it succeeds.
    Requested,
    /// It had ended, or there is no such job.
    NotWaiting,
}

impl Store {
    /// Cancels a job that waits, or notes the request on one that runs. Noted again, it is
    /// nothing new: the first reason stays, and so does the revision.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; JOB_DAMAGED where its rows contradict each other.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<Cancelled> {
        let mut tries = 1;
        let status: Option<String> = loop {
            let answer: Result<_, sqlx::Error> = on_hot!(
                self,
                fetch_optional,
                sqlx::query_scalar(CANCEL).bind(id.uuid()).bind(reason)
            );
            match answer {
                Err(error)
                    if tries < TRIES
                        && matches!(classify(&error), DbKind::Invariant | DbKind::Retry) =>
                {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                Err(error)
                    if classify(&error) == DbKind::Invariant && self.is_damaged(id).await? =>
                {
                    return Err(Error::new(
                        Code::JobDamaged,
                        "the job has started or was replayed, and the ledger or its dead letter \
                         does not know of it: it cannot be cancelled",
                    )
                    .with_source(error));
                }
                answer => break answer.map_err(db_error)?,
            }
        };
        Ok(match status.as_deref() {
            None => Cancelled::NotWaiting,
            Some(status) if status == JobState::Cancelled.as_str() => Cancelled::Now,
            Some(_) => Cancelled::Requested,
        })
    }

    async fn is_damaged(&self, id: JobId) -> Result<bool> {
        let answer: Result<Option<bool>, sqlx::Error> = on_hot!(
            self,
            fetch_optional,
            sqlx::query_scalar(DAMAGED).bind(id.uuid())
        );
        Ok(answer.map_err(db_error)?.unwrap_or_default())
    }
}
