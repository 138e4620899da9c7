//! Consuming: one connection, a channel for each queue and lane, manual acks.
//!
//! Reconnects for ever. Consumers are cancelled while `wanted` is false, so that
//! messages stay where another worker can take them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Event};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connection::{self, Backoff, broker_error};
use super::topology;
use crate::config::BrokerConfig;
use crate::domain::job::Lane;
use crate::error::Result;
use crate::telemetry::metrics::Metrics;

/// A message as it came.
#[derive(Debug)]
pub struct Delivery {
    /// The logical queue.
    pub queue: Arc<str>,
    /// The lane.
    pub lane: Lane,
    /// The body.
    pub body: Vec<u8>,
    /// What acknowledges it.
    pub receipt: Receipt,
}

/// The right to acknowledge one message. Dropped without it, the broker delivers the
/// message again after the channel ends.
#[derive(Debug)]
pub struct Receipt {
    tag: u64,
    acks: Arc<Acks>,
}

impl Receipt {
    /// Acknowledges; together with what else is settled, in one frame where the tags
    /// allow it.
    pub fn settle(self) {
        self.acks.settle(self.tag);
    }
}

/// The open tags of one channel. A tag is only ever sent on the channel that gave it.
#[derive(Debug)]
struct Acks {
    open: Mutex<BTreeMap<u64, bool>>,
    wake: tokio::sync::Notify,
}

impl Acks {
    fn settle(&self, tag: u64) {
        let mut open = self.open.lock();
        if let Some(settled) = open.get_mut(&tag) {
            *settled = true;
        }
        drop(open);
        self.wake.notify_one();
    }

    /// What to acknowledge now: the highest tag up to which all are settled, and single
    /// tags behind the first open one.
    fn take(&self) -> (Option<u64>, Vec<u64>) {
        let mut open = self.open.lock();
        let mut up_to = None;
        while let Some(entry) = open.first_entry() {
            if !*entry.get() {
                break;
            }
            up_to = Some(entry.remove_entry().0);
        }
        let single: Vec<u64> = open
            .iter()
            .filter(|(_, settled)| **settled)
            .map(|(tag, _)| *tag)
            .collect();
        for tag in &single {
            open.remove(tag);
        }
        (up_to, single)
    }
}

/// What a consumer is started with.
pub struct ConsumerSettings {
    /// The broker.
    pub config: BrokerConfig,
    /// The logical queues.
    pub queues: Vec<String>,
    /// The most unacknowledged messages per queue and lane.
    pub prefetch: u16,
}

/// Consumes in the background until `stop`; deliveries go to `out`, which has room for
/// what prefetch allows. `wanted` turns the consumers off and on.
pub fn start(
    settings: ConsumerSettings,
    metrics: Arc<Metrics>,
    out: mpsc::Sender<Delivery>,
    wanted: watch::Receiver<bool>,
    stop: CancellationToken,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut backoff = Backoff::new();
        while !stop.is_cancelled() {
            let ended = tokio::select! {
                () = stop.cancelled() => Ok(()),
                result = session(&settings, &metrics, &out, &wanted, &mut backoff) => result,
            };
            metrics.broker_connected.set("consumer", i64::from(false));
            if let Err(error) = ended {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "consuming connection lost"
                );
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(backoff.pause()) => {}
            }
        }
    })
}

/// One connection's life: ends with the first channel that ends, since a half-working
/// consumer is worse than a new one.
async fn session(
    settings: &ConsumerSettings,
    metrics: &Arc<Metrics>,
    out: &mpsc::Sender<Delivery>,
    wanted: &watch::Receiver<bool>,
    backoff: &mut Backoff,
) -> Result<()> {
    let connection = connection::connect(&settings.config, "consumer").await?;
    let mut events = Box::pin(connection.events_listener());
    let mut lanes = tokio::task::JoinSet::new();
    for queue in &settings.queues {
        let queue: Arc<str> = queue.as_str().into();
        for lane in Lane::ALL {
            let channel = bounded(settings, connection.create_channel()).await?;
            bounded(
                settings,
                channel.basic_qos(settings.prefetch, BasicQosOptions::default()),
            )
            .await?;
            let consumer = LaneConsumer {
                name: topology::queue_name(&settings.config, &queue, lane),
                queue: queue.clone(),
                lane,
                channel,
                limit: settings.config.confirm_timeout,
                out: out.clone(),
                wanted: wanted.clone(),
            };
            lanes.spawn(consumer.run());
        }
    }
    metrics.broker_connected.set("consumer", i64::from(true));
    backoff.reset();
    let result = loop {
        tokio::select! {
            Some(ended) = lanes.join_next() => break ended.unwrap_or_else(|_| Err(connection::timed_out("a consumer"))),
            event = events.next() => match event {
                Some(Event::Error(error)) => break Err(broker_error(error)),
                None => break Err(connection::timed_out("the connection's events")),
                Some(_) => {}
            },
        }
    };
    lanes.abort_all();
    connection::close(connection).await;
    result
}

