//! The arguments, and the help that `docs/CLI.md` repeats.

mod datasets;
mod dead_letters;
mod files;
mod import;
mod jobs;
mod limits;
mod notifications;
mod operator;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::datasets::{
    DatasetListArgs, DatasetRemoveArgs, DatasetsArgs, DatasetsVerb, RowsArgs,
};
pub(crate) use self::dead_letters::{
    BulkReplayArgs, CausesArgs, DeadLetterListArgs, DeadLetterVerb, DecideArgs, LetterFilter,
    OperationVerb, OutcomesArgs,
};
pub(crate) use self::files::{FileListArgs, FilesVerb};
pub(crate) use self::import::{ImportArgs, Limit};
pub(crate) use self::jobs::{
    CancelArgs, ExplainArgs, GetArgs, JobFilter, ListArgs, SubmitArgs, WatchArgs,
};
pub(crate) use self::limits::{LimitListArgs, LimitSetArgs, LimitUserArgs, LimitVerb, Setting};
pub(crate) use self::notifications::{
    NotificationListArgs, NotificationReadArgs, NotificationVerb,
};
pub(crate) use self::operator::{
    ApplyArgs, PauseQueueArgs, QueuesVerb, RescheduleArgs, ResumeQueueArgs, RetryNowArgs,
    SetAttemptsArgs, TypesVerb,
};
use crate::output::Format;
use crate::token::Role;
use crate::values::parse_duration;

const EXIT_CODES: &str = "\
Exit codes:
  0    it worked
  1    the call failed, or something on this side did
  2    the command line or an input file is wrong; nothing was sent
  3    the job that was waited for ended failed
  4    the job, or the bulk replay, that was waited for was cancelled
  5    not found
  6    refused for now (too much load, not reachable, out of time): try again later
  7    not signed in, or not allowed
  130  interrupted by Ctrl-C; what was waited for goes on

Durations are written like 500ms, 30s, 10m, 1h30m, 7d.";

/// Submits jobs to Tenure, follows and explains them, and handles what failed.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_long_help = EXIT_CODES,
    after_help = "`tenure --help` lists the exit codes."
)]
pub(crate) struct Cli {
    /// What every verb takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The options of every verb.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// How to print: a table for people, or one JSON document for programs.
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub(crate) output: Format,
    /// The address of the gateway.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TENURE_GATEWAY",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7400"
    )]
    pub(crate) gateway: String,
    /// The address of the dead-letter admin.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "TENURE_DEAD_LETTER_ADMIN",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7401"
    )]
    pub(crate) dead_letter_admin: String,
    /// The bearer token. The operators' verbs and `explain` take
    /// `TENURE_OPERATOR_TOKEN` from the environment where it is set and neither
    /// this nor `--token-file` is given.
    #[arg(
        long,
        global = true,
        value_name = "TOKEN",
        env = "TENURE_TOKEN",
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,
    /// A file with the bearer token.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// How long one call may take; a transfer: how long it may stand still.
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = positive_duration)]
    pub(crate) call_timeout: Duration,
    /// PEM certificates to trust for https. The system's are trusted otherwise.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Makes a bearer token, signed with `TENURE_JWT_SECRET` or the content of
    /// the file that `TENURE_JWT_SECRET_FILE` names, and prints nothing else.
    Token(TokenArgs),
    /// Uploads a file, and shows what is stored; with `-q` prints its id only.
    Upload(UploadArgs),
    /// Submits a job. Safe against a lost answer: it is sent again with the
    /// same request id.
    Submit(SubmitArgs),
    /// Imports a CSV file: uploads it, submits `import_csv`, shows the progress
    /// and sums up.
    Import(Box<ImportArgs>),
    /// Lists the data sets that imports have filled, or removes one.
    Datasets(DatasetsArgs),
    /// Lists the rows of a data set.
    ///
    /// Columns stand in the order of their names. A cell is empty where there is
    /// no value (null); an empty text is shown as `""`. Where rows of several
    /// imports are listed, IMPORT is the job that brought each one. Long values
    /// are cut; `-o json` has them whole.
    Rows(RowsArgs),
    /// Shows a job.
    Get(GetArgs),
    /// Lists jobs, newest first.
    List(ListArgs),
    /// Says why a job waits or failed, what can be done about it, and what
    /// happened to it so far.
    Explain(ExplainArgs),
    /// Follows a job until it ends.
    Watch(WatchArgs),
    /// Cancels a job, or all jobs that have not ended and that the filters match.
    Cancel(CancelArgs),
    /// Makes a job that waits for a later time due now. For operators.
    RetryNow(RetryNowArgs),
    /// Sets the time before which a waiting job does not start. For operators.
    Reschedule(RescheduleArgs),
    /// Sets the most starts of a job that has not ended. For operators.
    SetAttempts(SetAttemptsArgs),
    /// Downloads a file: an upload, or the report of an import. The file
    /// appears under its name only when it is complete and its checksum is
    /// right.
    Download(DownloadArgs),
    /// Lists, shows and removes stored files: uploads, reports, rejected rows.
    Files {
        /// What to do.
        #[command(subcommand)]
        verb: FilesVerb,
    },
    /// Shows how full the queues are, or pauses one and resumes it. For operators.
    Queues {
        /// Without one: list.
        #[command(subcommand)]
        verb: Option<QueuesVerb>,
    },
    /// Shows the workers that were heard of lately. For operators.
    Workers,
    /// Shows and sets what single users may do: how many jobs, how many submits
    /// in a second, which share of a backlog. For operators.
    Limits {
        /// What to do.
        #[command(subcommand)]
        verb: LimitVerb,
    },
    /// Lists the job types, or applies a file of them.
    Types {
        /// Without one: list.
        #[command(subcommand)]
        verb: Option<TypesVerb>,
    },
    /// Shows the notifications of your inbox, or marks them as read.
    Notifications {
        /// What to do.
        #[command(subcommand)]
        verb: NotificationVerb,
    },
    /// Shows the jobs that failed for good and the messages that could not be
    /// read, and replays, ignores or resolves them. For operators.
    DeadLetters {
        /// What to do.
        #[command(subcommand)]
        verb: DeadLetterVerb,
    },
}

