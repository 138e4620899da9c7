//! Where an import is: written with its rows, so that the two never differ.

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::types::Json;
use uuid::Uuid;

use super::{WriteError, database};
use crate::domain::ids::{FileId, JobId};
use crate::domain::lease::Fence;
use crate::error::Result;
use crate::storage::{Store, db_error};

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_checkpoint_load", LOAD),
    ("import_checkpoint_start", START),
];

const LOAD: &str = "\
select byte_offset, line_no, batch_no, rows_accepted, rows_rejected, plan, updated_at
from import_checkpoints where job_id = $1";

/// Locks the job for no longer than the statement. The data set is made where its name is
/// new; the update of one that is there changes nothing and lets it answer with its id.
const START: &str = "\
with f as materialized (
    select user_id from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share),
c as (
    insert into import_checkpoints (job_id, byte_offset, line_no, batch_no, rows_accepted, rows_rejected, plan)
    select $1, $4, $5, 0, 0, 0, $6 from f
    on conflict (job_id) do nothing returning 1),
d as (
    insert into datasets (dataset_id, user_id, name)
    select $7, f.user_id, $8 from f, c where $8::text is not null
    on conflict (user_id, name) do update set name = excluded.name
    returning dataset_id, user_id),
i as (
    insert into imports (job_id, user_id, dataset_id, file_id)
    select $1, d.user_id, d.dataset_id, $9 from d returning 1)
select (select count(*) from f) as held, (select count(*) from c) as created, (select count(*) from i) as imports";

/// Where an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Bytes of the file that are dealt with.
    pub byte_offset: i64,
    /// The physical line, from 1, that begins at `byte_offset`.
    pub line_no: i64,
    /// Batches that were written.
    pub batch_no: i32,
    /// Rows that were accepted.
    pub rows_accepted: i64,
    /// Rows that were rejected.
    pub rows_rejected: i64,
}

impl Position {
    /// Whether both are the same place in the file, whatever was counted up to it.
    pub fn is_at(&self, other: &Self) -> bool {
        (self.batch_no, self.byte_offset) == (other.batch_no, other.byte_offset)
    }
}

/// The stored state of an import.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Where it is.
    pub position: Position,
    /// What was decided at its start.
    pub plan: serde_json::Value,
    /// When it was written, by the database's clock.
    pub updated_at: DateTime<Utc>,
}

/// What an import begins with.
#[derive(Debug, Clone)]
pub struct Beginning<'b> {
    /// The byte at which the rows begin.
    pub byte_offset: i64,
    /// The physical line, from 1, on which they begin.
    pub line_no: i64,
    /// What was decided.
    pub plan: &'b serde_json::Value,
    /// The file.
    pub file_id: FileId,
    /// The data set of the job's owner that the rows are to go to; made where there is none.
    pub dataset: Option<&'b str>,
}

/// The stored state of a job's import; `None`: it has not begun.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn load_checkpoint(store: &Store, job_id: JobId) -> Result<Option<Checkpoint>> {
    let row = sqlx::query(LOAD)
        .bind(job_id.uuid())
        .fetch_optional(store.pool())
        .await
        .map_err(db_error)?;
    let Some(row) = row else { return Ok(None) };
    let Json(plan): Json<serde_json::Value> = row.try_get("plan").map_err(db_error)?;
    Ok(Some(Checkpoint {
        position: Position {
            byte_offset: row.try_get("byte_offset").map_err(db_error)?,
            line_no: row.try_get("line_no").map_err(db_error)?,
            batch_no: row.try_get("batch_no").map_err(db_error)?,
            rows_accepted: row.try_get("rows_accepted").map_err(db_error)?,
            rows_rejected: row.try_get("rows_rejected").map_err(db_error)?,
        },
        plan,
        updated_at: row.try_get("updated_at").map_err(db_error)?,
    }))
}

/// Stores where the rows of an import begin, what was decided, and which data set they
/// belong to, all at once.
///
/// # Errors
/// [`WriteError::Moved`] where there is a checkpoint already.
pub async fn start(store: &Store, fence: Fence, begin: &Beginning<'_>) -> Result<(), WriteError> {
    let row = sqlx::query(START)
        .bind(fence.job_id.uuid())
        .bind(fence.run)
        .bind(fence.session.uuid())
        .bind(begin.byte_offset)
        .bind(begin.line_no)
        .bind(Json(begin.plan))
        .bind(Uuid::now_v7())
        .bind(begin.dataset)
        .bind(begin.file_id.uuid())
        .fetch_one(store.pool())
        .await
        .map_err(database)?;
    let held: i64 = row.try_get("held").map_err(database)?;
    let created: i64 = row.try_get("created").map_err(database)?;
    match (held, created) {
        (0, _) => Err(WriteError::LeaseLost),
        (_, 0) => Err(WriteError::Moved),
        _ => Ok(()),
    }
}
