//! Dead letters: jobs that failed for good, and messages that could not be read.
//!
//! A failed job's letter is written by the statement that fails it; here are the
//! operators' reads and the letters of unreadable messages.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::{DeadLetterId, JobId, UserId};
use crate::domain::job::LastError;
use crate::error::{Class, Code, Error, Result, clean_text};

/// The rows that one page may cost. A rare error code among many letters thus takes
/// more pages, some of them short, and never one slow statement.
pub const EXAMINED_PER_PAGE: i64 = 10_000;

/// The bytes of an unreadable message that are kept.
pub const MAX_UNREADABLE_BYTES: usize = 1024 * 1024;

/// The longest reason that is kept, in characters.
const MAX_REASON_CHARS: usize = 1800;

macro_rules! columns {
    () => {
        "id, job_id, message_key, queue_name, job_type, user_id, labels, error_code, error_class, error_message, \
         attempts, failures, replayable, status, first_failed_at, last_failed_at"
    };
}

/// Keys before the cursor, none before the first page.
macro_rules! before_cursor {
    () => {
        "(last_failed_at, id) < (coalesce($1::timestamptz, 'infinity'), \
         coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))"
    };
}

/// The last row that a page may examine, by the index alone.
const BOUND: &str = concat!(
    "select last_failed_at, id from dead_letters where ",
    before_cursor!(),
    " order by last_failed_at desc, id desc offset $3 - 1 limit 1"
);
const LIST: &str = concat!(
    "select ",
    columns!(),
    ", null::bytea as payload from dead_letters where ",
    before_cursor!(),
    " and (last_failed_at, id) >= (coalesce($3::timestamptz, '-infinity'), \
     coalesce($4::uuid, '00000000-0000-0000-0000-000000000000')) \
     and ($5::text[] is null or status = any($5)) and ($6::text is null or queue_name = $6) \
     and ($7::text is null or job_type = $7) and ($8::text is null or user_id = $8) \
     and ($9::text is null or error_code = $9) \
     order by last_failed_at desc, id desc limit $10"
);
/// One letter per job, so at most one row has the id in either place.
const GET: &str = concat!(
    "select ",
    columns!(),
    ", payload from dead_letters where id = $1 or job_id = $1 limit 1"
);
const STORE_UNREADABLE: &str = "insert into dead_letters as d (id, message_key, queue_name, payload, error_code, \
     error_class, error_message, attempts, replayable) values ($1, $2, $3, $4, $5, 'permanent', $6, 0, false) \
     on conflict (message_key) do update set failures = d.failures + 1, last_failed_at = now(), status = 'open', \
     error_code = excluded.error_code, error_message = excluded.error_message \
     returning id, failures";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("dead_letters_bound", BOUND),
    ("dead_letters_list", LIST),
    ("dead_letter_get", GET),
    ("dead_letter_store_unreadable", STORE_UNREADABLE),
];

/// What was decided about a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DeadLetterStatus {
    /// Nobody has dealt with it.
    Open,
    /// Set aside.
    Ignored,
    /// Its job runs, or ran, again.
    Replayed,
    /// Dealt with.
    Resolved,
}

impl DeadLetterStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Open, Self::Ignored, Self::Replayed, Self::Resolved];

    /// The stored spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Ignored => "ignored",
            Self::Replayed => "replayed",
            Self::Resolved => "resolved",
        }
    }

    /// The status with this stored spelling.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A dead letter as it is stored.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Its id.
    pub id: DeadLetterId,
    /// The job; `None`: a message that could not be read.
    pub job_id: Option<JobId>,
    /// The job's event id, or the digest of the unreadable message.
    pub message_key: String,
    /// The queue that it came from.
    pub queue: String,
    /// The job's type.
    pub job_type: Option<String>,
    /// The job's owner.
    pub user_id: Option<UserId>,
    /// The submitter's labels.
    pub labels: BTreeMap<String, String>,
    /// The job's payload, or the unreadable message; left out of lists.
    pub payload: Option<Vec<u8>>,
    /// The error of the last failure.
    pub error: LastError,
    /// Starts that were spent.
    pub attempts: i32,
    /// How often it came here.
    pub failures: i32,
    /// Whether it can be replayed.
    pub replayable: bool,
    /// What was decided about it.
    pub status: DeadLetterStatus,
    /// The first failure.
    pub first_failed_at: DateTime<Utc>,
    /// The last failure.
    pub last_failed_at: DateTime<Utc>,
}

