//! Counts dead letters under their causes, and resolves replayed ones that a worker of the
//! previous release has ended without a word to them.

use std::time::Duration;

use tenure_core::domain::ids::DeadLetterId;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::{FOLD_BATCH, MAX_CAUSES, MAX_FOLD_BATCH};
use tokio::time::Instant;

use super::Chore;

/// The pause between two runs that found little to do.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Replayed letters are looked at in every so many runs.
const SETTLE_EVERY: u32 = 10;

/// The letters of one such look.
const SETTLE_BATCH: i64 = 1_000;

/// A full count that takes less than this is followed by a larger one, and one that takes
/// more than [`SLOW`] by a smaller one: a cause is written once for all that a count finds of
/// it, and a transaction that is short keeps no dead rows from being cleared away.
const QUICK: Duration = Duration::from_millis(400);
const SLOW: Duration = Duration::from_secs(1);

/// The chore.
#[derive(Debug)]
pub struct CountDeadLetters {
    store: Store,
    runs: u32,
    /// The last replayed letter that was looked at.
    after: Option<DeadLetterId>,
    /// The most that the next count looks at.
    batch: i64,
}

impl CountDeadLetters {
    /// A chore that has not looked yet.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            runs: 0,
            after: None,
            batch: FOLD_BATCH,
        }
    }

    /// Counts once; `true`: there is more.
    async fn count(&mut self) -> Result<bool> {
        let began = Instant::now();
        // Until it has succeeded: one that is too large for the database of this moment is
        // not tried again.
        let batch = std::mem::replace(&mut self.batch, FOLD_BATCH);
        let Some(folded) = self.store.fold_causes(batch, MAX_CAUSES).await? else {
            return Ok(false);
        };
        let full = folded.notes == batch;
        self.batch = next_batch(batch, full, began.elapsed());
        if folded.causes > 0 {
            tracing::info!(causes = folded.causes, "dead letters have new causes");
        }
        Ok(full)
    }
}

/// The size of the count after one of this size.
fn next_batch(batch: i64, full: bool, took: Duration) -> i64 {
    if !full {
        FOLD_BATCH
    } else if took < QUICK {
        (batch * 2).min(MAX_FOLD_BATCH)
    } else if took > SLOW {
        (batch / 2).max(FOLD_BATCH)
    } else {
        batch
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
        self.count().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_as_large_as_it_is_quick() {
        let after = |batch, took| next_batch(batch, true, Duration::from_millis(took));
        assert_eq!(after(FOLD_BATCH, 20), 2 * FOLD_BATCH);
        assert_eq!(after(8_000, 700), 8_000);
        assert_eq!(after(8_000, 1_500), 4_000);
        assert_eq!(after(FOLD_BATCH, 60_000), FOLD_BATCH);
        assert_eq!(after(MAX_FOLD_BATCH, 20), MAX_FOLD_BATCH);
        assert_eq!(
            next_batch(MAX_FOLD_BATCH, false, Duration::from_millis(20)),
            FOLD_BATCH
        );
    }
}
