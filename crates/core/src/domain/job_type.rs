//! The catalogue's entries: what a job type gives the jobs that name it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::job::Lane;
use super::line::MAX_CONCURRENCY;
use super::payload_schema::PayloadSchema;
use super::retry::DEFAULT_BACKOFF;

/// The most bytes of a payload that is kept inline; larger things are files.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// Every key stays bound this long at least, so that a submit repeated after a lost
/// answer cannot make a second job (PROTOCOL.md §5b).
pub const MIN_KEY_PERIOD: Duration = Duration::from_mins(10);

/// How long a dedupe key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupePolicy {
    /// A period from the submit on, and while the job is not final.
    Period,
    /// While the job is not final.
    WhileActive,
    /// For ever.
    Forever,
    /// A period from the end of the job on.
    AfterEnd,
}

impl DedupePolicy {
    /// The name in the database and in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::WhileActive => "while_active",
            Self::Forever => "forever",
            Self::AfterEnd => "after_end",
        }
    }

    /// Reads the name.
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::Period,
            Self::WhileActive,
            Self::Forever,
            Self::AfterEnd,
        ]
        .into_iter()
        .find(|policy| policy.as_str() == text)
    }
}

/// A kind of job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobType {
    /// Its name.
    pub name: String,
    /// What it does, for people.
    pub description: String,
    /// The queue of its jobs.
    pub queue: String,
    /// Their lane.
    pub lane: Lane,
    /// The most starts, 1 to 100.
    pub max_attempts: i32,
    /// The waits before the next starts; the last one repeats.
    pub backoff: Vec<Duration>,
    /// The time limit of one run.
    pub timeout: Duration,
    /// How long a dedupe key holds.
    pub dedupe_policy: DedupePolicy,
    /// The period of that policy.
    pub dedupe_period: Duration,
    /// The most bytes of a payload.
    pub max_payload_bytes: i32,
    /// The JSON Schema of payloads; `None`: any object will do.
    pub payload_schema: Option<String>,
    /// Whether a failed job keeps those with its ordering key behind it waiting.
    pub ordering_blocks: bool,
    /// The most jobs with one concurrency key that run at once.
    pub max_concurrency: i32,
}

impl JobType {
    /// A job type with the documented defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            queue: "default".to_owned(),
            lane: Lane::Normal,
            max_attempts: 5,
            backoff: DEFAULT_BACKOFF.to_vec(),
            timeout: Duration::from_hours(1),
            dedupe_policy: DedupePolicy::AfterEnd,
            dedupe_period: Duration::from_hours(24),
            max_payload_bytes: MAX_PAYLOAD_BYTES as i32,
            payload_schema: None,
            ordering_blocks: false,
            max_concurrency: 1,
        }
    }

    /// Checks every field. A large schema takes some milliseconds.
    ///
    /// # Errors
    /// The field's name and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        super::ids::check_name(&self.name).map_err(|e| ("name", e.to_owned()))?;
        super::ids::check_name(&self.queue).map_err(|e| ("queue", e.to_owned()))?;
        if self.description.len() > 1000 || self.description.contains('\0') {
            return Err((
                "description",
                "must be at most 1,000 bytes, without NUL".to_owned(),
            ));
        }
        if !(1..=100).contains(&self.max_attempts) {
            return Err(("max_attempts", "must be 1 to 100".to_owned()));
        }
        if !(1..=MAX_CONCURRENCY).contains(&self.max_concurrency) {
            return Err(("max_concurrency", "must be 1 to 10,000".to_owned()));
        }
        let day = Duration::from_hours(24);
        if self.backoff.is_empty()
            || self.backoff.len() > 100
            || self.backoff.iter().any(|d| *d > 7 * day)
        {
            return Err((
                "backoff_ms",
                "must be 1 to 100 waits of at most 7 days".to_owned(),
            ));
        }
        if self.timeout < Duration::from_millis(100) || self.timeout > 7 * day {
            return Err(("timeout_ms", "must be between 100 ms and 7 days".to_owned()));
        }
        if self.dedupe_period < Duration::from_millis(1) || self.dedupe_period > 3660 * day {
            return Err((
                "dedupe_period_ms",
                "must be between 1 ms and 3,660 days".to_owned(),
            ));
        }
        if !(2..=MAX_PAYLOAD_BYTES as i32).contains(&self.max_payload_bytes) {
            return Err((
                "max_payload_bytes",
                format!("must be 2 to {MAX_PAYLOAD_BYTES}"),
            ));
        }
        if let Some(schema) = &self.payload_schema {
            PayloadSchema::compile(schema).map_err(|why| ("payload_schema", why))?;
        }
        Ok(())
    }

    /// How a key of this type is bound: for how long from the submit on (`None`: for
    /// ever), and for how long after the job's end.
    pub fn key_binding(&self) -> (Option<Duration>, Duration) {
        match self.dedupe_policy {
            DedupePolicy::Forever => (None, Duration::ZERO),
            DedupePolicy::Period => (Some(self.dedupe_period.max(MIN_KEY_PERIOD)), Duration::ZERO),
            DedupePolicy::WhileActive => (Some(MIN_KEY_PERIOD), Duration::ZERO),
            DedupePolicy::AfterEnd => (Some(MIN_KEY_PERIOD), self.dedupe_period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_follow_the_requirements() {
        let job_type = JobType::new("x");
        assert_eq!(job_type.check(), Ok(()));
        assert_eq!(
            job_type.key_binding(),
            (Some(MIN_KEY_PERIOD), Duration::from_hours(24))
        );
    }

    #[test]
    fn bad_fields_are_named() {
        let mut job_type = JobType::new("Bad Name");
        assert_eq!(job_type.check().map_err(|e| e.0), Err("name"));
        job_type.name = "ok".into();
        job_type.max_attempts = 0;
        assert_eq!(job_type.check().map_err(|e| e.0), Err("max_attempts"));
        job_type.max_attempts = 1;
        job_type.payload_schema = Some("{\"type\":5}".into());
        assert_eq!(job_type.check().map_err(|e| e.0), Err("payload_schema"));
        job_type.payload_schema = Some("{\"type\":\"object\"}".into());
        assert_eq!(job_type.check(), Ok(()));
    }
}
