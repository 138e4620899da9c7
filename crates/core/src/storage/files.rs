//! The descriptions of stored files. The content is in the object store
//! ([`crate::files`]); a row is written when the content is whole.

pub mod list;
pub mod prune;
pub mod uploads;

use chrono::{DateTime, Utc};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::{FileId, JobId, UserId};
use crate::error::{Code, Error, Result};

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[("file_insert", INSERT), ("file_get", GET)];

/// The columns that [`read`] takes.
macro_rules! file_columns {
    () => {
        "file_id, user_id, name, content_type, size_bytes, sha256, kind, job_id, created_at, \
         expires_at, detected_type"
    };
}
use file_columns;

/// A report that is made again has the same id, and content that may differ.
const INSERT: &str = concat!(
    "insert into files as f (file_id, user_id, name, content_type, size_bytes, sha256, kind, job_id, expires_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict (file_id) do update set size_bytes = excluded.size_bytes, sha256 = excluded.sha256,
  expires_at = excluded.expires_at where f.user_id = excluded.user_id
returning ",
    file_columns!()
);

/// A file that has expired is no longer there, even before it is removed.
const GET: &str = concat!(
    "select ",
    file_columns!(),
    " from files where file_id = $1 and (expires_at is null or expires_at > now())"
);

/// What a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A user's upload.
    Upload,
    /// The report of a job.
    Report,
    /// The rejected rows of an import.
    Rejects,
}

impl FileKind {
    /// The stored spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Report => "report",
            Self::Rejects => "rejects",
        }
    }

    /// The kind with this stored spelling.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Upload, Self::Report, Self::Rejects]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

/// A file whose content is whole in the object store.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// The id; the content is stored under it.
    pub file_id: FileId,
    /// Whom it belongs to.
    pub user_id: UserId,
    /// A name for people.
    pub name: String,
    /// The media type.
    pub content_type: String,
    /// The size in bytes.
    pub size_bytes: i64,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
    /// What it is for.
    pub kind: FileKind,
    /// The job that made it.
    pub job_id: Option<JobId>,
    /// From when on it is no longer there; `None`: it stays.
    pub expires_at: Option<DateTime<Utc>>,
}

/// A stored file.
#[derive(Debug, Clone)]
pub struct FileRow {
    /// The description that it was stored with.
    pub file: NewFile,
    /// The media type that the content looks like; `None`: unknown, or never looked at.
    pub detected_type: Option<String>,
    /// When it was stored, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// Stores the description of a file that a job made; those of users go through
/// [`uploads::insert`], which keeps to their quota. Repeated with the same id it changes
/// nothing and returns what is stored.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn insert(store: &Store, file: &NewFile) -> Result<FileRow> {
    let row = sqlx::query(INSERT)
        .bind(file.file_id.uuid())
        .bind(file.user_id.as_str())
        .bind(&file.name)
        .bind(&file.content_type)
        .bind(file.size_bytes)
        .bind(&file.sha256[..])
        .bind(file.kind.as_str())
        .bind(file.job_id.map(JobId::uuid))
        .bind(file.expires_at)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    read(&row)
}

/// A file's description; `None`: there is no such file, or it has expired.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn get(store: &Store, file_id: FileId) -> Result<Option<FileRow>> {
    sqlx::query(GET)
        .bind(file_id.uuid())
        .fetch_optional(store.pool())
        .await
        .map_err(db_error)?
        .as_ref()
        .map(read)
        .transpose()
}

fn read(row: &PgRow) -> Result<FileRow> {
    let kind: String = row.try_get("kind").map_err(db_error)?;
    let sha256: Vec<u8> = row.try_get("sha256").map_err(db_error)?;
    Ok(FileRow {
        file: NewFile {
            file_id: FileId(row.try_get("file_id").map_err(db_error)?),
            user_id: UserId::from_stored(row.try_get("user_id").map_err(db_error)?),
            name: row.try_get("name").map_err(db_error)?,
            content_type: row.try_get("content_type").map_err(db_error)?,
            size_bytes: row.try_get("size_bytes").map_err(db_error)?,
            sha256: sha256.try_into().map_err(|_| {
                Error::new(Code::Internal, "a stored checksum has the wrong length")
            })?,
            kind: FileKind::parse(&kind)
                .ok_or_else(|| Error::new(Code::Internal, "a stored file has an unknown kind"))?,
            job_id: row
                .try_get::<Option<Uuid>, _>("job_id")
                .map_err(db_error)?
                .map(JobId),
            expires_at: row.try_get("expires_at").map_err(db_error)?,
        },
        detected_type: row.try_get("detected_type").map_err(db_error)?,
        created_at: row.try_get("created_at").map_err(db_error)?,
    })
}

#[cfg(test)]
mod tests {
    use super::FileKind;

    #[test]
    fn each_kind_has_one_spelling() {
        for kind in [FileKind::Upload, FileKind::Report, FileKind::Rejects] {
            assert_eq!(FileKind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(FileKind::parse("Upload"), None);
    }
}
