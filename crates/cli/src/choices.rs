//! The values that some arguments choose from.

use clap::ValueEnum;
use tenure_proto::v1::list_dead_letter_causes_request::Order as CauseOrder;
use tenure_proto::v1::{
    DeadLetterOutcome, DeadLetterStatus, ErrorClass, JobState, Lane, OrderingPolicy,
};

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

/// What the failure of a job does to those behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderingArg {
    /// They go on.
    Continue,
    /// They wait until it was replayed, or its dead letter is closed.
    Block,
}

impl From<OrderingArg> for OrderingPolicy {
    fn from(policy: OrderingArg) -> Self {
        match policy {
            OrderingArg::Continue => Self::Continue,
            OrderingArg::Block => Self::Block,
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

/// A state out of which a job can be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveStateArg {
    /// Waits for a worker, or for its time.
    Pending,
    /// Runs.
    Running,
    /// Waits for its next run after an error.
    Retrying,
}

impl LiveStateArg {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Retrying => "retrying",
        }
    }
}

impl From<LiveStateArg> for JobState {
    fn from(state: LiveStateArg) -> Self {
        match state {
            LiveStateArg::Pending => Self::Pending,
            LiveStateArg::Running => Self::Running,
            LiveStateArg::Retrying => Self::Retrying,
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
    /// Whatever its status is.
    Any,
}

impl StatusArg {
    /// The status to filter by; none: all.
    pub(crate) fn status(self) -> Option<DeadLetterStatus> {
        match self {
            Self::Open => Some(DeadLetterStatus::Open),
            Self::Ignored => Some(DeadLetterStatus::Ignored),
            Self::Replayed => Some(DeadLetterStatus::Replayed),
            Self::Resolved => Some(DeadLetterStatus::Resolved),
            Self::Any => None,
        }
    }
}

/// A class of error to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassArg {
    /// A retry could have helped.
    Temporary,
    /// No retry with the same input helps.
    Permanent,
}

impl From<ClassArg> for ErrorClass {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::Temporary => Self::Temporary,
            ClassArg::Permanent => Self::Permanent,
        }
    }
}

/// The order of causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CauseOrderArg {
    /// Most open letters first.
    Open,
    /// The latest failure first.
    Latest,
    /// The latest new cause first.
    Newest,
}

impl From<CauseOrderArg> for CauseOrder {
    fn from(order: CauseOrderArg) -> Self {
        match order {
            CauseOrderArg::Open => Self::Open,
            CauseOrderArg::Latest => Self::LatestFirst,
            CauseOrderArg::Newest => Self::NewestFirst,
        }
    }
}

/// What became of a letter, to filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutcomeArg {
    /// Replayed.
    Done,
    /// Someone else had dealt with it.
    AlreadyDone,
    /// Another job of the user has its dedupe key.
    KeyTaken,
    /// It cannot be replayed.
    NotReplayable,
    /// It changed meanwhile.
    Changed,
}

impl From<OutcomeArg> for DeadLetterOutcome {
    fn from(outcome: OutcomeArg) -> Self {
        match outcome {
            OutcomeArg::Done => Self::Done,
            OutcomeArg::AlreadyDone => Self::AlreadyDone,
            OutcomeArg::KeyTaken => Self::KeyTaken,
            OutcomeArg::NotReplayable => Self::NotReplayable,
            OutcomeArg::Changed => Self::Changed,
        }
    }
}
