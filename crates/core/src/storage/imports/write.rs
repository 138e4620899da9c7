//! Writing a batch: rows, rejects and checkpoint in one transaction.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};
use tokio::task::JoinError;

use super::rows::{Stored, inconsistent, moved, rows, unless_there};
use super::table::Table;
use super::turn::Turn;
use super::{Batch, Position, WriteError, close, database, load_checkpoint, rejects};
use crate::domain::ids::JobId;
use crate::domain::lease::Fence;
use crate::error::{Code, Error};
use crate::storage::Store;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_checkpoint_lock", LOCK),
    ("import_checkpoint_advance", ADVANCE),
];

/// Comes first in the batch, or when its turn has come: of two writers of one batch the later
/// waits, and finds no row.
const LOCK: &str = "\
select rows_rejected from import_checkpoints
where job_id = $1 and batch_no = $2 and byte_offset = $3 for no key update";

/// Comes last in the batch, with the fence: earlier, that would block the worker's own
/// renewals. The shared lock keeps the job from being taken back before the commit. After a
/// loss the first batch tells that the job moves on: the loss counts no more.
const ADVANCE: &str = "\
with m as (
    update jobs set lost = 0, attempt = greatest(attempt - 1, 1), rev = rev + 1
    where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' and lost > 0
    returning 1),
f as materialized (
    select 1 from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' and lost = 0 for share),
held as (select 1 from m union all select 1 from f)
update import_checkpoints c
set byte_offset = $4, line_no = $5, batch_no = batch_no + 1, rows_accepted = rows_accepted + $6,
    rows_rejected = rows_rejected + $7, updated_at = clock_timestamp()
from held where c.job_id = $1
returning c.rows_accepted, c.rows_rejected";

/// The longest that a batch may take, all waits included; and where it goes to a table,
/// whose triggers may be slow.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);
const TABLE_BATCH_TIMEOUT: Duration = Duration::from_mins(5);

/// Where the rows of an import go.
#[derive(Debug)]
pub enum Sink {
    /// To the data set, as JSON.
    Rows,
    /// To a table of their own.
    Table(Table),
    /// Nowhere: they are only judged.
    Nothing,
}

/// What an import does with its rows.
#[derive(Debug)]
pub struct Destination {
    /// Where they go.
    pub sink: Sink,
    /// The most rows that may be rejected. A batch that goes beyond it keeps its rejects
    /// and stores no row.
    pub max_rejected_rows: Option<u64>,
}

impl Destination {
    /// Whether so many rejects are too many.
    pub fn is_exceeded(&self, rows_rejected: i64) -> bool {
        let rejected = u64::try_from(rows_rejected).unwrap_or_default();
        self.max_rejected_rows.is_some_and(|most| rejected > most)
    }

    /// Whether batches without candidates can be stored before the batches in front of them
    /// are: what is stored must not depend on what those hold.
    pub fn may_go_ahead(&self) -> bool {
        matches!(self.sink, Sink::Rows) && self.max_rejected_rows.is_none()
    }

    /// The same of one batch.
    pub fn allows_ahead(&self, batch: &Batch) -> bool {
        self.may_go_ahead() && batch.candidates.is_empty()
    }
}

/// Writes a batch and moves the checkpoint in one transaction; where the import is then.
/// Written already (by an earlier call whose answer was lost) it is left as it is.
///
/// Runs in a task of its own, so that a caller that is dropped leaves no transaction
/// open: the batch is then written or not, and the checkpoint tells which.
///
/// # Errors
/// See [`WriteError`]; `IMPORT_TARGET_INVALID` where a table does not take the rows at
/// all. After an unknown commit the checkpoint is read again and decides; repeating the
/// call is safe.
pub async fn write_batch(
    store: &Store,
    fence: Fence,
    batch: Arc<Batch>,
    to: Arc<Destination>,
) -> Result<Position, WriteError> {
    write_batch_in_turn(store, fence, batch, to, Turn::alone()).await
}

/// As [`write_batch`], beside the batches in front of it: the rows are stored while those
/// are being committed, where [`Destination::allows_ahead`] says so, and its own commit
/// waits for its turn. The task begins when this is called and not when it is awaited.
///
/// # Errors
/// As [`write_batch`]; [`WriteError::Behind`] where the batch in front was not written.
pub fn write_batch_in_turn(
    store: &Store,
    fence: Fence,
    batch: Arc<Batch>,
    to: Arc<Destination>,
    turn: Turn,
) -> impl Future<Output = Result<Position, WriteError>> + Send + use<> {
    let store = store.clone();
    let task = tokio::spawn(async move { write_owned(&store, fence, &batch, &to, turn).await });
    async move { written(task.await) }
}

fn written(ended: Result<Result<Position, WriteError>, JoinError>) -> Result<Position, WriteError> {
    match ended {
        Ok(result) => result,
        Err(error) => Err(WriteError::Database(
            Error::new(Code::DatabaseUnavailable, "the batch was not written").with_source(error),
        )),
    }
}

async fn write_owned(
    store: &Store,
    fence: Fence,
    batch: &Batch,
    to: &Destination,
    mut turn: Turn,
) -> Result<Position, WriteError> {
    if !to.allows_ahead(batch) {
        turn.come().await?;
    }
    let mut connection = store.pool().acquire().await.map_err(database)?;
    let mut sent = false;
    let work = transaction(&mut connection, fence, batch, to, &mut turn, &mut sent);
    // A table of somebody else's that is slow is no outage of ours.
    let (limit, code) = match &to.sink {
        Sink::Table(_) => (TABLE_BATCH_TIMEOUT, Code::ImportTargetBusy),
        Sink::Rows | Sink::Nothing => (BATCH_TIMEOUT, Code::DatabaseUnavailable),
    };
    let result = match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Database(Error::new(
            code,
            format!("a batch was not written within {} s", limit.as_secs()),
        ))),
    };
    let error = match result {
        Ok(position) => {
            turn.pass();
            return Ok(position);
        }
        // Rolled back, and the connection is as good as before.
        Err(WriteError::LeaseLost) => return Err(WriteError::LeaseLost),
        Err(error) => error,
    };
    close(connection).await;
    if !sent && !matches!(error, WriteError::Moved) {
        return Err(error);
    }
    match load_checkpoint(store, fence.job_id).await {
        Ok(Some(checkpoint)) if checkpoint.position.is_at(&batch.to) => {
            turn.pass();
            Ok(checkpoint.position)
        }
        Ok(_) => Err(error),
        // What could not be asked is decided by the next call: it may be written.
        Err(unknown) => Err(WriteError::Database(unknown)),
    }
}

