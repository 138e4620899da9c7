//! The runs that this process holds leases of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use tenure_core::clock::boottime;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::lease;
use tenure_core::storage::claim::Claimed;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::progress::{Progress, forward, unfinished};
use super::suspects::Here;

/// Why a handler must stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StopReason {
    /// Somebody cancelled the job.
    CancelRequested = 1,
    /// The lease was lost, or could not be renewed in time: nothing may be written.
    LeaseLost = 2,
    /// The process stops; the job is handed back.
    HandBack = 3,
}

/// A run that was claimed here and whose finish is not durable yet.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) claimed: Claimed,
    /// Cancelled when the handler must stop.
    pub(crate) stop: CancellationToken,
    /// Cancelled when it has no time left to do so by itself: the lease or the process ends.
    pub(crate) halt: CancellationToken,
    /// Cancelled when nobody can work on the run any more: its context is gone.
    pub(crate) idle: CancellationToken,
    /// On the clock that runs while suspended: when the handler returned, whose result is
    /// still to be written; 0: it has not.
    ended_at: AtomicU64,
    /// On the clock that runs while suspended: from then on a run whose handler has not
    /// returned is not renewed, so that an endless loop is found.
    renew_until: u64,
    reason: AtomicU8,
    /// On the clock that runs while suspended: when the handler must have stopped.
    stop_at: AtomicU64,
    /// On the same clock: when the last claim or renewal was sent.
    renewed_at: AtomicU64,
    /// On the same clock: when the claim was sent.
    claimed_at: Duration,
    progress: Mutex<Option<Progress>>,
    progress_dirty: AtomicBool,
}

impl Running {
    /// A run whose claim was sent at `sent`.
    pub(crate) fn new(claimed: Claimed, sent: Duration, lease: Duration) -> Self {
        Self {
            renew_until: millis(sent + claimed.timeout + lease),
            claimed,
            stop: CancellationToken::new(),
            halt: CancellationToken::new(),
            idle: CancellationToken::new(),
            ended_at: AtomicU64::new(0),
            reason: AtomicU8::new(0),
            stop_at: AtomicU64::new(millis(lease::stop_at(sent, lease))),
            renewed_at: AtomicU64::new(millis(sent)),
            claimed_at: sent,
            progress: Mutex::new(None),
            progress_dirty: AtomicBool::new(false),
        }
    }

