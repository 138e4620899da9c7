//! Why jobs wait: what is around them, in one statement for a page of them.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::pool::on_hot;
use super::workers::LIVE_FOR;
use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::domain::line::Line;
use crate::domain::state::JobState;
use crate::domain::wait::{AHEAD_CAP, Around, Paused, SWEEPER_SILENT, Wait, wait};
use crate::error::Result;

const AROUND: &str = include_str!("sql/waits.sql");

pub(super) const STATEMENTS: &[(&str, &str)] = &[("waits", AROUND)];

#[derive(sqlx::FromRow)]
struct AroundRow {
    job_id: uuid::Uuid,
    paused: bool,
    pause_reason: Option<String>,
    paused_by: Option<String>,
    system_paused: bool,
    system_pause_reason: Option<String>,
    has_worker: bool,
    blocked_by: Option<uuid::Uuid>,
    blocked_by_failed: bool,
    ahead: i64,
    ended_at: Option<DateTime<Utc>>,
    ended_with: Option<String>,
    swept_ms: i64,
}

impl From<AroundRow> for Around {
    fn from(row: AroundRow) -> Self {
        Self {
            paused: row.paused.then_some(Paused {
                by: row.paused_by,
                reason: row.pause_reason,
            }),
            system_paused: row.system_paused.then_some(Paused {
                by: Some("the system".to_owned()),
                reason: row.system_pause_reason,
            }),
            has_worker: row.has_worker,
            blocked_by: row.blocked_by.map(JobId),
            blocked_by_failed: row.blocked_by_failed,
            ahead: row.ahead,
            last_end: row.ended_at.map(|at| (at, row.ended_with)),
            sweepers_silent: Some(Duration::from_millis(row.swept_ms.max(0).unsigned_abs()))
                .filter(|silent| *silent > SWEEPER_SILENT),
        }
    }
}

impl Store {
    /// Why those of these jobs wait that do. Asks for nothing where none does.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn waits(&self, jobs: &[Job]) -> Result<HashMap<JobId, Wait>> {
        let waiting: Vec<&Job> = jobs
            .iter()
            .filter(|job| matches!(job.state, JobState::Pending | JobState::Retrying))
            .collect();
        if waiting.is_empty() {
            return Ok(HashMap::new());
        }
        let column =
            |read: fn(&Job) -> &str| -> Vec<&str> { waiting.iter().map(|job| read(job)).collect() };
        let flag =
            |read: fn(&Job) -> bool| -> Vec<bool> { waiting.iter().map(|job| read(job)).collect() };
        let ids: Vec<_> = waiting.iter().map(|job| job.job_id.uuid()).collect();
        let lanes: Vec<_> = waiting.iter().map(|job| job.lane.number()).collect();
        let held_keys: Vec<_> = waiting
            .iter()
            .map(|job| {
                let line = job.line.as_ref().filter(|_| job.waiting.held);
                line.map(Line::stored_key)
            })
            .collect();
        // The pool whose planner is held to index look-ups: the page may be long.
        let rows: Vec<AroundRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(AROUND)
                .bind(ids)
                .bind(column(|job| &job.queue))
                .bind(lanes)
                .bind(column(|job| &job.job_type))
                .bind(column(|job| job.user_id.as_str()))
                .bind(held_keys)
                .bind(flag(|job| job.waiting.parked))
                .bind(flag(|job| job.started_at.is_some()))
                .bind(LIVE_FOR.as_millis() as i64)
                .bind(AHEAD_CAP + 1)
        )
        .map_err(db_error)?;
        let mut around: HashMap<_, Around> = rows
            .into_iter()
            .map(|row| (JobId(row.job_id), row.into()))
            .collect();
        Ok(waiting
            .into_iter()
            .filter_map(|job| {
                let around = around.remove(&job.job_id).unwrap_or_default();
                Some((job.job_id, wait(job, &around)?))
            })
            .collect())
    }
}