/// `tenure token`.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The user whom the token names.
    #[arg(long, value_name = "USER")]
    pub(crate) user: String,
    /// A role; may be repeated.
    #[arg(
        long = "role",
        value_name = "ROLE",
        required = true,
        value_delimiter = ','
    )]
    pub(crate) roles: Vec<Role>,
    /// For how long the token is valid. Since clocks differ the services take it
    /// for `auth.leeway` longer, which is 10 s unless they are set up otherwise.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = positive_duration)]
    pub(crate) expires: Duration,
    /// A file with the secret; goes before the environment.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// The issuer that the services expect.
    #[arg(long, value_name = "NAME", default_value = "tenure")]
    pub(crate) issuer: String,
    /// The audience that the services expect.
    #[arg(long, value_name = "NAME", default_value = "tenure")]
    pub(crate) audience: String,
}

/// `tenure upload`.
#[derive(Debug, Args)]
pub(crate) struct UploadArgs {
    /// The file; `-` takes standard input, up to 1 GiB, which is kept in a
    /// temporary file until it is sent.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the id and nothing else, whatever the format.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// A name for people; the file's own otherwise.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The media type; guessed from the name's ending otherwise.
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// The user whom the file is for. Needs the role `service`.
    #[arg(long, value_name = "USER")]
    pub(crate) for_user: Option<String>,
}

/// How many to list.
#[derive(Debug, Args)]
pub(crate) struct Paging {
    /// The most to list.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// List all of them.
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
    /// Go on where an earlier list with the same filters and limit stopped.
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,
}

/// `tenure download`.
#[derive(Debug, Args)]
pub(crate) struct DownloadArgs {
    /// The file's id.
    #[arg(value_name = "FILE_ID")]
    pub(crate) file_id: String,
    /// Where to put it: a file, which is replaced where it is there, a folder, or
    /// `-` for standard output. Without it: here, under the file's own name. Under
    /// its own name nothing is replaced.
    #[arg(short = 'O', long = "out", value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_duration_is_refused() {
        assert!(positive_duration("0s").is_err());
        assert_eq!(positive_duration("2m"), Ok(Duration::from_mins(2)));
    }
}
