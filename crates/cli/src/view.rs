//! The shapes of `-o json`: stable names, every name always there, `null` for
//! what is absent. Payloads and results are embedded as they are.

pub(crate) mod bulk_replays;
pub(crate) mod datasets;
pub(crate) mod dead_letters;
mod jobs;
pub(crate) mod limits;
pub(crate) mod notifications;
pub(crate) mod operator;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

pub(crate) use self::dead_letters::{DeadLetter, DeadLetterList};
pub(crate) use self::jobs::{
    BulkCancelled, Cancelled, Explained, Job, JobError, JobEvent, JobList, Next, Submitted, Wait,
};
pub(crate) use self::operator::{Applied, JobType, JobTypes, Queues, Workers};
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

/// An import.
#[derive(Debug, Serialize)]
pub(crate) struct Import {
    pub(crate) file: File,
    pub(crate) job_id: String,
    pub(crate) duplicate: bool,
    pub(crate) state: String,
    /// The job at its end, where it was waited for.
    pub(crate) job: Option<Job>,
    /// What the job made, newest first: reports and rejected rows.
    pub(crate) files: Option<Vec<File>>,
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
