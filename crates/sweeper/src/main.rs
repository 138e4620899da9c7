//! The sweeper: wakes rows whose time has come and dispatches the backlog.

use tenure_core::service;

fn main() -> std::process::ExitCode {
    service::run_commands(
        "tenure-sweeper",
        env!("CARGO_PKG_VERSION"),
        &[service::Command::new(
            "migrate",
            "Applies the schema, the broker topology and the shipped job types, then ends",
            tenure_sweeper::migrate,
        )],
        tenure_sweeper::serve,
    )
}
