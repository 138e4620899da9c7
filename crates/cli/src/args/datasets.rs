//! The arguments of `tenure datasets` and `tenure rows`.

use clap::Args;

use crate::values::given;

use super::Paging;

/// `tenure datasets`.
#[derive(Debug, Args)]
pub(crate) struct DatasetsArgs {
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
