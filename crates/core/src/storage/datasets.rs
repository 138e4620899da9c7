//! Data sets: what the imports of a user have brought in, by name.
//!
//! A data set is seen from the first import on that has ended with success, and of its
//! rows those of such imports. Pages go on behind the last of the page before, along an
//! index; nothing is ever counted.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::{JobId, UserId};
use crate::error::Result;

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("datasets_page", PAGE),
    ("dataset_find", FIND),
    ("dataset_imports", IMPORTS),
    ("dataset_rows", ROWS),
    ("dataset_more_rows", MORE),
    ("dataset_remove", REMOVE),
    ("dataset_remove_imports", REMOVE_IMPORTS),
    ("datasets_prune", PRUNE),
];

/// Whether the name `$name` is that of a removed data set: no user's has this character. It
/// begins with the old name, so that a page that began before goes on behind it.
macro_rules! removed {
    ($name:literal) => {
        concat!("position(chr(1) in ", $name, ") > 0")
    };
}
pub(super) use removed;

const REMOVE: &str = "\
update datasets set name = name || chr(1) || dataset_id::text, rows = 0, imports = 0, updated_at = now()
where user_id = $1 and name = $2 and imports > 0 returning dataset_id";

/// Those that still run as well: they find at their end that there is no such data set.
const REMOVE_IMPORTS: &str =
    "update imports set status = 'superseded' where dataset_id = $1 and status <> 'superseded'";

/// When nothing is left of its imports.
const PRUNE: &str = concat!(
    "delete from datasets d where d.dataset_id in (select dataset_id from datasets where ",
    removed!("name"),
    " limit $1) and not exists (select 1 from imports i where i.dataset_id = d.dataset_id)"
);

const PAGE: &str = "\
select dataset_id, user_id, name, rows, imports, created_at, updated_at
from datasets
where user_id = $1 and imports > 0
    and name > coalesce((select name from datasets where dataset_id = $2 and user_id = $1), '')
order by name limit $3";

const FIND: &str =
    "select dataset_id from datasets where user_id = $1 and name = $2 and imports > 0";

const IMPORTS: &str = "\
select job_id from imports
where dataset_id = $1 and status = 'done' and job_id >= $2 and ($3::uuid is null or job_id = $3)
order by job_id limit $4";

/// Ends before the rows take more than so many bytes, but for the first one.
const ROWS: &str = "\
select line_no, data from (
    select line_no, data, row_number() over w as place, sum(octet_length(data)) over w as bytes
    from (select line_no, data::text as data from import_rows where job_id = $1 and line_no > $2
        order by line_no limit $3) r
    window w as (order by line_no rows unbounded preceding)) r
where bytes <= $4 or (place = 1 and $5) order by line_no";

const MORE: &str = "select exists (select 1 from import_rows where job_id = $1 and line_no > $2)";

/// The imports that one page of rows looks into.
const IMPORTS_PER_PAGE: i64 = 100;

/// The rows that are read at once: each may take megabytes.
const ROWS_AT_ONCE: usize = 250;

/// A data set.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Dataset {
    /// Its id.
    pub dataset_id: Uuid,
    /// The owner's id.
    pub user_id: String,
    /// Its name.
    pub name: String,
    /// The rows that are seen.
    pub rows: i64,
    /// The imports that they come from.
    pub imports: i32,
    /// When it was first imported to.
    pub created_at: DateTime<Utc>,
    /// When an import to it last ended.
    pub updated_at: DateTime<Utc>,
}

/// A page of data sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetPage {
    /// The data sets, by name.
    pub datasets: Vec<Dataset>,
    /// The next page comes after this data set; `None`: this was the last one.
    pub next: Option<Uuid>,
}

/// A row of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetRow {
    /// The import that brought it in.
    pub job_id: JobId,
    /// The physical line of its file, from 1, on which it begins.
    pub line: i64,
    /// Its values as JSON.
    pub data: String,
}

/// The place of a row in its data set.
pub type Place = (JobId, i64);

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPage {
    /// The rows, by import and line. May be fewer than asked for while there are more.
    pub rows: Vec<DatasetRow>,
    /// The next page comes after this place; `None`: this was the last one.
    pub next: Option<Place>,
}

/// What a page of rows may hold.
#[derive(Debug, Clone, Copy)]
pub struct PageSize {
    /// The most rows.
    pub rows: usize,
    /// The most bytes; a single row may take more.
    pub bytes: usize,
}

