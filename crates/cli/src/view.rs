//! The shapes of `-o json`: stable names, every name always there, `null` for
//! what is absent. Payloads and results are embedded as they are.

pub(crate) mod datasets;
pub(crate) mod notifications;
pub(crate) mod operator;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

pub(crate) use self::operator::{Applied, DeadLetter, DeadLetterList, JobType, JobTypes, Queues};
use crate::values::rfc3339;

fn none_if_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn time(time: Option<prost_types::Timestamp>) -> Option<String> {
    time.as_ref().and_then(rfc3339)
}

fn sorted(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

/// The lower-case name of a value, without its enum's prefix. A value of a
/// newer service is shown by its number.
fn name<E>(number: i32, prefix: &str, full: impl Fn(&E) -> &'static str) -> String
where
    E: TryFrom<i32>,
{
    E::try_from(number).map_or_else(
        |_| format!("unknown_{number}"),
        |value| full(&value).trim_start_matches(prefix).to_ascii_lowercase(),
    )
}

/// A state's name.
pub(crate) fn state(number: i32) -> String {
    name(number, "JOB_STATE_", v1::JobState::as_str_name)
}

/// A lane's name.
pub(crate) fn lane(number: i32) -> String {
    name(number, "LANE_", v1::Lane::as_str_name)
}

/// What a cancel did.
pub(crate) fn cancel_outcome(number: i32) -> String {
    name(
        number,
        "OUTCOME_",
        v1::cancel_job_response::Outcome::as_str_name,
    )
}

/// Bytes that should be JSON.
#[derive(Debug, Default)]
pub(crate) struct Embedded {
    json: Option<Box<RawValue>>,
    hex: Option<String>,
}

impl Embedded {
    fn new(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        let json = std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| RawValue::from_string(text.trim().to_owned()).ok());
        let hex = json.is_none().then(|| hex::encode(bytes));
        Self { json, hex }
    }
}

/// A job.
#[derive(Debug, Serialize)]
pub(crate) struct Job {
    pub(crate) job_id: String,
    pub(crate) event_id: String,
    pub(crate) user_id: String,
    pub(crate) job_type: String,
    pub(crate) queue: String,
    pub(crate) lane: String,
    pub(crate) state: String,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) run: i32,
    pub(crate) revision: i64,
    pub(crate) progress: Option<Progress>,
    pub(crate) last_error: Option<JobError>,
    pub(crate) result: Option<Box<RawValue>>,
    /// Only where the result is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result_hex: Option<String>,
    pub(crate) payload: Option<Box<RawValue>>,
    /// Only where the payload is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_hex: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) dedupe_key: Option<String>,
    pub(crate) submitted_by: Option<String>,
    pub(crate) create_time: Option<String>,
    pub(crate) run_at: Option<String>,
    pub(crate) start_time: Option<String>,
    pub(crate) finish_time: Option<String>,
    pub(crate) expires_at: Option<String>,
    pub(crate) timeout_ms: i64,
    pub(crate) cancel_requested: bool,
}

/// How far a job is.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    pub(crate) done: i64,
    /// 0 where it is not known.
    pub(crate) total: i64,
    pub(crate) message: String,
}

/// Why a job did not succeed.
#[derive(Debug, Serialize)]
pub(crate) struct JobError {
    pub(crate) code: String,
    pub(crate) error_class: String,
    pub(crate) message: String,
}

impl From<v1::JobError> for JobError {
    fn from(error: v1::JobError) -> Self {
        Self {
            code: error.code,
            error_class: name(
                error.error_class,
                "ERROR_CLASS_",
                v1::ErrorClass::as_str_name,
            ),
            message: error.message,
        }
    }
}

impl From<v1::Job> for Job {
    fn from(job: v1::Job) -> Self {
        let result = Embedded::new(&job.result);
        let payload = Embedded::new(&job.payload);
        Self {
            job_id: job.job_id,
            event_id: job.event_id,
            user_id: job.user_id,
            job_type: job.job_type,
            queue: job.queue,
            lane: lane(job.lane),
            state: state(job.state),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            run: job.run,
            revision: job.revision,
            progress: job.progress.map(|progress| Progress {
                done: progress.done,
                total: progress.total,
                message: progress.message,
            }),
            last_error: job.last_error.map(JobError::from),
            result: result.json,
            result_hex: result.hex,
            payload: payload.json,
            payload_hex: payload.hex,
            labels: sorted(job.labels),
            dedupe_key: none_if_empty(job.dedupe_key),
            submitted_by: none_if_empty(job.submitted_by),
            create_time: time(job.create_time),
            run_at: time(job.run_at),
            start_time: time(job.start_time),
            finish_time: time(job.finish_time),
            expires_at: time(job.expires_at),
            timeout_ms: job.timeout_ms,
            cancel_requested: job.cancel_requested,
        }
    }
}

