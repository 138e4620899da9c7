//! Our types as messages of the API.

use std::time::Duration;

use chrono::{DateTime, Utc};
use prost_types::Timestamp;
use tenure_core::domain::job::{Job, Lane};
use tenure_core::domain::job_type::DedupePolicy;
use tenure_core::domain::line::Line;
use tenure_core::domain::state::JobState;
use tenure_core::storage::files::FileRow;
use tenure_core::storage::job_types::StoredJobType;
use tenure_core::storage::notifications::Notification;
use tenure_core::storage::queue_pause::Pause;
use tenure_core::storage::queues::QueueStatus;
use tenure_proto::v1;

/// A time.
pub(crate) fn time(at: DateTime<Utc>) -> Timestamp {
    Timestamp {
        seconds: at.timestamp(),
        nanos: at.timestamp_subsec_nanos() as i32,
    }
}

/// A duration.
pub(crate) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos() as i32,
    }
}

/// A duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A lane.
pub(crate) fn lane(lane: Lane) -> v1::Lane {
    match lane {
        Lane::High => v1::Lane::High,
        Lane::Normal => v1::Lane::Normal,
        Lane::Low => v1::Lane::Low,
    }
}

/// A lane that a caller named; `None`: none.
pub(crate) fn lane_from(lane: v1::Lane) -> Option<Lane> {
    match lane {
        v1::Lane::Unspecified => None,
        v1::Lane::High => Some(Lane::High),
        v1::Lane::Normal => Some(Lane::Normal),
        v1::Lane::Low => Some(Lane::Low),
    }
}

/// A state.
pub(crate) fn state(state: JobState) -> v1::JobState {
    match state {
        JobState::Pending => v1::JobState::Pending,
        JobState::Running => v1::JobState::Running,
        JobState::Success => v1::JobState::Success,
        JobState::Failed => v1::JobState::Failed,
        JobState::Retrying => v1::JobState::Retrying,
        JobState::Cancelled => v1::JobState::Cancelled,
        JobState::Timeout => v1::JobState::Timeout,
    }
}

/// A state that a caller named; `None`: none.
pub(crate) fn state_from(named: v1::JobState) -> Option<JobState> {
    JobState::ALL.into_iter().find(|ours| state(*ours) == named)
}

/// A job, without why it waits.
pub(crate) fn job(job: Job) -> v1::Job {
    let has_progress =
        job.progress_done > 0 || job.progress_total > 0 || job.progress_message.is_some();
    v1::Job {
        job_id: job.job_id.to_string(),
        event_id: job.job_id.to_string(),
        user_id: job.user_id.as_str().to_owned(),
        job_type: job.job_type,
        queue: job.queue,
        lane: lane(job.lane).into(),
        state: state(job.state).into(),
        attempt: job.attempt,
        max_attempts: job.max_attempts,
        run: job.run,
        revision: job.revision,
        progress: has_progress.then(|| v1::Progress {
            done: job.progress_done,
            total: job.progress_total,
            message: job.progress_message.unwrap_or_default(),
        }),
        last_error: job.last_error.map(|error| v1::JobError {
            code: error.code,
            error_class: error_class(error.temporary).into(),
            message: error.message,
        }),
        result: job.result.unwrap_or_default().into(),
        payload: job.payload.unwrap_or_default().into(),
        labels: job.labels.into_iter().collect(),
        dedupe_key: job.dedupe_key.unwrap_or_default(),
        submitted_by: job.submitted_by.unwrap_or_default(),
        create_time: Some(time(job.created_at)),
        run_at: Some(time(job.run_at)),
        start_time: job.started_at.map(time),
        finish_time: job.finished_at.map(time),
        expires_at: job.expires_at.map(time),
        timeout_ms: millis(job.timeout),
        cancel_requested: job.cancel_requested,
        wait: None,
        ordering_policy: match &job.line {
            Some(Line::Ordered { blocks, .. }) => ordering_policy(*blocks).into(),
            _ => v1::OrderingPolicy::Unspecified.into(),
        },
        max_concurrency: job.line.as_ref().and_then(Line::limit).unwrap_or_default(),
        ordering_key: match &job.line {
            Some(Line::Ordered { key, .. }) => key.clone(),
            _ => String::new(),
        },
        concurrency_key: match job.line {
            Some(Line::Limited { key, .. }) => key,
            _ => String::new(),
        },
    }
}

/// What a failure does to the jobs behind it.
pub(crate) fn ordering_policy(blocks: bool) -> v1::OrderingPolicy {
    if blocks {
        v1::OrderingPolicy::Block
    } else {
        v1::OrderingPolicy::Continue
    }
}

/// Whether a retry could help.
pub(crate) fn error_class(temporary: bool) -> v1::ErrorClass {
    if temporary {
        v1::ErrorClass::Temporary
    } else {
        v1::ErrorClass::Permanent
    }
}

