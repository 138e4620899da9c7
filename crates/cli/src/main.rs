//! `tenure`: the command line of Tenure.

mod args;
mod choices;
mod client;
mod datasets;
mod dead_letters;
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
mod values;
mod view;
mod watch;
#[cfg(test)]
mod wire_tests;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{CancelArgs, Cli, NotificationVerb, Verb};
use crate::client::Credentials;
use crate::errors::{Exit, Failure};
use crate::output::Output;

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
    let matches = Cli::command().get_matches();
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
    let exit = runtime.block_on(run(cli, credentials));
    // A read of standard input cannot be cancelled; do not wait for it.
    runtime.shutdown_background();
    exit
}

async fn run(cli: Cli, credentials: Credentials) -> Result<Exit, Failure> {
    let Cli { global, verb } = cli;
    let mut out = Output::new(global.output);
    let gateway = || client::gateway(&global, &credentials);
    let operator = || client::gateway_for_operator(&global, &credentials);
    let reader = || client::gateway_for_reader(&global, &credentials);
    match verb {
        Verb::Token(args) => token::run(&args, &mut out),
        Verb::Upload(args) => files::run_upload(&gateway()?, args, &mut out).await,
        Verb::Submit(args) => jobs::submit(&gateway()?, args, &mut out).await,
        Verb::Import(args) => import::run(&gateway()?, *args, &mut out).await,
        Verb::Datasets(args) => datasets::run(&gateway()?, args, &mut out).await,
        Verb::Rows(args) => datasets::rows(&gateway()?, args, &mut out).await,
        Verb::Get(args) => jobs::get(&gateway()?, args, &mut out).await,
        Verb::List(args) => jobs::list(&gateway()?, args, &mut out).await,
        Verb::Watch(args) => watch::run(&gateway()?, args, &mut out).await,
        Verb::Explain(args) => jobs::explain(&reader()?, args, &mut out).await,
        Verb::Cancel(CancelArgs {
            job_id: Some(job_id),
            reason,
            ..
        }) => jobs::cancel(&gateway()?, job_id, reason, &mut out).await,
        Verb::Cancel(args) => {
            let others = args.all_users || args.filter.user.is_some();
            let client = if others { reader()? } else { gateway()? };
            jobs::cancel_many(&client, args, &mut out).await
        }
        Verb::RetryNow(args) => jobs::retry_now(&operator()?, args, &mut out).await,
        Verb::Reschedule(args) => jobs::reschedule(&operator()?, args, &mut out).await,
        Verb::SetAttempts(args) => jobs::set_attempts(&operator()?, args, &mut out).await,
        Verb::Download(args) => download::run(&gateway()?, args, &mut out).await,
        Verb::Files { verb } => file_list::run(&gateway()?, verb, &mut out).await,
        Verb::Workers => operator::workers(&operator()?, &mut out).await,
        Verb::Queues { verb } => queues::run(&operator()?, verb, &mut out).await,
        Verb::Limits { verb } => limits::run(&operator()?, verb, &mut out).await,
        Verb::Types {
            verb: None | Some(args::TypesVerb::List),
        } => types::list(&gateway()?, &mut out).await,
        Verb::Types {
            verb: Some(args::TypesVerb::Apply(args)),
        } => types::apply(&operator()?, args, &mut out).await,
        Verb::Notifications { verb } => match verb {
            NotificationVerb::List(args) => notifications::list(&gateway()?, args, &mut out).await,
            NotificationVerb::Read(args) => notifications::read(&gateway()?, args, &mut out).await,
        },
        Verb::DeadLetters { verb } => {
            let admin = client::dead_letter_admin(&global, &credentials)?;
            dead_letters::run(&admin, verb, &mut out).await
        }
    }
}
