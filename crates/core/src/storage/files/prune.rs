//! What the sweeper needs to remove expired files and content without a description.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Store;
use crate::domain::ids::FileId;
use crate::error::Result;
use crate::storage::db_error;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("files_expired", EXPIRED),
    ("files_prune", PRUNE),
    ("files_described", DESCRIBED),
    ("files_any", ANY),
    ("files_old", OLD),
];

const EXPIRED: &str = "\
select file_id, expires_at from files
where expires_at <= now() and ($1::timestamptz is null or (expires_at, file_id) > ($1, $2))
order by expires_at, file_id limit $3";

/// In one statement, with the locks in the order of [`super::uploads`]. Users and files
/// that somebody else is at are left for the next time. A release that does not count
/// uploads may have stored some, so the sum is kept from falling below nothing.
const PRUNE: &str = "\
with u as (select user_id from file_usage
  where user_id in (select user_id from files where file_id = any($1) and kind = 'upload')
  order by user_id for update skip locked),
d as (delete from files where file_id in (select f.file_id from files f
    where f.file_id = any($1) and f.expires_at <= now()
    and (f.kind <> 'upload' or f.user_id in (select user_id from u)
      or not exists (select 1 from file_usage n where n.user_id = f.user_id))
    for update skip locked)
  returning user_id, kind, size_bytes),
s as (select user_id, count(*) as files, sum(size_bytes) as bytes from d
  where kind = 'upload' group by user_id),
x as (update file_usage t set files = greatest(t.files - s.files, 0), bytes = greatest(t.bytes - s.bytes, 0)
  from s where t.user_id = s.user_id)
select count(*), coalesce(sum(size_bytes), 0)::bigint from d";

const DESCRIBED: &str = "select file_id from files where file_id = any($1)";
const ANY: &str = "select exists (select 1 from files)";
const OLD: &str = "select now() - $1::bigint * interval '1 millisecond'";

/// A file that has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The file.
    pub file_id: FileId,
    /// When it did.
    pub expires_at: DateTime<Utc>,
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Up to `limit` files that have expired, the longest expired first, after `after`
/// (`None`: from the first on).
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn expired(store: &Store, after: Option<Expired>, limit: i64) -> Result<Vec<Expired>> {
    let rows: Vec<(Uuid, DateTime<Utc>)> = sqlx::query_as(EXPIRED)
        .bind(after.map(|file| file.expires_at))
        .bind(after.map_or(Uuid::nil(), |file| file.file_id.uuid()))
        .bind(limit)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    let expired = |(id, expires_at)| Expired {
        file_id: FileId(id),
        expires_at,
    };
    Ok(rows.into_iter().map(expired).collect())
}

/// Removes the descriptions of expired files, whose content is gone already, and gives
/// their room back. An expired file never comes back to life, so this can be repeated.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn prune(store: &Store, files: &[FileId]) -> Result<Pruned> {
    let ids: Vec<Uuid> = files.iter().map(|id| id.uuid()).collect();
    let (files, bytes): (i64, i64) = sqlx::query_as(PRUNE)
        .bind(ids)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    Ok(Pruned {
        files: files.unsigned_abs(),
        bytes: bytes.unsigned_abs(),
    })
}

/// Those of these files that have a description.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn described(store: &Store, files: &[FileId]) -> Result<HashSet<FileId>> {
    let ids: Vec<Uuid> = files.iter().map(|id| id.uuid()).collect();
    let found: Vec<Uuid> = sqlx::query_scalar(DESCRIBED)
        .bind(ids)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    Ok(found.into_iter().map(FileId).collect())
}

/// Whether any file is described: a database without one may be the wrong one.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn any_described(store: &Store) -> Result<bool> {
    sqlx::query_scalar(ANY)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)
}

/// The time so long ago, by the database's clock: this process's may be wrong.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn time_before(store: &Store, age: Duration) -> Result<DateTime<Utc>> {
    // A hundred years are enough, and a time.
    let age = age.min(Duration::from_hours(24 * 36_500)).as_millis() as i64;
    sqlx::query_scalar(OLD)
        .bind(age)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)
}
