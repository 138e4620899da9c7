//! Wakes rows whose time has come (PROTOCOL.md §10).

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use tenure_core::clock::boottime;
use tenure_core::config::Config;
use tenure_core::domain::ids::JobId;
use tenure_core::error::{Class, Code, Result};
use tenure_core::storage::history::{HistoryEntry, HistoryWriter};
use tenure_core::storage::wake::Woken;
use tenure_core::storage::{DbKind, Store, classify, db_error};
use tenure_core::telemetry::metrics::Metrics;

/// How far the database's clock and ours may drift apart between two looks.
const CLOCK_STEP: f64 = 1.0;

/// The chore.
pub struct Wake {
    store: Store,
    batch: i64,
    horizon: Duration,
    full_pass: Duration,
    poison_limit: i16,
    history: HistoryWriter,
    metrics: Arc<Metrics>,
    contact: Contact,
    last_full: Option<Duration>,
}

/// What one run came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Rows that were woken.
    pub woken: usize,
    /// Whether there were as many candidates as one batch takes.
    pub full: bool,
}

impl Wake {
    /// Takes back leases only after contact with the database has been unbroken for a
    /// third of a lease and a second.
    pub fn new(
        store: Store,
        config: &Config,
        history: HistoryWriter,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store,
            batch: i64::from(config.sweeper.wake_batch),
            horizon: config.sweeper.lost_horizon,
            full_pass: config.sweeper.full_pass_interval,
            poison_limit: i16::try_from(config.retry.poison_lost).unwrap_or(i16::MAX),
            history,
            metrics,
            contact: Contact::new(
                config.worker.lease / 3 + Duration::from_secs(1),
                config.sweeper.wake_interval,
            ),
            last_full: None,
        }
    }

    /// Wakes one batch.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn run_once(&mut self) -> Result<Counts> {
        let result = self.run().await;
        if result.is_err() {
            self.contact.lost();
        }
        result
    }

    async fn run(&mut self) -> Result<Counts> {
        let asked = boottime();
        let theirs = self.store.now().await?;
        let now = boottime();
        // In the middle, so that a slow answer is not taken for a jump.
        let take_back = self
            .contact
            .seen(asked + now.saturating_sub(asked) / 2, theirs);
        let full_pass = self
            .last_full
            .is_none_or(|last| now.saturating_sub(last) >= self.full_pass);
        let horizon = (!full_pass).then_some(self.horizon);
        let ids = self.store.wake_candidates(horizon, self.batch).await?;
        let full = ids.len() as i64 == self.batch;
        if full_pass && !full {
            self.last_full = Some(now);
        }
        let (woken, outcome) = self.wake(ids, take_back).await;
        // What was woken is told and followed up, whatever came after it.
        for row in &woken {
            self.tell(row);
        }
        let lines = woken.iter().filter_map(Woken::line).collect();
        if let Err(error) = self.store.give_turns(&lines).await {
            // They are noted.
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "lines could not go on"
            );
        }
        outcome?;
        // Rows that others hold, and leases that may not be taken back yet, are no
        // reason to go on at once.
        let moved = woken.iter().filter(|row| row.target() != "unsure").count();
        Ok(Counts {
            woken: woken.len(),
            full: full && moved > 0,
        })
    }

    /// Wakes a batch. A row whose update fails is found by bisection and put off; one that
    /// somebody keeps from being woken just now is left for the next run. Answers with what
    /// was woken, and the error that ended it where the database is away.
    async fn wake(&self, ids: Vec<JobId>, take_back: bool) -> (Vec<Woken>, Result<()>) {
        let mut woken = Vec::new();
        let mut work = vec![ids];
        while let Some(mut part) = work.pop() {
            if part.is_empty() {
                continue;
            }
            let error = match self.store.wake(&part, take_back, self.poison_limit).await {
                Ok(rows) => {
                    woken.extend(rows);
                    continue;
                }
                Err(error) => error,
            };
            let kind = classify(&error);
            match kind {
                // A batch too large for its time limit is made smaller, too.
                DbKind::Invariant | DbKind::Data | DbKind::Defect | DbKind::Retry
                    if part.len() > 1 =>
                {
                    let rest = part.split_off(part.len() / 2);
                    work.push(rest);
                    work.push(part);
                }
                DbKind::Invariant | DbKind::Data | DbKind::Defect => {
                    self.metrics.wake.inc("pushed");
                    tracing::error!(error = &error as &dyn std::error::Error, job = %part[0], "a row cannot be woken; it is put off by a minute");
                    if let Err(error) = self.store.push_wake(part[0]).await {
                        return (woken, Err(error));
                    }
                }
                DbKind::Retry => {
                    self.metrics.wake.inc("busy");
                    self.metrics.db_errors.inc(kind.as_str());
                    tracing::warn!(error = &error as &dyn std::error::Error, job = %part[0], "a row cannot be woken just now; the next run tries again");
                }
                DbKind::Lost | DbKind::Full => {
                    self.metrics.db_errors.inc(kind.as_str());
                    return (woken, Err(db_error(error)));
                }
            }
        }
        (woken, Ok(()))
    }

    fn tell(&self, row: &Woken) {
        let outcome = match (row.was(), row.target()) {
            ("pending", "pending") => "parked",
            ("retrying", "pending") => "due",
            ("running", "running") => "still_running",
            ("running", "pending") => "taken_back",
            ("running", "cancelled") => "cancelled",
            ("running", "failed") => "lost_for_good",
            (_, "failed") if row.code() == Some(Code::Expired.as_str()) => "expired",
            (_, "failed") => "spent",
            (_, "unsure") => "unsure",
            (_, "held") => "held",
            _ => "other",
        };
        self.metrics.wake.inc(outcome);
        if let Some(reason) = row.refund() {
            self.metrics.attempts_returned.inc(reason);
        }
        if row.target() == "failed" {
            self.metrics.dead_letters.inc("permanent");
        }
        let from: &'static str = match row.was() {
            "running" => "running",
            "retrying" => "retrying",
            _ => "pending",
        };
        let entry = |from: &'static str, to: &str, attempt: i32| HistoryEntry {
            job_id: row.job_id(),
            run: row.run(),
            at: Utc::now(),
            from,
            to: to.to_owned(),
            attempt,
            started_at: row.began(),
            worker: row.worker(),
            worker_name: None,
            code: row.code().map(str::to_owned),
            // As wake.sql writes it: what is taken back to run again is temporary.
            class: row.code().map(|_| match row.target() {
                "pending" => Class::Temporary,
                _ => Class::Permanent,
            }),
            message: row.message().map(str::to_owned),
        };
        if row.is_take_back() {
            let after = row.attempt_after();
            self.history
                .history(entry("running", "timeout", row.attempt()));
            self.history.history(entry("timeout", row.target(), after));
        } else if row.target() == "failed" {
            self.history
                .history(entry(from, "failed", row.attempt_after()));
        }
    }
}

