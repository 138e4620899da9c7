//! The arguments, and the help that `docs/CLI.md` repeats.

mod datasets;
mod files;
mod import;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::datasets::{DatasetsArgs, RowsArgs};
pub(crate) use self::files::{FileListArgs, FilesVerb};
pub(crate) use self::import::{ImportArgs, Limit};
use crate::choices::{LaneArg, StateArg, StatusArg};
use crate::output::Format;
use crate::token::Role;
use crate::values::{When, parse_duration, parse_label, parse_when};

const EXIT_CODES: &str = "\
Exit codes:
  0    it worked
  1    the call failed, or something on this side did
  2    the command line or an input file is wrong; nothing was sent
  3    the job that was waited for ended failed
  4    the job that was waited for was cancelled
  5    not found
  6    refused for now (too much load, not reachable, out of time): try again later
  7    not signed in, or not allowed
  130  interrupted by Ctrl-C; a job that was waited for goes on

Durations are written like 500ms, 30s, 10m, 1h30m, 7d.";

/// Submits jobs to Tenure, follows them and shows how the queues are.
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
    /// The bearer token. `queues`, `types apply` and `dead-letters` take
    /// `TENURE_OPERATOR_TOKEN` from the environment where neither this nor
    /// `--token-file` is given.
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
    /// Uploads a file and prints its id.
    Upload(UploadArgs),
    /// Submits a job. Safe against a lost answer: it is sent again with the
    /// same request id.
    Submit(SubmitArgs),
    /// Imports a CSV file: uploads it, submits `import_csv`, shows the progress
    /// and sums up.
    Import(Box<ImportArgs>),
    /// Lists the data sets that imports have filled.
    Datasets(DatasetsArgs),
    /// Lists the rows of a data set.
    Rows(RowsArgs),
    /// Shows a job.
    Get(GetArgs),
    /// Lists jobs, newest first.
    List(ListArgs),
    /// Follows a job until it ends.
    Watch(WatchArgs),
    /// Cancels a job.
    Cancel(CancelArgs),
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
    /// Shows how full the queues are. For operators.
    Queues,
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
    /// read. For operators.
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
    /// For how long the token is valid.
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
    /// The file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
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
    /// The user whom the job is for. Needs the role `service`.
    #[arg(long, value_name = "USER")]
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
    /// In this state; may be repeated.
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',')]
    pub(crate) states: Vec<StateArg>,
    /// Of this job type.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) job_type: Option<String>,
    /// In this queue.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Of this user. Other users' jobs are for operators and services.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// With this label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
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
    /// The job's id.
    #[arg(value_name = "JOB")]
    pub(crate) job_id: String,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

/// `tenure download`.
#[derive(Debug, Args)]
pub(crate) struct DownloadArgs {
    /// The file's id.
    #[arg(value_name = "FILE_ID")]
    pub(crate) file_id: String,
    /// Where to put it: a file, a folder, or `-` for standard output. Without
    /// it: here, under the file's own name, where no such file exists.
    #[arg(short = 'O', long = "out", value_name = "OUT")]
    pub(crate) out: Option<PathBuf>,
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

/// `tenure notifications`.
#[derive(Debug, Subcommand)]
pub(crate) enum NotificationVerb {
    /// Lists notifications, newest first.
    List(NotificationListArgs),
    /// Marks notifications as read.
    Read(NotificationReadArgs),
}

/// `tenure notifications list`.
#[derive(Debug, Args)]
pub(crate) struct NotificationListArgs {
    /// Only those that are not read.
    #[arg(long)]
    pub(crate) unread: bool,
    /// Of this user. Other users' inboxes are for operators and services.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure notifications read`.
#[derive(Debug, Args)]
pub(crate) struct NotificationReadArgs {
    /// The ids of the notifications, up to 1,000.
    #[arg(value_name = "ID", required_unless_present = "all", num_args = 1..=1000)]
    pub(crate) ids: Vec<String>,
    /// All of the inbox.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// Of this user. Needs the role `service`.
    #[arg(long, value_name = "USER")]
    pub(crate) for_user: Option<String>,
}

/// `tenure dead-letters`.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterVerb {
    /// Lists dead letters, the latest failure first.
    List(DeadLetterListArgs),
    /// Shows a dead letter with its original message.
    Show {
        /// The letter's id, or its job's.
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// `tenure dead-letters list`.
#[derive(Debug, Args)]
pub(crate) struct DeadLetterListArgs {
    /// With this status; may be repeated.
    #[arg(long = "status", value_name = "STATUS", value_delimiter = ',')]
    pub(crate) statuses: Vec<StatusArg>,
    /// From this queue.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Of this job type.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) job_type: Option<String>,
    /// Of this user.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// With this error code.
    #[arg(long, value_name = "CODE")]
    pub(crate) code: Option<String>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
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
