//! Reading jobs by id: one for a caller, many for the watchers.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::{JobId, UserId};
use crate::domain::job::{Job, Lane, LastError, Waiting};
use crate::domain::line::Line;
use crate::error::{Code, Error, Result};

/// The columns of a [`JobRow`] but the payload, from the table as `j`.
macro_rules! job_columns {
    () => {
        "j.job_id, j.user_id, j.job_type, j.queue, j.lane, j.status, j.run, j.attempt, j.max_attempts, j.rev, \
         j.progress_done, j.progress_total, j.progress_message, j.last_error_code, j.last_error_class, \
         j.last_error_message, j.result, j.labels, j.dedupe_key, j.submitted_by, j.created_at, j.run_at, \
         j.started_at, j.finished_at, j.expires_at, j.timeout_ms, j.cancel_requested_at is not null as cancel_requested, \
         j.run_at > now() as later, j.parked, j.held, j.wake_at, j.ordering_key, j.line_limit, j.line_block"
    };
}
pub(super) use job_columns;

const GET: &str = concat!(
    "select ",
    job_columns!(),
    ", case when $2 then j.payload end as payload from jobs j where j.job_id = $1"
);
const CHANGED: &str = concat!(
    "select ",
    job_columns!(),
    ", null::bytea as payload from unnest($1::uuid[], $2::bigint[]) w (job_id, rev) \
     join jobs j on j.job_id = w.job_id where j.rev <> w.rev"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[("job_get", GET), ("jobs_changed", CHANGED)];

/// A row as it comes from the database, before it is checked.
#[derive(sqlx::FromRow)]
pub(super) struct JobRow {
    job_id: uuid::Uuid,
    user_id: String,
    job_type: String,
    queue: String,
    lane: i16,
    status: String,
    run: i32,
    attempt: i32,
    max_attempts: i32,
    rev: i64,
    progress_done: i64,
    progress_total: i64,
    progress_message: Option<String>,
    last_error_code: Option<String>,
    last_error_class: Option<String>,
    last_error_message: Option<String>,
    result: Option<Vec<u8>>,
    labels: Option<Json<BTreeMap<String, String>>>,
    dedupe_key: Option<String>,
    submitted_by: Option<String>,
    created_at: DateTime<Utc>,
    run_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    timeout_ms: i64,
    cancel_requested: bool,
    later: bool,
    parked: bool,
    held: bool,
    wake_at: Option<DateTime<Utc>>,
    ordering_key: Option<String>,
    line_limit: Option<i32>,
    line_block: bool,
    payload: Option<Vec<u8>>,
}

impl TryFrom<JobRow> for Job {
    type Error = Error;

    fn try_from(row: JobRow) -> Result<Self> {
        let defect = |what: &str| {
            Error::new(
                Code::Internal,
                format!("job {} has an unknown {what}", row.job_id),
            )
        };
        let state = row
            .status
            .parse()
            .map_err(|e| defect("state").with_source(e))?;
        let lane = Lane::from_number(row.lane).ok_or_else(|| defect("lane"))?;
        Ok(Self {
            job_id: JobId(row.job_id),
            user_id: UserId::from_stored(row.user_id),
            job_type: row.job_type,
            queue: row.queue,
            lane,
            state,
            run: row.run,
            attempt: row.attempt,
            max_attempts: row.max_attempts,
            revision: row.rev,
            progress_done: row.progress_done,
            progress_total: row.progress_total,
            progress_message: row.progress_message,
            last_error: row.last_error_code.map(|code| LastError {
                code,
                temporary: row.last_error_class.as_deref() == Some("temporary"),
                message: row.last_error_message.unwrap_or_default(),
            }),
            result: row.result,
            payload: row.payload,
            labels: row.labels.map(|labels| labels.0).unwrap_or_default(),
            dedupe_key: row.dedupe_key,
            submitted_by: row.submitted_by,
            created_at: row.created_at,
            run_at: row.run_at,
            started_at: row.started_at,
            finished_at: row.finished_at,
            expires_at: row.expires_at,
            timeout: Duration::from_millis(u64::try_from(row.timeout_ms).unwrap_or_default()),
            cancel_requested: row.cancel_requested,
            waiting: Waiting {
                later: row.later,
                parked: row.parked,
                held: row.held,
                wake_at: row.wake_at,
            },
            line: row
                .ordering_key
                .map(|key| Line::from_stored(&key, row.line_limit, row.line_block)),
        })
    }
}

impl Store {
    /// A job; `None`: there is none with this id. `with_payload`: with what was submitted.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn get_job(&self, id: JobId, with_payload: bool) -> Result<Option<Job>> {
        let row: Option<JobRow> = sqlx::query_as(GET)
            .bind(id.uuid())
            .bind(with_payload)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        row.map(Job::try_from).transpose()
    }

    /// Those of the given jobs whose revision is another than the one that is known,
    /// without payloads. A job that is not there is left out.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn changed_jobs(&self, known: &[(JobId, i64)]) -> Result<Vec<Job>> {
        let (ids, revisions): (Vec<_>, Vec<_>) = known
            .iter()
            .map(|(id, revision)| (id.uuid(), *revision))
            .unzip();
        // The pool whose planner is held to index look-ups: the list may be long.
        let rows: Vec<JobRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(CHANGED).bind(ids).bind(revisions)
        )
        .map_err(db_error)?;
        rows.into_iter().map(Job::try_from).collect()
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
