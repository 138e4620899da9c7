//! The worker processes that are there, as they tell it themselves. For people alone:
//! leases and sessions decide, and no statement of the protocol reads this table.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Store, db_error};
use crate::domain::ids::SessionId;
use crate::error::{Result, clean_text};

const TELL: &str = "insert into workers as w (session, name, version, queues, job_types, slots, running, draining) \
     values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (session) do update \
     set slots = excluded.slots, running = excluded.running, draining = excluded.draining, last_contact_at = now()";
const LEAVE: &str = "delete from workers where session = $1";
const LIVE: &str = "select session, name, version, queues, job_types, slots, running, draining, started_at, last_contact_at \
     from workers where last_contact_at > now() - $1 * interval '1 ms' order by name, session limit $2";
const PRUNE: &str = "delete from workers where session in (select session from workers \
     where last_contact_at < now() - $1 * interval '1 ms' limit $2)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("worker_tell", TELL),
    ("worker_leave", LEAVE),
    ("workers_live", LIVE),
    ("workers_prune", PRUNE),
];

/// How often a worker tells that it is there.
pub const TELL_INTERVAL: Duration = Duration::from_secs(5);
/// A worker that has told nothing for so long is not listed any more.
pub const LIVE_FOR: Duration = Duration::from_secs(30);
/// What has been silent for so long is removed: until then it gives a name to the session
/// in the history of the jobs that it lost.
pub const SILENT_KEPT: Duration = Duration::from_hours(24);

/// The most workers of one list.
const LIST_MAX: i64 = 10_000;
/// The most rows that one statement removes.
const PRUNE_BATCH: i64 = 1000;
/// The longest name, in characters.
const MAX_NAME_CHARS: usize = 128;

/// What a worker tells of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerReport {
    /// Its session.
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// The queues that it consumes.
    pub queues: Vec<String>,
    /// The job types that it has handlers for.
    pub job_types: Vec<String>,
    /// How many jobs it can run at once.
    pub slots: i32,
    /// How many run.
    pub running: i32,
    /// Whether it stops, and takes no more.
    pub draining: bool,
}

/// A worker process.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub struct Worker {
    session: uuid::Uuid,
    /// Its name.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// The queues that it consumes.
    pub queues: Vec<String>,
    /// The job types that it has handlers for.
    pub job_types: Vec<String>,
    /// How many jobs it can run at once.
    pub slots: i32,
    /// How many ran when it last told.
    pub running: i32,
    /// Whether it stops, and takes no more.
    pub draining: bool,
    /// When it first told, by the database's clock.
    pub started_at: DateTime<Utc>,
    /// When it last told.
    pub last_contact_at: DateTime<Utc>,
}

impl Worker {
    /// Its session: the one in the locks and the history of jobs.
    pub fn session(&self) -> SessionId {
        SessionId(self.session)
    }
}

impl Store {
    /// Writes what a worker tells of itself, and that it is there.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn tell_worker(&self, report: &WorkerReport) -> Result<()> {
        sqlx::query(TELL)
            .bind(report.session.uuid())
            .bind(clean_text(&report.name, MAX_NAME_CHARS))
            .bind(&report.version)
            .bind(&report.queues)
            .bind(&report.job_types)
            .bind(report.slots)
            .bind(report.running)
            .bind(report.draining)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(())
    }

    /// Removes a worker that ends in order.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; then it is listed for [`LIVE_FOR`] and pruned later.
    pub async fn leave_worker(&self, session: SessionId) -> Result<()> {
        sqlx::query(LEAVE)
            .bind(session.uuid())
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(())
    }

    /// The workers that have told something within [`LIVE_FOR`], by name; ten thousand at
    /// most.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn live_workers(&self) -> Result<Vec<Worker>> {
        sqlx::query_as(LIVE)
            .bind(LIVE_FOR.as_millis() as i64)
            .bind(LIST_MAX)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }

    /// Removes up to a thousand workers that have told nothing for [`SILENT_KEPT`]; answers
    /// how many.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_workers(&self) -> Result<u64> {
        let done = sqlx::query(PRUNE)
            .bind(SILENT_KEPT.as_millis() as i64)
            .bind(PRUNE_BATCH)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(done.rows_affected())
    }
}
