//! Dead letters: jobs that failed for good, and messages that could not be read.
//!
//! A failed job's letter is written by the statement that fails it, and resolved by the
//! one that ends it well after a replay. Here is what operators read and decide.
//!
//! Locks are taken in the order of PROTOCOL.md §4: a bulk replay's own row, jobs by id,
//! letters by id, keys, causes. Whoever changes a letter's status notes it in
//! `dead_letter_actions` in the same transaction.

mod bulk;
mod bulk_step;
mod bulk_types;
mod causes;
mod facts;
mod filter;
mod get;
mod list;
mod preview;
mod replay;
mod replay_parts;
mod unreadable;
mod verbs;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

use crate::domain::ids::{DeadLetterId, JobId, UserId};
use crate::domain::job::LastError;
use crate::error::{Class, Code, Error, Result};

pub use bulk_step::BulkTick;
pub use bulk_types::{
    BulkAction, BulkChange, BulkControl, BulkCounts, BulkOutcome, BulkReplay, BulkState, MAX_RATE,
    NewBulkReplay,
};
pub use causes::{
    Cause, CauseCursor, CauseFilter, CauseOrder, FOLD_BATCH, Folded, MAX_CAUSES, MAX_FOLD_BATCH,
    Settled,
};
pub use filter::DeadLetterFilter;
pub use get::{ACTIONS_SHOWN, Action, DeadLetterStory};
pub use list::EXAMINED_PER_PAGE;
pub use preview::{BulkPreview, CauseCount, PREVIEW_CAP};
pub use unreadable::{MAX_UNREADABLE_BYTES, StoredUnreadable, Unreadable};
pub use verbs::Verb;

/// The statements of these modules, by name.
pub(super) fn statements() -> Vec<(&'static str, &'static str)> {
    [
        bulk::STATEMENTS,
        bulk_step::STATEMENTS,
        causes::STATEMENTS,
        facts::STATEMENTS,
        get::STATEMENTS,
        list::STATEMENTS,
        preview::STATEMENTS,
        replay::STATEMENTS,
        unreadable::STATEMENTS,
        verbs::STATEMENTS,
    ]
    .concat()
}

/// The columns of a [`DeadLetterRow`] but the payload, from the table as `d`. A letter that
/// the release before has written shows the cause that its message has by itself. Its job
/// is looked up and not asked for by `exists`, which could be answered by a scan of all jobs.
macro_rules! columns {
    () => {
        "id, job_id, message_key, queue_name, job_type, user_id, labels, error_code, error_class, error_message, \
         attempts, failures, replayable and coalesce( \
         (select j.status = 'failed' from jobs j where j.job_id = d.job_id), false) as replayable, \
         status, first_failed_at, last_failed_at, \
         case when cause_id is null or failures is distinct from counted_failures \
         then tenure_cause(queue_name, job_type, error_code, error_message) else cause_id end as cause_id, \
         trace_parent, replay_id, coalesce(status_changed_at, last_failed_at) as status_changed_at"
    };
}
pub(super) use columns;

/// What was decided about a dead letter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterStatus {
    /// Nobody has dealt with it.
    Open,
    /// Set aside.
    Ignored,
    /// Its job runs again.
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

    /// The status of a row.
    fn of_row(text: &str) -> Result<Self> {
        Self::parse(text)
            .ok_or_else(|| Error::new(Code::Internal, "a dead letter has an unknown status"))
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
    /// What an unreadable message had beside its body, as a JSON object; left out of lists.
    pub message_properties: Option<String>,
    /// The error of the last failure.
    pub error: LastError,
    /// Starts that were spent, in all lives.
    pub attempts: i32,
    /// How often it came here.
    pub failures: i32,
    /// Whether it can be replayed: its job is there, and failed.
    pub replayable: bool,
    /// What was decided about it.
    pub status: DeadLetterStatus,
    /// The first failure.
    pub first_failed_at: DateTime<Utc>,
    /// The last failure.
    pub last_failed_at: DateTime<Utc>,
    /// The cause of its last failure.
    pub cause_id: Uuid,
    /// The W3C traceparent of the submit.
    pub trace_parent: Option<String>,
    /// The last replay.
    pub replay_id: Option<Uuid>,
    /// When its status changed last.
    pub status_changed_at: DateTime<Utc>,
}

