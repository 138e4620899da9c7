//! The arguments of `tenure files`.

use clap::{Args, Subcommand};

use crate::values::given;

use super::Paging;
use crate::choices::KindArg;

/// `tenure files`.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesVerb {
    /// Lists files, newest first, and what the uploads take.
    List(FileListArgs),
    /// Shows a file.
    Show {
        /// The file's id.
        #[arg(value_name = "FILE_ID")]
        file_id: String,
    },
    /// Removes a file and its content. A job that still needs it then fails.
    Delete {
        /// The file's id.
        #[arg(value_name = "FILE_ID")]
        file_id: String,
    },
}

/// `tenure files list`.
#[derive(Debug, Args)]
pub(crate) struct FileListArgs {
    /// Of this kind.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<KindArg>,
    /// Made by this job.
    #[arg(long = "job", value_name = "JOB")]
    pub(crate) job_id: Option<String>,
    /// Of this user. Other users' files are for operators and services.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}
