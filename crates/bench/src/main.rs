//! Measures Tenure on real services: how fast it takes, starts and finishes jobs, what
//! that costs, and what the services could do at most in the same minutes.
//!
//! One JSON line per figure on standard output, progress on standard error. How each
//! figure is made is in docs/BENCH.md.

mod backlog;
mod bulk;
mod catalogue;
mod dead_letters;
mod drain;
mod imports;
mod latency;
mod limit_grpc;
mod limit_postgres;
mod limit_rabbit;
mod measure;
mod payload;
mod report;
mod unary;
mod usage;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;

use crate::measure::Effort;

/// The whole run ends within this, also where something hangs.
const BOUND: Duration = Duration::from_secs(290);

/// Measures Tenure; prints one JSON line per figure.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", version)]
struct Arguments {
    /// Only figures whose names begin like this; may be given again.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// One short run of each: shows that everything works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Lists the figures and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for (name, unit) in catalogue::all() {
            println!("{name} ({unit})");
        }
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tenure-bench: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(async {
        let effort = if arguments.quick {
            Effort::QUICK
        } else {
            Effort::FULL
        };
        match tokio::time::timeout(BOUND, measure::all(&arguments.only, effort)).await {
            Ok(result) => result,
            Err(_) => bail!("not done after {BOUND:?}"),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