/// A page, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct JobList {
    pub(crate) jobs: Vec<Job>,
    pub(crate) next_page_token: Option<String>,
}

/// An accepted job.
#[derive(Debug, Serialize)]
pub(crate) struct Submitted {
    pub(crate) job_id: String,
    pub(crate) duplicate: bool,
    pub(crate) state: String,
    /// The job at its end, where it was waited for.
    pub(crate) job: Option<Job>,
}

/// An import.
#[derive(Debug, Serialize)]
pub(crate) struct Import {
    pub(crate) file: File,
    pub(crate) job_id: String,
    pub(crate) duplicate: bool,
    pub(crate) state: String,
    /// The job at its end, where it was waited for.
    pub(crate) job: Option<Job>,
}

/// What a cancel did.
#[derive(Debug, Serialize)]
pub(crate) struct Cancelled {
    pub(crate) outcome: String,
    pub(crate) job: Option<Job>,
}

/// A stored file.
#[derive(Debug, Serialize)]
pub(crate) struct File {
    pub(crate) file_id: String,
    pub(crate) user_id: String,
    pub(crate) name: String,
    pub(crate) content_type: String,
    pub(crate) size_bytes: i64,
    pub(crate) sha256: String,
    pub(crate) kind: String,
    pub(crate) detected_type: Option<String>,
    pub(crate) job_id: Option<String>,
    pub(crate) create_time: Option<String>,
    pub(crate) expire_time: Option<String>,
}

impl From<v1::File> for File {
    fn from(file: v1::File) -> Self {
        Self {
            file_id: file.file_id,
            user_id: file.user_id,
            name: file.name,
            content_type: file.content_type,
            size_bytes: file.size_bytes,
            sha256: file.sha256,
            kind: file.kind,
            detected_type: none_if_empty(file.detected_type),
            job_id: none_if_empty(file.job_id),
            create_time: time(file.create_time),
            expire_time: time(file.expire_time),
        }
    }
}

/// Files, and what the uploads take.
#[derive(Debug, Serialize)]
pub(crate) struct FileList {
    pub(crate) files: Vec<File>,
    pub(crate) next_page_token: Option<String>,
    pub(crate) used_bytes: i64,
    pub(crate) quota_bytes: i64,
}

/// A file that was removed.
#[derive(Debug, Serialize)]
pub(crate) struct DeletedFile {
    pub(crate) file_id: String,
    pub(crate) deleted: bool,
}

/// A file that was downloaded.
#[derive(Debug, Serialize)]
pub(crate) struct Downloaded {
    pub(crate) file_id: String,
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_all_names_and_loses_no_digit() {
        let job = v1::Job {
            job_id: "j".to_owned(),
            lane: v1::Lane::High.into(),
            state: v1::JobState::Success.into(),
            revision: i64::MAX,
            result: br#"{"n":12345678901234567890.10}"#.as_slice().into(),
            payload: b"\xff".as_slice().into(),
            create_time: Some(prost_types::Timestamp {
                seconds: 1,
                nanos: 0,
            }),
            ..v1::Job::default()
        };
        let text = serde_json::to_string(&Job::from(job)).expect("serialises");
        assert_eq!(
            text,
            concat!(
                r#"{"job_id":"j","event_id":"","user_id":"","job_type":"","queue":"","lane":"high","#,
                r#""state":"success","attempt":0,"max_attempts":0,"run":0,"revision":9223372036854775807,"#,
                r#""progress":null,"last_error":null,"result":{"n":12345678901234567890.10},"#,
                r#""payload":null,"payload_hex":"ff","labels":{},"dedupe_key":null,"submitted_by":null,"#,
                r#""create_time":"1970-01-01T00:00:01Z","run_at":null,"start_time":null,"#,
                r#""finish_time":null,"expires_at":null,"timeout_ms":0,"cancel_requested":false}"#
            )
        );
    }

    #[test]
    fn values_of_a_newer_service_are_shown_by_number() {
        assert_eq!(state(v1::JobState::Retrying.into()), "retrying");
        assert_eq!(state(0), "unspecified");
        assert_eq!(state(99), "unknown_99");
        assert_eq!(lane(v1::Lane::Low.into()), "low");
        assert_eq!(
            cancel_outcome(v1::cancel_job_response::Outcome::AlreadyEnded.into()),
            "already_ended"
        );
    }
}
