//! Counts dead letters under their causes, and resolves replayed ones that a worker of the
//! previous release has ended without a word to them.

use std::time::Duration;

use tenure_core::domain::ids::DeadLetterId;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::{FOLD_BATCH, MAX_CAUSES};

use super::Chore;

/// The pause between two runs that found little to do.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Replayed letters are looked at in every so many runs.
const SETTLE_EVERY: u32 = 10;

/// The letters of one such look.
const SETTLE_BATCH: i64 = 1_000;

/// The chore.
#[derive(Debug)]
pub struct CountDeadLetters {
    store: Store,
    runs: u32,
    /// The last replayed letter that was looked at.
    after: Option<DeadLetterId>,
}

impl CountDeadLetters {
    /// A chore that has not looked yet.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            runs: 0,
            after: None,
        }
    }
}

impl Chore for CountDeadLetters {
    const NAME: &'static str = "dead_letters";

    async fn run_once(&mut self) -> Result<bool> {
        if self.runs.is_multiple_of(SETTLE_EVERY) {
            let settled = self
                .store
                .settle_dead_letters(self.after, SETTLE_BATCH)
                .await?;
            self.after = settled.next;
            if settled.resolved > 0 {
                tracing::info!(
                    letters = settled.resolved,
                    "replayed letters whose jobs had ended are resolved"
                );
            }
        }
        self.runs = self.runs.wrapping_add(1);
        let folded = self.store.fold_causes(FOLD_BATCH, MAX_CAUSES).await?;
        if let Some(folded) = folded.filter(|folded| folded.causes > 0) {
            tracing::info!(causes = folded.causes, "dead letters have new causes");
        }
        Ok(folded.is_some_and(|folded| folded.letters == FOLD_BATCH))
    }
}
