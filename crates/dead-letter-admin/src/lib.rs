//! The dead-letter admin: the gRPC port of operators.
//!
//! Any number of copies may run: they keep nothing, and only the database is asked.

mod convert;
mod dead_letter_service;
mod page_token;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Result;
use tenure_core::auth::Authenticator;
use tenure_core::service::{Context, bind, grpc, readiness};
use tenure_core::storage::Store;
use tenure_proto::v1::dead_letter_service_server::{DeadLetterServiceServer, SERVICE_NAME};
use tonic::service::RoutesBuilder;

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

    let mut routes = RoutesBuilder::default();
    routes.add_service(
        DeadLetterServiceServer::new(DeadLetters::new(store.clone()))
            .max_decoding_message_size(config.dead_letter_admin.max_message_bytes),
    );
    let (listener, address) =
        bind("dead_letter_admin.listen", config.dead_letter_admin.listen).await?;
    context.announce("grpc", address);
    let served = grpc::serve(&context, listener, authenticator, &[SERVICE_NAME], routes).await;
    // What is still open after it is closed with the process.
    let _ = tokio::time::timeout(CLOSING, store.close()).await;
    served
}
