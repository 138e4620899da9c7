//! The shapes of the verbs about bulk replays.

use serde::Serialize;
use tenure_proto::v1;

use super::dead_letters::status;
use super::{DeadLetter, JobError, Next, name, none_if_empty, time};

/// What a bulk replay would replay.
#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    pub(crate) matching: i64,
    /// A count that equals it means "at least".
    pub(crate) count_cap: i64,
    pub(crate) not_replayable: i64,
    pub(crate) causes: Vec<CauseCount>,
    pub(crate) samples: Vec<DeadLetter>,
    /// What to type to begin it.
    pub(crate) next: Vec<Next>,
}

/// How many letters of a cause match.
#[derive(Debug, Serialize)]
pub(crate) struct CauseCount {
    pub(crate) cause_id: String,
    pub(crate) job_type: Option<String>,
    pub(crate) error: Option<JobError>,
    pub(crate) matching: i64,
}

impl From<v1::DeadLetterCauseCount> for CauseCount {
    fn from(it: v1::DeadLetterCauseCount) -> Self {
        Self {
            cause_id: it.cause_id,
            job_type: none_if_empty(it.job_type),
            error: it.error.map(JobError::from),
            matching: it.matching,
        }
    }
}

/// Which letters; what is absent does not matter.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Filter {
    pub(crate) statuses: Vec<String>,
    pub(crate) queue: Option<String>,
    pub(crate) job_type: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) error_code: Option<String>,
    pub(crate) error_class: Option<String>,
    pub(crate) cause_id: Option<String>,
    pub(crate) failed_from: Option<String>,
    pub(crate) failed_before: Option<String>,
    pub(crate) text: Option<String>,
}

impl From<v1::DeadLetterFilter> for Filter {
    fn from(it: v1::DeadLetterFilter) -> Self {
        let class = Some(it.error_class).filter(|class| *class != 0);
        Self {
            statuses: it.statuses.into_iter().map(status).collect(),
            queue: none_if_empty(it.queue),
            job_type: none_if_empty(it.job_type),
            user_id: none_if_empty(it.user_id),
            error_code: none_if_empty(it.error_code),
            error_class: class
                .map(|class| name(class, "ERROR_CLASS_", v1::ErrorClass::as_str_name)),
            cause_id: none_if_empty(it.cause_id),
            failed_from: time(it.failed_from),
            failed_before: time(it.failed_before),
            text: none_if_empty(it.text),
        }
    }
}

/// A page of bulk replays, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct BulkReplayList {
    pub(crate) bulk_replays: Vec<BulkReplay>,
    pub(crate) next_page_token: Option<String>,
}

/// A bulk replay.
#[derive(Debug, Serialize)]
pub(crate) struct BulkReplay {
    pub(crate) bulk_replay_id: String,
    pub(crate) state: String,
    pub(crate) filter: Filter,
    pub(crate) rate_per_second: i32,
    pub(crate) reason: String,
    pub(crate) actor: String,
    pub(crate) start_time: Option<String>,
    pub(crate) end_time: Option<String>,
    pub(crate) progress_time: Option<String>,
    pub(crate) matching: i64,
    pub(crate) examined: i64,
    pub(crate) replayed: i64,
    pub(crate) already_done: i64,
    pub(crate) key_taken: i64,
    pub(crate) not_replayable: i64,
    pub(crate) changed: i64,
}

/// A bulk replay with who steered it. Its names stand beside the actions, as they did before
/// there were actions.
#[derive(Debug, Serialize)]
pub(crate) struct ShownBulkReplay {
    #[serde(flatten)]
    pub(crate) bulk_replay: BulkReplay,
    pub(crate) actions: Vec<BulkAction>,
}

/// Something that was done to a bulk replay.
#[derive(Debug, Serialize)]
pub(crate) struct BulkAction {
    pub(crate) action_id: String,
    pub(crate) action: String,
    pub(crate) time: Option<String>,
    pub(crate) actor: String,
    pub(crate) reason: String,
    pub(crate) rate_per_second: i32,
    /// Absent at the start.
    pub(crate) state_before: Option<String>,
    pub(crate) state_after: String,
}

impl From<v1::BulkReplayAction> for BulkAction {
    fn from(it: v1::BulkReplayAction) -> Self {
        let state = |number| name(number, "STATE_", v1::bulk_replay::State::as_str_name);
        Self {
            action_id: it.action_id,
            action: it.action,
            time: time(it.time),
            actor: it.actor,
            reason: it.reason,
            rate_per_second: it.rate_per_second,
            state_before: Some(it.state_before)
                .filter(|before| *before != 0)
                .map(state),
            state_after: state(it.state_after),
        }
    }
}

impl From<v1::BulkReplay> for BulkReplay {
    fn from(it: v1::BulkReplay) -> Self {
        Self {
            bulk_replay_id: it.bulk_replay_id,
            state: name(it.state, "STATE_", v1::bulk_replay::State::as_str_name),
            filter: it.filter.map(Filter::from).unwrap_or_default(),
            rate_per_second: it.rate_per_second,
            reason: it.reason,
            actor: it.actor,
            start_time: time(it.start_time),
            end_time: time(it.end_time),
            progress_time: time(it.progress_time),
            matching: it.matching,
            examined: it.examined,
            replayed: it.replayed,
            already_done: it.already_done,
            key_taken: it.key_taken,
            not_replayable: it.not_replayable,
            changed: it.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_replay_names_its_state_and_what_it_was_asked_for() {
        let bulk = BulkReplay::from(v1::BulkReplay {
            state: v1::bulk_replay::State::Paused.into(),
            filter: Some(v1::DeadLetterFilter {
                statuses: vec![v1::DeadLetterStatus::Open.into()],
                error_class: v1::ErrorClass::Temporary.into(),
                ..v1::DeadLetterFilter::default()
            }),
            ..v1::BulkReplay::default()
        });
        let json = serde_json::to_value(bulk).expect("serialises");
        assert_eq!(json["state"], "paused");
        assert_eq!(json["filter"]["statuses"][0], "open");
        assert_eq!(json["filter"]["error_class"], "temporary");
        assert_eq!(json["filter"]["queue"], serde_json::Value::Null);
        assert_eq!(json["end_time"], serde_json::Value::Null);
    }
}
