//! The state machine of a job: the one function that decides every transition.
//!
//! The table is DESIGN.md §4 with PROTOCOL.md §3; the guarded updates and the check
//! constraints hold the same rules in SQL.

use std::fmt;
use std::str::FromStr;

/// Where a job is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum JobState {
    /// Waits for a worker, or for its time.
    Pending,
    /// A worker holds its lease.
    Running,
    /// Ended well. Final.
    Success,
    /// Ended for good without success. Final but for a replay.
    Failed,
    /// Waits for its next run after a temporary error.
    Retrying,
    /// Cancelled. Final.
    Cancelled,
    /// Its lease ran out. Passed through inside one statement.
    Timeout,
}

impl JobState {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Running,
        Self::Success,
        Self::Failed,
        Self::Retrying,
        Self::Cancelled,
        Self::Timeout,
    ];

    /// The name in the database, the metrics and the documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Retrying => "retrying",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
        }
    }

    /// Whether the job has ended. A replay can leave failed all the same.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Success | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownState(text.to_owned()))
    }
}

/// A state's name that this binary does not know.
#[derive(Debug, thiserror::Error)]
#[error("unknown job state {0:?}")]
pub struct UnknownState(String);

/// What can happen to a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A worker claims the run of a message. The message names the job's present run.
    Claim,
    /// The handler succeeded.
    Succeed,
    /// The handler failed with a temporary error, or overran its time limit.
    FailTemporarily,
    /// The handler failed with a permanent error.
    FailPermanently,
    /// An outage of our own services ended the run, and patience with it is not over.
    Outage,
    /// The handler is not ready yet.
    Snooze,
    /// The worker gives the job back unfinished (an orderly stop).
    HandBack,
    /// The running handler has seen the cancel request.
    CancelSeen,
    /// The lease ran out (the sweeper's).
    LeaseExpired,
    /// The same, and the database itself had restarted during the run.
    LeaseCutOff,
    /// The time of the next run has come (the sweeper's). One whose most attempts were
    /// lowered meanwhile may have none left.
    Due,
    /// It had not started by `expires_at` (the sweeper's).
    Expired,
    /// Somebody cancels the job.
    Cancel,
    /// An operator replays its dead letter.
    Replay,
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 14] = [
        Self::Claim,
        Self::Succeed,
        Self::FailTemporarily,
        Self::FailPermanently,
        Self::Outage,
        Self::Snooze,
        Self::HandBack,
        Self::CancelSeen,
        Self::LeaseExpired,
        Self::LeaseCutOff,
        Self::Due,
        Self::Expired,
        Self::Cancel,
        Self::Replay,
    ];
}

/// What a transition depends on, beside state and event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Facts {
    /// Starts that counted, the present one included.
    pub attempt: i32,
    /// The most starts.
    pub max_attempts: i32,
    /// Leases lost in a row, before this event.
    pub lost: i16,
    /// A job that loses this many leases in a row is poison.
    pub poison_limit: i16,
    /// Whether a cancel was asked for while it ran.
    pub cancel_requested: bool,
}

impl Facts {
    const fn attempts_left(&self) -> bool {
        self.attempt < self.max_attempts
    }

    const fn is_poison_after_loss(&self) -> bool {
        self.lost + 1 >= self.poison_limit
    }

    /// The second loss in a row may be the fault of another job that was lost with this one
    /// and ran beside it: it spends no attempt. At the third one it had been alone.
    const fn loss_is_forgiven(&self) -> bool {
        self.lost == 1
    }
}

/// A transition that is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// The state after it.
    pub to: JobState,
    /// The state that it passes through and that only the history keeps.
    pub via: Option<JobState>,
    /// What is added to `run`: 1 exactly when the job becomes dispatchable again.
    pub run: i32,
    /// What is added to `attempt`.
    pub attempt: i32,
    /// What is added to `lost`.
    pub lost: i16,
}

impl Transition {
    const fn to(to: JobState) -> Self {
        Self {
            to,
            via: None,
            run: 0,
            attempt: 0,
            lost: 0,
        }
    }
}

