//! The orderly stop: one signal asks for it, a second one ends the process.
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Tells every part of the process that it shall end.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Waits until the stop is asked for.
    pub async fn triggered(&self) {
        self.0.cancelled().await;
    }

    /// Whether the stop was asked for.
    pub fn is_triggered(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Asks for the stop.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// The same as a token, for code that takes one.
    pub fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of the two and gives its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            Some(()) = self.terminate.recv() => "SIGTERM",
            Some(()) = self.interrupt.recv() => "SIGINT",
            else => std::future::pending().await,
        }
    }
}