/// Which letters to list; everything that is set must match.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DeadLetterFilter {
    /// Any of these; empty: all.
    pub statuses: Vec<DeadLetterStatus>,
    /// This queue.
    pub queue: Option<String>,
    /// This job type.
    pub job_type: Option<String>,
    /// This owner.
    pub user_id: Option<String>,
    /// This error code.
    pub error_code: Option<String>,
}

impl DeadLetterFilter {
    /// Whether every letter matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Where a list goes on: after this letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetterCursor {
    /// Its last failure, in whole microseconds.
    pub last_failed_at: DateTime<Utc>,
    /// Its id.
    pub id: DeadLetterId,
}

/// A page of dead letters, the latest failure first.
#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    /// The letters, without payloads.
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins; `None`: there is none. It can be set on a page with
    /// few letters or none.
    pub next: Option<DeadLetterCursor>,
}

/// Why a message could not be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// It is not an envelope.
    Unparseable,
    /// It names a job that neither the jobs nor the ledger know.
    Orphan,
}

impl Unreadable {
    /// The code of its letter.
    pub const fn code(self) -> Code {
        match self {
            Self::Unparseable => Code::UnparseableMessage,
            Self::Orphan => Code::OrphanMessage,
        }
    }
}

/// The letter of an unreadable message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredUnreadable {
    /// Its id.
    pub id: DeadLetterId,
    /// How often the same message came; 1: the letter is new.
    pub failures: i32,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    job_id: Option<Uuid>,
    message_key: String,
    queue_name: String,
    job_type: Option<String>,
    user_id: Option<String>,
    labels: Option<Json<BTreeMap<String, String>>>,
    payload: Option<Vec<u8>>,
    error_code: String,
    error_class: String,
    error_message: Option<String>,
    attempts: i32,
    failures: i32,
    replayable: bool,
    status: String,
    first_failed_at: DateTime<Utc>,
    last_failed_at: DateTime<Utc>,
}

