//! Gives turns in lines that nobody else saw to (PROTOCOL.md §12): a worker or a gateway was
//! killed between a commit and what follows it, or an operator's act has freed a place.

use std::time::Duration;

use tenure_core::error::Result;
use tenure_core::storage::Store;
use tokio::time::Instant;

use super::Chore;

/// How often notes are looked for.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Whoever made a note follows it up at once: younger ones are left to them.
const AGE_MS: i64 = 150;
/// The most lines of one run.
const LINES: i64 = 500;
/// How often blocked lines are looked at.
const UNBLOCK_EVERY: Duration = Duration::from_secs(1);

/// The chore.
pub struct Lines {
    store: Store,
    unblocked: Option<Instant>,
}

impl Lines {
    /// Looks after the lines of this database.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            unblocked: None,
        }
    }
}

impl Chore for Lines {
    const NAME: &'static str = "lines";

    async fn run_once(&mut self) -> Result<bool> {
        if self
            .unblocked
            .is_none_or(|at| at.elapsed() >= UNBLOCK_EVERY)
        {
            self.store.unblock_lines(LINES).await?;
            self.unblocked = Some(Instant::now());
        }
        let lines = self.store.noted_lines(AGE_MS, LINES).await?;
        self.store.give_turns(&lines).await?;
        Ok(lines.len() as i64 == LINES)
    }
}