/// A page of up to `limit` data sets of a user, behind one of them (`None`: from the first
/// on).
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn list(
    store: &Store,
    user_id: &UserId,
    after: Option<Uuid>,
    limit: usize,
) -> Result<DatasetPage> {
    let mut datasets: Vec<Dataset> = sqlx::query_as(PAGE)
        .bind(user_id.as_str())
        .bind(after)
        .bind(limit as i64 + 1)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    let mut next = None;
    if datasets.len() > limit {
        datasets.truncate(limit);
        next = datasets.last().map(|dataset| dataset.dataset_id);
    }
    Ok(DatasetPage { datasets, next })
}

/// The id of a user's data set; `None`: there is none of this name.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn find(store: &Store, user_id: &UserId, name: &str) -> Result<Option<Uuid>> {
    sqlx::query_scalar(FIND)
        .bind(user_id.as_str())
        .bind(name)
        .fetch_optional(store.pool())
        .await
        .map_err(db_error)
}

/// A page of rows behind a place (`None`: from the first on); with `import` only those
/// that it brought in.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn rows(
    store: &Store,
    dataset_id: Uuid,
    import: Option<JobId>,
    after: Option<Place>,
    size: PageSize,
) -> Result<RowPage> {
    let from = after.map_or(Uuid::nil(), |(job_id, _)| job_id.uuid());
    let imports: Vec<Uuid> = sqlx::query_scalar(IMPORTS)
        .bind(dataset_id)
        .bind(from)
        .bind(import.map(JobId::uuid))
        .bind(IMPORTS_PER_PAGE)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    let more_imports = imports.len() as i64 == IMPORTS_PER_PAGE;
    let mut rows: Vec<DatasetRow> = Vec::new();
    let mut room = size.bytes;
    let mut place = after;
    for import in imports.into_iter().map(JobId) {
        let mut line = match place {
            Some((job_id, line)) if job_id == import => line,
            _ => 0,
        };
        loop {
            // One more than there is room for tells whether there is a next page.
            let wanted = (size.rows + 1 - rows.len()).min(ROWS_AT_ONCE);
            let found: Vec<(i64, String)> = sqlx::query_as(ROWS)
                .bind(import.uuid())
                .bind(line)
                .bind(wanted as i64)
                .bind(room as i64)
                .bind(rows.is_empty())
                .fetch_all(store.pool())
                .await
                .map_err(db_error)?;
            let count = found.len();
            for (at, data) in found {
                if rows.len() == size.rows {
                    return Ok(RowPage { rows, next: place });
                }
                line = at;
                place = Some((import, line));
                room = room.saturating_sub(data.len());
                rows.push(DatasetRow {
                    job_id: import,
                    line,
                    data,
                });
            }
            if count == wanted {
                continue;
            }
            if !rows.is_empty() && has_more(store, import, line).await? {
                // The next row found no room.
                return Ok(RowPage { rows, next: place });
            }
            break;
        }
        place = Some((import, i64::MAX));
    }
    let next = place.filter(|_| more_imports);
    Ok(RowPage { rows, next })
}

async fn has_more(store: &Store, import: JobId, line: i64) -> Result<bool> {
    sqlx::query_scalar(MORE)
        .bind(import.uuid())
        .bind(line)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)
}

/// Removes a user's data set: it is not seen from now on, its name is free, and an import that
/// writes to it fails at its end. What it held is removed in small steps by
/// [`super::imports::prune_step`]. `false`: there is none of this name.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn remove(store: &Store, user_id: &UserId, name: &str) -> Result<bool> {
    let mut tx = store.pool().begin().await.map_err(db_error)?;
    let found: Option<Uuid> = sqlx::query_scalar(REMOVE)
        .bind(user_id.as_str())
        .bind(name)
        .fetch_optional(&mut *tx)
        .await
        .map_err(db_error)?;
    let Some(dataset_id) = found else {
        return Ok(false);
    };
    // A statement of its own: an import that began while this waited is seen by it.
    sqlx::query(REMOVE_IMPORTS)
        .bind(dataset_id)
        .execute(&mut *tx)
        .await
        .map_err(db_error)?;
    tx.commit().await.map_err(db_error)?;
    Ok(true)
}

/// Removes up to `limit` removed data sets of whose imports nothing is left.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn prune(store: &Store, limit: i64) -> Result<u64> {
    sqlx::query(PRUNE)
        .bind(limit)
        .execute(store.pool())
        .await
        .map(|done| done.rows_affected())
        .map_err(db_error)
}
