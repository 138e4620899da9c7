//! A job as the services speak of it.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::ids::{JobId, UserId};
use super::line::Line;
use super::state::JobState;

/// A payload up to this many bytes rides in the envelope; a larger one stays in the row.
pub const INLINE_PAYLOAD_BYTES: usize = 1024;

/// The most envelopes of one message.
pub const MAX_BUNDLE: usize = 32;

/// The priority lane inside a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// Ahead of the others, without starving them.
    High,
    /// The ordinary one.
    Normal,
    /// Behind the others, without being starved.
    Low,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The number in the database: 1, 2, 3.
    pub const fn number(self) -> i16 {
        match self {
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
        }
    }

    /// The lane of a number in the database.
    pub const fn from_number(number: i16) -> Option<Self> {
        match number {
            1 => Some(Self::High),
            2 => Some(Self::Normal),
            3 => Some(Self::Low),
            _ => None,
        }
    }

    /// The name in routing keys, labels and the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// A job that has passed every check of the gateway.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Its id, made by the gateway so that a repeated write is recognised.
    pub job_id: JobId,
    /// The owner.
    pub user_id: UserId,
    /// The job type's name.
    pub job_type: String,
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// A JSON object in UTF-8, as it was sent.
    pub payload: Vec<u8>,
    /// The earliest start; `None`: now.
    pub run_at: Option<DateTime<Utc>>,
    /// Not started by then: EXPIRED.
    pub expires_at: Option<DateTime<Utc>>,
    /// The most starts.
    pub max_attempts: i32,
    /// The time limit of one run.
    pub timeout: Duration,
    /// The submitter's labels.
    pub labels: BTreeMap<String, String>,
    /// Who submitted it where that was not the owner.
    pub submitted_by: Option<String>,
    /// The caller's W3C `traceparent`.
    pub trace_parent: Option<String>,
    /// The dedupe key with its binding.
    pub dedupe: Option<KeyBinding>,
    /// The request id.
    pub request_id: Option<String>,
    /// The line that it stands in.
    pub line: Option<Line>,
    /// What a repeated key is compared by: a digest of what the job means.
    pub fingerprint: [u8; 32],
}

/// A dedupe key and for how long it is bound.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyBinding {
    /// The key.
    pub key: String,
    /// From the submit on; `None`: for ever.
    pub period: Option<Duration>,
    /// From the end of the job on.
    pub after_end: Duration,
}

/// A job as it is stored.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its id, and its event id.
    pub job_id: JobId,
    /// The owner.
    pub user_id: UserId,
    /// The job type's name.
    pub job_type: String,
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// The state.
    pub state: JobState,
    /// The dispatch number.
    pub run: i32,
    /// Starts that counted.
    pub attempt: i32,
    /// The most starts.
    pub max_attempts: i32,
    /// Grows with each visible change.
    pub revision: i64,
    /// Units done.
    pub progress_done: i64,
    /// Units in all; 0: not known.
    pub progress_total: i64,
    /// What it is doing.
    pub progress_message: Option<String>,
    /// The last error.
    pub last_error: Option<LastError>,
    /// The result as JSON.
    pub result: Option<Vec<u8>>,
    /// The payload; left out of lists.
    pub payload: Option<Vec<u8>>,
    /// The submitter's labels.
    pub labels: BTreeMap<String, String>,
    /// The dedupe key.
    pub dedupe_key: Option<String>,
    /// Who submitted it where that was not the owner.
    pub submitted_by: Option<String>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// The earliest start.
    pub run_at: DateTime<Utc>,
    /// The first start.
    pub started_at: Option<DateTime<Utc>>,
    /// The end.
    pub finished_at: Option<DateTime<Utc>>,
    /// Not started by then: EXPIRED.
    pub expires_at: Option<DateTime<Utc>>,
    /// The time limit of one run.
    pub timeout: Duration,
    /// Whether a cancel was asked for while it ran.
    pub cancel_requested: bool,
    /// The line that it stands in.
    pub line: Option<Line>,
    /// What its row says of why it waits; says nothing of a job that runs or has ended.
    pub waiting: Waiting,
}

/// What the row of a waiting job says of why it waits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Waiting {
    /// Whether `run_at` was later than the read, by the database's clock.
    pub later: bool,
    /// Whether it is in the database's backlog.
    pub parked: bool,
    /// Whether its line keeps it.
    pub held: bool,
    /// When the sweeper looks at it.
    pub wake_at: Option<DateTime<Utc>>,
}

/// The last error of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    /// A stable code.
    pub code: String,
    /// Whether a retry could help.
    pub temporary: bool,
    /// A summary for people.
    pub message: String,
}
