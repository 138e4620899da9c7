//! The arguments of `tenure dead-letters`.

use clap::{Args, Subcommand};

use super::Paging;
use crate::choices::{CauseOrderArg, ClassArg, OutcomeArg, StatusArg};
use crate::values::{Past, given, parse_past};

/// `tenure dead-letters`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterVerb {
    /// Lists dead letters, the latest failure first; open ones where no status
    /// is given.
    List(Box<DeadLetterListArgs>),
    /// Lists the causes: letters with the same queue, job type, code and message
    /// (its numbers and ids left out), with counts.
    #[command(visible_alias = "groups")]
    Causes(CausesArgs),
    /// Shows a dead letter: its original message, what was done about it, and
    /// the runs of its job.
    Show {
        /// The letter's id, or its job's.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Runs the jobs of these letters again.
    Replay(DecideArgs),
    /// Sets open letters aside.
    Ignore(DecideArgs),
    /// Notes that open or ignored letters are dealt with.
    Resolve(DecideArgs),
    /// Opens ignored or resolved letters again.
    Reopen(DecideArgs),
    /// Replays every open letter that matches; without `--yes` it only tells
    /// what it would replay. It goes on by itself once it has begun.
    BulkReplay(Box<BulkReplayArgs>),
    /// Shows the bulk replays, and steers them.
    Operations {
        /// What to do.
        #[command(subcommand)]
        verb: OperationVerb,
    },
}

/// Which letters; everything that is given must match.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "letters", multiple = true)]
pub(crate) struct LetterFilter {
    /// From this queue.
    #[arg(long, value_name = "QUEUE", value_parser = given)]
    pub(crate) queue: Option<String>,
    /// Of this job type.
    #[arg(long = "type", value_name = "TYPE", value_parser = given)]
    pub(crate) job_type: Option<String>,
    /// Of this user.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
    /// With this error code.
    #[arg(long, value_name = "CODE", value_parser = given)]
    pub(crate) code: Option<String>,
    /// With this class of error.
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<ClassArg>,
    /// With this cause; `tenure dead-letters causes` lists them.
    #[arg(long, value_name = "CAUSE", value_parser = given)]
    pub(crate) cause: Option<String>,
    /// Failed last at this time or later: 2030-01-31T08:00:00Z, or 2h for two
    /// hours ago.
    #[arg(long, value_name = "TIME|AGO", value_parser = parse_past)]
    pub(crate) from: Option<Past>,
    /// Failed last before this time.
    #[arg(long, value_name = "TIME|AGO", value_parser = parse_past)]
    pub(crate) before: Option<Past>,
    /// With this text in the error's message, whatever the case. No character
    /// has a special meaning.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) text: Option<String>,
}

/// `tenure dead-letters list`.
#[derive(Debug, Args)]
pub(crate) struct DeadLetterListArgs {
    /// With this status; may be repeated.
    #[arg(
        long = "status",
        value_name = "STATUS",
        value_delimiter = ',',
        default_value = "open"
    )]
    pub(crate) statuses: Vec<StatusArg>,
    /// Which letters.
    #[command(flatten)]
    pub(crate) filter: LetterFilter,
    /// The oldest last failure first.
    #[arg(long)]
    pub(crate) oldest_first: bool,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure dead-letters causes`.
#[derive(Debug, Args)]
pub(crate) struct CausesArgs {
    /// From this queue.
    #[arg(long, value_name = "QUEUE", value_parser = given)]
    pub(crate) queue: Option<String>,
    /// Of this job type.
    #[arg(long = "type", value_name = "TYPE", value_parser = given)]
    pub(crate) job_type: Option<String>,
    /// With this error code.
    #[arg(long, value_name = "CODE", value_parser = given)]
    pub(crate) code: Option<String>,
    /// Also causes without an open letter.
    #[arg(long)]
    pub(crate) closed: bool,
    /// The order.
    #[arg(long, value_name = "ORDER", default_value = "open")]
    pub(crate) order: CauseOrderArg,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure dead-letters replay`, `ignore`, `resolve` and `reopen`.
#[derive(Debug, Args)]
pub(crate) struct DecideArgs {
    /// The ids of the letters, or of their jobs; `-` reads them from standard
    /// input.
    #[arg(value_name = "ID|-", required = true)]
    pub(crate) ids: Vec<String>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) reason: String,
}

/// `tenure dead-letters bulk-replay`.
#[derive(Debug, Args)]
pub(crate) struct BulkReplayArgs {
    /// Which letters.
    #[command(flatten)]
    pub(crate) filter: LetterFilter,
    /// Every open letter, instead of a filter; one of the two is needed.
    #[arg(long, conflicts_with = "letters")]
    pub(crate) all: bool,
    /// Begin it.
    #[arg(long, requires = "reason")]
    pub(crate) yes: bool,
    /// The most letters a second; 50 otherwise.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=5000))]
    pub(crate) rate: Option<i32>,
    /// Why, for the record. `--yes` needs it.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) reason: Option<String>,
    /// Makes it safe to send this again; made up otherwise.
    #[arg(long, value_name = "ID", requires = "yes")]
    pub(crate) request_id: Option<String>,
    /// Follow it until it ends.
    #[arg(long, requires = "yes")]
    pub(crate) wait: bool,
}

/// `tenure dead-letters operations`.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationVerb {
    /// Lists the bulk replays, the newest first.
    List(Paging),
    /// Shows a bulk replay and how far it is.
    Show {
        /// The bulk replay's id.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Follows a bulk replay until it ends.
    Watch {
        /// The bulk replay's id.
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Lists what became of each letter that it has come to.
    Outcomes(OutcomesArgs),
    /// Halts a bulk replay.
    Pause(SteerArgs),
    /// Lets a halted bulk replay go on.
    Resume(ResumeArgs),
    /// Ends a bulk replay. What it has replayed stays replayed.
    Cancel(SteerArgs),
    /// Changes the rate of a bulk replay.
    SetRate(SetRateArgs),
}

/// `tenure dead-letters operations outcomes`.
#[derive(Debug, Args)]
pub(crate) struct OutcomesArgs {
    /// The bulk replay's id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Only this outcome.
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<OutcomeArg>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure dead-letters operations pause` and `cancel`.
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// The bulk replay's id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) reason: String,
}

/// `tenure dead-letters operations resume`.
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The bulk replay's id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The most letters a second; as before otherwise.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=5000))]
    pub(crate) rate: Option<i32>,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) reason: String,
}

/// `tenure dead-letters operations set-rate`.
#[derive(Debug, Args)]
pub(crate) struct SetRateArgs {
    /// The bulk replay's id.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The most letters a second.
    #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(1..=5000))]
    pub(crate) rate: i32,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", value_parser = given)]
    pub(crate) reason: String,
}