impl Store {
    /// A page of at most `limit` letters, the latest failure first, from `after` on.
    /// A letter whose job fails again while a list is read moves to the front.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_dead_letters(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
    ) -> Result<DeadLetterPage> {
        self.list_dead_letters_bounded(filter, after, limit, EXAMINED_PER_PAGE)
            .await
    }

    /// The same with the bound on examined rows given, so that a test need not write
    /// ten thousand of them.
    #[doc(hidden)]
    pub async fn list_dead_letters_bounded(
        &self,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterCursor>,
        limit: u32,
        examined: i64,
    ) -> Result<DeadLetterPage> {
        // Without a filter every examined row is an answer, and the limit bounds them.
        // The bound is read first: rows that leave the range meanwhile make the page
        // shorter, and none is skipped.
        let bound: Option<(DateTime<Utc>, Uuid)> = if filter.is_empty() {
            None
        } else {
            sqlx::query_as(BOUND)
                .bind(after.map(|cursor| cursor.last_failed_at))
                .bind(after.map(|cursor| cursor.id.uuid()))
                .bind(examined.max(1))
                .fetch_optional(self.pool())
                .await
                .map_err(db_error)?
        };
        let statuses: Option<Vec<&str>> = (!filter.statuses.is_empty()).then(|| {
            filter
                .statuses
                .iter()
                .map(|status| status.as_str())
                .collect()
        });
        let mut rows: Vec<Row> = sqlx::query_as(LIST)
            .bind(after.map(|cursor| cursor.last_failed_at))
            .bind(after.map(|cursor| cursor.id.uuid()))
            .bind(bound.map(|(at, _)| at))
            .bind(bound.map(|(_, id)| id))
            .bind(statuses)
            .bind(&filter.queue)
            .bind(&filter.job_type)
            .bind(&filter.user_id)
            .bind(&filter.error_code)
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let next = if rows.len() > limit as usize {
            rows.truncate(limit as usize);
            rows.last().map(|row| (row.last_failed_at, row.id))
        } else {
            bound
        };
        Ok(DeadLetterPage {
            letters: rows
                .into_iter()
                .map(Row::into_letter)
                .collect::<Result<_>>()?,
            next: next.map(|(last_failed_at, id)| DeadLetterCursor {
                last_failed_at,
                id: DeadLetterId(id),
            }),
        })
    }

    /// A letter with its payload, by its own id or by its job's.
    ///
    /// # Errors
    /// DEAD_LETTER_NOT_FOUND and DATABASE_UNAVAILABLE.
    pub async fn get_dead_letter(&self, id: Uuid) -> Result<DeadLetter> {
        let row: Option<Row> = sqlx::query_as(GET)
            .bind(id)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        row.ok_or_else(|| {
            Error::new(
                Code::DeadLetterNotFound,
                format!("there is no dead letter {id}, and no job of this id has one"),
            )
        })?
        .into_letter()
    }

    /// Keeps a message that cannot be used, before it is acked. The same message again,
    /// in the same queue, counts on its one letter and opens it again.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe, and can at most count once too often.
    pub async fn store_unreadable(
        &self,
        queue: &str,
        body: &[u8],
        why: Unreadable,
        reason: &str,
    ) -> Result<StoredUnreadable> {
        let kept = &body[..body.len().min(MAX_UNREADABLE_BYTES)];
        let reason = clean_text(reason, MAX_REASON_CHARS);
        let message = if kept.len() < body.len() {
            format!(
                "{reason} (kept are the first {} of {} bytes)",
                kept.len(),
                body.len()
            )
        } else {
            reason
        };
        let (id, failures): (Uuid, i32) = sqlx::query_as(STORE_UNREADABLE)
            .bind(DeadLetterId::new().uuid())
            .bind(message_key(queue, body))
            .bind(queue)
            .bind(kept)
            .bind(why.code().as_str())
            .bind(message)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        Ok(StoredUnreadable {
            id: DeadLetterId(id),
            failures,
        })
    }
}

/// What a message is recognised by: a digest of its queue and its whole body.
fn message_key(queue: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(queue);
    // No queue's name holds this byte, so the two cannot run into each other.
    hash.update([0]);
    hash.update(body);
    hex::encode(hash.finalize())
}

impl Row {
    fn into_letter(self) -> Result<DeadLetter> {
        let status = DeadLetterStatus::parse(&self.status)
            .ok_or_else(|| Error::new(Code::Internal, "a dead letter has an unknown status"))?;
        Ok(DeadLetter {
            id: DeadLetterId(self.id),
            job_id: self.job_id.map(JobId),
            message_key: self.message_key,
            queue: self.queue_name,
            job_type: self.job_type,
            user_id: self.user_id.map(UserId::from_stored),
            labels: self.labels.map(|labels| labels.0).unwrap_or_default(),
            payload: self.payload,
            error: LastError {
                code: self.error_code,
                temporary: self.error_class == Class::Temporary.as_str(),
                message: self.error_message.unwrap_or_default(),
            },
            attempts: self.attempts,
            failures: self.failures,
            replayable: self.replayable,
            status,
            first_failed_at: self.first_failed_at,
            last_failed_at: self.last_failed_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_its_queue_and_body() {
        assert_eq!(message_key("a", b"bc"), message_key("a", b"bc"));
        assert_ne!(message_key("a", b"bc"), message_key("ab", b"c"));
        assert_ne!(message_key("a", b"bc"), message_key("b", b"bc"));
        assert_eq!(message_key("a", b"").len(), 64);
    }

    #[test]
    fn each_status_has_one_spelling() {
        for status in DeadLetterStatus::ALL {
            assert_eq!(DeadLetterStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(DeadLetterStatus::parse("Open"), None);
    }
}
