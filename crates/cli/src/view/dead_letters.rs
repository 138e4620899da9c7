//! The shapes of the verbs about dead letters.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, JobError, JobEvent, Next, name, none_if_empty, sorted, time};

/// The name of a letter's status.
pub(crate) fn status(number: i32) -> String {
    name(
        number,
        "DEAD_LETTER_STATUS_",
        v1::DeadLetterStatus::as_str_name,
    )
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
    pub(crate) cause_id: Option<String>,
    pub(crate) replay_id: Option<String>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) status_time: Option<String>,
    /// Of messages that could not be read, and where one letter is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message_properties: Option<Box<RawValue>>,
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
            status: status(it.status),
            first_failure_time: time(it.first_failure_time),
            last_failure_time: time(it.last_failure_time),
            payload: payload.json,
            payload_hex: payload.hex,
            labels: sorted(it.labels),
            cause_id: none_if_empty(it.cause_id),
            replay_id: none_if_empty(it.replay_id),
            trace_parent: none_if_empty(it.trace_parent),
            status_time: time(it.status_time),
            message_properties: Embedded::new(it.message_properties.as_bytes()).json,
        }
    }
}

/// A dead letter with all that is known of it. The letter's names stand beside the
/// others, as they did before there were others.
#[derive(Debug, Serialize)]
pub(crate) struct ShownLetter {
    #[serde(flatten)]
    pub(crate) letter: DeadLetter,
    pub(crate) actions: Vec<Action>,
    pub(crate) timeline: Vec<JobEvent>,
    pub(crate) next: Vec<Next>,
}

/// Something that was done about a letter.
#[derive(Debug, Serialize)]
pub(crate) struct Action {
    pub(crate) action_id: String,
    pub(crate) action: String,
    pub(crate) time: Option<String>,
    /// Absent where the system did it.
    pub(crate) actor: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) reason: String,
    pub(crate) status_before: String,
    pub(crate) status_after: String,
    pub(crate) replay_id: Option<String>,
    pub(crate) bulk_replay_id: Option<String>,
}

impl From<v1::DeadLetterAction> for Action {
    fn from(it: v1::DeadLetterAction) -> Self {
        Self {
            action_id: it.action_id,
            action: it.action,
            time: time(it.time),
            actor: none_if_empty(it.actor),
            user_id: none_if_empty(it.user_id),
            reason: it.reason,
            status_before: status(it.status_before),
            status_after: status(it.status_after),
            replay_id: none_if_empty(it.replay_id),
            bulk_replay_id: none_if_empty(it.bulk_replay_id),
        }
    }
}

/// A page of causes, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct CauseList {
    pub(crate) causes: Vec<Cause>,
    pub(crate) next_page_token: Option<String>,
}

/// Letters that have one cause.
#[derive(Debug, Serialize)]
pub(crate) struct Cause {
    pub(crate) cause_id: String,
    pub(crate) queue: String,
    pub(crate) job_type: Option<String>,
    pub(crate) error: Option<JobError>,
    pub(crate) open: i64,
    pub(crate) ignored: i64,
    pub(crate) replayed: i64,
    pub(crate) resolved: i64,
    pub(crate) first_failure_time: Option<String>,
    pub(crate) last_failure_time: Option<String>,
    pub(crate) sample_dead_letter_id: Option<String>,
}

impl From<v1::DeadLetterCause> for Cause {
    fn from(it: v1::DeadLetterCause) -> Self {
        Self {
            cause_id: it.cause_id,
            queue: it.queue,
            job_type: none_if_empty(it.job_type),
            error: it.error.map(JobError::from),
            open: it.open,
            ignored: it.ignored,
            replayed: it.replayed,
            resolved: it.resolved,
            first_failure_time: time(it.first_failure_time),
            last_failure_time: time(it.last_failure_time),
            sample_dead_letter_id: none_if_empty(it.sample_dead_letter_id),
        }
    }
}

/// What became of the letters of a request.
#[derive(Debug, Serialize)]
pub(crate) struct Decided {
    pub(crate) results: Vec<LetterResult>,
    /// How many letters have each outcome.
    pub(crate) counts: BTreeMap<String, usize>,
}

/// A page of outcomes, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct OutcomeList {
    pub(crate) results: Vec<LetterResult>,
    pub(crate) next_page_token: Option<String>,
}

/// What became of one letter.
#[derive(Debug, Serialize)]
pub(crate) struct LetterResult {
    pub(crate) dead_letter_id: String,
    pub(crate) job_id: Option<String>,
    pub(crate) outcome: String,
    pub(crate) status: String,
    pub(crate) replay_id: Option<String>,
    pub(crate) message: String,
}

impl From<v1::DeadLetterResult> for LetterResult {
    fn from(it: v1::DeadLetterResult) -> Self {
        Self {
            dead_letter_id: it.dead_letter_id,
            job_id: none_if_empty(it.job_id),
            outcome: name(
                it.outcome,
                "DEAD_LETTER_OUTCOME_",
                v1::DeadLetterOutcome::as_str_name,
            ),
            status: status(it.status),
            replay_id: none_if_empty(it.replay_id),
            message: it.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_letter_keeps_the_names_and_the_digits_of_a_listed_one() {
        let letter = DeadLetter::from(v1::DeadLetter {
            dead_letter_id: "d".to_owned(),
            status: v1::DeadLetterStatus::Replayed.into(),
            payload: br#"{"n":1.10}"#.as_slice().into(),
            ..v1::DeadLetter::default()
        });
        let shown = ShownLetter {
            letter,
            actions: vec![Action::from(v1::DeadLetterAction {
                action: "replay".to_owned(),
                status_before: v1::DeadLetterStatus::Open.into(),
                ..v1::DeadLetterAction::default()
            })],
            timeline: Vec::new(),
            next: Vec::new(),
        };
        let text = serde_json::to_string(&shown).expect("serialises");
        assert!(
            text.starts_with(r#"{"dead_letter_id":"d","job_id":null,"#),
            "{text}"
        );
        assert!(text.contains(r#""payload":{"n":1.10},"#), "{text}");
        assert!(text.contains(r#""status":"replayed""#), "{text}");
        assert!(text.contains(r#""actor":null,"#), "{text}");
        assert!(text.contains(r#""status_before":"open""#), "{text}");
        assert!(text.ends_with(r#""timeline":[],"next":[]}"#), "{text}");
    }

    #[test]
    fn an_unreadable_message_has_no_job() {
        let letter = DeadLetter::from(v1::DeadLetter {
            payload: b"x".as_slice().into(),
            ..v1::DeadLetter::default()
        });
        let json = serde_json::to_value(letter).expect("serialises");
        assert_eq!(json["job_id"], serde_json::Value::Null);
        assert_eq!(json["payload_hex"], "78");
    }

    #[test]
    fn outcomes_have_names() {
        let result = LetterResult::from(v1::DeadLetterResult {
            outcome: v1::DeadLetterOutcome::KeyTaken.into(),
            ..v1::DeadLetterResult::default()
        });
        assert_eq!(result.outcome, "key_taken");
    }
}
