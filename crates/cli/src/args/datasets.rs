//! The arguments of `tenure datasets` and `tenure rows`.

use clap::{Args, Subcommand};

use crate::values::given;

use super::Paging;

/// `tenure datasets`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DatasetsArgs {
    /// Without one: list.
    #[command(subcommand)]
    pub(crate) verb: Option<DatasetsVerb>,
    /// What to list.
    #[command(flatten)]
    pub(crate) list: DatasetListArgs,
}

/// What `tenure datasets` does but list.
#[derive(Debug, Subcommand)]
pub(crate) enum DatasetsVerb {
    /// Removes a data set with its rows. Its name is free at once.
    ///
    /// An import that writes to it at that moment fails at its end.
    Remove(DatasetRemoveArgs),
}

/// `tenure datasets remove`.
#[derive(Debug, Args)]
pub(crate) struct DatasetRemoveArgs {
    /// The data set's name.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    /// Of this user. Other users' data sets are for operators and services.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
}

/// Which data sets `tenure datasets` lists.
#[derive(Debug, Args)]
pub(crate) struct DatasetListArgs {
    /// Of this user. Other users' data sets are for operators and services.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}

/// `tenure rows`.
#[derive(Debug, Args)]
pub(crate) struct RowsArgs {
    /// The data set's name.
    #[arg(value_name = "DATASET")]
    pub(crate) dataset: String,
    /// Only the rows that this import brought in.
    #[arg(long = "job", value_name = "JOB")]
    pub(crate) job_id: Option<String>,
    /// Of this user. Other users' data sets are for operators and services.
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) user: Option<String>,
    /// How many to list.
    #[command(flatten)]
    pub(crate) paging: Paging,
}
