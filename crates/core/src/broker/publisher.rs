//! Publishing envelopes: confirms, mandatory, bounded, and never in anybody's way.
//!
//! Nothing waits for a publish and nothing fails by one: what is dropped, returned,
//! refused or never confirmed is counted, and `wake_at` brings it again (PROTOCOL.md §6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Confirmation, Event};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::connection::{self, Backoff};
use super::envelope::{self, Envelope};
use super::topology;
use crate::config::BrokerConfig;
use crate::domain::job::Lane;
use crate::telemetry::metrics::Metrics;

/// Envelopes of one queue and lane, out of one commit or tick.
#[derive(Debug)]
pub struct Outgoing {
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// The most envelopes of one message.
    pub bundle: usize,
    /// The envelopes.
    pub jobs: Vec<Envelope>,
}

/// Batches that may wait for the connection.
const QUEUE_MAX: usize = 4096;
/// A connection that has lived this long was a good one: the next starts at once.
const SETTLED: Duration = Duration::from_secs(10);
/// Messages that may wait for their confirm.
const UNCONFIRMED_MAX: usize = 1000;

enum Command {
    Publish(Outgoing),
    Flush(oneshot::Sender<()>),
}

/// Publishes in the background. Cheap to clone.
#[derive(Clone)]
pub struct Publisher {
    commands: mpsc::Sender<Command>,
    state: Arc<State>,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct State {
    connected: AtomicBool,
    /// The broker has told that it takes nothing for now: an alarm of memory or disk.
    blocked: AtomicBool,
    /// Milliseconds since `epoch` of the oldest unconfirmed publish; `u64::MAX`: none.
    oldest: AtomicU64,
    /// A message found no queue or no exchange since this was last asked.
    misrouted: AtomicBool,
}

impl Publisher {
    /// Starts the connection's task; it ends with `stop`.
    pub fn start(config: BrokerConfig, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        let (commands, queue) = mpsc::channel(QUEUE_MAX);
        let state = Arc::new(State::default());
        state.oldest.store(u64::MAX, Ordering::Relaxed);
        let task = Task {
            config,
            metrics: metrics.clone(),
            state: state.clone(),
            unconfirmed: BTreeMap::new(),
            next: 0,
            connected_at: None,
        };
        tokio::spawn(task.run(queue, stop));
        Self {
            commands,
            state,
            metrics,
        }
    }

    /// Hands envelopes over. Never waits; what cannot be taken is dropped and counted.
    pub fn publish(&self, batch: Outgoing) {
        let jobs = batch.jobs.len() as u64;
        if jobs == 0 {
            return;
        }
        if !self.is_connected() || self.commands.try_send(Command::Publish(batch)).is_err() {
            self.metrics.publish.inc_by("dropped", jobs);
        }
    }

    /// Whether the broker takes messages: connected, and not blocked.
    pub fn is_connected(&self) -> bool {
        self.state.connected.load(Ordering::Relaxed) && !self.state.blocked.load(Ordering::Relaxed)
    }

    /// Whether a message has waited for its confirm for longer than a second.
    pub fn is_lagging(&self) -> bool {
        self.state.oldest.load(Ordering::Relaxed) != u64::MAX && {
            self.state.oldest.load(Ordering::Relaxed) + 1000 < elapsed_ms()
        }
    }

    /// Whether a message has found no queue, or no exchange, since the last call: somebody
    /// has deleted it, or what binds the two.
    pub fn take_misrouted(&self) -> bool {
        self.state.misrouted.swap(false, Ordering::Relaxed)
    }

