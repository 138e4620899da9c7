//! Removes files that have expired, and content that nobody knows of: uploads that broke
//! off in a crash between content and description, removed files whose content stayed,
//! and what broken-off writes have staged.
//!
//! Content goes first and its description after: a crash in between repeats harmlessly,
//! since an expired file never comes back to life. Any number of sweepers may do this at
//! once; at worst two remove the same thing.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tenure_core::domain::ids::FileId;
use tenure_core::error::Result;
use tenure_core::files::{FileStore, Found, Walk};
use tenure_core::storage::Store;
use tenure_core::storage::files::prune::{self, Expired};
use tenure_core::telemetry::metrics::Metrics;

use super::Chore;

/// The most expired files of one step.
const STEP: i64 = 100;
/// The most such steps of one run.
const STEPS: usize = 10;
/// The most names of one page of the walk; what a bucket lists at once.
const PAGE: usize = 1000;
/// The most pages of one run: the walk goes on where it was in the next.
const PAGES: usize = 10;
/// So many names are asked for in the database right before they are removed: a report may
/// be written anew, under its old name, while others go.
const ASKED: usize = 20;
/// After so many failures in a row the store is taken to be away.
const PATIENCE: usize = 10;

/// The chore.
#[derive(Debug)]
pub struct PruneFiles {
    store: Store,
    files: FileStore,
    walk: Walk,
    orphan_age: Duration,
    metrics: Arc<Metrics>,
}

impl PruneFiles {
    /// Content without a description is removed when it is older than `orphan_age`.
    pub fn new(
        store: Store,
        files: FileStore,
        orphan_age: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            walk: files.walk(),
            store,
            files,
            orphan_age,
            metrics,
        }
    }

    /// Removes expired files. One that cannot be removed is passed over until the next
    /// run.
    async fn expired(&self) -> Result<bool> {
        let mut after = None;
        let mut patience = Patience::default();
        let mut pruned_files = 0;
        for _ in 0..STEPS {
            let step = prune::expired(&self.store, after, STEP).await?;
            after = step.last().copied();
            let mut gone = Vec::with_capacity(step.len());
            let removed = self.remove_content(&step, &mut gone, &mut patience).await;
            // Also where not all of it could be removed.
            if !gone.is_empty() {
                let pruned = prune::prune(&self.store, &gone).await?;
                self.count("expired", pruned.files, pruned.bytes);
                pruned_files += pruned.files;
            }
            removed?;
            if step.len() as i64 != STEP {
                return Ok(false);
            }
        }
        // Where nothing could be removed there is no reason to go on at once.
        Ok(pruned_files > 0)
    }

    async fn remove_content(
        &self,
        step: &[Expired],
        gone: &mut Vec<FileId>,
        patience: &mut Patience,
    ) -> Result<()> {
        for file in step {
            let result = self.files.delete(file.file_id).await;
            if result.is_ok() {
                gone.push(file.file_id);
            } else {
                self.metrics.prune_failures.inc("expired");
            }
            patience.after(result)?;
        }
        Ok(())
    }

    /// Walks on over the store.
    async fn orphans(&mut self) -> Result<()> {
        let before = prune::time_before(&self.store, self.orphan_age).await?;
        let any_described = prune::any_described(&self.store).await?;
        let mut patience = Patience::default();
        for _ in 0..PAGES {
            let page = self.walk.next(PAGE).await?;
            let (staged, content): (Vec<_>, Vec<_>) = old(page.found, before)
                .into_iter()
                .partition(Found::is_staged);
            // What a write has staged is no content, whether the file is whole or not.
            for found in staged {
                self.remove(&found, &mut patience).await?;
            }
            if !any_described && !content.is_empty() {
                tracing::error!(
                    files = content.len(),
                    "the database describes no file and the object store has old ones: is it the right database? nothing is removed"
                );
                break;
            }
            for some in content.chunks(ASKED) {
                let ids: Vec<_> = some.iter().map(|found| found.file_id).collect();
                let described = prune::described(&self.store, &ids).await?;
                for found in some.iter().filter(|it| !described.contains(&it.file_id)) {
                    self.remove(found, &mut patience).await?;
                }
            }
            if page.ended {
                break;
            }
        }
        Ok(())
    }

    async fn remove(&self, found: &Found, patience: &mut Patience) -> Result<()> {
        let kind = if found.is_staged() {
            "staged"
        } else {
            "orphan"
        };
        let result = self.walk.remove(found).await;
        if result.is_ok() {
            self.count(kind, 1, found.size);
            tracing::info!(file_id = %found.file_id, bytes = found.size, kind, "removed from the object store: nothing describes it");
        } else {
            self.metrics.prune_failures.inc(kind);
        }
        patience.after(result)
    }

    fn count(&self, kind: &'static str, files: u64, bytes: u64) {
        self.metrics.pruned_files.inc_by(kind, files);
        self.metrics.pruned_bytes.inc_by(bytes);
    }
}

impl Chore for PruneFiles {
    const NAME: &'static str = "prune_files";

    async fn run_once(&mut self) -> Result<bool> {
        // One of the two being in trouble does not keep the other from its work.
        let expired = self.expired().await;
        let orphans = self.orphans().await;
        let more = expired?;
        orphans?;
        Ok(more)
    }
}

/// What was written before this time. A write that goes on is younger, and so is content
/// whose description is being written.
fn old(found: Vec<Found>, before: DateTime<Utc>) -> Vec<Found> {
    let mut found = found;
    found.retain(|found| found.modified < before);
    found
}

/// Tells a file that cannot be removed from a store that is away.
#[derive(Debug, Default)]
struct Patience(usize);

impl Patience {
    /// The error, where it is one too many.
    fn after(&mut self, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => self.0 = 0,
            Err(error) => {
                self.0 += 1;
                if self.0 >= PATIENCE {
                    return Err(error);
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a file's content cannot be removed; it is tried again"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::error::{Code, Error};

    use super::*;

    #[test]
    fn a_store_that_is_away_ends_a_run_and_one_bad_file_does_not() {
        let failed = || Err(Error::new(Code::StoreUnavailable, "away"));
        let mut patience = Patience::default();
        for _ in 0..3 {
            for _ in 1..PATIENCE {
                assert!(patience.after(failed()).is_ok());
            }
            assert!(patience.after(Ok(())).is_ok());
        }
        for _ in 1..PATIENCE {
            assert!(patience.after(failed()).is_ok());
        }
        assert!(patience.after(failed()).is_err());
    }
}
