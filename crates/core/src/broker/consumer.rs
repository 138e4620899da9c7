//! Consuming: one connection, a channel for each queue and lane, manual acks.
//!
//! Reconnects for ever. Consumers are cancelled while `wanted` is false, so that
//! messages stay where another worker can take them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, Event};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::connection::{self, Backoff, broker_error};
use super::properties::Properties;
use super::topology;
use crate::config::BrokerConfig;
use crate::domain::job::Lane;
use crate::error::{Result, chain};
use crate::service::Component;
use crate::telemetry::metrics::Metrics;

/// A connection that has lived this long was a good one: the next starts at once.
const SETTLED: Duration = Duration::from_secs(10);
/// A lane whose channel ended is consumed again after this.
const LANE_PAUSE: Duration = Duration::from_secs(1);

/// How often a lane that is silent looks whether messages wait in its queue.
const WATCH_EVERY: Duration = Duration::from_secs(10);
/// So many looks in a row that found messages, and nothing delivered in between: the
/// broker has forgotten this consumer.
const WATCH_LIMIT: u32 = 3;

/// A message as it came.
#[derive(Debug)]
pub struct Delivery {
    /// The logical queue.
    pub queue: Arc<str>,
    /// The lane.
    pub lane: Lane,
    /// The body.
    pub body: Vec<u8>,
    /// What it has beside the body.
    pub properties: Properties,
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
    /// Told whether the broker is there.
    pub health: Component,
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
            // The receiver is gone, or we were told to stop.
            if ended.is_ok() {
                return;
            }
            if let Err(error) = ended {
                settings.health.down(chain(&error));
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

/// One connection's life. A lane whose channel ends (its queue was deleted, say) is
/// consumed again on a new channel; the others go on.
async fn session(
    settings: &ConsumerSettings,
    metrics: &Arc<Metrics>,
    out: &mpsc::Sender<Delivery>,
    wanted: &watch::Receiver<bool>,
    backoff: &mut Backoff,
) -> Result<()> {
    let connection = Arc::new(connection::connect(&settings.config, "consumer").await?);
    let mut events = Box::pin(connection.events_listener());
    let mut lanes = tokio::task::JoinSet::new();
    for queue in &settings.queues {
        let queue: Arc<str> = queue.as_str().into();
        for lane in Lane::ALL {
            let consumer = LaneConsumer {
                connection: connection.clone(),
                name: topology::queue_name(&settings.config, &queue, lane),
                queue: queue.clone(),
                lane,
                prefetch: settings.prefetch,
                limit: settings.config.confirm_timeout,
                out: out.clone(),
                wanted: wanted.clone(),
            };
            lanes.spawn(consumer.run());
        }
    }
    metrics.broker_connected.set("consumer", i64::from(true));
    settings.health.up();
    let began = tokio::time::Instant::now();
    let result = loop {
        tokio::select! {
            Some(ended) = lanes.join_next() => break ended.unwrap_or_else(|_| Err(connection::timed_out("a consumer"))),
            event = events.next() => match event {
                // The end of a channel comes here too, and is its lane's own matter.
                Some(Event::Error(error)) if !connection.status().connected() => {
                    break Err(broker_error(error));
                }
                None => break Err(connection::timed_out("the connection's events")),
                Some(_) => {}
            },
        }
    };
    lanes.abort_all();
    connection::close(&connection).await;
    if began.elapsed() >= SETTLED {
        backoff.reset();
    }
    result
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T> {
    tokio::time::timeout(limit, call)
        .await
        .map_err(|_| connection::timed_out("a broker call"))?
        .map_err(broker_error)
}

struct LaneConsumer {
    connection: Arc<Connection>,
    name: String,
    queue: Arc<str>,
    lane: Lane,
    prefetch: u16,
    limit: Duration,
    out: mpsc::Sender<Delivery>,
    wanted: watch::Receiver<bool>,
}

impl LaneConsumer {
    /// Until the receiver is gone (`Ok`) or the connection is.
    async fn run(mut self) -> Result<()> {
        let mut told = false;
        loop {
            match self.consume().await {
                Ok(()) => return Ok(()),
                Err(error) if !self.connection.status().connected() => return Err(error),
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            queue = self.name,
                            "a lane cannot be consumed; tried again each second"
                        );
                    }
                    tokio::time::sleep(LANE_PAUSE).await;
                }
            }
        }
    }