    /// Waits until what was handed over before is sent and confirmed, `limit` at most.
    pub async fn flush(&self, limit: Duration) {
        let (done, flushed) = oneshot::channel();
        let _ = tokio::time::timeout(limit, async {
            if self.commands.send(Command::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        })
        .await;
    }
}

/// Milliseconds on the monotonic clock since the first call in this process.
fn elapsed_ms() -> u64 {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    EPOCH.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// What a published message came to.
enum Outcome {
    Confirmed,
    Returned,
    Nacked,
    Failed(lapin::Error),
    Unanswered,
}

type Confirm = BoxFuture<'static, (u64, u64, Outcome)>;

struct Task {
    config: BrokerConfig,
    metrics: Arc<Metrics>,
    state: Arc<State>,
    unconfirmed: BTreeMap<u64, u64>,
    next: u64,
    connected_at: Option<Instant>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Command>, stop: CancellationToken) {
        let mut backoff = Backoff::new();
        loop {
            let ended = tokio::select! {
                () = stop.cancelled() => None,
                result = self.session(&mut queue, &stop) => Some(result),
            };
            self.set_connected(false);
            self.set_blocked(false);
            self.unconfirmed.clear();
            self.note_oldest();
            let lived = self.connected_at.take().map(|at| at.elapsed());
            if lived.is_some_and(|lived| lived >= SETTLED) {
                backoff.reset();
            }
            match ended {
                None | Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "publishing connection lost; jobs wait in the database"
                    );
                }
            }
            // What was handed over while the connection broke is repaired by wake_at.
            self.drop_all(&mut queue);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(backoff.pause()) => {}
            }
        }
    }

    fn set_connected(&self, connected: bool) {
        self.state.connected.store(connected, Ordering::Relaxed);
        self.metrics
            .broker_connected
            .set("publisher", i64::from(connected));
    }

    fn set_blocked(&self, blocked: bool) {
        self.state.blocked.store(blocked, Ordering::Relaxed);
        self.metrics
            .broker_blocked
            .set("publisher", i64::from(blocked));
    }

    fn is_blocked(&self) -> bool {
        self.state.blocked.load(Ordering::Relaxed)
    }

    /// Lets go of what was handed over: `wake_at` brings it again.
    fn drop_all(&self, queue: &mut mpsc::Receiver<Command>) {
        while let Ok(command) = queue.try_recv() {
            if let Command::Publish(batch) = command {
                self.metrics
                    .publish
                    .inc_by("dropped", batch.jobs.len() as u64);
            }
        }
    }

    fn note_oldest(&self) {
        let oldest = self
            .unconfirmed
            .first_key_value()
            .map_or(u64::MAX, |(_, at)| *at);
        self.state.oldest.store(oldest, Ordering::Relaxed);
    }

    /// One connection's life. `Ok`: the queue was closed.
    async fn session(
        &mut self,
        queue: &mut mpsc::Receiver<Command>,
        stop: &CancellationToken,
    ) -> crate::error::Result<()> {
        let connection = connection::connect(&self.config, "publisher").await?;
        let mut events = Box::pin(connection.events_listener());
        let limit = self.config.confirm_timeout;
        let opening = async {
            let channel = connection.create_channel().await?;
            channel
                .confirm_select(ConfirmSelectOptions::default())
                .await?;
            Ok::<_, lapin::Error>(channel)
        };
        let channel = tokio::time::timeout(limit, opening)
            .await
            .map_err(|_| connection::timed_out("opening a channel"))?
            .map_err(connection::broker_error)?;
        let exchange = topology::exchange(&self.config);
        self.set_connected(true);
        self.connected_at = Some(Instant::now());
        let mut confirms: FuturesUnordered<Confirm> = FuturesUnordered::new();
        let mut flushes: Vec<oneshot::Sender<()>> = Vec::new();
        loop {
            if confirms.is_empty() {
                for done in flushes.drain(..) {
                    let _ = done.send(());
                }
            }
            tokio::select! {
                biased;
                Some((seq, jobs, outcome)) = confirms.next(), if !confirms.is_empty() => {
                    self.unconfirmed.remove(&seq);
                    self.note_oldest();
                    self.count(&outcome, jobs);
                    let error = match outcome {
                        Outcome::Failed(error) => self.broken(error),
                        // A broker that has told to wait answers when it goes on. A new
                        // connection would look as if it did, until the next publish.
                        Outcome::Unanswered if self.is_blocked() => continue,
                        Outcome::Unanswered => connection::timed_out("a confirm"),
                        Outcome::Confirmed | Outcome::Returned | Outcome::Nacked => continue,
                    };
                    connection::close(&connection).await;
                    return Err(error);
                }
                event = events.next() => self.heard(event, queue)?,
                command = queue.recv(), if !self.is_blocked() && confirms.len() < UNCONFIRMED_MAX && !stop.is_cancelled() => match command {
                    None => return Ok(()),
                    Some(Command::Flush(done)) => flushes.push(done),
                    Some(Command::Publish(batch)) => {
                        let key = topology::routing_key(&batch.queue, batch.lane);
                        for (body, jobs) in envelope::encode(&batch.jobs, batch.bundle) {
                            let publishing = channel.basic_publish(
                                exchange.as_str().into(),
                                key.as_str().into(),
                                BasicPublishOptions { mandatory: true, immediate: false },
                                &body,
                                BasicProperties::default()
                                    .with_content_type("application/json".into())
                                    .with_delivery_mode(2),
                            );
                            tokio::pin!(publishing);
                            let late = tokio::time::sleep(limit);
                            tokio::pin!(late);
                            // Nothing is written to a broker that has told to wait, so this
                            // can take as long as that: the word of it comes meanwhile.
                            let confirm = loop {
                                tokio::select! {
                                    biased;
                                    sent = &mut publishing => break sent.map_err(|error| self.broken(error))?,
                                    event = events.next() => {
                                        self.heard(event, queue)?;
                                        // The time that it was told to wait does not count.
                                        late.as_mut().reset(tokio::time::Instant::now() + limit);
                                    }
                                    () = &mut late, if !self.is_blocked() => return Err(connection::timed_out("a publish")),
                                }
                            };
                            let seq = self.next;
                            self.next += 1;
                            self.unconfirmed.insert(seq, elapsed_ms());
                            self.note_oldest();
                            self.metrics.published_messages.inc();
                            confirms.push(Box::pin(async move {
                                let outcome = match tokio::time::timeout(limit, confirm).await {
                                    Ok(Ok(Confirmation::Ack(None) | Confirmation::NotRequested)) => Outcome::Confirmed,
                                    // Acked, and yet it matched no queue.
                                    Ok(Ok(Confirmation::Ack(Some(_)))) => Outcome::Returned,
                                    Ok(Ok(Confirmation::Nack(_))) => Outcome::Nacked,
                                    Ok(Err(error)) => Outcome::Failed(error),
                                    Err(_) => Outcome::Unanswered,
                                };
                                (seq, jobs as u64, outcome)
                            }));
                        }
                    }
                },
            }
        }
    }

    /// Takes an event of the connection.
    fn heard(
        &mut self,
        event: Option<Event>,
        queue: &mut mpsc::Receiver<Command>,
    ) -> crate::error::Result<()> {
        match event {
            Some(Event::ConnectionBlocked(reason)) => {
                tracing::warn!(
                    reason,
                    "the broker blocks publishing; jobs wait in the database"
                );
                self.set_blocked(true);
                self.drop_all(queue);
            }
            Some(Event::ConnectionUnblocked) => {
                tracing::info!("the broker takes messages again");
                self.set_blocked(false);
            }
            Some(Event::Error(error)) => return Err(self.broken(error)),
            Some(_) => {}
            None => return Err(connection::timed_out("the connection's events")),
        }
        Ok(())
    }

    /// The end of a connection; notes where the broker misses the exchange.
    fn broken(&self, error: lapin::Error) -> crate::error::Error {
        if connection::is_not_found(&error) {
            self.state.misrouted.store(true, Ordering::Relaxed);
        }
        connection::broker_error(error)
    }

    fn count(&self, outcome: &Outcome, jobs: u64) {
        let label = match outcome {
            Outcome::Confirmed => "confirmed",
            Outcome::Returned => {
                self.state.misrouted.store(true, Ordering::Relaxed);
                "returned"
            }
            Outcome::Nacked => "nacked",
            Outcome::Failed(_) | Outcome::Unanswered => "failed",
        };
        self.metrics.publish.inc_by(label, jobs);
    }
}
