//! The values that some arguments choose from.

use clap::ValueEnum;
use tenure_proto::v1::{DeadLetterStatus, JobState, Lane};

/// A lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaneArg {
    /// Ahead of the others.
    High,
    /// The ordinary lane.
    Normal,
    /// Behind the others.
    Low,
}

impl From<LaneArg> for Lane {
    fn from(lane: LaneArg) -> Self {
        match lane {
            LaneArg::High => Self::High,
            LaneArg::Normal => Self::Normal,
            LaneArg::Low => Self::Low,
        }
    }
}

/// A state to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateArg {
    /// Waits for a worker, or for its time.
    Pending,
    /// Runs.
    Running,
    /// Ended well.
    Success,
    /// Ended without success.
    Failed,
    /// Waits for its next run after an error.
    Retrying,
    /// Cancelled.
    Cancelled,
}

impl From<StateArg> for JobState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Pending => Self::Pending,
            StateArg::Running => Self::Running,
            StateArg::Success => Self::Success,
            StateArg::Failed => Self::Failed,
            StateArg::Retrying => Self::Retrying,
            StateArg::Cancelled => Self::Cancelled,
        }
    }
}

/// A file's kind to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// What a user uploaded.
    Upload,
    /// The report of a job.
    Report,
    /// The rejected rows of an import.
    Rejects,
}

impl KindArg {
    /// The service's name for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Report => "report",
            Self::Rejects => "rejects",
        }
    }
}

/// A dead letter's status to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusArg {
    /// Nobody has dealt with it.
    Open,
    /// Set aside.
    Ignored,
    /// Its job runs, or ran, again.
    Replayed,
    /// Dealt with.
    Resolved,
}

impl From<StatusArg> for DeadLetterStatus {
    fn from(status: StatusArg) -> Self {
        match status {
            StatusArg::Open => Self::Open,
            StatusArg::Ignored => Self::Ignored,
            StatusArg::Replayed => Self::Replayed,
            StatusArg::Resolved => Self::Resolved,
        }
    }
}
