//! Uploads: their descriptions, and the room that each user has for them.
//!
//! `file_usage` has a row for each user. Whatever adds or removes an upload locks that
//! row first and the file's row after, so that the sum is exact, and nobody waits in a
//! circle.

use std::time::Duration;

use super::{FileRow, NewFile, Store, file_columns, read};
use crate::config::size;
use crate::domain::ids::{FileId, UserId};
use crate::error::{Code, Error, Result};
use crate::storage::db_error;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("file_usage", USAGE),
    ("file_largest", LARGEST),
    ("file_usage_lock", LOCK),
    ("file_usage_add", ADD),
    ("file_upload_known", KNOWN),
    ("file_upload_keep", KEEP),
    ("file_upload_insert", INSERT),
    ("file_delete", DELETE),
];

const USAGE: &str = "select coalesce((select bytes from file_usage where user_id = $1), 0)::bigint";

const LARGEST: &str =
    "select coalesce(max(size_bytes), 0) from files where user_id = $1 and kind = 'upload'";

/// The update changes nothing: it locks the row, and reads it as it is then.
const LOCK: &str = "\
insert into file_usage as u (user_id) values ($1)
on conflict (user_id) do update set files = u.files returning u.bytes";

const ADD: &str = "update file_usage set files = files + 1, bytes = bytes + $2 where user_id = $1";

/// Whether such an upload could be there already. Without its checksum: perhaps.
const KNOWN: &str = "\
select exists (select 1 from files
where user_id = $1 and size_bytes = $2 and name = $3 and content_type = $4
and ($5::bytea is null or sha256 = $5)
and kind = 'upload' and (expires_at is null or expires_at > now()))";

/// The same upload, sent before: then the earlier file is the answer, so that an upload
/// can be repeated, and a dedupe key holds over an import that is started again. It
/// begins a new life with that; one that ends soon is too old to be handed out.
const KEEP: &str = concat!(
    "update files set expires_at = case when expires_at is not null \
     then greatest(expires_at, now() + $6::bigint * interval '1 millisecond') end \
     where file_id = (select file_id from files
where user_id = $1 and sha256 = $2 and size_bytes = $3 and name = $4 and content_type = $5
and kind = 'upload' and (expires_at is null or expires_at > now() + $7::bigint * interval '1 millisecond')
order by file_id limit 1)
returning ",
    file_columns!()
);

const INSERT: &str = concat!(
    "insert into files (file_id, user_id, name, content_type, size_bytes, sha256, kind, detected_type, expires_at)
values ($1, $2, $3, $4, $5, $6, 'upload', $7, now() + $8::bigint * interval '1 millisecond')
returning ",
    file_columns!()
);

/// In one statement, with the locks in their order: the count makes the rows of `u` be
/// locked before the file's row is looked for.
const DELETE: &str = "\
with f as (select user_id, kind from files where file_id = $1),
u as (select user_id from file_usage where user_id = (select user_id from f where kind = 'upload') for update),
d as (delete from files where file_id = $1 and (select count(*) from u) >= 0
  returning user_id, kind, size_bytes),
x as (update file_usage s set files = greatest(s.files - 1, 0), bytes = greatest(s.bytes - d.size_bytes, 0)
  from d where d.kind = 'upload' and s.user_id = d.user_id)
select count(*) from d";

/// What holds for uploads.
#[derive(Debug, Clone, Copy)]
pub struct UploadRules {
    /// The most bytes of all uploads of one user.
    pub max_user_bytes: u64,
    /// How long an upload is kept.
    pub retention: Duration,
}

impl UploadRules {
    /// What a file must have left to be the answer to the same upload: a day, or half of
    /// the retention where that is less.
    fn least_left(&self) -> Duration {
        Duration::from_hours(24).min(self.retention / 2)
    }
}

/// The bytes of all uploads of a user.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn used_bytes(store: &Store, user: &UserId) -> Result<i64> {
    sqlx::query_scalar(USAGE)
        .bind(user.as_str())
        .fetch_one(store.pool())
        .await
        .map_err(db_error)
}

/// An upload as it is announced.
#[derive(Debug, Clone, Copy)]
pub struct Announced<'a> {
    /// Whom it belongs to.
    pub user_id: &'a UserId,
    /// Its name.
    pub name: &'a str,
    /// Its media type.
    pub content_type: &'a str,
    /// Its size in bytes.
    pub size: u64,
    /// SHA-256 of its content, where that is announced too.
    pub sha256: Option<[u8; 32]>,
}

