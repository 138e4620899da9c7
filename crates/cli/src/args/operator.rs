//! The arguments of the operators' verbs.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};

use super::positive_duration;
use crate::values::{When, parse_when};

/// `tenure retry-now`.
#[derive(Debug, Args)]
pub(crate) struct RetryNowArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `tenure reschedule`.
#[derive(Debug, Args)]
pub(crate) struct RescheduleArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
    /// The earliest start: a time like 2030-01-31T08:00:00Z, or +10m from now.
    #[arg(
        long,
        value_name = "TIME|+DURATION",
        value_parser = parse_when,
        required_unless_present = "wait",
        conflicts_with = "wait"
    )]
    pub(crate) at: Option<When>,
    /// The earliest start, from now.
    #[arg(long = "in", value_name = "DURATION", value_parser = positive_duration)]
    pub(crate) wait: Option<Duration>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `tenure set-attempts`.
#[derive(Debug, Args)]
pub(crate) struct SetAttemptsArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
    /// The most starts, and not fewer than it has had.
    #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub(crate) max_attempts: i32,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `tenure queues`.
#[derive(Debug, Subcommand)]
pub(crate) enum QueuesVerb {
    /// Lists the queues with their lanes, and says which are paused and why.
    List,
    /// Keeps the jobs of a queue from starting, until it is resumed.
    ///
    /// Jobs that run go on, and new ones are accepted and wait. Whoever waits
    /// reads the reason. A paused queue gets the new reason.
    Pause(PauseQueueArgs),
    /// Lets the jobs of a paused queue start again.
    ///
    /// A pause by the system ends by itself, when its cause has gone.
    Resume(ResumeQueueArgs),
}

/// `tenure queues pause`.
#[derive(Debug, Args)]
pub(crate) struct PauseQueueArgs {
    /// The queue.
    #[arg(value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) queue: String,
    /// Why: for the record, and for those who wait.
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) reason: String,
}

/// `tenure queues resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeQueueArgs {
    /// The queue.
    #[arg(value_name = "QUEUE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) queue: String,
}

/// `tenure types`.
#[derive(Debug, Subcommand)]
pub(crate) enum TypesVerb {
    /// Lists the job types.
    List,
    /// Creates or replaces job types from a TOML file, all or none. For
    /// operators.
    Apply(ApplyArgs),
}

/// `tenure types apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The file, with one `[[job_type]]` table for each type.
    #[arg(value_name = "FILE.toml")]
    pub(crate) file: PathBuf,
    /// Only check, and tell what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
