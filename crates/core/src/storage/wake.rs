//! Waking rows whose time has come (PROTOCOL.md §10), by any number of sweepers at once.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::lines::LineKey;
use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::{JobId, SessionId};
use crate::error::Result;

const CANDIDATES: &str = "select job_id from jobs where wake_at > now() - $1 * interval '1 ms' and wake_at <= now() \
     order by wake_at limit $2";
const CANDIDATES_ALL: &str =
    "select job_id from jobs where wake_at <= now() order by wake_at limit $1";
const WAKE: &str = include_str!("sql/wake.sql");
// The coalesce keeps the planner from the index of `wake_at`, as in wake.sql.
const PUSH: &str = "update jobs set wake_at = now() + interval '1 minute' \
     where job_id = $1 and coalesce(wake_at <= now(), false)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("wake_candidates", CANDIDATES),
    ("wake_candidates_all", CANDIDATES_ALL),
    ("wake", WAKE),
    ("wake_push", PUSH),
];

/// What waking a row did.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Woken {
    job_id: uuid::Uuid,
    ran: i32,
    was: String,
    target: String,
    worker: Option<uuid::Uuid>,
    began: Option<DateTime<Utc>>,
    cut_off: bool,
    lost: i16,
    attempt: i32,
    code: Option<String>,
    message: Option<String>,
    line_queue: Option<String>,
    line_key: Option<String>,
}

impl Woken {
    /// The job.
    pub fn job_id(&self) -> JobId {
        JobId(self.job_id)
    }

    /// The run that it had.
    pub fn run(&self) -> i32 {
        self.ran
    }

    /// The state before.
    pub fn was(&self) -> &str {
        &self.was
    }

    /// The state after; `unsure`: an expired lease that may not be taken back yet.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The worker whose lease it was.
    pub fn worker(&self) -> Option<SessionId> {
        self.worker.map(SessionId)
    }

    /// When that worker claimed the run.
    pub fn began(&self) -> Option<DateTime<Utc>> {
        self.began
    }

    /// Starts that had counted before it, the run that it ended included.
    pub fn attempt(&self) -> i32 {
        self.attempt + i32::from(self.refund().is_some())
    }

    /// Starts that count after it.
    pub fn attempt_after(&self) -> i32 {
        self.attempt
    }

    /// Why, where it is a failure or a take-back.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// The same for people.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Whether the database itself had restarted during the lease.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Why a take-back gave its attempt back; `None`: it did not.
    pub fn refund(&self) -> Option<&'static str> {
        if self.was != "running" || self.target != "pending" {
            None
        } else if self.cut_off {
            Some("database_restart")
        } else {
            (self.lost == 2).then_some("second_loss")
        }
    }

    /// The line that it has left a place in, or come to, or waits in: its next jobs may
    /// have their turn.
    pub fn line(&self) -> Option<LineKey> {
        Some(LineKey {
            queue: self.line_queue.clone()?,
            key: self.line_key.clone()?,
        })
    }

    /// Whether a lease was taken back.
    pub fn is_take_back(&self) -> bool {
        self.was == "running" && matches!(self.target.as_str(), "pending" | "failed" | "cancelled")
    }
}

impl Store {
    /// The ids of rows whose `wake_at` has passed, the earliest first: within `horizon`,
    /// so that dead index entries behind it are not walked; `None`: all.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn wake_candidates(
        &self,
        horizon: Option<Duration>,
        limit: i64,
    ) -> Result<Vec<JobId>> {
        let ids: Vec<uuid::Uuid> = on_hot!(
            self,
            fetch_all,
            match horizon {
                Some(horizon) => sqlx::query_scalar(CANDIDATES)
                    .bind(horizon.as_millis() as i64)
                    .bind(limit),
                None => sqlx::query_scalar(CANDIDATES_ALL).bind(limit),
            }
        )
        .map_err(db_error)?;
        Ok(ids.into_iter().map(JobId).collect())
    }

    /// Wakes these rows, as far as they are due still and nobody holds their locks.
    /// Leases are taken back only where `take_back` is true. `poison_limit`: a job that
    /// loses so many leases in a row fails.
    ///
    /// # Errors
    /// The raw error: the caller finds the culprit by bisection.
    pub async fn wake(
        &self,
        ids: &[JobId],
        take_back: bool,
        poison_limit: i16,
    ) -> Result<Vec<Woken>, sqlx::Error> {
        let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
        on_hot!(
            self,
            fetch_all,
            sqlx::query_as(WAKE)
                .bind(ids)
                .bind(take_back)
                .bind(poison_limit)
        )
    }

    /// Puts one row off by a minute whose waking fails, so that it keeps nobody else waiting.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn push_wake(&self, id: JobId) -> Result<()> {
        on_hot!(self, execute, sqlx::query(PUSH).bind(id.uuid())).map_err(db_error)?;
        Ok(())
    }

    /// The database's clock, as seconds since the epoch.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn now(&self) -> Result<f64> {
        on_hot!(
            self,
            fetch_one,
            sqlx::query_scalar("select extract(epoch from clock_timestamp())::float8")
        )
        .map_err(db_error)
    }
}
