//! Ends the pauses of queues by the system that nobody confirms any more.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::storage::Store;

use super::Chore;

/// How often is looked.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// A worker that still needs a pause says so each second. Longer than that by far, so that
/// a queue does not go on and off.
const QUIET: Duration = Duration::from_secs(10);

/// The chore.
#[derive(Debug)]
pub struct EndPauses {
    store: Store,
}

impl EndPauses {
    /// A chore on this database.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Chore for EndPauses {
    const NAME: &'static str = "end_pauses";

    async fn run_once(&mut self) -> Result<bool> {
        let ended = self.store.end_system_pauses(QUIET).await?;
        if !ended.is_empty() {
            tracing::info!(queues = ?ended, "pauses by the system have ended");
        }
        Ok(false)
    }
}
