//! Handlers for trials; registered only where `worker.diagnostics` is on.

use std::hint::black_box;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use tenure_core::error::Code;

use crate::handler::{JobContext, JobError, JobHandler, Outcome, parse_payload};

/// The longest time that a payload may ask for, in milliseconds: a day.
const MAX_MS: u64 = 24 * 60 * 60 * 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    /// Milliseconds.
    ms: u64,
}

impl Span {
    fn parse(payload: &[u8]) -> Result<Duration, JobError> {
        let Self { ms } = parse_payload(payload)?;
        span(ms, "ms")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    /// Milliseconds.
    ms: u64,
    /// Goes on although it must stop.
    #[serde(default)]
    deaf: bool,
}

fn span(ms: u64, field: &str) -> Result<Duration, JobError> {
    if ms > MAX_MS {
        return Err(JobError::payload(format!(
            "{field}: must be at most {MAX_MS}"
        )));
    }
    Ok(Duration::from_millis(ms))
}

fn stopped() -> JobError {
    JobError::temporary(Code::Cancelled.as_str(), "stopped before its time was over").by_tenure()
}

/// `noop`: does nothing, whatever its payload.
#[derive(Debug)]
pub(super) struct Noop;

#[async_trait]
impl JobHandler for Noop {
    fn job_type(&self) -> &'static str {
        "noop"
    }

    async fn run(&self, _: JobContext, _: Bytes) -> Result<Outcome, JobError> {
        Ok(Outcome::done())
    }
}

/// `sleep {ms}`: waits.
#[derive(Debug)]
pub(super) struct Sleep;

#[async_trait]
impl JobHandler for Sleep {
    fn job_type(&self) -> &'static str {
        "sleep"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        let time = Span::parse(&payload)?;
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(Outcome::done()),
            () = context.cancelled() => Err(stopped()),
        }
    }
}

/// `busy {ms, deaf}`: computes without yielding; a deaf one does not stop when it must.
#[derive(Debug)]
pub(super) struct Busy;

#[async_trait]
impl JobHandler for Busy {
    fn job_type(&self) -> &'static str {
        "busy"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        let Work { ms, deaf } = parse_payload(&payload)?;
        let time = span(ms, "ms")?;
        context
            .blocking(move |context| {
                let begun = Instant::now();
                let mut number = 1_u64;
                while begun.elapsed() < time {
                    if !deaf && context.is_cancelled() {
                        return Err(stopped());
                    }
                    for _ in 0..100_000 {
                        number = black_box(
                            number
                                .wrapping_mul(6_364_136_223_846_793_005)
                                .wrapping_add(1),
                        );
                    }
                }
                Ok(Outcome::done())
            })
            .await
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FailClass {
    Temporary,
    Permanent,
    /// Not an error: it panics.
    Panic,
    /// Not an error either: it puts the job off by `delay_ms`.
    Snooze,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Failure {
    /// The attempts that fail; absent: all.
    #[serde(default = "always")]
    times: u32,
    /// The class of the error.
    #[serde(default = "temporary")]
    class: FailClass,
    /// The code of the error.
    #[serde(default = "code")]
    code: String,
    /// The message of the error.
    #[serde(default = "message")]
    message: String,
    /// The message as bytes in hex, for what JSON cannot hold; used in place of `message`.
    #[serde(default)]
    message_hex: Option<String>,
    /// How often the message is repeated.
    #[serde(default = "once")]
    repeat: usize,
    /// The delay that the error names, or that of a snooze.
    #[serde(default)]
    delay_ms: Option<u64>,
    /// Succeeds in every life but the first: as if somebody had mended something before it
    /// was replayed.
    #[serde(default)]
    recovers_after_replay: bool,
}

/// The longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

fn once() -> usize {
    1
}

fn always() -> u32 {
    u32::MAX
}

fn temporary() -> FailClass {
    FailClass::Temporary
}

fn code() -> String {
    "FAILED_ON_PURPOSE".to_owned()
}

fn message() -> String {
    "this job was asked to fail".to_owned()
}

impl Failure {
    fn parse(payload: &[u8]) -> Result<Self, JobError> {
        let mut failure: Self = parse_payload(payload)?;
        if let Some(text) = &failure.message_hex {
            let bytes = hex::decode(text)
                .map_err(|error| JobError::payload(format!("message_hex: {error}")))?;
            failure.message = String::from_utf8_lossy(&bytes).into_owned();
        }
        if failure.message.len().saturating_mul(failure.repeat) > MAX_MESSAGE_BYTES {
            return Err(JobError::payload(format!(
                "repeat: makes the message longer than {MAX_MESSAGE_BYTES} bytes"
            )));
        }
        failure.message = failure.message.repeat(failure.repeat);
        Ok(failure)
    }

    fn verdict(self, life: i32, attempt: i32) -> Result<Outcome, JobError> {
        let recovered = self.recovers_after_replay && life > 1;
        if recovered || i64::from(attempt) > i64::from(self.times) {
            return Ok(Outcome::done());
        }
        let delay = self.delay_ms.map(|ms| span(ms, "delay_ms")).transpose()?;
        let error = match self.class {
            FailClass::Temporary => JobError::temporary(self.code, self.message),
            FailClass::Permanent => JobError::permanent(self.code, self.message),
            FailClass::Panic => panic!("{}", self.message),
            FailClass::Snooze => return Ok(Outcome::Snooze(delay.unwrap_or_default())),
        };
        Err(match delay {
            Some(delay) => error.retry_after(delay),
            None => error,
        })
    }
}

/// `fail {times, class, code, message, message_hex, repeat, delay_ms, recovers_after_replay}`:
/// fails that many times in each life, then succeeds; with the class `panic` it panics, with
/// `snooze` it puts the job off. With `recovers_after_replay` it succeeds once it was replayed.
#[derive(Debug)]
pub(super) struct Fail;

#[async_trait]
impl JobHandler for Fail {
    fn job_type(&self) -> &'static str {
        "fail"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        Failure::parse(&payload)?.verdict(context.life(), context.attempt())
    }
}

/// `abort`: ends the worker's process on the spot, as a crash would.
#[derive(Debug)]
pub(super) struct Abort;

#[async_trait]
impl JobHandler for Abort {
    fn job_type(&self) -> &'static str {
        "abort"
    }

