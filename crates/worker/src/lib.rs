//! The worker: claims jobs, runs their handlers, writes their results.
//!
//! As a library it gives the author of handlers [`JobHandler`] and [`run`]; the binary
//! `tenure-worker` is the same with the handlers that come with Tenure.

mod context;
pub mod handler;
pub mod handlers;
mod registry;
mod runner;

use std::sync::Arc;

use tenure_core::error::Result;
use tenure_core::service::Context;
use tenure_core::storage::Store;

pub use handler::{
    FollowUp, JobContext, JobError, JobHandler, LogLevel, Outcome, Success, parse_payload,
};
pub use registry::Registry;

/// Runs a worker with the handlers that `make` gives, until the process is told to stop.
///
/// # Errors
/// Where the configuration or the schema does not fit, or the worker cannot go on.
pub async fn run(
    context: Context,
    make: impl FnOnce(&Store, &Context) -> Result<Vec<Arc<dyn JobHandler>>>,
) -> Result<()> {
    let config = context.config.clone();
    let store = Store::new(&config.database, "tenure-worker", config.worker.lease)?;
    let registry = Registry::new(make(&store, &context)?);
    tenure_core::service::readiness::watch_database(&context, &store);
    tenure_core::service::readiness::wait_for_schema(&context, &store).await?;
    runner::run(
        store.clone(),
        config,
        context.metrics.clone(),
        registry,
        context.health.component("broker"),
        context.shutdown.token(),
    )
    .await?;
    store.close().await;
    Ok(())
}
