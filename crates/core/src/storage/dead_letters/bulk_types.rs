//! What a bulk replay is, and how it may change.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{DeadLetterFilter, DeadLetterStatus, Decision, LetterResult, Outcome};
use crate::domain::ids::JobId;
use crate::error::{Code, Error, Result};

/// The most letters a second.
pub const MAX_RATE: i32 = 5_000;

/// How a bulk replay stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BulkState {
    /// It replays.
    Running,
    /// An operator has halted it.
    Paused,
    /// It came to its end.
    Done,
    /// An operator has ended it.
    Cancelled,
}

impl BulkState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Done, Self::Cancelled];

    /// The stored spelling.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    pub(super) fn of_row(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| Error::new(Code::Internal, "a bulk replay has an unknown state"))
    }
}

/// A bulk replay that is asked for.
#[derive(Clone, Debug)]
pub struct NewBulkReplay {
    /// Which letters; only open ones are taken, whatever its statuses say.
    pub filter: DeadLetterFilter,
    /// The most letters a second, 1 to [`MAX_RATE`].
    pub rate: i32,
    /// Who asks for it, and why.
    pub decision: Decision,
    /// Makes the call safe to repeat.
    pub request_id: Option<String>,
}

/// What a bulk replay has come to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BulkCounts {
    /// Letters that it has come to.
    pub examined: i64,
    /// Of these: replayed.
    pub replayed: i64,
    /// Dealt with by someone else meanwhile.
    pub already_done: i64,
    /// Whose dedupe key another job has.
    pub key_taken: i64,
    /// Not replayable.
    pub not_replayable: i64,
    /// Changed meanwhile.
    pub changed: i64,
}

/// A replay of every letter that matched a filter at its start.
#[derive(Clone, PartialEq, Debug)]
pub struct BulkReplay {
    /// Its id.
    pub id: Uuid,
    /// How it stands.
    pub state: BulkState,
    /// Which letters.
    pub filter: DeadLetterFilter,
    /// The most letters a second.
    pub rate: i32,
    /// Why.
    pub reason: String,
    /// Who began it.
    pub actor: String,
    /// When it was begun: letters that failed later are not taken.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it moved last.
    pub progress_at: Option<DateTime<Utc>>,
    /// Letters that matched at its start, up to the cap of the preview.
    pub matching: i64,
    /// What it has come to.
    pub counts: BulkCounts,
}

/// How a bulk replay is steered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkChange {
    /// Halt it.
    Pause,
    /// Let it go on, at another rate where one is given.
    Resume(Option<i32>),
    /// End it.
    Cancel,
    /// Another rate.
    SetRate(i32),
}

/// What a change makes of a bulk replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkControl {
    /// The name in the audit.
    pub action: &'static str,
    /// The state after it.
    pub state: BulkState,
    /// The rate after it.
    pub rate: i32,
}

impl BulkChange {
    /// What it makes of one that stands so; `None`: it has ended, and does not change.
    pub fn of(self, state: BulkState, rate: i32) -> Option<BulkControl> {
        if matches!(state, BulkState::Done | BulkState::Cancelled) {
            return None;
        }
        let (action, state, rate) = match self {
            Self::Pause => ("pause", BulkState::Paused, rate),
            Self::Resume(new) => ("resume", BulkState::Running, new.unwrap_or(rate)),
            Self::Cancel => ("cancel", BulkState::Cancelled, rate),
            Self::SetRate(new) => ("set_rate", state, new),
        };
        Some(BulkControl {
            action,
            state,
            rate,
        })
    }
}

/// Something that was done to a bulk replay.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub struct BulkAction {
    /// Its id.
    #[sqlx(rename = "action_id")]
    pub id: Uuid,
    /// `start`, `pause`, `resume`, `cancel` or `set_rate`.
    pub action: String,
    /// When.
    pub at: DateTime<Utc>,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The rate after it.
    pub rate: i32,
    /// The state before; empty: there was none.
    #[sqlx(rename = "state_before")]
    pub before: String,
    /// The state after.
    #[sqlx(rename = "state_after")]
    pub after: String,
}

