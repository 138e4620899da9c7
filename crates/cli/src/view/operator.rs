//! The shapes of the operator verbs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, JobError, lane, name, none_if_empty, sorted, time};

/// The queues.
#[derive(Debug, Serialize)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
    /// A count that equals it means "at least".
    pub(crate) count_cap: i64,
}

/// A queue.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) lanes: Vec<QueueLane>,
}

/// A lane of a queue.
#[derive(Debug, Serialize)]
pub(crate) struct QueueLane {
    pub(crate) lane: String,
    pub(crate) waiting: i64,
    pub(crate) running: i64,
    pub(crate) scheduled: i64,
    pub(crate) oldest_age_ms: Option<i64>,
}

impl From<v1::ListQueuesResponse> for Queues {
    fn from(answer: v1::ListQueuesResponse) -> Self {
        let queues = answer.queues.into_iter().map(|queue| Queue {
            name: queue.name,
            paused: queue.paused,
            lanes: queue.lanes.into_iter().map(QueueLane::from).collect(),
        });
        Self {
            queues: queues.collect(),
            count_cap: answer.count_cap,
        }
    }
}

impl From<v1::QueueLane> for QueueLane {
    fn from(it: v1::QueueLane) -> Self {
        Self {
            lane: lane(it.lane),
            waiting: it.waiting,
            running: it.running,
            scheduled: it.scheduled,
            oldest_age_ms: it.oldest_age.map(|age| {
                age.seconds
                    .saturating_mul(1000)
                    .saturating_add(i64::from(age.nanos) / 1_000_000)
            }),
        }
    }
}

/// The job types.
#[derive(Debug, Serialize)]
pub(crate) struct JobTypes {
    pub(crate) job_types: Vec<JobType>,
}

/// A job type.
#[derive(Debug, Serialize)]
pub(crate) struct JobType {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) queue: String,
    pub(crate) lane: String,
    pub(crate) max_attempts: i32,
    pub(crate) backoff_ms: Vec<i64>,
    pub(crate) timeout_ms: i64,
    pub(crate) dedupe_policy: String,
    pub(crate) dedupe_period_ms: i64,
    pub(crate) max_payload_bytes: i32,
    pub(crate) payload_schema: Option<Box<RawValue>>,
    pub(crate) update_time: Option<String>,
}

impl From<v1::JobType> for JobType {
    fn from(it: v1::JobType) -> Self {
        Self {
            name: it.name,
            description: it.description,
            queue: it.queue,
            lane: lane(it.lane),
            max_attempts: it.max_attempts,
            backoff_ms: it.backoff_ms,
            timeout_ms: it.timeout_ms,
            dedupe_policy: name(
                it.dedupe_policy,
                "DEDUPE_POLICY_",
                v1::DedupePolicy::as_str_name,
            ),
            dedupe_period_ms: it.dedupe_period_ms,
            max_payload_bytes: it.max_payload_bytes,
            payload_schema: Embedded::new(it.payload_schema.as_bytes()).json,
            update_time: time(it.update_time),
        }
    }
}

/// What applying job types changed, or would change.
#[derive(Debug, Serialize)]
pub(crate) struct Applied {
    pub(crate) dry_run: bool,
    pub(crate) created: Vec<String>,
    pub(crate) updated: Vec<String>,
    pub(crate) unchanged: Vec<String>,
    pub(crate) created_queues: Vec<String>,
}

/// A page of dead letters, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetterList {
    pub(crate) dead_letters: Vec<DeadLetter>,
    pub(crate) next_page_token: Option<String>,
}

/// A dead letter.
#[derive(Debug, Serialize)]
pub(crate) struct DeadLetter {
    pub(crate) dead_letter_id: String,
    pub(crate) job_id: Option<String>,
    pub(crate) message_key: String,
    pub(crate) queue: String,
    pub(crate) job_type: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) error: Option<JobError>,
    pub(crate) attempts: i32,
    pub(crate) failures: i32,
    pub(crate) replayable: bool,
    pub(crate) status: String,
    pub(crate) first_failure_time: Option<String>,
    pub(crate) last_failure_time: Option<String>,
    pub(crate) payload: Option<Box<RawValue>>,
    /// Only where the payload is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload_hex: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

impl From<v1::DeadLetter> for DeadLetter {
    fn from(it: v1::DeadLetter) -> Self {
        let payload = Embedded::new(&it.payload);
        Self {
            dead_letter_id: it.dead_letter_id,
            job_id: none_if_empty(it.job_id),
            message_key: it.message_key,
            queue: it.queue,
            job_type: none_if_empty(it.job_type),
            user_id: none_if_empty(it.user_id),
            error: it.error.map(JobError::from),
            attempts: it.attempts,
            failures: it.failures,
            replayable: it.replayable,
            status: name(
                it.status,
                "DEAD_LETTER_STATUS_",
                v1::DeadLetterStatus::as_str_name,
            ),
            first_failure_time: time(it.first_failure_time),
            last_failure_time: time(it.last_failure_time),
            payload: payload.json,
            payload_hex: payload.hex,
            labels: sorted(it.labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_milliseconds() {
        let lane = QueueLane::from(v1::QueueLane {
            oldest_age: Some(prost_types::Duration {
                seconds: 2,
                nanos: 5_000_000,
            }),
            ..v1::QueueLane::default()
        });
        assert_eq!(lane.oldest_age_ms, Some(2005));
    }
}
