//! Removes the rows that retention lets go: ended jobs with their logs and history, events,
//! keys that bind nothing, notifications, and workers that were not heard of for a day; closed
//! letters and what operators did where a policy says so.
//!
//! After each step it rests as long as the step took, so that it never takes more than half
//! of one connection's time from the work.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::config::RetentionConfig;
use tenure_core::domain::ids::{DeadLetterId, JobId};
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::retention::{EventCursor, KeyCursor, Step};
use tenure_core::telemetry::metrics::Metrics;
use tokio::time::Instant;

use super::Chore;

/// The rows that one step looks at.
const STEP: i64 = 1_000;
/// How long one table has its turn.
const TURN: Duration = Duration::from_secs(2);
/// The longest rest after a step.
const REST_MAX: Duration = Duration::from_secs(1);

/// The chore. Where its walks are is kept in memory; a new one begins at the first row.
#[derive(Debug)]
pub struct PruneRows {
    store: Store,
    keep: RetentionConfig,
    metrics: Arc<Metrics>,
    jobs: Option<JobId>,
    events: Option<EventCursor>,
    keys: Option<KeyCursor>,
    letters: Option<DeadLetterId>,
}

impl PruneRows {
    /// A chore that has not walked yet.
    pub fn new(store: Store, keep: RetentionConfig, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            keep,
            metrics,
            jobs: None,
            events: None,
            keys: None,
            letters: None,
        }
    }

    async fn walk_jobs(&mut self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let step = self
                .store
                .prune_jobs(self.jobs, self.keep.jobs, STEP)
                .await?;
            self.jobs = self.count("jobs", step);
            if !turn.goes_on(self.jobs.is_some()).await {
                return Ok(self.jobs.is_some());
            }
        }
    }

    async fn walk_events(&mut self) -> Result<bool> {
        let keep = self.keep.jobs + self.keep.events_beyond_jobs;
        let mut turn = Turn::new();
        loop {
            let step = self.store.prune_events(self.events, keep, STEP).await?;
            self.events = self.count("events", step);
            if !turn.goes_on(self.events.is_some()).await {
                return Ok(self.events.is_some());
            }
        }
    }

    /// Keys are not in the order of time: a walk looks at all of them.
    async fn walk_keys(&mut self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let step = self.store.prune_keys(self.keys.as_ref(), STEP).await?;
            self.keys = self.count("keys", step);
            if !turn.goes_on(self.keys.is_some()).await {
                // What has no key to remove is no reason to walk on at once.
                return Ok(false);
            }
        }
    }

    async fn clear_notifications(&self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let removed = self
                .store
                .prune_notifications(self.keep.notifications, STEP)
                .await?;
            self.metrics.pruned_rows.inc_by("notifications", removed);
            let more = removed == STEP.unsigned_abs();
            if !turn.goes_on(more).await {
                return Ok(more);
            }
        }
    }

    /// By an explicit policy alone.
    async fn walk_letters(&mut self) -> Result<bool> {
        let Some(keep) = self.keep.closed_letters else {
            return Ok(false);
        };
        let mut turn = Turn::new();
        loop {
            let step = self.store.prune_letters(self.letters, keep, STEP).await?;
            self.letters = self.count("dead_letters", step);
            if !turn.goes_on(self.letters.is_some()).await {
                return Ok(self.letters.is_some());
            }
        }
    }

    /// By an explicit policy alone.
    async fn clear_audit(&self) -> Result<bool> {
        let Some(keep) = self.keep.audit else {
            return Ok(false);
        };
        let mut turn = Turn::new();
        loop {
            let removed = self.store.prune_audit(keep, STEP).await?;
            self.metrics.pruned_rows.inc_by("audit", removed);
            let more = removed >= STEP.unsigned_abs();
            if !turn.goes_on(more).await {
                return Ok(more);
            }
        }
    }

    fn count<C>(&self, table: &'static str, step: Step<C>) -> Option<C> {
        self.metrics.pruned_rows.inc_by(table, step.removed);
        step.next
    }
}

impl Chore for PruneRows {
    const NAME: &'static str = "prune_rows";

    async fn run_once(&mut self) -> Result<bool> {
        let jobs = self.walk_jobs().await?;
        let events = self.walk_events().await?;
        let keys = self.walk_keys().await?;
        let notifications = self.clear_notifications().await?;
        let letters = self.walk_letters().await?;
        let audit = self.clear_audit().await?;
        let workers = self.store.prune_workers().await?;
        self.metrics.pruned_rows.inc_by("workers", workers);
        Ok(jobs || events || keys || notifications || letters || audit)
    }
}

/// The time of one table.
struct Turn {
    start: Instant,
    step: Instant,
}

impl Turn {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            start: now,
            step: now,
        }
    }

    /// Rests; `false`: the turn is over, or there is no more.
    async fn goes_on(&mut self, more: bool) -> bool {
        let Some(rest) = rest(more, self.start.elapsed(), self.step.elapsed()) else {
            return false;
        };
        tokio::time::sleep(rest).await;
        self.step = Instant::now();
        true
    }
}

/// How long to rest after a step that took `step`; `None`: the turn is over.
fn rest(more: bool, turn: Duration, step: Duration) -> Option<Duration> {
    (more && turn < TURN).then(|| step.min(REST_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_followed_by_a_rest_as_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest(true, ms(100), ms(40)), Some(ms(40)));
        assert_eq!(rest(true, ms(1_900), ms(1_800)), Some(REST_MAX));
        assert_eq!(rest(true, TURN, ms(40)), None);
        assert_eq!(rest(false, ms(100), ms(40)), None);
    }
}
