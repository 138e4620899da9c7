//! The arguments of `tenure notifications`.

use clap::{Args, Subcommand};

use crate::values::given;

use super::Paging;

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
    #[arg(long, value_name = "USER", value_parser = given)]
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
    #[arg(long, value_name = "USER", value_parser = given)]
    pub(crate) for_user: Option<String>,
}