/// The order of a list of letters.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Order {
    /// The latest failure first.
    #[default]
    LatestFirst,
    /// The oldest last failure first.
    OldestFirst,
}

/// Where a list goes on: after this letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadLetterCursor {
    /// Its last failure, in whole microseconds.
    pub last_failed_at: DateTime<Utc>,
    /// Its id.
    pub id: DeadLetterId,
}

/// A page of dead letters.
#[derive(Clone, Debug)]
pub struct DeadLetterPage {
    /// The letters, without payloads.
    pub letters: Vec<DeadLetter>,
    /// Where the next page begins; `None`: there is none. It can be set on a page with
    /// few letters or none.
    pub next: Option<DeadLetterCursor>,
}

/// Who does something about letters, and why.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The subject of the token.
    pub actor: String,
    /// The reason that it gives.
    pub reason: String,
}

/// What became of a letter that something was to be done about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// Done.
    Done,
    /// It was so already.
    AlreadyDone,
    /// Another job of the user has its dedupe key now.
    KeyTaken,
    /// A message that could not be read, or a job that is not there any more.
    NotReplayable,
    /// Its status does not allow it, or it has changed meanwhile.
    Changed,
    /// There is no such letter.
    NotFound,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::AlreadyDone,
        Self::KeyTaken,
        Self::NotReplayable,
        Self::Changed,
        Self::NotFound,
    ];

    /// The stored spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::AlreadyDone => "already_done",
            Self::KeyTaken => "key_taken",
            Self::NotReplayable => "not_replayable",
            Self::Changed => "changed",
            Self::NotFound => "not_found",
        }
    }

    /// The outcome with this stored spelling.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// The outcome of one letter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LetterResult {
    /// The id as it was given: a letter's or a job's.
    pub id: Uuid,
    /// What became of it.
    pub outcome: Outcome,
    /// Its status now; `None`: there is no such letter.
    pub status: Option<DeadLetterStatus>,
    /// Its job.
    pub job_id: Option<JobId>,
    /// The new replay.
    pub replay_id: Option<Uuid>,
    /// A sentence where the outcome needs one.
    pub message: String,
}

#[derive(sqlx::FromRow)]
struct DeadLetterRow {
    id: Uuid,
    job_id: Option<Uuid>,
    message_key: String,
    queue_name: String,
    job_type: Option<String>,
    user_id: Option<String>,
    labels: Option<Json<BTreeMap<String, String>>>,
    payload: Option<Vec<u8>>,
    #[sqlx(default)]
    message_properties: Option<String>,
    error_code: String,
    error_class: String,
    error_message: Option<String>,
    attempts: i32,
    failures: i32,
    replayable: bool,
    status: String,
    first_failed_at: DateTime<Utc>,
    last_failed_at: DateTime<Utc>,
    cause_id: Uuid,
    trace_parent: Option<String>,
    replay_id: Option<Uuid>,
    status_changed_at: DateTime<Utc>,
}

/// The error of a row with these three columns.
pub(super) fn last_error(code: String, class: &str, message: Option<String>) -> LastError {
    LastError {
        code,
        temporary: class == Class::Temporary.as_str(),
        message: message.unwrap_or_default(),
    }
}

impl DeadLetterRow {
    fn into_letter(self) -> Result<DeadLetter> {
        Ok(DeadLetter {
            id: DeadLetterId(self.id),
            job_id: self.job_id.map(JobId),
            message_key: self.message_key,
            queue: self.queue_name,
            job_type: self.job_type,
            user_id: self.user_id.map(UserId::from_stored),
            labels: self.labels.map(|labels| labels.0).unwrap_or_default(),
            payload: self.payload,
            message_properties: self.message_properties,
            error: last_error(self.error_code, &self.error_class, self.error_message),
            attempts: self.attempts,
            failures: self.failures,
            replayable: self.replayable,
            status: DeadLetterStatus::of_row(&self.status)?,
            first_failed_at: self.first_failed_at,
            last_failed_at: self.last_failed_at,
            cause_id: self.cause_id,
            trace_parent: self.trace_parent,
            replay_id: self.replay_id,
            status_changed_at: self.status_changed_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_and_outcome_has_one_spelling() {
        for status in DeadLetterStatus::ALL {
            assert_eq!(DeadLetterStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!(DeadLetterStatus::parse("Open"), None);
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        }
    }
}
