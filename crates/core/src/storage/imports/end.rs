//! The end of an import: its rows become part of their data set, all at once.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{WriteError, close, database};
use crate::domain::lease::Fence;
use crate::error::{Code, Error};
use crate::storage::Store;
use crate::storage::datasets::removed;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_end_fence", FENCE),
    ("import_end_lock", LOCK),
    ("import_end_done", DONE),
    ("import_end_supersede", SUPERSEDE),
    ("import_end_dataset", DATASET),
];

/// Comes first, unlike in a batch: whoever waits for a data set's lock holds its own job,
/// so no two wait for each other. The transaction is short.
const FENCE: &str = "\
select cancel_requested_at is not null from jobs
where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share";

/// Of two imports that end at once the later waits here, and so sees what the earlier left.
const LOCK: &str = concat!(
    "select d.dataset_id, ",
    removed!("d.name"),
    " from imports i join datasets d on d.dataset_id = i.dataset_id where i.job_id = $1 for no key update of d"
);

const DONE: &str = "\
update imports set status = 'done', rows_stored = $2, finished_at = now()
where job_id = $1 and status = 'running'";

const SUPERSEDE: &str = "\
update imports set status = 'superseded' where dataset_id = $1 and status = 'done' and job_id <> $2";

const DATASET: &str = "\
update datasets set rows = case when $2 then 0 else rows end + $3,
    imports = case when $2 then 0 else imports end + 1, updated_at = now()
where dataset_id = $1";

/// The longest that the end of an import may take, all waits included.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// What the end of an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// Its rows are seen from now on.
    Now,
    /// It had ended before.
    Before,
}

/// Makes the rows of an import part of its data set. `replace`: those of the imports that
/// have ended before are no longer seen. Of several imports the one that ends last wins.
/// Repeated it changes nothing.
///
/// Runs in a task of its own, as a batch does.
///
/// # Errors
/// [`WriteError::Cancelled`] where the job is to be cancelled: such an import is never
/// seen. [`WriteError::Moved`] where it has no data set, [`WriteError::Removed`] where that was
/// removed.
pub async fn complete(
    store: &Store,
    fence: Fence,
    rows_stored: i64,
    replace: bool,
) -> Result<Completed, WriteError> {
    let store = store.clone();
    let task =
        tokio::spawn(async move { complete_owned(&store, fence, rows_stored, replace).await });
    match task.await {
        Ok(result) => result,
        Err(error) => Err(WriteError::Database(
            Error::new(Code::DatabaseUnavailable, "the import was not ended").with_source(error),
        )),
    }
}

async fn complete_owned(
    store: &Store,
    fence: Fence,
    rows_stored: i64,
    replace: bool,
) -> Result<Completed, WriteError> {
    let mut connection = store.pool().acquire().await.map_err(database)?;
    let work = transaction(&mut connection, fence, rows_stored, replace);
    let result = match tokio::time::timeout(END_TIMEOUT, work).await {
        Ok(result) => result,
        Err(_) => Err(WriteError::Database(Error::new(
            Code::DatabaseUnavailable,
            format!(
                "the import was not ended within {} s",
                END_TIMEOUT.as_secs()
            ),
        ))),
    };
    if let Err(WriteError::Database(_)) = &result {
        close(connection).await;
    }
    result
}

async fn transaction(
    connection: &mut PgConnection,
    fence: Fence,
    rows_stored: i64,
    replace: bool,
) -> Result<Completed, WriteError> {
    let mut tx = connection.begin().await.map_err(database)?;
    let result = steps(&mut tx, fence, rows_stored, replace).await;
    match &result {
        Ok(_) => tx.commit().await.map_err(database)?,
        Err(WriteError::Database(_)) => {}
        Err(_) => tx.rollback().await.map_err(database)?,
    }
    result
}

async fn steps(
    tx: &mut PgConnection,
    fence: Fence,
    rows_stored: i64,
    replace: bool,
) -> Result<Completed, WriteError> {
    let job_id = fence.job_id.uuid();
    let cancelled: Option<bool> = sqlx::query_scalar(FENCE)
        .bind(job_id)
        .bind(fence.run)
        .bind(fence.session.uuid())
        .fetch_optional(&mut *tx)
        .await
        .map_err(database)?;
    match cancelled {
        None => return Err(WriteError::LeaseLost),
        Some(true) => return Err(WriteError::Cancelled),
        Some(false) => {}
    }
    let dataset: Option<(Uuid, bool)> = sqlx::query_as(LOCK)
        .bind(job_id)
        .fetch_optional(&mut *tx)
        .await
        .map_err(database)?;
    let (dataset, removed) = dataset.ok_or(WriteError::Moved)?;
    if removed {
        return Err(WriteError::Removed);
    }
    let done = sqlx::query(DONE)
        .bind(job_id)
        .bind(rows_stored)
        .execute(&mut *tx)
        .await
        .map_err(database)?;
    if done.rows_affected() == 0 {
        return Ok(Completed::Before);
    }
    if replace {
        sqlx::query(SUPERSEDE)
            .bind(dataset)
            .bind(job_id)
            .execute(&mut *tx)
            .await
            .map_err(database)?;
    }
    sqlx::query(DATASET)
        .bind(dataset)
        .bind(replace)
        .bind(rows_stored)
        .execute(&mut *tx)
        .await
        .map_err(database)?;
    Ok(Completed::Now)
}