    /// Notes a renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Duration, lease: Duration) {
        self.stop_at
            .store(millis(lease::stop_at(sent, lease)), Ordering::Release);
        self.renewed_at.store(millis(sent), Ordering::Release);
    }

    /// Notes that the handler has returned.
    pub(crate) fn set_ended(&self) {
        let now = millis(boottime()).max(1);
        self.ended_at.store(now, Ordering::Release);
    }

    /// For how long its result has waited to be written; `None`: there is none yet.
    pub(crate) fn unwritten_for(&self, now: Duration) -> Option<Duration> {
        match self.ended_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(now.saturating_sub(Duration::from_millis(at))),
        }
    }

    /// Whether the lease may be kept: the time limit of the run ends it.
    pub(crate) fn may_renew(&self, now: Duration) -> bool {
        self.ended_at.load(Ordering::Acquire) > 0 || millis(now) < self.renew_until
    }

    /// Whether a handler that was told to stop for its lost lease still works.
    pub(crate) fn is_deaf(&self, now: Duration, lease: Duration) -> bool {
        self.stop_reason() == Some(StopReason::LeaseLost)
            && !self.idle.is_cancelled()
            && millis(now) > self.stop_at.load(Ordering::Acquire) + millis(lease)
    }

    /// When the last claim or renewal was sent.
    pub(crate) fn renewed_at(&self) -> Duration {
        Duration::from_millis(self.renewed_at.load(Ordering::Acquire))
    }

    /// When the claim was sent.
    pub(crate) fn claimed_at(&self) -> Duration {
        self.claimed_at
    }

    /// Whether the time has come by which the handler must have stopped.
    pub(crate) fn must_stop(&self, now: Duration) -> bool {
        millis(now) >= self.stop_at.load(Ordering::Acquire)
    }

    /// Stops the handler. The first reason stays, but for a lost lease, which goes
    /// before all: nothing may be written then. Answers whether it is the first one.
    pub(crate) fn stop(&self, reason: StopReason) -> bool {
        let first = if reason == StopReason::LeaseLost {
            self.reason.swap(reason as u8, Ordering::AcqRel) == 0
        } else {
            self.reason
                .compare_exchange(0, reason as u8, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        };
        self.stop.cancel();
        if reason != StopReason::CancelRequested {
            self.halt.cancel();
        }
        first
    }

    /// Why it must stop; `None`: it need not.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        match self.reason.load(Ordering::Acquire) {
            1 => Some(StopReason::CancelRequested),
            2 => Some(StopReason::LeaseLost),
            3 => Some(StopReason::HandBack),
            _ => None,
        }
    }

    /// Notes progress; only the last counts.
    pub(crate) fn set_progress(&self, done: i64, total: i64, message: &str) {
        let mut progress = self.progress.lock();
        *progress = Some(forward(progress.as_ref(), done, total, message));
        drop(progress);
        self.progress_dirty.store(true, Ordering::Release);
    }

    /// The progress where it changed since it was last taken.
    pub(crate) fn take_dirty_progress(&self) -> Option<Progress> {
        if self.progress_dirty.swap(false, Ordering::AcqRel) {
            self.progress.lock().clone().map(unfinished)
        } else {
            None
        }
    }

    /// Notes that what was taken could not be written.
    pub(crate) fn keep_progress_dirty(&self) {
        if self.progress.lock().is_some() {
            self.progress_dirty.store(true, Ordering::Release);
        }
    }

    /// Whether progress waits to be written.
    pub(crate) fn has_dirty_progress(&self) -> bool {
        self.progress_dirty.load(Ordering::Acquire)
    }

    /// The last progress, for the end of the run.
    pub(crate) fn last_progress(&self, succeeded: bool) -> Option<Progress> {
        let progress = self.progress.lock().clone();
        if succeeded {
            progress
        } else {
            progress.map(unfinished)
        }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// All runs of this process, and how many slots they take.
#[derive(Debug)]
pub(crate) struct Runs {
    runs: Mutex<HashMap<JobId, Arc<Running>>>,
    slots: usize,
    /// Handlers at work, deaf ones included.
    busy: AtomicUsize,
    /// Results that became durable since the start.
    written: AtomicU64,
    /// Told when a slot is free again or a finish is durable.
    pub(crate) changed: Notify,
}

impl Runs {
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            runs: Mutex::new(HashMap::new()),
            slots,
            busy: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            changed: Notify::new(),
        })
    }

    /// Notes that a result is durable.
    pub(crate) fn note_written(&self) {
        self.written.fetch_add(1, Ordering::Relaxed);
    }

    /// How many results became durable since the start.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// How many more runs may be claimed: free slots, and a bound on results that wait
    /// to be written.
    pub(crate) fn room(&self) -> usize {
        let held = self.runs.lock().len();
        let unwritten = (self.slots * 4).max(2000).saturating_sub(held);
        self.slots
            .saturating_sub(self.busy.load(Ordering::Acquire))
            .min(unwritten)
    }

    /// Handlers at work.
    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Acquire)
    }

    /// Runs whose finish is not durable yet.
    pub(crate) fn len(&self) -> usize {
        self.runs.lock().len()
    }

    pub(crate) fn insert(&self, running: Arc<Running>) {
        let earlier = self.runs.lock().insert(running.claimed.job_id, running);
        // An earlier run of the same job can only be here with a lease that was taken back.
        if let Some(earlier) = earlier {
            earlier.stop(StopReason::LeaseLost);
        }
    }

    /// Whether this run is in flight here.
    pub(crate) fn contains(&self, id: JobId, run: i32) -> bool {
        self.runs
            .lock()
            .get(&id)
            .is_some_and(|r| r.claimed.run == run)
    }

    /// The attempt that a run in flight counts as, and when it was claimed by the
    /// database's clock.
    pub(crate) fn begun(&self, id: JobId, run: i32) -> Option<(i32, DateTime<Utc>)> {
        let runs = self.runs.lock();
        let claimed = &runs.get(&id).filter(|r| r.claimed.run == run)?.claimed;
        Some((claimed.attempt, claimed.locked_at))
    }

    /// Forgets a run that ended, unless a later run of the same job has taken its place.
    pub(crate) fn remove(&self, id: JobId, run: i32) {
        let mut runs = self.runs.lock();
        if runs.get(&id).is_some_and(|r| r.claimed.run == run) {
            runs.remove(&id);
        }
        drop(runs);
        self.changed.notify_one();
    }

    /// What of those that have lost leases is in flight here.
    pub(super) fn suspects(&self) -> Here {
        let runs = self.runs.lock();
        runs.values()
            .fold(Here::default(), |here, r| here.with(r.claimed.lost))
    }

    /// All runs, by job.
    pub(crate) fn all(&self) -> Vec<Arc<Running>> {
        let mut all: Vec<_> = self.runs.lock().values().cloned().collect();
        all.sort_unstable_by_key(|r| r.claimed.job_id);
        all
    }

    /// Whether every slot is taken, and none by a run that can still end well.
    pub(crate) fn all_deaf(&self, now: Duration, lease: Duration) -> bool {
        self.busy() >= self.slots && self.runs.lock().values().all(|r| r.is_deaf(now, lease))
    }

    /// Takes a slot.
    pub(crate) fn slot(self: &Arc<Self>) -> Slot {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Slot { runs: self.clone() }
    }

    /// Stops every handler whose lease ends soon. Called from the renewal thread.
    pub(crate) fn stop_overdue(&self) -> usize {
        let now = boottime();
        let overdue: Vec<_> = self
            .runs
            .lock()
            .values()
            .filter(|r| r.must_stop(now) && r.stop_reason() != Some(StopReason::LeaseLost))
            .cloned()
            .collect();
        for running in &overdue {
            running.stop(StopReason::LeaseLost);
        }
        overdue.len()
    }
}

/// A taken slot; free again when the last holder drops it. A handler that does not
/// listen keeps its slot for as long as its thread runs.
#[derive(Debug)]
pub(crate) struct Slot {
    runs: Arc<Runs>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.runs.busy.fetch_sub(1, Ordering::AcqRel);
        self.runs.changed.notify_one();
    }
}
