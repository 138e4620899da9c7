//! The HTTP port of operators: `/livez`, `/readyz`, `/metrics`.
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::Health;
use crate::telemetry::metrics::{self, Metrics};

#[derive(Clone)]
struct Shared {
    health: Health,
    metrics: Arc<Metrics>,
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    let (ready, report) = shared.health.report();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, [(CONTENT_TYPE, "application/json")], report)
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        shared.metrics.encode(),
    )
}

/// Serves the three pages until the process ends.
pub(super) async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: Arc<Metrics>,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(self::metrics))
        .with_state(Shared { health, metrics });
    axum::serve(listener, router).await
}
