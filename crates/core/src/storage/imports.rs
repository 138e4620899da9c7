//! Imported rows, rejected rows and the checkpoint of an import.
//!
//! A batch is one transaction: checkpoint, rows, rejects, and last the fence. So an
//! import that was killed goes on behind its last batch, and no row is there twice.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use sqlx::{Connection, PgConnection, Row};

use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::lease::Fence;
use crate::error::{Code, Error, Result};

/// The statements of this module, by name. `copy` is not among them: PostgreSQL
/// cannot prepare it.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_checkpoint_load", LOAD),
    ("import_checkpoint_start", START),
    ("import_checkpoint_advance", ADVANCE),
    ("import_rejects_insert", REJECTS),
    ("import_rejects_sample", SAMPLE),
    ("import_fence", FENCE),
];

pub(crate) const LOAD: &str = "\
select byte_offset, line_no, batch_no, rows_accepted, rows_rejected, plan, updated_at
from import_checkpoints where job_id = $1";

/// Locks the job for no longer than the statement.
pub(crate) const START: &str = "\
with f as materialized (
    select 1 from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share),
i as (
    insert into import_checkpoints (job_id, byte_offset, line_no, batch_no, rows_accepted, rows_rejected, plan)
    select $1, $4, $5, 0, 0, 0, $6 from f
    on conflict (job_id) do nothing returning 1)
select (select count(*) from f) as held, (select count(*) from i) as created";

/// Comes first in the batch: of two writers of one batch the later finds no row.
pub(crate) const ADVANCE: &str = "\
update import_checkpoints
set byte_offset = $3, line_no = $4, batch_no = batch_no + 1, rows_accepted = $5, rows_rejected = $6, updated_at = now()
where job_id = $1 and batch_no = $2";

const COPY: &str = "copy import_rows (job_id, line_no, data) from stdin";

pub(crate) const REJECTS: &str = "\
insert into import_rejects (job_id, line_no, column_name, reason, message, value)
select $1, * from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[])";

pub(crate) const SAMPLE: &str = "\
select line_no, column_name, reason, message, value, original
from import_rejects where job_id = $1 order by line_no limit $2";

/// Comes last in the batch: earlier, it would block the worker's own renewals. The
/// shared lock keeps the job from being taken back before the commit.
pub(crate) const FENCE: &str = "\
select 1 from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share";

/// The longest that a batch may take, all waits included.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// The longest that closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// Bytes of the file that are dealt with.
    pub byte_offset: i64,
    /// The physical line, from 1, that begins at `byte_offset`.
    pub line_no: i64,
    /// Batches that were written.
    pub batch_no: i32,
    /// Rows that were stored.
    pub rows_accepted: i64,
    /// Rows that were rejected.
    pub rows_rejected: i64,
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

/// A row that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The physical line, from 1, on which the row begins.
    pub line: i64,
    /// The column that is at fault; empty where it is the row as a whole.
    pub column: String,
    /// A stable code.
    pub reason: String,
    /// What is wrong, for people.
    pub message: String,
    /// The beginning of the value at fault.
    pub value: Option<String>,
    /// The record as it stands in the file, or its beginning.
    pub original: Option<String>,
}

/// An accepted row with values that may stand in one row only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The physical line, from 1, on which the row begins.
    pub line: i64,
    /// The record as it stands in the file, or its beginning; kept if it is rejected.
    pub original: String,
    /// Its values of `unique` columns; an empty value is not one.
    pub values: Vec<UniqueValue>,
}

/// A value that may stand in one row only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueValue {
    /// The column's place among those of the import, from 0.
    pub column_no: i16,
    /// The column's name.
    pub column: String,
    /// The beginning of SHA-256 of the value as it is stored.
    pub digest: [u8; 16],
    /// The beginning of the value as it stands in the file.
    pub shown: String,
}

/// Accepted rows, in the form in which they go to the database.
#[derive(Debug)]
pub struct RowBatch {
    job_id: String,
    copy: Vec<u8>,
    rows: usize,
}

impl RowBatch {
    /// An empty batch of this job.
    pub fn new(job_id: JobId) -> Self {
        Self {
            job_id: job_id.to_string(),
            copy: Vec::new(),
            rows: 0,
        }
    }

