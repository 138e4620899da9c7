//! Keeps the broker's queues there: those of queues that are new, and those that
//! somebody deleted. Needs the right to configure; without it, `tenure-sweeper migrate`
//! has to be run by somebody who has it, and the log says so.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::broker::topology;
use tenure_core::config::BrokerConfig;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tokio::sync::Mutex;

/// How often new queues are looked for.
pub const INTERVAL: Duration = Duration::from_secs(2);

/// What has been declared.
pub struct Topology {
    store: Store,
    broker: BrokerConfig,
    declared: Mutex<BTreeSet<String>>,
}

impl Topology {
    /// Nothing is known to be declared yet.
    pub fn new(store: Store, broker: BrokerConfig) -> Self {
        Self {
            store,
            broker,
            declared: Mutex::default(),
        }
    }

    /// Declares the queues that have appeared in the database since the last time.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE, BROKER_UNAVAILABLE.
    pub async fn declare_new(&self) -> Result<()> {
        let mut declared = self.declared.lock().await;
        let names = self.store.queue_names().await?;
        let new: Vec<String> = names
            .into_iter()
            .filter(|name| !declared.contains(name))
            .collect();
        if !new.is_empty() {
            topology::declare(&self.broker, &new).await?;
            tracing::info!(queues = ?new, "queues declared");
            declared.extend(new);
        }
        Ok(())
    }

    /// Declares a queue again that was found missing.
    ///
    /// # Errors
    /// BROKER_UNAVAILABLE.
    pub async fn restore(&self, queue: &str) -> Result<()> {
        tracing::warn!(queue, "the broker's queue is missing; it is declared again");
        topology::declare(&self.broker, &[queue.to_owned()]).await
    }

    /// The names of all queues.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn queues(&self) -> Result<Vec<String>> {
        self.store.queue_names().await
    }
}