/// For how long the contact with the database has been unbroken, and its clock in step
/// with ours. After an outage or a jump the workers get to renew and finish first.
#[derive(Debug)]
struct Contact {
    needed: Duration,
    /// The pause between two looks.
    interval: Duration,
    /// When contact began, and the last look: our clock and the database's.
    since: Option<Duration>,
    last: Option<(Duration, f64)>,
}

impl Contact {
    fn new(needed: Duration, interval: Duration) -> Self {
        Self {
            needed,
            interval,
            since: None,
            last: None,
        }
    }

    fn lost(&mut self) {
        *self = Self::new(self.needed, self.interval);
    }

    /// Notes a look; answers whether leases may be taken back.
    fn seen(&mut self, ours: Duration, theirs: f64) -> bool {
        let in_step = self.last.is_none_or(|(last_ours, last_theirs)| {
            let our_step = ours.saturating_sub(last_ours).as_secs_f64();
            // A long gap on our side is a suspended process: contact was broken too.
            our_step < (self.needed + self.interval).as_secs_f64()
                && ((theirs - last_theirs) - our_step).abs() <= CLOCK_STEP
        });
        if !in_step {
            self.since = None;
        }
        self.last = Some((ours, theirs));
        let since = *self.since.get_or_insert(ours);
        ours.saturating_sub(since) >= self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    #[test]
    fn leases_are_taken_back_after_unbroken_contact_only() {
        let mut contact = Contact::new(secs(4.0), secs(1.0));
        let answers: Vec<bool> = (0..6)
            .map(|n| contact.seen(secs(f64::from(n)), 1000.0 + f64::from(n)))
            .collect();
        assert_eq!(answers, [false, false, false, false, true, true]);
        contact.lost();
        assert!(!contact.seen(secs(6.0), 1006.0));
    }

    #[test]
    fn a_jump_of_the_databases_clock_starts_anew() {
        let mut contact = Contact::new(secs(2.0), secs(1.0));
        for n in 0..5 {
            contact.seen(secs(f64::from(n)), 1000.0 + f64::from(n));
        }
        assert!(!contact.seen(secs(5.0), 1035.0));
        assert!(!contact.seen(secs(6.0), 1036.0));
        assert!(contact.seen(secs(7.0), 1037.0));
    }

    #[test]
    fn a_long_interval_is_no_broken_contact() {
        let mut contact = Contact::new(secs(2.0), secs(5.0));
        assert!(!contact.seen(secs(0.0), 0.0));
        assert!(contact.seen(secs(5.0), 5.0));
    }

    #[test]
    fn a_suspended_sweeper_waits_too() {
        let mut contact = Contact::new(secs(2.0), secs(1.0));
        for n in 0..5 {
            contact.seen(secs(f64::from(n)), 1000.0 + f64::from(n));
        }
        assert!(!contact.seen(secs(100.0), 1100.0));
    }
}
