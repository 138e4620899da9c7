//! From the verbs to what does them, each with the client that it needs.

use crate::args::{CancelArgs, Cli, NotificationVerb, TypesVerb, Verb};
use crate::client::{self, Credentials};
use crate::errors::{Exit, Failure};
use crate::output::Output;
use crate::{
    datasets, dead_letters, download, file_list, files, import, jobs, limits, notifications,
    operator, queues, token, types, watch,
};

/// Does what the command line says.
pub(crate) async fn run(cli: Cli, credentials: Credentials) -> Result<Exit, Failure> {
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
            verb: None | Some(TypesVerb::List),
        } => types::list(&gateway()?, &mut out).await,
        Verb::Types {
            verb: Some(TypesVerb::Apply(args)),
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
