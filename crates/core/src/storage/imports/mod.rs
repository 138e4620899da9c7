//! What imports write: rows, rejected rows, and the checkpoint of an import.
//!
//! A batch is one transaction: the checkpoint's lock, rows, rejects, and last the fence. So
//! an import that was killed goes on behind its last batch, and no row is there twice.
//! A batch may store its rows while those in front of it are being written ([`Pipeline`]); then the
//! lock comes behind them, and the table's key keeps the rows of two runs apart.
//! The rows of a data set are seen when their import has ended ([`complete`]).

pub(super) mod batch;
pub(super) mod catalog;
pub(super) mod checkpoint;
pub(super) mod end;
pub(super) mod failed;
mod pipeline;
pub(super) mod prune;
mod refusal;
pub(super) mod rejects;
mod rows;
mod table;
mod turn;
pub(super) mod unique;
pub(super) mod write;

use std::time::Duration;

use sqlx::PgConnection;

pub use batch::{Batch, Candidate, Reject, RowBatch, UniqueValue};
pub use catalog::{TableColumn, TableInfo, describe};
pub use checkpoint::{Beginning, Checkpoint, Position, load_checkpoint, start};
pub use end::{Completed, complete};
pub use failed::{FailedImport, ImportFiles, NewsJob, tell_failed};
pub use pipeline::Pipeline;
pub use prune::{
    Leftovers, ended_with_unique, gone_with_rejects, leftovers, prune_rejects_step, prune_step,
    prune_unique_step,
};
pub use rejects::{RejectGroup, reject_groups, reject_samples, rejects_after};
pub use table::{Table, TableField, TableSpec};
pub use turn::{Turn, Turns};
pub use write::{Destination, Sink, write_batch, write_batch_in_turn};

use super::db_error;
use crate::error::{Code, Error};

/// The longest that closing a connection may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a write of an import did not happen.
#[derive(Debug)]
pub enum WriteError {
    /// The lease was lost; nothing was written.
    LeaseLost,
    /// The job is to be cancelled; nothing was written.
    Cancelled,
    /// The checkpoint is not where the writer took it to be; nothing was written.
    Moved,
    /// Its data set was removed; nothing was written.
    Removed,
    /// The batch in front of this one was not written, and so neither was this.
    Behind,
    /// The database, or the table that the rows go to; nothing was written as far as it
    /// could be asked.
    Database(Error),
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::LeaseLost => Self::new(
                Code::LeaseExpired,
                "the lease was lost; the import goes on from its last batch",
            ),
            WriteError::Cancelled => Self::new(Code::LeaseExpired, "the import is to be cancelled"),
            WriteError::Moved => Self::new(
                Code::LeaseExpired,
                "another run moved the import on; it goes on from its last batch",
            ),
            WriteError::Removed => Self::new(
                Code::DatasetRemoved,
                "the data set was removed while the import wrote to it; none of its rows is seen",
            ),
            WriteError::Behind => Self::new(
                Code::DatabaseUnavailable,
                "the batch in front was not written",
            ),
            WriteError::Database(error) => error,
        }
    }
}

fn database(error: sqlx::Error) -> WriteError {
    WriteError::Database(db_error(error))
}

/// Closes a connection in an unknown state (perhaps within a COPY), which rolls back
/// whatever was not committed.
async fn close(connection: sqlx::pool::PoolConnection<sqlx::Postgres>) {
    let connection: PgConnection = connection.detach();
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, sqlx::Connection::close_hard(connection)).await;
}
