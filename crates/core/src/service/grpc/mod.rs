//! The gRPC port of a service: limits, keepalive, connection age, certificate,
//! health, reflection, and what happens around every call.
mod answer;
mod call;
mod methods;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::service::RoutesBuilder;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use self::call::CallLayer;
pub use self::call::Deadline;
use super::Context;
use crate::auth::Authenticator;
use crate::config::{GatewayConfig, ServiceConfig};
use crate::error::{Code, Error, Result};

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Open streams per connection for each call that may be worked on at once: a
/// watcher holds its stream but no worker.
const STREAMS_PER_CALL: usize = 4;
/// Bytes of a stream that may be under way: an upload at 1 ms fills a fast network.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Serves gRPC on this listener until the stop is asked for and the calls that
/// run have ended, at most `service.shutdown_grace` later.
///
/// `services` are the full names of what `routes` holds, for health and
/// reflection. Every method needs a token, but health and reflection; the
/// caller's [`Principal`](crate::auth::Principal) and the [`Deadline`] are in
/// the extensions of its request. The limits are those of `gateway`.
pub async fn serve(
    context: &Context,
    listener: TcpListener,
    authenticator: Arc<Authenticator>,
    services: &[&'static str],
    mut routes: RoutesBuilder,
) -> Result<()> {
    let config = &context.config.gateway;
    let (reporter, health) = tonic_health::server::health_reporter();
    routes.add_service(health);
    add_reflection(services, &mut routes)?;
    let follower = tokio::spawn(follow_health(context.clone(), reporter, services.to_vec()));
    let layer = CallLayer::new(
        authenticator,
        Arc::clone(&context.metrics),
        config.max_deadline,
    );
    let server = builder(config, &context.config.service)?
        .layer(layer)
        .add_routes(routes.routes());
    // The server's own socket settings do not reach a listener that it gets.
    let incoming = TcpIncoming::from(listener)
        .with_nodelay(Some(true))
        .with_keepalive(Some(config.keepalive_interval));
    let stop = context.shutdown.clone();
    let serving = server.serve_with_incoming_shutdown(incoming, async move {
        stop.triggered().await;
    });
    let grace = context.config.service.shutdown_grace;
    let overdue = async {
        context.shutdown.triggered().await;
        tokio::time::sleep(grace).await;
    };
    let done = tokio::select! {
        done = serving => done.map_err(|error| {
            Error::new(Code::Internal, "the gRPC port failed").with_source(error)
        }),
        () = overdue => {
            tracing::warn!("calls that did not end within the grace period were cut off");
            Ok(())
        }
    };
    follower.abort();
    done
}

fn builder(config: &GatewayConfig, service: &ServiceConfig) -> Result<Server> {
    let calls = config.concurrency_per_connection;
    let streams = u32::try_from(calls.saturating_mul(STREAMS_PER_CALL)).unwrap_or(u32::MAX);
    let server = Server::builder()
        .concurrency_limit_per_connection(calls)
        .max_concurrent_streams(streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(config.keepalive_interval))
        .http2_keepalive_timeout(Some(config.keepalive_timeout))
        .max_connection_age(jittered(
            config.connection_age,
            config.connection_age_jitter,
            rand::random(),
        ))
        .max_connection_age_grace(config.connection_grace);
    let (Some(cert), Some(key)) = (&service.tls_cert_file, &service.tls_key_file) else {
        return Ok(server);
    };
    let read = |name: &str, path: &std::path::Path| {
        std::fs::read(path).map_err(|error| {
            let message = format!("service.{name}: {} cannot be read", path.display());
            Error::new(Code::ConfigInvalid, message).with_source(error)
        })
    };
    let identity = Identity::from_pem(read("tls_cert_file", cert)?, read("tls_key_file", key)?);
    let tls = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    server.tls_config(tls).map_err(|error| {
        Error::new(
            Code::ConfigInvalid,
            "service.tls_cert_file and service.tls_key_file cannot be used",
        )
        .with_source(error)
    })
}

/// A duration that differs by up to the fraction, down for 0 and up for 1.
fn jittered(duration: Duration, fraction: f64, random: f64) -> Duration {
    duration.mul_f64(1.0 + fraction * (2.0 * random - 1.0))
}

fn add_reflection(services: &[&'static str], routes: &mut RoutesBuilder) -> Result<()> {
    let configured = || {
        let builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tenure_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .with_service_name("grpc.health.v1.Health");
        services
            .iter()
            .fold(builder, |builder, name| builder.with_service_name(*name))
    };
    let failed = |error| {
        Error::new(Code::Internal, "the descriptors cannot be reflected").with_source(error)
    };
    routes.add_service(configured().build_v1().map_err(failed)?);
    routes.add_service(configured().build_v1alpha().map_err(failed)?);
    Ok(())
}

/// Tells the health service what `/readyz` tells.
async fn follow_health(context: Context, reporter: HealthReporter, services: Vec<&'static str>) {
    let mut watch = context.health.watch();
    loop {
        let status = if *watch.borrow_and_update() {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        reporter.set_service_status("", status).await;
        for service in &services {
            reporter.set_service_status(service, status).await;
        }
        if watch.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
#[path = "grpc_tests.rs"]
mod tests;
