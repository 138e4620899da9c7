//! What the bootstrap hands to a binary.
use std::fmt::Write as _;
use std::future::Future;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::{BoxError, Health, Shutdown};
use crate::config::Config;
use crate::error::chain;
use crate::telemetry::metrics::Metrics;

/// What a binary works with; clones share everything.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Context {
    /// The name of the binary.
    pub name: &'static str,
    /// The version of the binary.
    pub version: &'static str,
    /// The configuration, in range for this binary.
    pub config: Arc<Config>,
    /// The metrics on `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The readiness on `/readyz`.
    pub health: Health,
    /// The orderly stop.
    pub shutdown: Shutdown,
    failed: Arc<AtomicBool>,
    addresses: Arc<Mutex<Vec<(&'static str, SocketAddr)>>>,
}

impl Context {
    /// A context without a bootstrap around it, for tests and tools.
    pub fn new(name: &'static str, version: &'static str, config: Config) -> Self {
        Self {
            name,
            version,
            config: Arc::new(config),
            metrics: Arc::new(Metrics::new(name, version)),
            health: Health::default(),
            shutdown: Shutdown::default(),
            failed: Arc::default(),
            addresses: Arc::default(),
        }
    }

    /// Says that a port is open: one log line, and the line `kind=address` in
    /// `service.address_file` where that is set. A file that cannot be written is logged.
    pub fn announce(&self, kind: &'static str, address: SocketAddr) {
        tracing::info!(kind, %address, "listening");
        let mut addresses = self.addresses.lock();
        addresses.push((kind, address));
        if let Some(path) = &self.config.service.address_file
            && let Err(error) = write_addresses(path, &addresses)
        {
            tracing::error!(path = %path.display(), %error, "service.address_file cannot be written");
        }
    }

    /// Runs a task that the process cannot do without: where it returns an
    /// error or panics, the process stops in order and ends with exit code 1.
    pub fn spawn<F, E>(&self, task: &'static str, future: F) -> JoinHandle<()>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let context = self.clone();
        tokio::spawn(async move {
            match AssertUnwindSafe(future).catch_unwind().await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    let error: BoxError = error.into();
                    tracing::error!(task, error = chain(&*error), "a task failed");
                }
                // The hook has logged the panic.
                Err(_) => tracing::error!(task, "a task panicked, the process stops"),
            }
            context.fail();
        })
    }

    /// Stops the process in order; it will end with exit code 1.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        self.shutdown.trigger();
    }

    /// Whether a task failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Removes the addresses of an earlier process.
    pub(super) fn forget_addresses(&self) {
        if let Some(path) = &self.config.service.address_file {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes beside the file and renames, so that a reader sees all or nothing.
fn write_addresses(path: &Path, addresses: &[(&str, SocketAddr)]) -> std::io::Result<()> {
    let mut text = String::new();
    for (kind, address) in addresses {
        let _ = writeln!(text, "{kind}={address}");
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_announced_line_by_line() {
        let path = std::env::temp_dir().join(format!("tenure-address-{}", uuid::Uuid::now_v7()));
        let mut config = Config::default();
        config.service.address_file = Some(path.clone());
        let context = Context::new("test", "0", config);
        context.announce("http", SocketAddr::from(([127, 0, 0, 1], 1)));
        context.announce("grpc", SocketAddr::from(([127, 0, 0, 1], 2)));
        let text = std::fs::read_to_string(&path).expect("written");
        assert_eq!(text, "http=127.0.0.1:1\ngrpc=127.0.0.1:2\n");
        context.forget_addresses();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_task_that_fails_or_panics_stops_the_process() {
        for panics in [false, true] {
            let context = Context::new("test", "0", Config::default());
            context
                .spawn("fine", async { Ok::<(), BoxError>(()) })
                .await
                .expect("ends");
            assert!(!context.has_failed() && !context.shutdown.is_triggered());
            context
                .spawn("wrong", async move {
                    assert!(!panics, "on purpose");
                    Err::<(), BoxError>("wrong".into())
                })
                .await
                .expect("ends");
            assert!(context.has_failed() && context.shutdown.is_triggered());
        }
    }
}
