//! Removes what imports leave and nobody needs: rows that were replaced, everything of
//! imports that came to nothing, unique values of imports that have ended, and rejected rows
//! of those whose job is gone.

use std::time::Duration;

use tenure_core::domain::ids::JobId;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::datasets;
use tenure_core::storage::imports::{
    ended_with_unique, gone_with_rejects, leftovers, prune_rejects_step, prune_step,
    prune_unique_step,
};
use tokio::time::Instant;

use super::Chore;

/// The imports that one page looks at.
const PAGE: i64 = 1_000;

/// The pages of one run: looking at all imports may take several.
const PAGES: usize = 10;

/// How long one run removes before it lets others have a turn.
const TURN: Duration = Duration::from_secs(5);

/// The chore. Where it left off is kept in memory; a new one begins at the first import.
#[derive(Debug)]
pub struct PruneImports {
    store: Store,
    /// The last import that was looked at.
    after: Option<JobId>,
}

impl PruneImports {
    /// A chore that has not looked yet.
    pub fn new(store: Store) -> Self {
        Self { store, after: None }
    }

    /// Removes the unique values of imports that have ended; `false`: time is up.
    async fn unique(&self, until: Instant) -> Result<bool> {
        let mut after = None;
        loop {
            let page = ended_with_unique(&self.store, after, PAGE).await?;
            for job_id in &page.jobs {
                while prune_unique_step(&self.store, *job_id).await? {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
            }
            after = page.last;
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    /// Removes the rejected rows of imports whose job is gone; `false`: time is up.
    async fn rejects(&self, until: Instant) -> Result<bool> {
        let mut after = None;
        loop {
            let page = gone_with_rejects(&self.store, after, PAGE).await?;
            for job_id in &page.jobs {
                while prune_rejects_step(&self.store, *job_id).await? {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
            }
            after = page.last;
            if after.is_none() {
                return Ok(true);
            }
        }
    }
}

impl Chore for PruneImports {
    const NAME: &'static str = "prune_imports";

    async fn run_once(&mut self) -> Result<bool> {
        let until = Instant::now() + TURN;
        if !self.unique(until).await? || !self.rejects(until).await? {
            return Ok(true);
        }
        for _ in 0..PAGES {
            let page = leftovers(&self.store, self.after, PAGE).await?;
            for job_id in &page.jobs {
                while prune_step(&self.store, *job_id).await? {
                    if Instant::now() >= until {
                        return Ok(true);
                    }
                }
                tracing::info!(job = %job_id, "what its import had left is removed");
            }
            self.after = page.last;
            if self.after.is_none() {
                datasets::prune(&self.store, PAGE).await?;
                break;
            }
        }
        Ok(false)
    }
}