async fn bounded<T>(
    settings: &ConsumerSettings,
    call: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T> {
    tokio::time::timeout(settings.config.confirm_timeout, call)
        .await
        .map_err(|_| connection::timed_out("a broker call"))?
        .map_err(broker_error)
}

struct LaneConsumer {
    name: String,
    queue: Arc<str>,
    lane: Lane,
    channel: Channel,
    limit: Duration,
    out: mpsc::Sender<Delivery>,
    wanted: watch::Receiver<bool>,
}

impl LaneConsumer {
    async fn run(mut self) -> Result<()> {
        let acks = Arc::new(Acks {
            open: Mutex::new(BTreeMap::new()),
            wake: tokio::sync::Notify::new(),
        });
        let tag = "tenure";
        loop {
            while !*self.wanted.borrow_and_update() {
                tokio::select! {
                    changed = self.wanted.changed() => if changed.is_err() { return Ok(()) },
                    () = acks.wake.notified() => self.ack(&acks).await?,
                }
            }
            let consuming = self.channel.basic_consume(
                self.name.as_str().into(),
                tag.into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let mut deliveries = tokio::time::timeout(self.limit, consuming)
                .await
                .map_err(|_| connection::timed_out("consuming"))?
                .map_err(broker_error)?;
            loop {
                tokio::select! {
                    delivery = deliveries.next() => match delivery {
                        Some(Ok(delivery)) => {
                            acks.open.lock().insert(delivery.delivery_tag, false);
                            let receipt = Receipt { tag: delivery.delivery_tag, acks: acks.clone() };
                            let delivery = Delivery {
                                queue: self.queue.clone(),
                                lane: self.lane,
                                body: delivery.data,
                                receipt,
                            };
                            if self.out.send(delivery).await.is_err() {
                                return Ok(());
                            }
                        }
                        Some(Err(error)) => return Err(broker_error(error)),
                        // The broker cancelled us: the queue was deleted.
                        None => return Err(connection::timed_out("a consumer that the broker cancelled")),
                    },
                    () = acks.wake.notified() => self.ack(&acks).await?,
                    changed = self.wanted.changed() => {
                        if changed.is_err() {
                            return Ok(());
                        }
                        if !*self.wanted.borrow_and_update() {
                            break;
                        }
                    }
                }
            }
            tokio::time::timeout(
                self.limit,
                self.channel
                    .basic_cancel(tag.into(), BasicCancelOptions::default()),
            )
            .await
            .map_err(|_| connection::timed_out("cancelling a consumer"))?
            .map_err(broker_error)?;
            // What arrived before the cancel is with us, and is settled like the rest.
            while let Some(Ok(delivery)) = deliveries.next().await {
                acks.open.lock().insert(delivery.delivery_tag, false);
                let receipt = Receipt {
                    tag: delivery.delivery_tag,
                    acks: acks.clone(),
                };
                let delivery = Delivery {
                    queue: self.queue.clone(),
                    lane: self.lane,
                    body: delivery.data,
                    receipt,
                };
                if self.out.send(delivery).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    async fn ack(&self, acks: &Acks) -> Result<()> {
        let (up_to, single) = acks.take();
        let frames = up_to
            .map(|tag| (tag, true))
            .into_iter()
            .chain(single.into_iter().map(|tag| (tag, false)));
        for (tag, multiple) in frames {
            tokio::time::timeout(
                self.limit,
                self.channel.basic_ack(tag, BasicAckOptions { multiple }),
            )
            .await
            .map_err(|_| connection::timed_out("an ack"))?
            .map_err(broker_error)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acks_join_up_to_the_first_open_tag() {
        let acks = Acks {
            open: Mutex::new((1..=6).map(|tag| (tag, false)).collect()),
            wake: tokio::sync::Notify::new(),
        };
        for tag in [1, 2, 4, 6] {
            acks.settle(tag);
        }
        assert_eq!(acks.take(), (Some(2), vec![4, 6]));
        acks.settle(3);
        assert_eq!(acks.take(), (Some(3), vec![]));
        acks.settle(5);
        acks.settle(99);
        assert_eq!(acks.take(), (Some(5), vec![]));
    }
}
