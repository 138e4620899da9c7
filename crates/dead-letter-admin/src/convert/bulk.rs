//! Bulk replays.

use tenure_core::domain::ids::check_text;
use tenure_core::storage::dead_letters::{
    BulkAction, BulkChange, BulkReplay, BulkState, DeadLetterFilter, DeadLetterStatus, MAX_RATE,
    NewBulkReplay, Outcome,
};
use tenure_core::{Error, Result};
use tenure_proto::v1;
use tenure_proto::v1::bulk_replay::State;
use tenure_proto::v1::control_bulk_replay_request::Verb;

use super::filter::{field, filter};
use super::letter::{outcome, status_on_wire};
use super::{decision, timestamp};

/// The letters a second where the caller does not say.
const DEFAULT_RATE: i32 = 50;

/// The filter of a preview or a bulk replay. Only open letters are taken, so that naming
/// them is naming nothing.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that is wrong.
pub(crate) fn bulk_filter(asked: Option<&v1::DeadLetterFilter>) -> Result<DeadLetterFilter> {
    let Some(asked) = asked else {
        return Ok(DeadLetterFilter::default());
    };
    let mut filter = filter(asked, |name| format!("filter.{name}"))?;
    if !asked.statuses.is_empty() && filter.statuses != [DeadLetterStatus::Open] {
        return Err(Error::invalid(
            "filter.statuses",
            "must be empty or OPEN: no other letters are replayed in bulk",
        ));
    }
    filter.statuses.clear();
    Ok(filter)
}

/// A bulk replay that is asked for.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that is wrong.
pub(crate) fn new_bulk_replay(
    actor: String,
    request: v1::StartBulkReplayRequest,
) -> Result<NewBulkReplay> {
    let filter = bulk_filter(request.filter.as_ref())?;
    if filter.is_empty() != request.all {
        return Err(if request.all {
            Error::invalid("all", "must not be set together with a filter")
        } else {
            Error::invalid(
                "filter",
                "must not be empty; set all to replay every open letter",
            )
        });
    }
    let rate = match request.rate_per_second {
        0 => DEFAULT_RATE,
        given => rate(given)?,
    };
    Ok(NewBulkReplay {
        filter,
        rate,
        request_id: field("request_id", &request.request_id, check_text)?,
        decision: decision(actor, request.reason)?,
    })
}

/// How a bulk replay is steered.
///
/// # Errors
/// INVALID_ARGUMENT for a verb that is not known, or a rate that does not go with it.
pub(crate) fn bulk_change(request: &v1::ControlBulkReplayRequest) -> Result<BulkChange> {
    let given = request.rate_per_second;
    let without_rate = |change: BulkChange| {
        if given == 0 {
            Ok(change)
        } else {
            Err(Error::invalid(
                "rate_per_second",
                "goes with VERB_SET_RATE and VERB_RESUME only",
            ))
        }
    };
    match Verb::try_from(request.verb) {
        Ok(Verb::Pause) => without_rate(BulkChange::Pause),
        Ok(Verb::Cancel) => without_rate(BulkChange::Cancel),
        Ok(Verb::Resume) if given == 0 => Ok(BulkChange::Resume(None)),
        Ok(Verb::Resume) => Ok(BulkChange::Resume(Some(rate(given)?))),
        Ok(Verb::SetRate) => Ok(BulkChange::SetRate(rate(given)?)),
        Ok(Verb::Unspecified) | Err(_) => Err(Error::invalid(
            "verb",
            "must be PAUSE, RESUME, CANCEL or SET_RATE",
        )),
    }
}

fn rate(given: i32) -> Result<i32> {
    if (1..=MAX_RATE).contains(&given) {
        return Ok(given);
    }
    Err(Error::invalid(
        "rate_per_second",
        format!("must be 1 to {MAX_RATE}"),
    ))
}

/// The outcome that a list is limited to.
///
/// # Errors
/// INVALID_ARGUMENT for one that is not known.
pub(crate) fn outcome_filter(number: i32) -> Result<Option<Outcome>> {
    if number == i32::from(v1::DeadLetterOutcome::Unspecified) {
        return Ok(None);
    }
    outcome(number)
        .map(Some)
        .ok_or_else(|| Error::invalid("outcome", "must be a known outcome, or unset for all"))
}

/// A bulk replay as operators see it.
pub(crate) fn bulk_replay(bulk: BulkReplay) -> v1::BulkReplay {
    v1::BulkReplay {
        bulk_replay_id: bulk.id.to_string(),
        state: state(bulk.state).into(),
        filter: Some(filter_on_wire(bulk.filter)),
        rate_per_second: bulk.rate,
        reason: bulk.reason,
        actor: bulk.actor,
        start_time: Some(timestamp(bulk.started_at)),
        end_time: bulk.ended_at.map(timestamp),
        progress_time: bulk.progress_at.map(timestamp),
        matching: bulk.matching,
        examined: bulk.counts.examined,
        replayed: bulk.counts.replayed,
        already_done: bulk.counts.already_done,
        key_taken: bulk.counts.key_taken,
        not_replayable: bulk.counts.not_replayable,
        changed: bulk.counts.changed,
    }
}

/// Something that was done to a bulk replay.
pub(crate) fn bulk_action(action: BulkAction) -> v1::BulkReplayAction {
    // A state of a later release, or none: the start has none before it.
    let told = |text: &str| {
        let known = BulkState::ALL.into_iter().find(|it| it.as_str() == text);
        known.map_or(State::Unspecified, state)
    };
    v1::BulkReplayAction {
        action_id: action.id.to_string(),
        state_before: told(&action.before).into(),
        state_after: told(&action.after).into(),
        action: action.action,
        time: Some(timestamp(action.at)),
        actor: action.actor,
        reason: action.reason,
        rate_per_second: action.rate,
    }
}