    /// Adds a row: a JSON document without raw control characters, as every JSON
    /// writer makes it.
    pub fn push(&mut self, line: i64, json: &str) {
        self.copy.extend_from_slice(self.job_id.as_bytes());
        self.copy.push(b'\t');
        self.copy.extend_from_slice(line.to_string().as_bytes());
        self.copy.push(b'\t');
        // The text form of COPY reads a backslash as an escape; tabs and line ends are
        // already escaped in JSON.
        for (index, part) in json.split('\\').enumerate() {
            if index > 0 {
                self.copy.extend_from_slice(b"\\\\");
            }
            self.copy.extend_from_slice(part.as_bytes());
        }
        self.copy.push(b'\n');
        self.rows += 1;
    }

    /// How many rows it holds.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it holds no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The rows in the text form of COPY: job, line, JSON.
    pub fn as_copy(&self) -> &[u8] {
        &self.copy
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.copy.len()
    }
}

/// Rows and rejects that are written together, and where they are in the file.
#[derive(Debug)]
pub struct Batch {
    /// Where the import was before.
    pub from: Position,
    /// Where it is afterwards; `batch_no` is the one after that of `from`.
    pub to: Position,
    /// What is stored.
    pub rows: RowBatch,
    /// What is not.
    pub rejects: Vec<Reject>,
    /// The rows of `rows` that have values of `unique` columns, by line.
    pub candidates: Vec<Candidate>,
}

/// Why a write of an import did not happen.
#[derive(Debug)]
pub enum WriteError {
    /// The lease was lost; nothing was written.
    LeaseLost,
    /// The checkpoint is not where the writer took it to be; nothing was written.
    Moved,
    /// The database; nothing was written as far as it could be asked.
    Database(Error),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::LeaseLost => Self::new(
                Code::LeaseExpired,
                "the lease was lost; the import goes on from its last batch",
            ),
            WriteError::Moved => Self::new(
                Code::LeaseExpired,
                "another run moved the import on; it goes on from its last batch",
            ),
            WriteError::Database(error) => error,
        }
    }
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

/// Stores the plan of an import and where its rows begin.
///
/// # Errors
/// [`WriteError::Moved`] where there is a checkpoint already.
pub async fn start(
    store: &Store,
    fence: Fence,
    byte_offset: i64,
    line_no: i64,
    plan: &serde_json::Value,
) -> Result<(), WriteError> {
    let row = sqlx::query(START)
        .bind(fence.job_id.uuid())
        .bind(fence.run)
        .bind(fence.session.uuid())
        .bind(byte_offset)
        .bind(line_no)
        .bind(Json(plan))
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

/// Writes a batch and moves the checkpoint in one transaction. Written already (by an
/// earlier call whose answer was lost) it is left as it is.
///
/// Runs in a task of its own, so that a caller that is dropped leaves no transaction
/// open: the batch is then written or not, and the checkpoint tells which.
///
/// # Errors
/// See [`WriteError`]. After an unknown commit the checkpoint is read again and
/// decides; repeating the call is safe.
pub async fn write_batch(store: &Store, fence: Fence, batch: Arc<Batch>) -> Result<(), WriteError> {
    let store = store.clone();
    let task = tokio::spawn(async move { write_owned(&store, fence, &batch).await });
    match task.await {
        Ok(result) => result,
        Err(error) => Err(WriteError::Database(
            Error::new(Code::DatabaseUnavailable, "the batch was not written").with_source(error),
        )),
    }
}

async fn write_owned(store: &Store, fence: Fence, batch: &Batch) -> Result<(), WriteError> {
    let mut connection = store.pool().acquire().await.map_err(database)?;
    let mut sent = false;
    let work = transaction(&mut connection, fence, batch, &mut sent);
    let result = match tokio::time::timeout(BATCH_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Database(Error::new(
            Code::DatabaseUnavailable,
            format!(
                "a batch was not written within {} s",
                BATCH_TIMEOUT.as_secs()
            ),
        ))),
    };
    let perhaps = match &result {
        Ok(()) | Err(WriteError::LeaseLost) => return result,
        Err(WriteError::Moved) => true,
        Err(WriteError::Database(_)) => {
            // In an unknown state (perhaps within a COPY): not to be used again. Closing
            // it rolls back whatever was not committed.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, connection.detach().close_hard()).await;
            sent
        }
    };
    if perhaps
        && let Ok(Some(checkpoint)) = load_checkpoint(store, fence.job_id).await
        && checkpoint.position == batch.to
    {
        return Ok(());
    }
    result
}

