//! The runner: takes messages, claims runs, runs handlers, writes results.
//!
//! ```text
//! consumer → inbox → claim → handler → finish
//!                      └── renewal, on a thread of its own, until the finish is durable
//! ```

mod cancels;
mod execute;
mod finisher;
mod inbox;
mod intake;
mod late;
mod lines;
mod presence;
mod progress;
mod renewal;
mod running;
mod suspects;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::broker::consumer::{self, ConsumerSettings};
use tenure_core::config::Config;
use tenure_core::domain::ids::SessionId;
use tenure_core::domain::retry::RetryPolicy;
use tenure_core::error::{Code, Error, Result};
use tenure_core::service::Component;
use tenure_core::storage::Store;
use tenure_core::storage::history::HistoryWriter;
use tenure_core::storage::job_types::Catalogue;
use tenure_core::telemetry::metrics::Metrics;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::finisher::Finisher;
use self::intake::Intake;
pub(crate) use self::running::{Running, Slot};
use self::running::{Runs, StopReason};
use crate::registry::Registry;

/// What the parts of a runner share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Registry,
    pub(crate) runs: Arc<Runs>,
    pub(crate) session: SessionId,
    /// The name of this worker for people.
    pub(crate) name: Arc<str>,
    pub(crate) history: HistoryWriter,
    pub(crate) retry: RetryPolicy,
    pub(crate) lease: Duration,
    /// Where handlers run: a runtime of their own, so that none of them can keep the
    /// broker, the database or the health checks waiting.
    pub(crate) handlers: tokio::runtime::Handle,
    pub(crate) catalogue: Catalogue,
    /// Cancelled when no slot can ever be free again.
    pub(crate) deaf: CancellationToken,
}

impl Shared {
    /// The waits of a job type before its next runs; empty: the default ones.
    pub(crate) fn schedule(&self, job_type: &str) -> Vec<Duration> {
        self.catalogue
            .cached(job_type)
            .map(|t| t.backoff.clone())
            .unwrap_or_default()
    }

    /// Tells a run's handler that its job is to be cancelled.
    fn cancel_seen(&self, running: &Running) {
        if running.stop(StopReason::CancelRequested) {
            self.metrics.cancels.inc("seen");
        }
    }
}

/// A share of the grace period is kept for handing back and for the last writes.
const HAND_BACK_SHARE: u32 = 4;

/// Runs jobs until `stop`, then drains: no new claims; what fits into the grace period
/// finishes; the rest is handed back with no attempt spent (PROTOCOL.md §17).
///
/// # Errors
/// Where the worker cannot go on: the process should exit.
pub(crate) async fn run(
    store: Store,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    registry: Registry,
    broker: Component,
    stop: CancellationToken,
) -> Result<()> {
    let worker = &config.worker;
    let handlers = handler_runtime(worker.slots)?;
    let shared = Arc::new(Shared {
        history: HistoryWriter::start(store.clone(), metrics.clone()),
        runs: Runs::new(worker.slots),
        session: SessionId::new(),
        name: presence::name(&worker.name),
        retry: RetryPolicy {
            scale: config
                .retry
                .backoff_base
                .map_or(1.0, |base| base.as_secs_f64() / 10.0),
            jitter: config.retry.jitter,
        },
        lease: worker.lease,
        handlers: handlers.handle().clone(),
        deaf: CancellationToken::new(),
        catalogue: Catalogue::start(store.clone(), stop.clone()),
        store,
        config: config.clone(),
        metrics,
        registry,
    });
    shared.metrics.worker_slots.set(worker.slots as i64);
    tracing::info!(session = %shared.session, name = %shared.name, slots = worker.slots, types = ?shared.registry.job_types(), "worker started");

    let renewal = renewal::start(shared.clone())?;
    let (turned, next_in_line) = mpsc::channel(1024);
    let finisher = Finisher::start(shared.clone(), turned);
    let (deliveries, inbound) = mpsc::channel(1024);
    let (wanted, is_wanted) = watch::channel(true);
    let stop_consuming = CancellationToken::new();
    let consumer = consumer::start(
        ConsumerSettings {
            config: config.broker.clone(),
            queues: worker.queues.clone(),
            // No more messages in hand than slots that could take them.
            prefetch: worker
                .prefetch_messages
                .min(u16::try_from(worker.slots).unwrap_or(u16::MAX))
                .max(1),
            health: broker,
        },
        shared.metrics.clone(),
        deliveries,
        is_wanted,
        stop_consuming.clone(),
    );
    // The grace period counts from the signal, whatever the intake is just waiting for.
    let ending = CancellationToken::new();
    let told = tokio::spawn({
        let (stop, deaf, ending) = (stop, shared.deaf.clone(), ending.clone());
        async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = deaf.cancelled() => {}
            }
            ending.cancel();
            Instant::now()
        }
    });
    let over = CancellationToken::new();
    let cancels = tokio::spawn(cancels::watch(shared.clone(), over.clone()));
    let late = tokio::spawn(late::watch(shared.clone(), over.clone()));
    let presence = tokio::spawn(presence::tell(shared.clone(), ending.clone(), over.clone()));
    let intake = Intake::new(shared.clone(), finisher.clone(), wanted);
    intake.run(inbound, next_in_line, ending).await;
    let end = told.await.unwrap_or_else(|_| Instant::now()) + config.service.shutdown_grace;
    if !shared.deaf.is_cancelled() {
        drain(&shared, end).await;
    }
    finisher.flush(left(end)).await;
    stop_consuming.cancel();
    let _ = tokio::time::timeout(left(end), consumer).await;
    renewal.stop();
    shared.history.flush(left(end)).await;
    over.cancel();
    let _ = tokio::time::timeout(left(end), async { tokio::join!(cancels, late, presence) }).await;
    // A handler that does not listen must not keep the process: its lease ends by itself.
    handlers.shutdown_background();
    if shared.deaf.is_cancelled() {
        return Err(Error::new(
            Code::Internal,
            "every slot is taken by a handler that does not stop",
        ));
    }
    Ok(())
}

/// What is left until `end`, one second at least.
fn left(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
        .max(Duration::from_secs(1))
}

fn handler_runtime(slots: usize) -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name("handler")
        .max_blocking_threads(slots.clamp(4, 512))
        .enable_all()
        .build()
        .map_err(|e| {
            Error::new(Code::Internal, "the handlers' threads cannot be started").with_source(e)
        })
}

/// Lets finish what fits into the grace period, and hands the rest back.
async fn drain(shared: &Arc<Shared>, end: Instant) {
    let share = shared.config.service.shutdown_grace / HAND_BACK_SHARE;
    tracing::info!(running = shared.runs.len(), "draining");
    if tokio::time::timeout_at(end - share, until_empty(shared))
        .await
        .is_ok()
    {
        return;
    }
    for running in shared.runs.all() {
        running.stop(StopReason::HandBack);
    }
    if tokio::time::timeout_at(end - share / 4, until_empty(shared))
        .await
        .is_err()
    {
        tracing::warn!(left = shared.runs.len(), "runs are left to their leases");
    }
}

async fn until_empty(shared: &Shared) {
    while shared.runs.len() > 0 {
        // The notification may go to somebody else: look again soon in any case.
        let _ =
            tokio::time::timeout(Duration::from_millis(50), shared.runs.changed.notified()).await;
    }
}