/// Refuses an upload for which its user has no room, before its content is sent. What
/// counts is decided by [`insert`]; an upload that may be there already passes.
///
/// # Errors
/// `FILE_QUOTA_EXCEEDED`, `DATABASE_UNAVAILABLE` and its kin.
pub async fn check_room(store: &Store, file: Announced<'_>, rules: UploadRules) -> Result<()> {
    let used = bytes(used_bytes(store, file.user_id).await?);
    if used.saturating_add(file.size) <= rules.max_user_bytes {
        return Ok(());
    }
    let known: bool = sqlx::query_scalar(KNOWN)
        .bind(file.user_id.as_str())
        .bind(i64::try_from(file.size).unwrap_or(i64::MAX))
        .bind(file.name)
        .bind(file.content_type)
        .bind(file.sha256.as_ref().map(<[u8; 32]>::as_slice))
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    if known {
        return Ok(());
    }
    Err(no_room(used, file.size, rules.max_user_bytes))
}

/// The bytes that a user's next upload may have whose size is not known: the room that is
/// left, or as many as the largest that is there, since it may be the same again.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn room(store: &Store, user: &UserId, rules: UploadRules) -> Result<u64> {
    let used = bytes(used_bytes(store, user).await?);
    let largest: i64 = sqlx::query_scalar(LARGEST)
        .bind(user.as_str())
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    Ok(rules
        .max_user_bytes
        .saturating_sub(used)
        .max(bytes(largest)))
}

/// Stores the description of an upload, or answers with that of the same upload from
/// before. Safe to repeat with the same id. Run it in a task of its own: a caller that
/// goes away in the middle would leave a transaction open.
///
/// # Errors
/// `FILE_QUOTA_EXCEEDED`, `DATABASE_UNAVAILABLE` and its kin.
pub async fn insert(
    store: &Store,
    file: &NewFile,
    detected_type: Option<&str>,
    rules: UploadRules,
) -> Result<FileRow> {
    let user = file.user_id.as_str();
    let mut tx = store.pool().begin().await.map_err(db_error)?;
    let used: i64 = sqlx::query_scalar(LOCK)
        .bind(user)
        .fetch_one(&mut *tx)
        .await
        .map_err(db_error)?;
    let earlier = sqlx::query(KEEP)
        .bind(user)
        .bind(&file.sha256[..])
        .bind(file.size_bytes)
        .bind(&file.name)
        .bind(&file.content_type)
        .bind(millis(rules.retention))
        .bind(millis(rules.least_left()))
        .fetch_optional(&mut *tx)
        .await
        .map_err(db_error)?;
    if let Some(row) = earlier {
        tx.commit().await.map_err(db_error)?;
        return read(&row);
    }
    let (used, size) = (bytes(used), bytes(file.size_bytes));
    if used.saturating_add(size) > rules.max_user_bytes {
        tx.rollback().await.map_err(db_error)?;
        return Err(no_room(used, size, rules.max_user_bytes));
    }
    let row = sqlx::query(INSERT)
        .bind(file.file_id.uuid())
        .bind(user)
        .bind(&file.name)
        .bind(&file.content_type)
        .bind(file.size_bytes)
        .bind(&file.sha256[..])
        .bind(detected_type)
        .bind(millis(rules.retention))
        .fetch_one(&mut *tx)
        .await
        .map_err(db_error)?;
    sqlx::query(ADD)
        .bind(user)
        .bind(file.size_bytes)
        .execute(&mut *tx)
        .await
        .map_err(db_error)?;
    tx.commit().await.map_err(db_error)?;
    read(&row)
}

/// Removes a file's description and gives its room back; `false`: there was none. The
/// content is to be removed afterwards.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn delete(store: &Store, file_id: FileId) -> Result<bool> {
    let deleted: i64 = sqlx::query_scalar(DELETE)
        .bind(file_id.uuid())
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    Ok(deleted > 0)
}

fn no_room(used: u64, size: u64, limit: u64) -> Error {
    let [used_text, size_text, limit_text] = [used, size, limit].map(size::rounded);
    let what = format!(
        "the uploads of this user take {used_text} of {limit_text}, and this one has {size_text}; \
         delete uploads that are needed no more (ListFiles shows them, DeleteFile removes one), \
         or wait until they expire"
    );
    Error::new(Code::FileQuotaExceeded, what.clone())
        .with_quota("files.max_user_bytes", what)
        .with_meta("used_bytes", used.to_string())
        .with_meta("limit_bytes", limit.to_string())
        .with_meta("file_bytes", size.to_string())
}

fn bytes(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or_default()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
