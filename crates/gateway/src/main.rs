//! The gateway: the gRPC port of callers.

use std::process::ExitCode;

use tenure_core::service;

fn main() -> ExitCode {
    service::run(
        "tenure-gateway",
        env!("CARGO_PKG_VERSION"),
        tenure_gateway::serve,
    )
}
