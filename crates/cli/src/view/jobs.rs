//! The shapes of the verbs about jobs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, lane, name, none_if_empty, sorted, state, time};

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
    pub(crate) wait: Option<Wait>,
    pub(crate) ordering_key: Option<String>,
    /// Absent without an ordering key.
    pub(crate) ordering_policy: Option<String>,
    pub(crate) concurrency_key: Option<String>,
    /// 0 without a concurrency key.
    pub(crate) max_concurrency: i32,
}

/// Why a job waits.
#[derive(Debug, Serialize)]
pub(crate) struct Wait {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) until: Option<String>,
    pub(crate) blocking_job_id: Option<String>,
}

impl From<v1::Wait> for Wait {
    fn from(wait: v1::Wait) -> Self {
        Self {
            reason: name(wait.reason, "REASON_", v1::wait::Reason::as_str_name),
            message: wait.message,
            until: time(wait.until),
            blocking_job_id: none_if_empty(wait.blocking_job_id),
        }
    }
}

/// Something that happened to a job.
#[derive(Debug, Serialize)]
pub(crate) struct JobEvent {
    pub(crate) time: Option<String>,
    pub(crate) run: i32,
    /// Absent for the submit.
    pub(crate) from_state: Option<String>,
    pub(crate) to_state: String,
    pub(crate) attempt: i32,
    pub(crate) worker: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) error: Option<JobError>,
    /// For how long the run was held; absent where it is not known.
    pub(crate) duration_ms: Option<i64>,
    pub(crate) message: String,
}

impl From<v1::JobEvent> for JobEvent {
    fn from(event: v1::JobEvent) -> Self {
        let from = Some(event.from_state).filter(|from| *from != 0);
        Self {
            time: time(event.time),
            run: event.run,
            from_state: from.map(state),
            to_state: state(event.to_state),
            attempt: event.attempt,
            worker: none_if_empty(event.worker),
            session: none_if_empty(event.session),
            error: event.error.map(JobError::from),
            duration_ms: Some(event.duration_ms).filter(|ms| *ms > 0),
            message: event.message,
        }
    }
}

/// A job, why it is so, what can be done and what happened.
#[derive(Debug, Serialize)]
pub(crate) struct Explained {
    pub(crate) summary: String,
    pub(crate) job: Job,
    pub(crate) timeline: Vec<JobEvent>,
    pub(crate) next: Vec<Next>,
}

/// Something to type next.
#[derive(Debug, Serialize)]
pub(crate) struct Next {
    pub(crate) command: String,
    pub(crate) does: String,
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
            wait: job.wait.map(Wait::from),
            ordering_policy: (!job.ordering_key.is_empty()).then(|| {
                name(
                    job.ordering_policy,
                    "ORDERING_POLICY_",
                    v1::OrderingPolicy::as_str_name,
                )
            }),
            ordering_key: none_if_empty(job.ordering_key),
            concurrency_key: none_if_empty(job.concurrency_key),
            max_concurrency: job.max_concurrency,
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
    /// Whether it waits until its queue is resumed.
    pub(crate) queue_paused: bool,
    /// The job at its end, where it was waited for.
    pub(crate) job: Option<Job>,
}

/// What a cancel did.
#[derive(Debug, Serialize)]
pub(crate) struct Cancelled {
    pub(crate) outcome: String,
    pub(crate) job: Option<Job>,
}

/// What a cancel by filter did, or would do.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct BulkCancelled {
    pub(crate) dry_run: bool,
    pub(crate) cancelled: i64,
    pub(crate) requested: i64,
    pub(crate) already_ended: i64,
    pub(crate) failed: i64,
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
                r#""finish_time":null,"expires_at":null,"timeout_ms":0,"cancel_requested":false,"#,
                r#""wait":null,"ordering_key":null,"ordering_policy":null,"concurrency_key":null,"#,
                r#""max_concurrency":0}"#
            )
        );
    }

    #[test]
    fn a_submit_has_no_state_before_it_and_no_duration() {
        let event = JobEvent::from(v1::JobEvent {
            to_state: v1::JobState::Pending.into(),
            ..v1::JobEvent::default()
        });
        let json = serde_json::to_value(event).expect("serialises");
        assert_eq!(json["from_state"], serde_json::Value::Null);
        assert_eq!(json["to_state"], "pending");
        assert_eq!(json["duration_ms"], serde_json::Value::Null);
    }

    #[test]
    fn a_wait_names_its_reason() {
        let wait = Wait::from(v1::Wait {
            reason: v1::wait::Reason::NoWorker.into(),
            ..v1::Wait::default()
        });
        assert_eq!(wait.reason, "no_worker");
    }
}
