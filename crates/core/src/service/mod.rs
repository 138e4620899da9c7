//! The one bootstrap of every service: command line, configuration, logs, the
//! HTTP port, signals, the orderly stop and the exit code.
mod args;
mod context;
pub mod grpc;
mod health;
mod http;
pub mod readiness;
mod shutdown;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use tokio::net::TcpListener;

use self::args::Mode;
pub use self::context::Context;
pub use self::health::{Component, Health};
pub use self::shutdown::Shutdown;
use self::shutdown::Signals;
use crate::config::{Config, Problems};
use crate::error::{Code, Error, chain};
use crate::telemetry;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// It ended in order.
const EXIT_OK: u8 = 0;
/// It failed.
const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const EXIT_CONFIG: u8 = 2;
/// The orderly stop was cut off.
const EXIT_CUT_OFF: u8 = 3;

/// What an orderly stop gets above `service.shutdown_grace` before it is cut off.
const MARGIN: Duration = Duration::from_secs(5);

type BoxFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A command of a binary that runs once and ends.
pub struct Command {
    name: &'static str,
    about: &'static str,
    run: Box<dyn Fn(Context) -> BoxFuture>,
}

impl Command {
    /// A command with this name and help text.
    pub fn new<F, Fut, E>(name: &'static str, about: &'static str, run: F) -> Self
    where
        F: Fn(Context) -> Fut + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self {
            name,
            about,
            run: Box::new(move |context| boxed(run(context))),
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn boxed<E: Into<BoxError>>(
    future: impl Future<Output = Result<(), E>> + Send + 'static,
) -> BoxFuture {
    Box::pin(async move { future.await.map_err(Into::into) })
}

/// Runs a service until it ends or is asked to stop. Give the result to `main`.
pub fn run<F, Fut, E>(name: &'static str, version: &'static str, serve: F) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError>,
{
    run_commands(name, version, &[], serve)
}

/// Like [`run`], for a binary that also has commands.
pub fn run_commands<F, Fut, E>(
    name: &'static str,
    version: &'static str,
    commands: &[Command],
    serve: F,
) -> ExitCode
where
    F: FnOnce(Context) -> Fut,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    E: Into<BoxError>,
{
    let named: Vec<_> = commands.iter().map(|c| (c.name, c.about)).collect();
    let args = args::read(&args::command(name, version, &named).get_matches());
    let file = args.config.as_deref();
    // What is out of range can still be shown.
    let loaded = match &args.mode {
        Mode::Print => Config::load(file),
        // A command may do with less than the service.
        Mode::Command(command) => Config::load_for(&format!("{name} {command}"), file),
        Mode::Serve | Mode::Check => Config::load_for(name, file),
    };
    let config = match loaded {
        Ok(config) => config,
        Err(problems) => return refuse(name, &problems),
    };
    if args.mode == Mode::Print {
        print!("{}", config.to_masked_toml());
        return ExitCode::from(EXIT_OK);
    }
    if args.mode == Mode::Check {
        println!("ok");
        return ExitCode::from(EXIT_OK);
    }
    if let Err(error) = telemetry::init(&config.telemetry) {
        return refuse(name, &Problems(vec![chain(&error)]));
    }
    // An error means that a provider was chosen before, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name(name)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let context = Context::new(name, version, config);
    let code = runtime.block_on(async {
        match &args.mode {
            Mode::Command(wanted) => match commands.iter().find(|c| c.name == *wanted) {
                Some(command) => supervise(&context, (command.run)(context.clone())).await,
                None => EXIT_CONFIG,
            },
            _ => serve_all(&context, boxed(serve(context.clone()))).await,
        }
    });
    tracing::info!(code, "ended");
    // What still runs was told to stop and had its time; a blocking call must
    // not keep the process.
    runtime.shutdown_background();
    ExitCode::from(code)
}

fn refuse(name: &str, problems: &Problems) -> ExitCode {
    eprintln!("{name}: the configuration is wrong:");
    for problem in &problems.0 {
        eprintln!("  {problem}");
    }
    ExitCode::from(EXIT_CONFIG)
}

/// Opens the HTTP port, then runs the service.
async fn serve_all(context: &Context, serve: BoxFuture) -> u8 {
    tracing::info!(name = context.name, version = context.version, "starting");
    context.forget_addresses();
    let listen = context.config.service.http_listen;
    let bound = async {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    let (listener, address) = match bound.await {
        Ok(bound) => bound,
        Err(error) => {
            tracing::error!(%error, address = %listen, "service.http_listen cannot be opened");
            return EXIT_FAILED;
        }
    };
    context.announce("http", address);
    let pages = http::serve(listener, context.health.clone(), context.metrics.clone());
    context.spawn("http", pages);
    supervise(context, serve).await
}

/// Runs the work, passes on the signals, and bounds the orderly stop.
async fn supervise(context: &Context, work: BoxFuture) -> u8 {
    supervise_for(
        context,
        work,
        context.config.service.shutdown_grace + MARGIN,
    )
    .await
}

async fn supervise_for(context: &Context, work: BoxFuture, stop_within: Duration) -> u8 {
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "signals cannot be received");
            return EXIT_FAILED;
        }
    };
    let mut work = tokio::spawn(work);
    let asked = tokio::select! {
        done = &mut work => return ended(context, done),
        signal = signals.next() => Some(signal),
        () = context.shutdown.triggered() => None,
    };
    tracing::info!(
        signal = asked,
        within_ms = stop_within.as_millis() as u64,
        "stopping"
    );
    context.health.drain();
    context.shutdown.trigger();
    tokio::select! {
        done = &mut work => ended(context, done),
        signal = signals.next() => {
            tracing::warn!(signal, "asked again, ending at once");
            EXIT_CUT_OFF
        }
        () = tokio::time::sleep(stop_within) => {
            tracing::error!("the orderly stop took too long, ending");
            EXIT_CUT_OFF
        }
    }
}

fn ended(context: &Context, done: Result<Result<(), BoxError>, tokio::task::JoinError>) -> u8 {
    match done {
        Ok(Ok(())) if context.has_failed() => EXIT_FAILED,
        Ok(Ok(())) => EXIT_OK,
        Ok(Err(error)) => {
            let code = error.downcast_ref::<Error>().map(Error::code);
            if code == Some(Code::ShuttingDown) && context.shutdown.is_triggered() {
                return if context.has_failed() {
                    EXIT_FAILED
                } else {
                    EXIT_OK
                };
            }
            tracing::error!(error = chain(&*error), "failed");
            if code == Some(Code::ConfigInvalid) {
                EXIT_CONFIG
            } else {
                EXIT_FAILED
            }
        }
        // The hook has logged the panic.
        Err(_) => EXIT_FAILED,
    }
}

/// A listener on this address, and the address that it really has.
pub async fn bind(
    key: &str,
    address: std::net::SocketAddr,
) -> crate::Result<(TcpListener, std::net::SocketAddr)> {
    let failed = |error: std::io::Error| {
        Error::new(
            Code::ConfigInvalid,
            format!("{key}: {address} cannot be opened"),
        )
        .with_source(error)
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