async fn transaction(
    connection: &mut PgConnection,
    fence: Fence,
    batch: &Batch,
    to: &Destination,
    turn: &mut Turn,
    sent: &mut bool,
) -> Result<Position, WriteError> {
    let job_id = fence.job_id;
    let mut tx = connection.begin().await.map_err(database)?;
    // Only what must: the lock behind the rows is the other way round than a batch in its turn
    // takes them, and two runs of an import could wait for each other.
    let ahead = !turn.has_come()?;
    // What was rejected before decides nothing where a batch may go ahead.
    let before = if ahead {
        0
    } else {
        lock(&mut tx, job_id, batch).await?
    };
    let is_there = if ahead { moved } else { inconsistent };
    let Stored { accepted, rejects } = rows(&mut tx, job_id, batch, to, before, is_there).await?;
    let rejected = batch.rejects.len() + rejects.len();
    if rejected > 0 {
        let all = batch.rejects.iter().chain(&rejects);
        rejects::insert(&mut tx, job_id, all)
            .await
            .map_err(|error| unless_there(error, is_there))?;
    }
    if ahead {
        turn.come().await?;
        lock(&mut tx, job_id, batch).await?;
    }
    let moved = sqlx::query(ADVANCE)
        .bind(job_id.uuid())
        .bind(fence.run)
        .bind(fence.session.uuid())
        .bind(batch.to.byte_offset)
        .bind(batch.to.line_no)
        .bind(accepted as i64)
        .bind(rejected as i64)
        .fetch_optional(&mut *tx)
        .await
        .map_err(database)?;
    let Some(moved) = moved else {
        tx.rollback().await.map_err(database)?;
        return Err(WriteError::LeaseLost);
    };
    let position = Position {
        rows_accepted: moved.try_get("rows_accepted").map_err(database)?,
        rows_rejected: moved.try_get("rows_rejected").map_err(database)?,
        ..batch.to
    };
    *sent = true;
    tx.commit().await.map_err(database)?;
    Ok(position)
}

/// Takes the checkpoint where it stands in front of the batch; the rows rejected up to there.
async fn lock(tx: &mut PgConnection, job_id: JobId, batch: &Batch) -> Result<i64, WriteError> {
    sqlx::query_scalar(LOCK)
        .bind(job_id.uuid())
        .bind(batch.from.batch_no)
        .bind(batch.from.byte_offset)
        .fetch_optional(tx)
        .await
        .map_err(database)?
        .ok_or(WriteError::Moved)
}