/// The outcome of a letter that a bulk replay has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkOutcome {
    /// Its place, from 1 on.
    pub position: i64,
    /// What became of it.
    pub result: LetterResult,
}

#[derive(sqlx::FromRow)]
pub(super) struct BulkRow {
    bulk_replay_id: Uuid,
    state: String,
    filter: Json<DeadLetterFilter>,
    rate: i32,
    reason: String,
    actor: String,
    started_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    progress_at: Option<DateTime<Utc>>,
    matching: i64,
    #[sqlx(flatten)]
    counts: CountsRow,
}

#[derive(sqlx::FromRow)]
struct CountsRow {
    examined: i64,
    replayed: i64,
    already_done: i64,
    key_taken: i64,
    not_replayable: i64,
    changed: i64,
}

impl BulkRow {
    pub(super) fn into_bulk(self) -> Result<BulkReplay> {
        Ok(BulkReplay {
            id: self.bulk_replay_id,
            state: BulkState::of_row(&self.state)?,
            filter: self.filter.0,
            rate: self.rate,
            reason: self.reason,
            actor: self.actor,
            started_at: self.started_at,
            ended_at: self.ended_at,
            progress_at: self.progress_at,
            matching: self.matching,
            counts: BulkCounts {
                examined: self.counts.examined,
                replayed: self.counts.replayed,
                already_done: self.counts.already_done,
                key_taken: self.counts.key_taken,
                not_replayable: self.counts.not_replayable,
                changed: self.counts.changed,
            },
        })
    }
}

#[derive(sqlx::FromRow)]
pub(super) struct OutcomeRow {
    pub(super) position: i64,
    letter_id: Uuid,
    job_id: Option<Uuid>,
    outcome: String,
    replay_id: Option<Uuid>,
    message: String,
    status: Option<String>,
}

impl OutcomeRow {
    pub(super) fn into_outcome(self) -> Result<BulkOutcome> {
        let outcome = Outcome::parse(&self.outcome)
            .ok_or_else(|| Error::new(Code::Internal, "a letter has an unknown outcome"))?;
        Ok(BulkOutcome {
            position: self.position,
            result: LetterResult {
                id: self.letter_id,
                outcome,
                status: self
                    .status
                    .as_deref()
                    .map(DeadLetterStatus::of_row)
                    .transpose()?,
                job_id: self.job_id.map(JobId),
                replay_id: self.replay_id,
                message: self.message,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_does_not_change() {
        let changes = [
            BulkChange::Pause,
            BulkChange::Resume(None),
            BulkChange::Cancel,
            BulkChange::SetRate(9),
        ];
        for state in BulkState::ALL {
            assert_eq!(BulkState::of_row(state.as_str()).ok(), Some(state));
            for change in changes {
                let after = change.of(state, 5);
                let ended = matches!(state, BulkState::Done | BulkState::Cancelled);
                assert_eq!(after.is_none(), ended, "{change:?} of {state:?}");
            }
        }
    }

    #[test]
    fn only_a_rate_changes_the_rate() {
        use BulkState::{Cancelled, Paused, Running};
        let of = |change: BulkChange, state| {
            let control = change.of(state, 5).expect("allowed");
            (control.state, control.rate)
        };
        assert_eq!(of(BulkChange::Pause, Running), (Paused, 5));
        assert_eq!(of(BulkChange::Resume(None), Paused), (Running, 5));
        assert_eq!(of(BulkChange::Resume(Some(7)), Paused), (Running, 7));
        assert_eq!(of(BulkChange::SetRate(7), Paused), (Paused, 7));
        assert_eq!(of(BulkChange::Cancel, Paused), (Cancelled, 5));
    }
}
