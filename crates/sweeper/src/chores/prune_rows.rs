//! Removes the rows that retention lets go: ended jobs with their logs and history, events,
//! keys that bind nothing, notifications, users without jobs, and workers that were not heard
//! of for a day; closed letters and what operators did where a policy says so.
//!
//! After each step it rests as long as the step took, so that it never takes more than half
//! of one connection's time from the work. A table whose step fails does not keep the others
//! from theirs, and its next step looks at half as many rows: one that is too much for the
//! time limit of a statement would be so for ever.

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

/// The rows that one step looks at, where no step of the table has failed of late.
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
    users: Option<String>,
    sizes: Sizes,
}

/// The rows of the next step of each table.
#[derive(Debug, Default)]
struct Sizes {
    jobs: Size,
    events: Size,
    keys: Size,
    notifications: Size,
    letters: Size,
    users: Size,
    audit: Size,
}

/// Halved by a step that fails, doubled by one that does not.
#[derive(Debug)]
struct Size(i64);

impl Default for Size {
    fn default() -> Self {
        Self(STEP)
    }
}

impl Size {
    fn after<T>(&mut self, step: Result<T>) -> Result<T> {
        self.0 = match &step {
            Ok(_) => (self.0 * 2).min(STEP),
            Err(_) => (self.0 / 2).max(1),
        };
        step
    }
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
            users: None,
            sizes: Sizes::default(),
        }
    }

    async fn walk_jobs(&mut self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let size = &mut self.sizes.jobs;
            let step = self.store.prune_jobs(self.jobs, self.keep.jobs, size.0);
            let step = size.after(step.await)?;
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
            let size = &mut self.sizes.events;
            let step = self.store.prune_events(self.events, keep, size.0);
            let step = size.after(step.await)?;
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
            let size = &mut self.sizes.keys;
            let step = self.store.prune_keys(self.keys.as_ref(), size.0);
            let step = size.after(step.await)?;
            self.keys = self.count("keys", step);
            if !turn.goes_on(self.keys.is_some()).await {
                // What has no key to remove is no reason to walk on at once.
                return Ok(false);
            }
        }
    }

    async fn clear_notifications(&mut self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let size = &mut self.sizes.notifications;
            let asked = size.0.unsigned_abs();
            let step = self
                .store
                .prune_notifications(self.keep.notifications, size.0);
            let removed = size.after(step.await)?;
            self.metrics.pruned_rows.inc_by("notifications", removed);
            let more = removed == asked;
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
            let size = &mut self.sizes.letters;
            let step = self.store.prune_letters(self.letters, keep, size.0);
            let step = size.after(step.await)?;
            self.letters = self.count("dead_letters", step);
            if !turn.goes_on(self.letters.is_some()).await {
                return Ok(self.letters.is_some());
            }
        }
    }

    /// By an explicit policy alone.
    async fn clear_audit(&mut self) -> Result<bool> {
        let Some(keep) = self.keep.audit else {
            return Ok(false);
        };
        let mut turn = Turn::new();
        loop {
            let size = &mut self.sizes.audit;
            let asked = size.0.unsigned_abs();
            let removed = size.after(self.store.prune_audit(keep, size.0).await)?;
            self.metrics.pruned_rows.inc_by("audit", removed);
            let more = removed >= asked;
            if !turn.goes_on(more).await {
                return Ok(more);
            }
        }
    }

    /// Users are not in the order of time: a walk looks at all of them.
    async fn walk_users(&mut self) -> Result<bool> {
        let mut turn = Turn::new();
        loop {
            let size = &mut self.sizes.users;
            let step = self.store.prune_user_loads(self.users.as_deref(), size.0);
            let step = size.after(step.await)?;
            self.users = self.count("user_load", step);
            if !turn.goes_on(self.users.is_some()).await {
                return Ok(false);
            }
        }
    }

    async fn clear_workers(&self) -> Result<bool> {
        let workers = self.store.prune_workers().await?;
        self.metrics.pruned_rows.inc_by("workers", workers);
        Ok(false)
    }

    fn count<C>(&self, table: &'static str, step: Step<C>) -> Option<C> {
        self.metrics.pruned_rows.inc_by(table, step.removed);
        step.next
    }
}

impl Chore for PruneRows {
    const NAME: &'static str = "prune_rows";

    async fn run_once(&mut self) -> Result<bool> {
        let tables = [
            ("jobs", self.walk_jobs().await),
            ("events", self.walk_events().await),
            ("keys", self.walk_keys().await),
            ("notifications", self.clear_notifications().await),
            ("dead_letters", self.walk_letters().await),
            ("audit", self.clear_audit().await),
            ("user_load", self.walk_users().await),
            ("workers", self.clear_workers().await),
        ];
        outcome(tables)
    }
}

/// Whether any table has more; the first error, where there is one, and the others in the log.
fn outcome<const N: usize>(tables: [(&'static str, Result<bool>); N]) -> Result<bool> {
    let (mut more, mut failed) = (false, None);
    for (table, result) in tables {
        match result {
            Ok(has_more) => more |= has_more,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    table,
                    "a step of retention failed; the next one looks at half as many rows"
                );
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(more), Err)
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
    use tenure_core::error::{Code, Error};

    use super::*;

    fn failed() -> Result<bool> {
        Err(Error::new(Code::DatabaseUnavailable, "slow"))
    }

    #[test]
    fn a_step_that_fails_is_halved_until_it_passes() {
        let mut size = Size::default();
        let mut seen = Vec::new();
        for _ in 0..11 {
            assert!(size.after(failed()).is_err());
            seen.push(size.0);
        }
        assert_eq!(seen, [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1]);
        for _ in 0..11 {
            assert!(size.after(Ok(true)).is_ok());
        }
        assert_eq!(size.0, STEP);
    }

    #[test]
    fn one_table_that_fails_is_told_after_the_others_had_their_turn() {
        assert!(outcome([("a", Ok(false)), ("b", failed()), ("c", Ok(true))]).is_err());
        assert_eq!(
            outcome([("a", Ok(false)), ("b", Ok(true))]).ok(),
            Some(true)
        );
        assert_eq!(outcome([("a", Ok(false))]).ok(), Some(false));
    }

    #[test]
    fn a_step_is_followed_by_a_rest_as_long() {
        let ms = Duration::from_millis;
        assert_eq!(rest(true, ms(100), ms(40)), Some(ms(40)));
        assert_eq!(rest(true, ms(1_900), ms(1_800)), Some(REST_MAX));
        assert_eq!(rest(true, TURN, ms(40)), None);
        assert_eq!(rest(false, ms(100), ms(40)), None);
    }
}
