//! The dead-letter admin's process.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure_core::service::run(
        "tenure-dead-letter-admin",
        env!("CARGO_PKG_VERSION"),
        tenure_dead_letter_admin::serve,
    )
}