/// Decides what an event does to a job; `None`: nothing, the event comes too late or
/// too early.
///
/// A cancel that was requested is never forgotten: success goes before it, and every other
/// end of a run is cancelled instead. A run that its handler ends clears `lost`.
#[allow(clippy::match_same_arms)] // an arm for each line of the table
pub fn transition(from: JobState, event: Event, facts: &Facts) -> Option<Transition> {
    use JobState::{Cancelled, Failed, Pending, Retrying, Running, Success, Timeout};
    let again = |to: JobState, attempt: i32| Transition {
        run: 1,
        attempt,
        ..Transition::to(to)
    };
    let ended = |next: Transition| Transition {
        lost: -facts.lost,
        ..next
    };
    let lost = |next: Transition, lost: i16| Transition {
        via: Some(Timeout),
        lost,
        ..next
    };
    let transition = match (from, event) {
        (Pending, Event::Claim) => Transition {
            attempt: 1,
            ..Transition::to(Running)
        },
        (Running, Event::Succeed) => ended(Transition::to(Success)),
        (Running, Event::LeaseExpired) if facts.cancel_requested => {
            lost(Transition::to(Cancelled), 1)
        }
        (Running, Event::LeaseCutOff) if facts.cancel_requested => {
            lost(Transition::to(Cancelled), 0)
        }
        (Running, Event::CancelSeen) if facts.cancel_requested => Transition::to(Cancelled),
        (Running, Event::CancelSeen) => return None,
        (
            Running,
            Event::FailTemporarily
            | Event::FailPermanently
            | Event::Outage
            | Event::Snooze
            | Event::HandBack,
        ) if facts.cancel_requested => Transition::to(Cancelled),
        (Running, Event::FailTemporarily) if facts.attempts_left() => ended(again(Retrying, 0)),
        (Running, Event::FailTemporarily | Event::FailPermanently) => ended(Transition::to(Failed)),
        (Running, Event::Outage) => ended(again(Retrying, -1)),
        (Running, Event::Snooze) => ended(again(Pending, -1)),
        (Running, Event::HandBack) => again(Pending, -1),
        (Running, Event::LeaseCutOff) => lost(again(Pending, -1), 0),
        (Running, Event::LeaseExpired) if facts.is_poison_after_loss() => {
            lost(Transition::to(Failed), 1)
        }
        (Running, Event::LeaseExpired) if facts.loss_is_forgiven() => lost(again(Pending, -1), 1),
        (Running, Event::LeaseExpired) if facts.attempts_left() => lost(again(Pending, 0), 1),
        (Running, Event::LeaseExpired) => lost(Transition::to(Failed), 1),
        (Pending | Retrying, Event::Due) if !facts.attempts_left() => Transition::to(Failed),
        (Retrying, Event::Due) => Transition::to(Pending),
        (Pending | Retrying, Event::Expired) => Transition::to(Failed),
        (Pending | Retrying | Timeout, Event::Cancel) => Transition::to(Cancelled),
        (Running, Event::Cancel) => Transition::to(Running),
        (Failed, Event::Replay) => Transition {
            run: 1,
            attempt: -facts.attempt,
            lost: -facts.lost,
            ..Transition::to(Pending)
        },
        _ => return None,
    };
    Some(transition)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// DESIGN.md §4 as data: which states each state can be left for.
    fn allowed(from: JobState) -> &'static [JobState] {
        use JobState::{Cancelled, Failed, Pending, Retrying, Running, Success, Timeout};
        match from {
            Pending => &[Running, Cancelled, Failed],
            Running => &[Success, Retrying, Failed, Cancelled, Pending, Running],
            Retrying => &[Pending, Cancelled, Failed],
            Timeout => &[Cancelled],
            Failed => &[Pending],
            Success | Cancelled => &[],
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn every_event_in_every_state_follows_the_table(
            state in 0usize..7, event in 0usize..14,
            max in 1i32..6, spent in 0i32..6, lost in 0i16..4, cancel: bool,
        ) {
            let (from, event) = (JobState::ALL[state], Event::ALL[event]);
            let facts = Facts {
                attempt: spent.min(max), max_attempts: max, lost, poison_limit: 3,
                cancel_requested: cancel,
            };
            let Some(t) = transition(from, event, &facts) else { return Ok(()) };
            prop_assert!(allowed(from).contains(&t.to), "{from} -> {}", t.to);
            // V6: run only grows, exactly when the job becomes dispatchable again.
            let dispatchable_again = (from == JobState::Running && matches!(t.to, JobState::Pending | JobState::Retrying))
                || event == Event::Replay;
            prop_assert_eq!(t.run, i32::from(dispatchable_again));
            // V6: a claim spends an attempt; what is not the job's fault gives it back, where the job runs again.
            let again = matches!(t.to, JobState::Pending | JobState::Retrying);
            match event {
                Event::Claim => prop_assert_eq!(t.attempt, 1),
                Event::Snooze | Event::HandBack | Event::Outage | Event::LeaseCutOff if again => prop_assert_eq!(t.attempt, -1),
                Event::LeaseExpired if again && lost == 1 => prop_assert_eq!(t.attempt, -1),
                Event::Replay => prop_assert_eq!(facts.attempt + t.attempt, 0),
                _ => prop_assert_eq!(t.attempt, 0),
            }
            // Losses in a row: counted by an expired lease alone, forgotten when a handler ends its run.
            match event {
                Event::LeaseExpired => prop_assert_eq!(t.lost, 1),
                Event::Succeed | Event::FailTemporarily | Event::FailPermanently | Event::Outage | Event::Snooze
                    if t.to != JobState::Cancelled => prop_assert_eq!(facts.lost + t.lost, 0),
                Event::Replay => prop_assert_eq!(facts.lost + t.lost, 0),
                _ => prop_assert_eq!(t.lost, 0),
            }
            // Success beats a requested cancel, and nothing else does.
            if from == JobState::Running && cancel && event != Event::Cancel {
                prop_assert_eq!(t.to, if event == Event::Succeed { JobState::Success } else { JobState::Cancelled });
            }
            // Success and cancelled are final for good.
            prop_assert!(!matches!(from, JobState::Success | JobState::Cancelled));
        }
    }

    #[test]
    fn every_line_of_the_table_is_reachable() {
        let mut seen = std::collections::BTreeSet::new();
        for from in JobState::ALL {
            for event in Event::ALL {
                for (attempt, cancel_requested) in [(1, false), (3, false), (1, true)] {
                    let facts = Facts {
                        attempt,
                        max_attempts: 3,
                        lost: 0,
                        poison_limit: 3,
                        cancel_requested,
                    };
                    if let Some(t) = transition(from, event, &facts) {
                        seen.insert((from, t.to));
                    }
                }
            }
        }
        for from in JobState::ALL {
            for to in allowed(from) {
                assert!(seen.contains(&(from, *to)), "{from} -> {to} is never taken");
            }
        }
    }

    #[test]
    fn names_round_trip() {
        for state in JobState::ALL {
            assert_eq!(state.as_str().parse::<JobState>().ok(), Some(state));
        }
        assert!("unknown".parse::<JobState>().is_err());
    }

    #[test]
    fn what_no_claim_may_take_does_not_wait_for_one() {
        let facts = |attempt| Facts {
            attempt,
            max_attempts: 2,
            ..Facts::default()
        };
        let due = |from, attempt| transition(from, Event::Due, &facts(attempt)).map(|t| t.to);
        assert_eq!(due(JobState::Retrying, 1), Some(JobState::Pending));
        assert_eq!(due(JobState::Retrying, 2), Some(JobState::Failed));
        assert_eq!(due(JobState::Pending, 2), Some(JobState::Failed));
        assert_eq!(due(JobState::Pending, 1), None);
    }

    #[test]
    fn poison_is_told_from_an_ordinary_loss() {
        let facts = |lost| Facts {
            attempt: 1,
            max_attempts: 9,
            lost,
            poison_limit: 3,
            cancel_requested: false,
        };
        let after =
            |lost| transition(JobState::Running, Event::LeaseExpired, &facts(lost)).map(|t| t.to);
        assert_eq!(after(0), Some(JobState::Pending));
        assert_eq!(after(1), Some(JobState::Pending));
        assert_eq!(after(2), Some(JobState::Failed));
    }

    #[test]
    fn an_aborter_is_poison_after_three_losses_and_whoever_ran_beside_it_loses_one_attempt() {
        // Two attempts are enough for an innocent that is lost twice and then succeeds.
        let (mut attempt, mut lost) = (0, 0);
        for (loss, expected) in [(1, (1, 1)), (2, (1, 2))] {
            attempt += 1;
            let facts = Facts {
                attempt,
                max_attempts: 2,
                lost,
                poison_limit: 3,
                cancel_requested: false,
            };
            let t = transition(JobState::Running, Event::LeaseExpired, &facts).expect("taken back");
            (attempt, lost) = (attempt + t.attempt, lost + t.lost);
            assert_eq!(t.to, JobState::Pending, "loss {loss}");
            assert_eq!((attempt, lost), expected, "loss {loss}");
        }
        let facts = Facts {
            attempt: attempt + 1,
            max_attempts: 2,
            lost,
            poison_limit: 3,
            cancel_requested: false,
        };
        let innocent = transition(JobState::Running, Event::Succeed, &facts).expect("ends");
        assert_eq!((innocent.to, lost + innocent.lost), (JobState::Success, 0));
        let aborter = transition(JobState::Running, Event::LeaseExpired, &facts).expect("ends");
        assert_eq!((aborter.to, aborter.attempt), (JobState::Failed, 0));
    }

    #[test]
    fn the_diagram_in_the_documents_is_the_code() {
        let text = include_str!("../../../../docs/STATE_MACHINE.md");
        let drawn: std::collections::BTreeSet<(JobState, JobState)> = text
            .lines()
            .filter_map(|line| line.trim().split_once(" --> "))
            .filter_map(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)))
            .collect();
        let coded: std::collections::BTreeSet<(JobState, JobState)> = JobState::ALL
            .into_iter()
            .flat_map(|from| allowed(from).iter().map(move |to| (from, *to)))
            // A cancel of a running job leaves it running, with the request noted.
            .filter(|(from, to)| from != to)
            .collect();
        assert_eq!(drawn, coded);
    }
}
