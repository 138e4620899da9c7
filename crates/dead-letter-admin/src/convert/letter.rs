//! Letters, what was done about them, and what became of a request.

use tenure_core::domain::ids::SessionId;
use tenure_core::domain::job::LastError;
use tenure_core::domain::state::JobState;
use tenure_core::domain::timeline::Event;
use tenure_core::storage::dead_letters::{
    Action, DeadLetter, DeadLetterStatus, LetterResult, Outcome,
};
use tenure_proto::v1;
use uuid::Uuid;

use super::timestamp;

/// A letter as operators see it.
pub(crate) fn dead_letter(letter: DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        dead_letter_id: letter.id.to_string(),
        job_id: letter.job_id.map(|id| id.to_string()).unwrap_or_default(),
        message_key: letter.message_key,
        queue: letter.queue,
        job_type: letter.job_type.unwrap_or_default(),
        user_id: letter
            .user_id
            .map(|user| user.as_str().to_owned())
            .unwrap_or_default(),
        error: Some(job_error(letter.error)),
        attempts: letter.attempts,
        failures: letter.failures,
        replayable: letter.replayable,
        status: status_on_wire(letter.status).into(),
        first_failure_time: Some(timestamp(letter.first_failed_at)),
        last_failure_time: Some(timestamp(letter.last_failed_at)),
        payload: letter.payload.unwrap_or_default().into(),
        labels: letter.labels.into_iter().collect(),
        cause_id: letter.cause_id.to_string(),
        replay_id: or_empty(letter.replay_id),
        trace_parent: letter.trace_parent.unwrap_or_default(),
        status_time: Some(timestamp(letter.status_changed_at)),
        message_properties: letter.message_properties.unwrap_or_default(),
    }
}

/// An action as operators see it.
pub(crate) fn action(action: Action) -> v1::DeadLetterAction {
    v1::DeadLetterAction {
        action_id: action.id.to_string(),
        action: action.action,
        time: Some(timestamp(action.at)),
        actor: action.actor.unwrap_or_default(),
        user_id: action.user_id.unwrap_or_default(),
        reason: action.reason,
        status_before: status_on_wire(action.before).into(),
        status_after: status_on_wire(action.after).into(),
        replay_id: or_empty(action.replay_id),
        bulk_replay_id: or_empty(action.bulk_replay_id),
    }
}

/// Something that happened to a letter's job, as the gateway tells it.
pub(crate) fn event(event: Event) -> v1::JobEvent {
    v1::JobEvent {
        time: Some(timestamp(event.at)),
        run: event.run,
        from_state: event.from.map_or(v1::JobState::Unspecified, state).into(),
        to_state: state(event.to).into(),
        attempt: event.attempt,
        worker: event.holder.name.unwrap_or_default(),
        session: or_empty(event.holder.session.map(SessionId::uuid)),
        error: event.error.map(|error| v1::JobError {
            code: error.code,
            error_class: error
                .temporary
                .map_or(v1::ErrorClass::Unspecified, class)
                .into(),
            message: error.message,
        }),
        duration_ms: event
            .held_for
            .map(|held| i64::try_from(held.as_millis()).unwrap_or(i64::MAX))
            .unwrap_or_default(),
        message: event.message,
    }
}

/// The outcome of one letter of a request.
pub(crate) fn result(result: LetterResult) -> v1::DeadLetterResult {
    let status = result
        .status
        .map_or(v1::DeadLetterStatus::Unspecified, status_on_wire);
    v1::DeadLetterResult {
        dead_letter_id: result.id.to_string(),
        outcome: outcome_on_wire(result.outcome).into(),
        status: status.into(),
        replay_id: or_empty(result.replay_id),
        message: result.message,
        job_id: result.job_id.map(|id| id.to_string()).unwrap_or_default(),
    }
}

/// An error as operators see it.
pub(super) fn job_error(error: LastError) -> v1::JobError {
    v1::JobError {
        code: error.code,
        error_class: class(error.temporary).into(),
        message: error.message,
    }
}

fn class(temporary: bool) -> v1::ErrorClass {
    if temporary {
        v1::ErrorClass::Temporary
    } else {
        v1::ErrorClass::Permanent
    }
}

fn or_empty(id: Option<Uuid>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

const fn state(state: JobState) -> v1::JobState {
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

pub(super) fn status(number: i32) -> Option<DeadLetterStatus> {
    match v1::DeadLetterStatus::try_from(number).ok()? {
        v1::DeadLetterStatus::Unspecified => None,
        v1::DeadLetterStatus::Open => Some(DeadLetterStatus::Open),
        v1::DeadLetterStatus::Ignored => Some(DeadLetterStatus::Ignored),
        v1::DeadLetterStatus::Replayed => Some(DeadLetterStatus::Replayed),
        v1::DeadLetterStatus::Resolved => Some(DeadLetterStatus::Resolved),
    }
}

pub(super) fn status_on_wire(status: DeadLetterStatus) -> v1::DeadLetterStatus {
    match status {
        DeadLetterStatus::Open => v1::DeadLetterStatus::Open,
        DeadLetterStatus::Ignored => v1::DeadLetterStatus::Ignored,
        DeadLetterStatus::Replayed => v1::DeadLetterStatus::Replayed,
        DeadLetterStatus::Resolved => v1::DeadLetterStatus::Resolved,
    }
}

pub(super) fn outcome(number: i32) -> Option<Outcome> {
    match v1::DeadLetterOutcome::try_from(number).ok()? {
        v1::DeadLetterOutcome::Unspecified => None,
        v1::DeadLetterOutcome::Done => Some(Outcome::Done),
        v1::DeadLetterOutcome::AlreadyDone => Some(Outcome::AlreadyDone),
        v1::DeadLetterOutcome::KeyTaken => Some(Outcome::KeyTaken),
        v1::DeadLetterOutcome::NotReplayable => Some(Outcome::NotReplayable),
        v1::DeadLetterOutcome::Changed => Some(Outcome::Changed),
        v1::DeadLetterOutcome::NotFound => Some(Outcome::NotFound),
    }
}

fn outcome_on_wire(outcome: Outcome) -> v1::DeadLetterOutcome {
    match outcome {
        Outcome::Done => v1::DeadLetterOutcome::Done,
        Outcome::AlreadyDone => v1::DeadLetterOutcome::AlreadyDone,
        Outcome::KeyTaken => v1::DeadLetterOutcome::KeyTaken,
        Outcome::NotReplayable => v1::DeadLetterOutcome::NotReplayable,
        Outcome::Changed => v1::DeadLetterOutcome::Changed,
        Outcome::NotFound => v1::DeadLetterOutcome::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_and_outcome_goes_there_and_back() {
        for one in DeadLetterStatus::ALL {
            assert_eq!(status(status_on_wire(one).into()), Some(one));
        }
        for one in Outcome::ALL {
            assert_eq!(outcome(outcome_on_wire(one).into()), Some(one));
        }
    }

    #[test]
    fn every_state_has_its_name_on_the_wire() {
        for one in JobState::ALL {
            let name = format!("JOB_STATE_{}", one.as_str().to_uppercase());
            assert_eq!(state(one).as_str_name(), name);
        }
    }
}