    /// One channel's life.
    async fn consume(&mut self) -> Result<()> {
        let channel = bounded(self.limit, self.connection.create_channel()).await?;
        let qos = channel.basic_qos(self.prefetch, BasicQosOptions::default());
        bounded(self.limit, qos).await?;
        let acks = Arc::new(Acks {
            open: Mutex::new(BTreeMap::new()),
            wake: tokio::sync::Notify::new(),
        });
        for number in 0_u64.. {
            // A tag is used once: a quorum queue remembers what it has sent by a tag that was
            // cancelled with messages unacked, counts on, and RabbitMQ 3.10 breaks the
            // channel off when the numbers do not fit.
            let tag = format!("tenure-{number}");
            while !*self.wanted.borrow_and_update() {
                tokio::select! {
                    changed = self.wanted.changed() => if changed.is_err() {
                        return self.ack(&channel, &acks).await;
                    },
                    () = acks.wake.notified() => self.ack(&channel, &acks).await?,
                }
            }
            let consuming = channel.basic_consume(
                self.name.as_str().into(),
                tag.as_str().into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            );
            let mut deliveries = bounded(self.limit, consuming).await?;
            let mut silent = 0;
            let mut watch =
                tokio::time::interval_at(tokio::time::Instant::now() + WATCH_EVERY, WATCH_EVERY);
            watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    delivery = deliveries.next() => match delivery {
                        Some(Ok(delivery)) => {
                            silent = 0;
                            if !self.hand_over(&acks, delivery).await {
                                return self.ack(&channel, &acks).await;
                            }
                        }
                        Some(Err(error)) => return Err(broker_error(error)),
                        // The broker cancelled us: the queue was deleted.
                        None => return Err(connection::timed_out("a consumer that the broker cancelled")),
                    },
                    () = acks.wake.notified() => self.ack(&channel, &acks).await?,
                    _ = watch.tick() => {
                        let forgotten = acks.open.lock().is_empty() && self.waiting(&channel).await?;
                        silent = if forgotten { silent + 1 } else { 0 };
                        if silent >= WATCH_LIMIT {
                            return Err(connection::timed_out("messages wait; delivering them"));
                        }
                    }
                    changed = self.wanted.changed() => {
                        if changed.is_err() {
                            return self.ack(&channel, &acks).await;
                        }
                        if !*self.wanted.borrow_and_update() {
                            break;
                        }
                    }
                }
            }
            let cancelling =
                channel.basic_cancel(tag.as_str().into(), BasicCancelOptions::default());
            bounded(self.limit, cancelling).await?;
            // What arrived before the cancel is with us, and is settled like the rest.
            while let Some(Ok(delivery)) = deliveries.next().await {
                if !self.hand_over(&acks, delivery).await {
                    return self.ack(&channel, &acks).await;
                }
            }
        }
        Ok(())
    }

    /// Whether messages wait in the queue. Also finds out whether the channel still lives.
    async fn waiting(&self, channel: &Channel) -> Result<bool> {
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let asking =
            channel.queue_declare(self.name.as_str().into(), passive, FieldTable::default());
        Ok(bounded(self.limit, asking).await?.message_count() > 0)
    }

    /// Hands a delivery to the worker; `false`: nobody takes any more.
    async fn hand_over(&self, acks: &Arc<Acks>, delivery: lapin::message::Delivery) -> bool {
        acks.open.lock().insert(delivery.delivery_tag, false);
        let receipt = Receipt {
            tag: delivery.delivery_tag,
            acks: acks.clone(),
        };
        let delivery = Delivery {
            queue: self.queue.clone(),
            lane: self.lane,
            body: delivery.data,
            properties: Properties(delivery.properties),
            receipt,
        };
        // Refused, its receipt is dropped without being settled: it is delivered again.
        self.out.send(delivery).await.is_ok()
    }

    async fn ack(&self, channel: &Channel, acks: &Acks) -> Result<()> {
        let (up_to, single) = acks.take();
        let frames = up_to
            .map(|tag| (tag, true))
            .into_iter()
            .chain(single.into_iter().map(|tag| (tag, false)));
        for (tag, multiple) in frames {
            bounded(
                self.limit,
                channel.basic_ack(tag, BasicAckOptions { multiple }),
            )
            .await?;
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
