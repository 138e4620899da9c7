//! Rejected rows, as they are stored and read again.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::Reject;
use crate::domain::ids::JobId;
use crate::error::Result;
use crate::storage::{Store, db_error};

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_rejects_insert", INSERT),
    ("import_rejects_page", PAGE),
    ("import_rejects_samples", SAMPLES),
    ("import_rejects_groups", GROUPS),
];

const INSERT: &str = "\
insert into import_rejects (job_id, line_no, column_name, reason, message, value, original)
select $1, * from unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])";

const PAGE: &str = "\
select line_no, column_name, reason, message, value, original
from import_rejects where job_id = $1 and line_no > $2 order by line_no limit $3";

/// Without the records: a thousand of them could take megabytes that no report shows.
const SAMPLES: &str = "\
select line_no, column_name, reason, message, value, null::text as original
from import_rejects where job_id = $1 order by line_no limit $2";

/// Reads nothing but its index.
const GROUPS: &str = "\
select reason, column_name, count(*) as rejects
from import_rejects where job_id = $1 group by reason, column_name
order by rejects desc, reason collate \"C\", column_name collate \"C\" limit $2";

/// Rejects of one reason in one column.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RejectGroup {
    /// The reason.
    pub reason: String,
    /// The column; empty where it is the row as a whole.
    #[sqlx(rename = "column_name")]
    pub column: String,
    /// How many.
    pub rejects: i64,
}

/// Stores rejects.
pub(super) async fn insert<'r>(
    connection: &mut PgConnection,
    job_id: JobId,
    rejects: impl Iterator<Item = &'r Reject> + Clone,
) -> Result<(), sqlx::Error> {
    let texts = |text: fn(&'r Reject) -> &'r str| rejects.clone().map(text).collect::<Vec<_>>();
    let lines: Vec<i64> = rejects.clone().map(|r| r.line).collect();
    let values: Vec<Option<&str>> = rejects.clone().map(|r| r.value.as_deref()).collect();
    let originals: Vec<Option<&str>> = rejects.clone().map(|r| r.original.as_deref()).collect();
    sqlx::query(INSERT)
        .bind(job_id.uuid())
        .bind(lines)
        .bind(texts(|r| &r.column))
        .bind(texts(|r| &r.reason))
        .bind(texts(|r| &r.message))
        .bind(values)
        .bind(originals)
        .execute(connection)
        .await
        .map(|_| ())
}

/// The first rejected rows of a job, by line, without their records.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn reject_samples(store: &Store, job_id: JobId, limit: i64) -> Result<Vec<Reject>> {
    let rows = sqlx::query(SAMPLES)
        .bind(job_id.uuid())
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    read_all(&rows)
}

/// The rejected rows of a job behind a line, by line.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn rejects_after(
    store: &Store,
    job_id: JobId,
    line: i64,
    limit: i64,
) -> Result<Vec<Reject>> {
    let rows = sqlx::query(PAGE)
        .bind(job_id.uuid())
        .bind(line)
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    read_all(&rows)
}

fn read_all(rows: &[PgRow]) -> Result<Vec<Reject>> {
    rows.iter()
        .map(read)
        .collect::<Result<_, sqlx::Error>>()
        .map_err(db_error)
}

fn read(row: &PgRow) -> Result<Reject, sqlx::Error> {
    Ok(Reject {
        line: row.try_get("line_no")?,
        column: row.try_get("column_name")?,
        reason: row.try_get("reason")?,
        message: row.try_get("message")?,
        value: row.try_get("value")?,
        original: row.try_get("original")?,
    })
}

/// How many rows were rejected for which reason in which column, the most first.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn reject_groups(store: &Store, job_id: JobId, limit: i64) -> Result<Vec<RejectGroup>> {
    sqlx::query_as(GROUPS)
        .bind(job_id.uuid())
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)
}
