//! Makes the steps of bulk replays. Every process has one; the database says whose step is
//! whose, so that a process that dies leaves nothing half done and nothing to hand over.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::error::chain;
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::BulkTick;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often it is looked whether something is due that another process has begun.
const LOOK: Duration = Duration::from_secs(1);

/// The longest pause after failures in a row.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The task.
#[derive(Debug)]
pub struct BulkRunner {
    store: Store,
    started: Arc<Notify>,
}

impl BulkRunner {
    pub(crate) fn new(store: Store, started: Arc<Notify>) -> Self {
        Self { store, started }
    }

    /// Makes steps until `stop`; one that is under way is finished first.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut failures: u32 = 0;
        // When the next step of what this process has worked on is due.
        let mut due: Option<Instant> = None;
        loop {
            let pause = match self.store.bulk_replay_tick().await {
                Ok(BulkTick::Step {
                    id,
                    examined,
                    next_in,
                }) => {
                    failures = 0;
                    if let Some(time) = next_in {
                        let at = Instant::now() + time;
                        due = Some(due.map_or(at, |due| due.min(at)));
                    } else {
                        tracing::info!(bulk_replay = %id, "a bulk replay came to its end");
                    }
                    tracing::debug!(bulk_replay = %id, examined, "a step of a bulk replay");
                    // Another one may be due already.
                    Duration::ZERO
                }
                Ok(BulkTick::Idle) => {
                    failures = 0;
                    due.take().map_or(LOOK, |at| {
                        at.saturating_duration_since(Instant::now()).min(LOOK)
                    })
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    tracing::warn!(
                        error = chain(&error),
                        "a step of a bulk replay failed; it is tried again"
                    );
                    (LOOK * failures.min(10)).min(MAX_PAUSE)
                }
            };
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = self.started.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