/// A file.
pub(crate) fn file(row: FileRow) -> v1::File {
    let file = row.file;
    v1::File {
        file_id: file.file_id.to_string(),
        user_id: file.user_id.as_str().to_owned(),
        name: file.name,
        content_type: file.content_type,
        size_bytes: file.size_bytes,
        sha256: hex::encode(file.sha256),
        create_time: Some(time(row.created_at)),
        expire_time: file.expires_at.map(time),
        kind: file.kind.as_str().to_owned(),
        detected_type: row.detected_type.unwrap_or_default(),
        job_id: file.job_id.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// A notification.
pub(crate) fn notification(it: Notification) -> v1::Notification {
    v1::Notification {
        notification_id: it.id.to_string(),
        user_id: it.user_id.as_str().to_owned(),
        template: it.template,
        key: it.key,
        data: it.data,
        job_id: it.job_id.map(|id| id.to_string()).unwrap_or_default(),
        create_time: Some(time(it.created_at)),
        read_time: it.read_at.map(time),
    }
}

/// A queue.
pub(crate) fn queue(queue: QueueStatus) -> v1::Queue {
    v1::Queue {
        paused: queue.paused(),
        name: queue.name,
        pause: queue.pause.map(queue_pause),
        system_pause: queue.system_pause.map(queue_pause),
        lanes: queue
            .lanes
            .into_iter()
            .map(|status| v1::QueueLane {
                lane: lane(status.lane).into(),
                waiting: status.waiting,
                running: status.running,
                scheduled: status.scheduled,
                oldest_age: status.oldest_age.map(duration),
            })
            .collect(),
    }
}

fn queue_pause(pause: Pause) -> v1::QueuePause {
    v1::QueuePause {
        reason: pause.reason,
        paused_by: pause.by.unwrap_or_default(),
        pause_time: pause.at.map(time),
    }
}

/// A dedupe policy.
pub(crate) fn dedupe_policy(policy: DedupePolicy) -> v1::DedupePolicy {
    match policy {
        DedupePolicy::Period => v1::DedupePolicy::Period,
        DedupePolicy::WhileActive => v1::DedupePolicy::WhileActive,
        DedupePolicy::Forever => v1::DedupePolicy::Forever,
        DedupePolicy::AfterEnd => v1::DedupePolicy::AfterEnd,
    }
}

/// A job type.
pub(crate) fn job_type(stored: StoredJobType) -> v1::JobType {
    let job_type = stored.job_type;
    v1::JobType {
        name: job_type.name,
        description: job_type.description,
        queue: job_type.queue,
        lane: lane(job_type.lane).into(),
        max_attempts: job_type.max_attempts,
        backoff_ms: job_type.backoff.into_iter().map(millis).collect(),
        timeout_ms: millis(job_type.timeout),
        dedupe_policy: dedupe_policy(job_type.dedupe_policy).into(),
        dedupe_period_ms: millis(job_type.dedupe_period),
        max_payload_bytes: job_type.max_payload_bytes,
        update_time: Some(time(stored.updated_at)),
        payload_schema: job_type.payload_schema.unwrap_or_default(),
        ordering_policy: ordering_policy(job_type.ordering_blocks).into(),
        max_concurrency: job_type.max_concurrency,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use tenure_core::domain::ids::{JobId, UserId};
    use tenure_core::domain::job::{LastError, Waiting};

    use super::*;

    /// A job as it is right after its submit.
    pub(crate) fn sample_job(id: JobId) -> Job {
        Job {
            job_id: id,
            user_id: UserId::from_stored("ada".into()),
            job_type: "noop".into(),
            queue: "default".into(),
            lane: Lane::Low,
            state: JobState::Pending,
            run: 1,
            attempt: 0,
            max_attempts: 5,
            revision: 1,
            progress_done: 0,
            progress_total: 0,
            progress_message: None,
            last_error: None,
            result: None,
            payload: Some(b"{}".to_vec()),
            labels: BTreeMap::from([("k".into(), "v".into())]),
            dedupe_key: None,
            submitted_by: Some("shop".into()),
            created_at: DateTime::from_timestamp(1_700_000_000, 123_456_000).unwrap_or_default(),
            run_at: DateTime::from_timestamp(1_700_000_000, 0).unwrap_or_default(),
            started_at: None,
            finished_at: None,
            expires_at: None,
            timeout: Duration::from_mins(1),
            cancel_requested: false,
            line: None,
            waiting: Waiting::default(),
        }
    }

    #[test]
    fn lanes_and_states_round_trip() {
        for ours in Lane::ALL {
            assert_eq!(lane_from(lane(ours)), Some(ours));
        }
        for ours in JobState::ALL {
            assert_eq!(state_from(state(ours)), Some(ours));
        }
        assert_eq!(lane_from(v1::Lane::Unspecified), None);
        assert_eq!(state_from(v1::JobState::Unspecified), None);
    }

    #[test]
    fn a_job_says_only_what_there_is() {
        let id = JobId::new();
        let fresh = job(sample_job(id));
        assert_eq!(
            (fresh.job_id.as_str(), &fresh.event_id),
            (id.to_string().as_str(), &fresh.job_id)
        );
        assert_eq!(fresh.lane(), v1::Lane::Low);
        assert_eq!(fresh.timeout_ms, 60_000);
        assert!(
            fresh.progress.is_none() && fresh.last_error.is_none() && fresh.start_time.is_none()
        );
        assert_eq!(fresh.create_time.map(|t| t.nanos), Some(123_456_000));
        let mut ran = sample_job(id);
        ran.progress_done = 3;
        ran.last_error = Some(LastError {
            code: "PANIC".into(),
            temporary: true,
            message: "m".into(),
        });
        let ran = job(ran);
        assert_eq!(ran.progress.map(|p| p.done), Some(3));
        assert_eq!(
            ran.last_error.map(|e| e.error_class()),
            Some(v1::ErrorClass::Temporary)
        );
    }
}
