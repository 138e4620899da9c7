//! What imports leave and nobody needs: rows that were replaced, those of imports that came
//! to nothing, and unique values of imports that have ended. Removed in small steps, by any
//! number of sweepers at once.
//!
//! An import that is `done` keeps its rows, whatever became of its job. A failed one keeps
//! everything, since it can be replayed and then goes on.

use uuid::Uuid;

use crate::domain::ids::JobId;
use crate::error::Result;
use crate::storage::datasets::removed;
use crate::storage::{Store, db_error};

/// The most rows that one statement removes.
const STEP_ROWS: i64 = 5_000;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_leftovers", LEFTOVERS),
    ("import_leftover_unique", LEFTOVER_UNIQUE),
    ("import_leftover_rejects", LEFTOVER_REJECTS),
    ("import_prune_rows", ROWS),
    ("import_prune_rejects", REJECTS),
    ("import_prune_unique", UNIQUE),
    ("import_prune_rest", REST),
];

/// A page of all imports, with what may go. A superseded one may once its job cannot run
/// again, as a failed one could: a run that found no checkpoint would begin anew. That is
/// what one should do whose data set was removed.
const LEFTOVERS: &str = concat!(
    "\
select c.job_id, case
    when i.status = 'done' then false
    when i.status = 'superseded' then j.job_id is null or j.status in ('success', 'cancelled')
        or (j.status = 'failed' and exists (select 1 from datasets d where d.dataset_id = i.dataset_id and ",
    removed!("d.name"),
    "))
    else j.job_id is null or j.status = 'cancelled' end as leftover
from (select job_id from import_checkpoints where job_id > $1 order by job_id limit $2) c
left join jobs j on j.job_id = c.job_id left join imports i on i.job_id = c.job_id
order by c.job_id"
);

/// Goes from job to job by the index, not from row to row.
macro_rules! jobs_of {
    ($table:literal, $leftover:literal) => {
        concat!(
            "with recursive u as ((select job_id from ",
            $table,
            " where job_id > $1 order by job_id limit 1) union all \
             select (select n.job_id from ",
            $table,
            " n where n.job_id > u.job_id order by n.job_id limit 1) from u where u.job_id is not null) \
             select u.job_id, ",
            $leftover,
            " as leftover from (select job_id from u where job_id is not null limit $2) u \
             left join jobs j on j.job_id = u.job_id order by u.job_id"
        )
    };
}
const LEFTOVER_UNIQUE: &str = jobs_of!(
    "import_unique",
    "j.job_id is null or j.status in ('success', 'cancelled')"
);
/// Nobody asks for them without their job; its file of rejects has a time of its own.
const LEFTOVER_REJECTS: &str = jobs_of!("import_rejects", "j.job_id is null");

macro_rules! step {
    ($table:literal) => {
        concat!(
            "delete from ",
            $table,
            " where ctid = any(array(select ctid from ",
            $table,
            " where job_id = $1 limit $2 for update skip locked))"
        )
    };
}
const ROWS: &str = step!("import_rows");
const REJECTS: &str = step!("import_rejects");
const UNIQUE: &str = step!("import_unique");

/// Comes last, and not while another sweeper still removes.
const REST: &str = "\
with c as (
    delete from import_checkpoints where job_id = $1
    and not exists (select 1 from import_rows where job_id = $1)
    and not exists (select 1 from import_rejects where job_id = $1)
    and not exists (select 1 from import_unique where job_id = $1) returning job_id)
delete from imports i using c where i.job_id = c.job_id";

/// A page of imports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Those of which something may go.
    pub jobs: Vec<JobId>,
    /// The last one that was looked at; `None`: there are no more.
    pub last: Option<JobId>,
}

/// Looks at up to `limit` imports behind `after`, for those of which everything may go.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn leftovers(store: &Store, after: Option<JobId>, limit: i64) -> Result<Leftovers> {
    page(store, LEFTOVERS, after, limit).await
}

/// Looks at up to `limit` imports behind `after` that have unique values stored, for those
/// that have ended.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn ended_with_unique(
    store: &Store,
    after: Option<JobId>,
    limit: i64,
) -> Result<Leftovers> {
    page(store, LEFTOVER_UNIQUE, after, limit).await
}

/// Looks at up to `limit` imports behind `after` that have rejected rows stored, for those
/// whose job retention has removed.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn gone_with_rejects(
    store: &Store,
    after: Option<JobId>,
    limit: i64,
) -> Result<Leftovers> {
    page(store, LEFTOVER_REJECTS, after, limit).await
}

async fn page(
    store: &Store,
    statement: &'static str,
    after: Option<JobId>,
    limit: i64,
) -> Result<Leftovers> {
    let rows: Vec<(Uuid, bool)> = sqlx::query_as(statement)
        .bind(after.map_or(Uuid::nil(), JobId::uuid))
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    Ok(Leftovers {
        last: rows.last().map(|(job_id, _)| JobId(*job_id)),
        jobs: rows
            .into_iter()
            .filter_map(|(job_id, leftover)| leftover.then_some(JobId(job_id)))
            .collect(),
    })
}

/// Removes some of an import that may go; `true`: there may be more.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn prune_step(store: &Store, job_id: JobId) -> Result<bool> {
    for statement in [ROWS, REJECTS, UNIQUE] {
        if delete(store, statement, job_id).await? > 0 {
            return Ok(true);
        }
    }
    sqlx::query(REST)
        .bind(job_id.uuid())
        .execute(store.pool())
        .await
        .map_err(db_error)?;
    Ok(false)
}

/// Removes some of an import's unique values; `true`: there may be more.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn prune_unique_step(store: &Store, job_id: JobId) -> Result<bool> {
    Ok(delete(store, UNIQUE, job_id).await? > 0)
}

/// Removes some of an import's rejected rows; `true`: there may be more.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn prune_rejects_step(store: &Store, job_id: JobId) -> Result<bool> {
    Ok(delete(store, REJECTS, job_id).await? > 0)
}

async fn delete(store: &Store, statement: &'static str, job_id: JobId) -> Result<u64> {
    sqlx::query(statement)
        .bind(job_id.uuid())
        .bind(STEP_ROWS)
        .execute(store.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(db_error)
}