    async fn run(&self, context: JobContext, _: Bytes) -> Result<Outcome, JobError> {
        tracing::error!(job_id = %context.job_id(), "aborting on purpose");
        std::process::abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_counts_attempts() {
        let verdict = |payload: &str, attempt| {
            Failure::parse(payload.as_bytes())
                .and_then(|failure| failure.verdict(1, attempt))
                .map_err(|error| (error.class, error.code))
        };
        let twice = r#"{"times":2,"class":"permanent","code":"NO_1"}"#;
        for attempt in 1..=2 {
            let (class, code) = verdict(twice, attempt).expect_err("fails");
            assert_eq!((class.as_str(), code.as_str()), ("permanent", "NO_1"));
        }
        assert!(verdict(twice, 3).is_ok());
        let (class, code) = verdict("{}", 1000).expect_err("fails");
        assert_eq!(
            (class.as_str(), code.as_str()),
            ("temporary", "FAILED_ON_PURPOSE")
        );
        for bad in [
            r#"{"message_hex":"0g"}"#,
            r#"{"repeat":1000000}"#,
            r#"{"delay_ms":86400001}"#,
            r#"{"class":"x"}"#,
            r#"{"times":-1}"#,
            "[]x",
        ] {
            assert_eq!(
                verdict(bad, 1).expect_err(bad).1,
                "PAYLOAD_INVALID",
                "{bad}"
            );
        }
    }

    #[test]
    fn a_replay_helps_where_it_was_asked_to() {
        let recovers = |payload: &str, life| {
            let failure = Failure::parse(payload.as_bytes()).expect("a payload");
            failure.verdict(life, 1).is_ok()
        };
        let recovering = r#"{"recovers_after_replay":true}"#;
        assert!(!recovers(recovering, 1) && recovers(recovering, 2));
        assert!(!recovers("{}", 1) && !recovers("{}", 2));
    }

    #[test]
    fn a_span_is_bounded() {
        assert_eq!(
            Span::parse(br#"{"ms":5}"#).expect("a span"),
            Duration::from_millis(5)
        );
        for bad in [
            r#"{"ms":86400001}"#,
            "{}",
            r#"{"ms":-1}"#,
            r#"{"ms":1,"s":2}"#,
        ] {
            assert!(Span::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
