//! Keeps the broker's exchange, queues and bindings there: those of queues that are new,
//! and those that somebody deleted. Needs the right to configure; without it,
//! `tenure-sweeper migrate` has to be run by somebody who has it, and the log says so.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tenure_core::broker::topology;
use tenure_core::config::BrokerConfig;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How often new queues are looked for.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// How often all is declared again, though nothing seems to be missing: a binding that is
/// gone shows nowhere but in messages that come back.
const ALL_EVERY: Duration = Duration::from_mins(1);

/// After a queue could not be declared the next try waits this long, then twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// At most this long.
const LAST_PAUSE: Duration = Duration::from_mins(1);

/// What has been declared.
pub struct Topology {
    store: Store,
    broker: BrokerConfig,
    declared: Mutex<Declared>,
    failing: Mutex<HashMap<String, Failing>>,
}

#[derive(Default)]
struct Declared {
    queues: BTreeSet<String>,
    all_at: Option<Instant>,
}

/// A queue that cannot be declared.
struct Failing {
    again_at: Instant,
    pause: Duration,
}

impl Topology {
    /// Nothing is known to be declared yet.
    pub fn new(store: Store, broker: BrokerConfig) -> Self {
        Self {
            store,
            broker,
            declared: Mutex::default(),
            failing: Mutex::default(),
        }
    }

    /// Declares the queues that have appeared in the database since the last time; all of
    /// them each minute, and at once where a message has found no queue (`misrouted`).
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE, BROKER_UNAVAILABLE.
    pub async fn run_once(&self, misrouted: bool) -> Result<()> {
        let mut declared = self.declared.lock().await;
        let names = self.store.queue_names().await?;
        if misrouted {
            tracing::warn!("messages found no queue or no exchange; all are declared again");
        }
        let all = misrouted || declared.all_at.is_none_or(|at| at.elapsed() >= ALL_EVERY);
        let wanted: Vec<String> = names
            .into_iter()
            .filter(|name| all || !declared.queues.contains(name))
            .collect();
        // One at a time: a queue that is there with other properties must not keep the
        // others from being declared.
        let mut failed = None;
        for name in wanted {
            match topology::declare(&self.broker, std::slice::from_ref(&name)).await {
                Ok(()) => {
                    if declared.queues.insert(name.clone()) {
                        tracing::info!(queue = name, "queue declared");
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        if all {
            declared.all_at = Some(Instant::now());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Declares a queue again that was found missing; `false`: not now, since it failed a
    /// moment ago.
    ///
    /// # Errors
    /// BROKER_UNAVAILABLE.
    pub async fn restore(&self, queue: &str) -> Result<bool> {
        let mut failing = self.failing.lock().await;
        if failing
            .get(queue)
            .is_some_and(|entry| Instant::now() < entry.again_at)
        {
            return Ok(false);
        }
        tracing::warn!(queue, "the broker's queue is missing; it is declared again");
        match topology::declare(&self.broker, &[queue.to_owned()]).await {
            Ok(()) => {
                failing.remove(queue);
                Ok(true)
            }
            Err(error) => {
                let pause = failing
                    .get(queue)
                    .map_or(FIRST_PAUSE, |entry| (entry.pause * 2).min(LAST_PAUSE));
                let again_at = Instant::now() + pause;
                failing.insert(queue.to_owned(), Failing { again_at, pause });
                Err(error)
            }
        }
    }

    /// The names of all queues.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn queues(&self) -> Result<Vec<String>> {
        self.store.queue_names().await
    }
}