const fn state(state: BulkState) -> State {
    match state {
        BulkState::Running => State::Running,
        BulkState::Paused => State::Paused,
        BulkState::Done => State::Done,
        BulkState::Cancelled => State::Cancelled,
    }
}

fn filter_on_wire(filter: DeadLetterFilter) -> v1::DeadLetterFilter {
    let class = match filter.temporary {
        None => v1::ErrorClass::Unspecified,
        Some(true) => v1::ErrorClass::Temporary,
        Some(false) => v1::ErrorClass::Permanent,
    };
    let statuses = filter.statuses.into_iter().map(status_on_wire);
    v1::DeadLetterFilter {
        statuses: statuses.map(i32::from).collect(),
        queue: filter.queue.unwrap_or_default(),
        job_type: filter.job_type.unwrap_or_default(),
        user_id: filter.user_id.unwrap_or_default(),
        error_code: filter.error_code.unwrap_or_default(),
        error_class: class.into(),
        cause_id: filter.cause_id.map(|id| id.to_string()).unwrap_or_default(),
        failed_from: filter.failed_from.map(timestamp),
        failed_before: filter.failed_before.map(timestamp),
        text: filter.text.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::*;

    fn start() -> v1::StartBulkReplayRequest {
        v1::StartBulkReplayRequest {
            filter: Some(v1::DeadLetterFilter {
                queue: "a".to_owned(),
                ..v1::DeadLetterFilter::default()
            }),
            reason: "because".to_owned(),
            ..v1::StartBulkReplayRequest::default()
        }
    }

    #[test]
    fn a_bulk_replay_of_everything_must_be_meant() {
        let of = |request| new_bulk_replay("olga".to_owned(), request);
        assert_eq!(of(start()).expect("valid").rate, 50);
        let all = v1::StartBulkReplayRequest {
            filter: None,
            all: true,
            ..start()
        };
        assert!(of(all.clone()).expect("valid").filter.is_empty());
        // Naming the open ones is naming all that are replayed.
        let open = v1::DeadLetterFilter {
            statuses: vec![1],
            ..v1::DeadLetterFilter::default()
        };
        let none = v1::StartBulkReplayRequest {
            filter: Some(open.clone()),
            ..start()
        };
        let cases = [
            (
                "filter",
                v1::StartBulkReplayRequest {
                    filter: None,
                    ..start()
                },
            ),
            ("filter", none),
            (
                "all",
                v1::StartBulkReplayRequest {
                    all: true,
                    ..start()
                },
            ),
            (
                "filter.statuses",
                v1::StartBulkReplayRequest {
                    filter: Some(v1::DeadLetterFilter {
                        statuses: vec![1, 2],
                        ..open
                    }),
                    ..start()
                },
            ),
            (
                "rate_per_second",
                v1::StartBulkReplayRequest {
                    rate_per_second: 5001,
                    ..start()
                },
            ),
            (
                "rate_per_second",
                v1::StartBulkReplayRequest {
                    rate_per_second: -1,
                    ..start()
                },
            ),
            (
                "reason",
                v1::StartBulkReplayRequest {
                    reason: String::new(),
                    ..start()
                },
            ),
            (
                "request_id",
                v1::StartBulkReplayRequest {
                    request_id: "x".repeat(256),
                    ..start()
                },
            ),
        ];
        for (field, request) in cases {
            let error = of(request).expect_err(field);
            assert_eq!(error.code(), Code::InvalidArgument);
            assert_eq!(error.violations()[0].field, field);
        }
    }

    #[test]
    fn a_rate_goes_with_the_verbs_that_have_one() {
        let of = |verb: Verb, rate_per_second| {
            bulk_change(&v1::ControlBulkReplayRequest {
                verb: verb.into(),
                rate_per_second,
                ..v1::ControlBulkReplayRequest::default()
            })
            .map_err(|error| error.violations()[0].field.clone())
        };
        assert_eq!(of(Verb::Pause, 0), Ok(BulkChange::Pause));
        assert_eq!(of(Verb::Resume, 0), Ok(BulkChange::Resume(None)));
        assert_eq!(of(Verb::Resume, 9), Ok(BulkChange::Resume(Some(9))));
        assert_eq!(of(Verb::SetRate, 9), Ok(BulkChange::SetRate(9)));
        for (verb, rate, field) in [
            (Verb::Pause, 1, "rate_per_second"),
            (Verb::Cancel, 1, "rate_per_second"),
            (Verb::SetRate, 0, "rate_per_second"),
            (Verb::Resume, 5001, "rate_per_second"),
            (Verb::Unspecified, 0, "verb"),
        ] {
            assert_eq!(of(verb, rate), Err(field.to_owned()));
        }
    }

    #[test]
    fn a_filter_goes_there_and_back() {
        let asked = v1::DeadLetterFilter {
            queue: "a".to_owned(),
            job_type: "b".to_owned(),
            user_id: "c".to_owned(),
            error_code: "D".to_owned(),
            error_class: v1::ErrorClass::Permanent.into(),
            cause_id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            failed_from: Some(prost_types::Timestamp {
                seconds: 5,
                nanos: 1000,
            }),
            failed_before: Some(prost_types::Timestamp {
                seconds: 6,
                nanos: 0,
            }),
            text: "%".to_owned(),
            statuses: Vec::new(),
        };
        let filter = bulk_filter(Some(&asked)).expect("valid");
        assert_eq!(filter_on_wire(filter), asked);
    }
}
