//! `tenure`: the command line of Tenure.

mod args;
mod choices;
mod client;
mod datasets;
mod dead_letters;
mod dispatch;
mod download;
mod errors;
mod file_list;
mod files;
mod import;
mod jobs;
mod limits;
mod notifications;
mod operator;
mod output;
mod pace;
mod pages;
mod places;
mod progress;
mod queues;
mod shell;
#[cfg(test)]
mod synopsis;
mod token;
mod types;
mod usage;
mod values;
mod view;
mod watch;
#[cfg(test)]
mod wire_tests;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::Cli;
use crate::client::Credentials;
use crate::errors::{Exit, Failure};

fn main() -> ExitCode {
    // rustls has no default provider when several could be linked in, and the
    // first TLS handshake would panic.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        output::say("error: another TLS provider was installed before ours");
        return Exit::Failed.into();
    }
    let matches = Cli::command()
        .try_get_matches()
        .unwrap_or_else(|error| usage::without_globals(error).exit());
    let credentials = Credentials::from_matches(&matches);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let format = cli.global.output;
    match start(cli, credentials) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::say_failure(format, &failure);
            failure.exit.into()
        }
    }
}

fn start(cli: Cli, credentials: Credentials) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let exit = runtime.block_on(dispatch::run(cli, credentials));
    // A read of standard input cannot be cancelled; do not wait for it.
    runtime.shutdown_background();
    exit
}
