//! Connecting to RabbitMQ with bounded waits.

use std::time::Duration;

use lapin::{Connection, ConnectionProperties};

use crate::config::BrokerConfig;
use crate::error::{Code, Error, Result};

/// The pauses between attempts to connect: growing, bounded, for ever.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(100);
    const LAST: Duration = Duration::from_secs(5);

    pub(super) fn new() -> Self {
        Self { next: Self::FIRST }
    }

    pub(super) fn reset(&mut self) {
        self.next = Self::FIRST;
    }

    /// The next pause, with a spread so that a fleet does not come back in step.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..1.0));
        self.next = (self.next * 2).min(Self::LAST);
        pause
    }
}

/// Connects; `role` shows in the broker's list of connections.
pub(super) async fn connect(config: &BrokerConfig, role: &str) -> Result<Connection> {
    let name = format!("tenure {role} {}", std::process::id());
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let connecting = Connection::connect(config.url.expose(), properties);
    match tokio::time::timeout(config.connect_timeout, connecting).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(broker_error(error)),
        Err(_) => Err(timed_out("connecting")),
    }
}

/// Closes a connection without waiting for long.
pub(super) async fn close(connection: &Connection) {
    let _ = tokio::time::timeout(Duration::from_secs(1), connection.close(200, "bye".into())).await;
}

pub(super) fn broker_error(error: lapin::Error) -> Error {
    Error::new(
        Code::BrokerUnavailable,
        "the broker cannot be reached or refused",
    )
    .with_source(error)
}

/// Whether the broker misses what was named: an exchange, a queue.
pub(super) fn is_not_found(error: &lapin::Error) -> bool {
    matches!(error.kind(), lapin::ErrorKind::ProtocolError(e) if e.get_id() == 404)
}

pub(super) fn timed_out(what: &str) -> Error {
    Error::new(Code::BrokerUnavailable, format!("{what} took too long"))
}
