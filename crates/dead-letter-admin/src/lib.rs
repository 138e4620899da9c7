//! The dead-letter admin: the gRPC port of operators.
//!
//! Any number of copies may run: they keep nothing, and only the database is asked. Each
//! makes steps of bulk replays as well.

mod bulk;
mod bulk_runner;
mod convert;
mod dead_letter_service;
mod letters;
mod page_token;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::auth::Authenticator;
use tenure_core::service::{Context, bind, grpc, readiness};
use tenure_core::storage::Store;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1::dead_letter_service_server::{DeadLetterServiceServer, SERVICE_NAME};
use tonic::service::RoutesBuilder;

pub use bulk_runner::BulkRunner;
pub use dead_letter_service::DeadLetters;

/// How long the database's connections may take to close in an orderly way.
const CLOSING: Duration = Duration::from_secs(1);

/// Serves until the stop is asked for. Opens its port once the database has the schema
/// that is needed, so that no call can find half of it.
///
/// # Errors
/// CONFIG_INVALID for a port, key or address that cannot be used, SHUTTING_DOWN where
/// the stop came before the database was ready.
pub async fn serve(context: Context) -> Result<()> {
    let config = Arc::clone(&context.config);
    let authenticator = Arc::new(Authenticator::new(&config.auth)?);
    let store = Store::new(&config.database, context.name, config.worker.lease)?;
    readiness::watch_database(&context, &store);
    readiness::wait_for_schema(&context, &store).await?;

    let service = DeadLetters::new(store.clone());
    let stop = context.shutdown.token();
    let runner = service.bulk_runner();
    let mut running = tokio::spawn(async move { runner.run(stop.cancelled()).await });
    let mut routes = RoutesBuilder::default();
    routes.add_service(
        DeadLetterServiceServer::new(service)
            .max_decoding_message_size(config.dead_letter_admin.max_message_bytes),
    );
    let (listener, address) =
        bind("dead_letter_admin.listen", config.dead_letter_admin.listen).await?;
    context.announce("grpc", address);
    let serving = grpc::serve(&context, listener, authenticator, &[SERVICE_NAME], routes);
    let served = tokio::select! {
        served = serving => served,
        error = panicked(&mut running) => Err(error),
    };
    // A step that is still under way is undone with its connection, and made by another.
    if !running.is_finished() {
        let _ = tokio::time::timeout(CLOSING, &mut running).await;
    }
    // What is still open after it is closed with the process.
    let _ = tokio::time::timeout(CLOSING, store.close()).await;
    served
}

/// Returns only where the task that makes the steps has panicked: a process without it must
/// not look alive.
async fn panicked(running: &mut tokio::task::JoinHandle<()>) -> Error {
    match running.await {
        Ok(()) => std::future::pending().await,
        Err(error) => {
            Error::new(Code::Internal, "the task of the bulk replays ended").with_source(error)
        }
    }
}
