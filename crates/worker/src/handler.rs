//! What the author of a job handler writes against.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::error::{Class, Code};

pub use crate::context::{JobContext, LogLevel};

/// Does the work of one job type.
///
/// A handler may run more than once for a job (a worker can die at any moment), so an
/// effect that must happen once goes into the finishing transaction ([`Success::follow_up`]),
/// into a transaction fenced by [`JobContext::fence`], or carries [`JobContext::event_id`]
/// as its business key.
#[async_trait]
pub trait JobHandler: Send + Sync + 'static {
    /// The job type's name.
    fn job_type(&self) -> &'static str;

    /// Works on one job. Dropped at an await when the lease is lost, the time limit
    /// passes, or the process must stop. A job that is cancelled is told by
    /// [`JobContext::cancelled`] first, and dropped where it has not returned within
    /// `worker.cancel_grace`; a success that it returns still counts.
    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError>;
}

/// How a run ended without an error.
#[derive(Debug)]
pub enum Outcome {
    /// The job is done.
    Done(Success),
    /// Not yet: run it again after this time. Costs no attempt, and is bounded by
    /// `retry.max_snoozes`.
    Snooze(Duration),
}

impl Outcome {
    /// Done, without a result.
    pub fn done() -> Self {
        Self::Done(Success::default())
    }
}

/// What a successful run leaves.
#[derive(Debug, Default)]
pub struct Success {
    /// The result as a JSON document; empty: none. At most 64 KiB.
    pub result: Vec<u8>,
    /// Jobs that are created in the same statement that finishes this one.
    pub follow_ups: Vec<FollowUp>,
}

impl Success {
    /// A success with a JSON result.
    pub fn with_result(result: &serde_json::Value) -> Self {
        Self {
            result: result.to_string().into_bytes(),
            follow_ups: Vec::new(),
        }
    }

    /// Adds a follow-up job.
    #[must_use]
    pub fn follow_up(mut self, job: FollowUp) -> Self {
        self.follow_ups.push(job);
        self
    }
}

/// A job that exists exactly if its parent succeeded. It belongs to the same user.
#[derive(Debug, Clone)]
pub struct FollowUp {
    /// The job type's name; it must be in the catalogue.
    pub job_type: String,
    /// A JSON object.
    pub payload: Vec<u8>,
}

/// Why a run failed. The line that fails decides the class.
#[derive(Debug)]
pub struct JobError {
    /// Whether a retry may help.
    pub class: Class,
    /// A stable code: upper case, digits and `_`, 1 to 64 characters; another one is
    /// replaced by ERROR_CODE_INVALID. With one of Tenure's own codes for an outage, such
    /// as DATABASE_UNAVAILABLE, the run spends no attempt for a time that is bounded. A code
    /// that tells what Tenure has decided, such as POISON, CANCELLED or LEASE_EXPIRED, is not
    /// a handler's to give: it is replaced by HANDLER_ERROR, and the message says which it was.
    pub code: String,
    /// A summary for people; cleaned and cut before it is stored.
    pub message: String,
    /// A delay that the downstream named; used in place of the backoff.
    pub retry_after: Option<Duration>,
    /// Whether the code is Tenure's own and is meant so.
    pub(crate) by_tenure: bool,
}

impl JobError {
    /// An error that may go away by itself.
    pub fn temporary(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            class: Class::Temporary,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            by_tenure: false,
        }
    }

    /// An error that a retry with the same input cannot mend.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            class: Class::Permanent,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            by_tenure: false,
        }
    }

    /// With a code that Tenure keeps for itself, by one of its own handlers.
    pub(crate) fn by_tenure(mut self) -> Self {
        self.by_tenure = true;
        self
    }

    /// With the delay that the downstream named.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// The payload is not what the handler needs.
    pub fn payload(error: impl std::fmt::Display) -> Self {
        Self::permanent(Code::PayloadInvalid.as_str(), error.to_string())
    }
}

impl From<tenure_core::error::Error> for JobError {
    /// Keeps the code and the class of our own errors.
    fn from(error: tenure_core::error::Error) -> Self {
        Self {
            class: error.code().class(),
            code: error.code().as_str().to_owned(),
            message: error.message().to_owned(),
            // The default of a call is too short for a job.
            retry_after: error.named_retry_after(),
            by_tenure: true,
        }
    }
}

/// Reads a payload into a type of the handler's.
///
/// # Errors
/// A permanent error that names the field, where the payload does not fit.
pub fn parse_payload<T: serde::de::DeserializeOwned>(payload: &[u8]) -> Result<T, JobError> {
    serde_json::from_slice(payload).map_err(JobError::payload)
}