async fn transaction(
    connection: &mut PgConnection,
    fence: Fence,
    batch: &Batch,
    sent: &mut bool,
) -> Result<(), WriteError> {
    let Batch {
        from,
        to,
        rows,
        rejects,
        ..
    } = batch;
    let mut tx = connection.begin().await.map_err(database)?;
    let moved = sqlx::query(ADVANCE)
        .bind(fence.job_id.uuid())
        .bind(from.batch_no)
        .bind(to.byte_offset)
        .bind(to.line_no)
        .bind(to.rows_accepted)
        .bind(to.rows_rejected)
        .execute(&mut *tx)
        .await
        .map_err(database)?;
    if moved.rows_affected() != 1 {
        tx.rollback().await.map_err(database)?;
        return Err(WriteError::Moved);
    }
    if !rows.is_empty() {
        let mut copy = tx.copy_in_raw(COPY).await.map_err(database)?;
        copy.send(&rows.copy[..]).await.map_err(database)?;
        let written = copy.finish().await.map_err(database)?;
        if written != rows.rows as u64 {
            return Err(WriteError::Database(Error::new(
                Code::Internal,
                format!("{written} of {} rows were copied", rows.rows),
            )));
        }
    }
    if !rejects.is_empty() {
        insert_rejects(&mut tx, fence.job_id, rejects)
            .await
            .map_err(database)?;
    }
    let held = sqlx::query(FENCE)
        .bind(fence.job_id.uuid())
        .bind(fence.run)
        .bind(fence.session.uuid())
        .fetch_optional(&mut *tx)
        .await
        .map_err(database)?;
    if held.is_none() {
        tx.rollback().await.map_err(database)?;
        return Err(WriteError::LeaseLost);
    }
    *sent = true;
    tx.commit().await.map_err(database)
}

async fn insert_rejects(
    connection: &mut PgConnection,
    job_id: JobId,
    rejects: &[Reject],
) -> Result<(), sqlx::Error> {
    let lines: Vec<i64> = rejects.iter().map(|r| r.line).collect();
    let columns: Vec<&str> = rejects.iter().map(|r| r.column.as_str()).collect();
    let reasons: Vec<&str> = rejects.iter().map(|r| r.reason.as_str()).collect();
    let messages: Vec<&str> = rejects.iter().map(|r| r.message.as_str()).collect();
    let values: Vec<Option<&str>> = rejects.iter().map(|r| r.value.as_deref()).collect();
    sqlx::query(REJECTS)
        .bind(job_id.uuid())
        .bind(lines)
        .bind(columns)
        .bind(reasons)
        .bind(messages)
        .bind(values)
        .execute(connection)
        .await
        .map(|_| ())
}

/// The first rejected rows of a job, by line.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn reject_samples(store: &Store, job_id: JobId, limit: i64) -> Result<Vec<Reject>> {
    let rows = sqlx::query(SAMPLE)
        .bind(job_id.uuid())
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    rows.iter()
        .map(|row| {
            Ok(Reject {
                line: row.try_get("line_no").map_err(db_error)?,
                column: row.try_get("column_name").map_err(db_error)?,
                reason: row.try_get("reason").map_err(db_error)?,
                message: row.try_get("message").map_err(db_error)?,
                value: row.try_get("value").map_err(db_error)?,
                original: row.try_get("original").map_err(db_error)?,
            })
        })
        .collect()
}

fn database(error: sqlx::Error) -> WriteError {
    WriteError::Database(db_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_backslashes_through_copy() {
        let id = JobId::new();
        let mut batch = RowBatch::new(id);
        batch.push(7, r#"{"a":"tab \t, path C:\\x, quote \""}"#);
        batch.push(8, "{}");
        let text = String::from_utf8(batch.as_copy().to_vec()).expect("UTF-8");
        let expected = format!(
            "{id}\t7\t{}\n{id}\t8\t{{}}\n",
            r#"{"a":"tab \\t, path C:\\\\x, quote \\""}"#
        );
        assert_eq!(text, expected);
        assert_eq!((batch.len(), batch.bytes()), (2, text.len()));
    }
}
