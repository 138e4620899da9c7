//! The arguments of the verbs about jobs.

use std::time::Duration;

use clap::{Args, ValueEnum};
use tenure_proto::v1;

use super::{Paging, positive_duration};
use crate::choices::{LaneArg, LiveStateArg, OrderingArg, StateArg};
use crate::values::{When, given, parse_label, parse_when};

/// `tenure submit`.
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// The job type's name; `tenure types` lists them.
    #[arg(value_name = "TYPE")]
    pub(crate) job_type: String,
    /// A JSON object; `@FILE` reads it from a file, `-` from standard input.
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    pub(crate) payload: String,
    /// One job per user, type and key: a second submit answers with the first
    /// job.
    #[arg(long, value_name = "KEY")]
    pub(crate) dedupe_key: Option<String>,
    /// Makes it safe to send this submit again; made up otherwise.
    #[arg(long, value_name = "ID")]
    pub(crate) request_id: Option<String>,
    /// The lane; the job type's otherwise.
    #[arg(long, value_name = "LANE")]
    pub(crate) lane: Option<LaneArg>,
    /// The earliest start: a time like 2030-01-31T08:00:00Z, or +10m from now.
    #[arg(long, value_name = "TIME|+DURATION", value_parser = parse_when)]
    pub(crate) run_at: Option<When>,
    /// Fail the job where it has not started by then.
    #[arg(long, value_name = "TIME|+DURATION", value_parser = parse_when)]
    pub(crate) expires_at: Option<When>,
    /// The most starts; the job type's otherwise.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub(crate) max_attempts: Option<i32>,
    /// The time limit of one run; the job type's otherwise.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub(crate) timeout: Option<Duration>,
    /// A label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Jobs of one queue with the same key run one after the other, in the order of their
    /// submits.
    #[arg(long, value_name = "KEY", conflicts_with = "concurrency_key")]
    pub(crate) ordering_key: Option<String>,
    /// What a failure of this job does to those behind it; the job type's otherwise.
    #[arg(long, value_name = "POLICY", requires = "ordering_key")]
    pub(crate) on_failure: Option<OrderingArg>,
    /// Of the jobs of one queue with the same key only so many run at once.
    #[arg(long, value_name = "KEY")]
    pub(crate) concurrency_key: Option<String>,
    /// How many; the job type's otherwise.
    #[arg(long, value_name = "N", requires = "concurrency_key", value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(crate) max_concurrency: Option<i32>,
    /// The user whom the job is for. Needs the role `service`.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) for_user: Option<String>,
    /// Follow the job until it ends.
    #[arg(long)]
    pub(crate) wait: bool,
    /// The longest wait; without it: until the job ends.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = positive_duration)]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `tenure get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
}

/// `tenure list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Which jobs.
    #[command(flatten)]
    pub(crate) filter: JobFilter<StateArg>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
}

/// `tenure watch`.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
    /// The longest wait; without it: until the job ends.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    pub(crate) wait_timeout: Option<Duration>,
}

/// `tenure cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// The job's id. Without it: all jobs that the filters match.
    #[arg(
        value_name = "JOB",
        required_unless_present = "filters",
        conflicts_with = "filters"
    )]
    pub(crate) job_id: Option<String>,
    /// Which jobs.
    #[command(flatten)]
    pub(crate) filter: JobFilter<LiveStateArg>,
    /// With filters: the jobs of all users, with `TENURE_OPERATOR_TOKEN` where it
    /// is set.
    #[arg(long, requires = "filters", conflicts_with_all = ["job_id", "user"])]
    pub(crate) all_users: bool,
    /// With filters: cancel them. Otherwise they are only counted.
    #[arg(long, conflicts_with = "job_id")]
    pub(crate) yes: bool,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// The jobs that a verb is about, in the states that it knows.
#[derive(Debug, Clone, Args)]
#[group(id = "filters", multiple = true)]
pub(crate) struct JobFilter<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Jobs in this state; may be repeated.
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',')]
    pub(crate) states: Vec<S>,
    /// Jobs of this job type.
    #[arg(long = "type", value_name = "TYPE", value_parser = given)]
    pub(crate) job_type: Option<String>,
    /// Jobs in this queue.
    #[arg(long, value_name = "QUEUE", value_parser = given)]
    pub(crate) queue: Option<String>,
    /// Jobs of this user. Other users' jobs are for operators and services.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
    /// Jobs with this label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
}

impl<S: ValueEnum + Copy + Send + Sync + Into<v1::JobState> + 'static> JobFilter<S> {
    /// The states, as they are sent.
    pub(crate) fn states(&self) -> Vec<i32> {
        let states = self.states.iter().map(|state| (*state).into());
        states.map(|state: v1::JobState| state.into()).collect()
    }
}
