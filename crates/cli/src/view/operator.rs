//! The shapes of the operator verbs.

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, lane, name, none_if_empty, time};

/// The queues.
#[derive(Debug, Serialize)]
pub(crate) struct Queues {
    pub(crate) queues: Vec<Queue>,
    /// A count that equals it means "at least".
    pub(crate) count_cap: i64,
    /// Jobs wait for a sweeper, and none has worked for so long.
    pub(crate) sweepers_silent_ms: Option<i64>,
}

/// A queue.
#[derive(Debug, Serialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) pause: Option<QueuePause>,
    pub(crate) system_pause: Option<QueuePause>,
    pub(crate) lanes: Vec<QueueLane>,
}

/// A pause of a queue.
#[derive(Debug, Serialize)]
pub(crate) struct QueuePause {
    pub(crate) reason: String,
    /// Nobody: the system, or who has left no name.
    pub(crate) paused_by: Option<String>,
    pub(crate) pause_time: Option<String>,
}

impl From<v1::QueuePause> for QueuePause {
    fn from(it: v1::QueuePause) -> Self {
        Self {
            reason: it.reason,
            paused_by: none_if_empty(it.paused_by),
            pause_time: time(it.pause_time),
        }
    }
}

impl From<v1::Queue> for Queue {
    fn from(it: v1::Queue) -> Self {
        Self {
            name: it.name,
            paused: it.paused,
            pause: it.pause.map(QueuePause::from),
            system_pause: it.system_pause.map(QueuePause::from),
            lanes: it.lanes.into_iter().map(QueueLane::from).collect(),
        }
    }
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
        Self {
            queues: answer.queues.into_iter().map(Queue::from).collect(),
            count_cap: answer.count_cap,
            sweepers_silent_ms: answer.sweepers_silent_for.map(millis),
        }
    }
}

/// A duration in whole milliseconds.
fn millis(duration: prost_types::Duration) -> i64 {
    duration
        .seconds
        .saturating_mul(1000)
        .saturating_add(i64::from(duration.nanos) / 1_000_000)
}

impl From<v1::QueueLane> for QueueLane {
    fn from(it: v1::QueueLane) -> Self {
        Self {
            lane: lane(it.lane),
            waiting: it.waiting,
            running: it.running,
            scheduled: it.scheduled,
            oldest_age_ms: it.oldest_age.map(millis),
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
    pub(crate) ordering_policy: String,
    pub(crate) max_concurrency: i32,
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
            ordering_policy: name(
                it.ordering_policy,
                "ORDERING_POLICY_",
                v1::OrderingPolicy::as_str_name,
            ),
            max_concurrency: it.max_concurrency,
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

/// The workers that were heard of lately.
#[derive(Debug, Serialize)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
    /// Jobs wait for a sweeper, and none has worked for so long.
    pub(crate) sweepers_silent_ms: Option<i64>,
}

impl From<v1::ListWorkersResponse> for Workers {
    fn from(answer: v1::ListWorkersResponse) -> Self {
        Self {
            workers: answer.workers.into_iter().map(Worker::from).collect(),
            sweepers_silent_ms: answer.sweepers_silent_for.map(millis),
        }
    }
}

/// A worker process.
#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) session: String,
    pub(crate) version: String,
    pub(crate) queues: Vec<String>,
    pub(crate) job_types: Vec<String>,
    pub(crate) slots: i32,
    pub(crate) running: i32,
    pub(crate) draining: bool,
    pub(crate) start_time: Option<String>,
    pub(crate) last_contact_time: Option<String>,
}

impl From<v1::Worker> for Worker {
    fn from(it: v1::Worker) -> Self {
        Self {
            name: it.name,
            session: it.session,
            version: it.version,
            queues: it.queues,
            job_types: it.job_types,
            slots: it.slots,
            running: it.running,
            draining: it.draining,
            start_time: time(it.start_time),
            last_contact_time: time(it.last_contact_time),
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
