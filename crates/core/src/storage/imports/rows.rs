//! Storing the rows of a batch, within its transaction.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::table::{Table, lines, simple};
use super::unique::Verdict;
use super::write::{Destination, Sink};
use super::{Batch, Reject, WriteError, database};
use crate::domain::ids::JobId;
use crate::error::{Code, Error};

/// PostgreSQL cannot prepare it, so it is not among the statements by name.
const COPY: &str = "copy import_rows (job_id, line_no, data) from stdin";

/// What a row that is there already means.
pub(super) type IsThere = fn(sqlx::Error) -> WriteError;

/// Ahead of its turn, a batch learns only so that another run of this import has written it.
pub(super) fn moved(_: sqlx::Error) -> WriteError {
    WriteError::Moved
}

/// Behind the lock the checkpoint says that no run has written it.
pub(super) fn inconsistent(error: sqlx::Error) -> WriteError {
    WriteError::Database(
        Error::new(
            Code::Internal,
            "a row is there already, and the import's checkpoint stands before it",
        )
        .with_source(error),
    )
}

/// An error of a statement that stores something.
pub(super) fn unless_there(error: sqlx::Error, is_there: IsThere) -> WriteError {
    match error.as_database_error() {
        Some(cause) if cause.is_unique_violation() => is_there(error),
        _ => database(error),
    }
}

/// What became of the rows of a batch.
pub(super) struct Stored {
    /// Rows that were accepted.
    pub(super) accepted: usize,
    /// Rows that were refused here, beside those that the batch came with.
    pub(super) rejects: Vec<Reject>,
}

/// Stores the rows that have no other row's unique value, and their values.
pub(super) async fn rows(
    tx: &mut PgConnection,
    job_id: JobId,
    batch: &Batch,
    to: &Destination,
    before: i64,
    is_there: IsThere,
) -> Result<Stored, WriteError> {
    let Batch {
        rows, candidates, ..
    } = batch;
    let mut verdict = Verdict::over(tx, job_id, candidates)
        .await
        .map_err(database)?;
    let too_many = |rejects: usize| to.is_exceeded(before + (batch.rejects.len() + rejects) as i64);
    let duplicates = verdict.lines();
    if too_many(duplicates.len()) {
        return Ok(Stored {
            accepted: 0,
            rejects: verdict.rejects(),
        });
    }
    let mut rejects = match &to.sink {
        Sink::Nothing => Vec::new(),
        Sink::Rows => {
            copy(tx, batch, &duplicates, is_there).await?;
            Vec::new()
        }
        Sink::Table(table) => {
            simple(tx, "set constraints all immediate; savepoint batch").await?;
            // Without the duplicates: a refused row gives one of them its turn.
            let known = before.unsigned_abs() + batch.rejects.len() as u64;
            let most = to.max_rejected_rows.map(|most| most.saturating_sub(known));
            let most = most.and_then(|most| usize::try_from(most).ok());
            let refused = write_table(tx, table, batch, &mut verdict, most).await?;
            if too_many(verdict.lines().len() + refused.len()) {
                simple(tx, "rollback to savepoint batch").await?;
                let rejects = [refused, verdict.rejects()].concat();
                return Ok(Stored {
                    accepted: 0,
                    rejects,
                });
            }
            refused
        }
    };
    verdict
        .store(tx, job_id, candidates)
        .await
        .map_err(database)?;
    rejects.extend(verdict.rejects());
    Ok(Stored {
        accepted: rows.len() - rejects.len(),
        rejects,
    })
}

async fn copy(
    tx: &mut PgConnection,
    batch: &Batch,
    without: &HashSet<i64>,
    is_there: IsThere,
) -> Result<(), WriteError> {
    let expected = (batch.rows.len() - without.len()) as u64;
    if expected == 0 {
        return Ok(());
    }
    let mut copy = tx.copy_in_raw(COPY).await.map_err(database)?;
    copy.send(batch.rows.to_copy(without))
        .await
        .map_err(database)?;
    let written = copy
        .finish()
        .await
        .map_err(|error| unless_there(error, is_there))?;
    if written != expected {
        return Err(WriteError::Database(Error::new(
            Code::Internal,
            format!("{written} of {expected} rows were copied"),
        )));
    }
    Ok(())
}

/// Writes rows to a table. A row that it refuses frees its unique values, so that a later
/// row which has one of them gets its turn. Ends early where `most` rejects are exceeded.
async fn write_table(
    tx: &mut PgConnection,
    table: &Table,
    batch: &Batch,
    verdict: &mut Verdict<'_>,
    most: Option<usize>,
) -> Result<Vec<Reject>, WriteError> {
    let originals: HashMap<i64, &str> = batch
        .candidates
        .iter()
        .map(|candidate| (candidate.line, candidate.original.as_str()))
        .collect();
    let all_without = |without: &HashSet<i64>| -> Vec<(i64, &str)> {
        let rows = batch.rows.iter();
        rows.filter(|(line, _)| !without.contains(line)).collect()
    };
    let mut rows = all_without(&verdict.lines());
    let mut rejects = Vec::new();
    while !rows.is_empty() {
        let room = most.map(|most| most.saturating_sub(rejects.len()));
        let refused = table.write(tx, &rows, &originals, room).await?;
        let freed = verdict.without(&lines(&refused));
        rejects.extend(refused);
        if most.is_some_and(|most| rejects.len() > most) || freed.is_empty() {
            break;
        }
        rows = if table.changes_rows() {
            // A freed row may have the key of one behind it, which is to count.
            simple(tx, "rollback to savepoint batch").await?;
            let mut without = verdict.lines();
            without.extend(lines(&rejects));
            all_without(&without)
        } else {
            let rows = batch.rows.iter();
            rows.filter(|(line, _)| freed.contains(line)).collect()
        };
    }
    Ok(rejects)
}
