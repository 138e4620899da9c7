//! Listing a user's files, newest first, a page at a time.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{FileKind, FileRow, Store, file_columns, read};
use crate::domain::ids::{FileId, JobId, UserId};
use crate::error::Result;
use crate::storage::db_error;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[("file_list", LIST)];

/// By time and id: reports have ids that do not tell their time.
const LIST: &str = concat!(
    "select ",
    file_columns!(),
    " from files where user_id = $1 and (created_at, file_id) < ($2, $3)
and (expires_at is null or expires_at > now())
and ($4::text is null or kind = $4) and ($5::uuid is null or job_id = $5)
order by created_at desc, file_id desc limit $6"
);

/// Which files a list has. The conditions are joined with AND.
#[derive(Debug, Clone)]
pub struct FileFilter {
    /// The owner.
    pub user_id: UserId,
    /// What they are for.
    pub kind: Option<FileKind>,
    /// The job that made them.
    pub job_id: Option<JobId>,
}

/// The place of a file in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// When it was stored.
    pub created_at: DateTime<Utc>,
    /// Its id.
    pub file_id: FileId,
}

/// A page of a list.
#[derive(Debug)]
pub struct FilePage {
    /// The files, newest first.
    pub files: Vec<FileRow>,
    /// The next page comes after this place; `None`: this was the last one.
    pub next: Option<Place>,
}

/// A page of up to `limit` files after `after` (`None`: from the newest on).
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn list(
    store: &Store,
    filter: &FileFilter,
    after: Option<Place>,
    limit: usize,
) -> Result<FilePage> {
    let rows = sqlx::query(LIST)
        .bind(filter.user_id.as_str())
        // The end of time as far as both sides can write it.
        .bind(after.map_or_else(
            || DateTime::from_timestamp(253_402_300_799, 0).unwrap_or_default(),
            |place| place.created_at,
        ))
        .bind(after.map_or(Uuid::max(), |place| place.file_id.uuid()))
        .bind(filter.kind.map(FileKind::as_str))
        .bind(filter.job_id.map(JobId::uuid))
        // One more than asked for tells whether there is a next page.
        .bind(limit as i64 + 1)
        .fetch_all(store.pool())
        .await
        .map_err(db_error)?;
    let mut files = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
    let more = files.len() > limit;
    files.truncate(limit);
    let next = files.last().filter(|_| more).map(|row| Place {
        created_at: row.created_at,
        file_id: row.file.file_id,
    });
    Ok(FilePage { files, next })
}
