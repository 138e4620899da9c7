//! Writing results: finishes that come together share a statement (PROTOCOL.md §9).
//! A result is tried until it is written or its lease is known to be lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use parking_lot::Mutex;
use tenure_core::error::{Class, Code};
use tenure_core::storage::finish::{Finish, Goal, RunError, Unapplied};
use tenure_core::storage::history::HistoryEntry;
use tenure_core::storage::lines::Turned;
use tenure_core::storage::{DbKind, classify};
use tokio::sync::{Notify, Semaphore, mpsc};

use super::Shared;
use super::lines::Lines;

/// The most finishes of one statement.
const BATCH_MAX: usize = 1000;
/// So many results that could not be written with others are tried at once.
const INSISTING: usize = 2;
/// A second writer helps from this many waiting finishes on.
const HELP_AT: usize = 128;

/// Takes results. Cheap to clone.
#[derive(Clone)]
pub(super) struct Finisher {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    lines: Lines,
    queue: Mutex<VecDeque<Finish>>,
    writing: std::sync::atomic::AtomicUsize,
    /// Bounds the connections that results take which are tried one by one.
    insisting: Semaphore,
    wake: Vec<Notify>,
    idle: Notify,
}

/// What becomes of a result that is alone in its statement and must be tried again.
#[derive(Clone, Copy)]
enum Alone {
    /// It goes on in a task of its own.
    Leaves,
    /// It is in one.
    Stays,
}

impl Finisher {
    /// Starts the writers. `turned` hears of jobs that may start because another has ended.
    pub(super) fn start(shared: Arc<Shared>, turned: mpsc::Sender<Turned>) -> Self {
        let writers = shared.config.worker.finish_writers.max(1);
        let inner = Arc::new(Inner {
            lines: Lines::start(shared.clone(), turned),
            shared,
            queue: Mutex::new(VecDeque::new()),
            writing: std::sync::atomic::AtomicUsize::new(0),
            insisting: Semaphore::new(INSISTING),
            wake: (0..writers).map(|_| Notify::new()).collect(),
            idle: Notify::new(),
        });
        for number in 0..writers {
            tokio::spawn(inner.clone().run(number));
        }
        Self { inner }
    }

    pub(super) fn finish(&self, item: Finish) {
        let waiting = {
            let mut queue = self.inner.queue.lock();
            queue.push_back(item);
            queue.len()
        };
        self.inner.wake[0].notify_one();
        if waiting >= HELP_AT {
            for helper in &self.inner.wake[1..] {
                helper.notify_one();
            }
        }
    }

    /// Waits until all that was handed over is written, `limit` at most.
    pub(super) async fn flush(&self, limit: Duration) {
        let _ = tokio::time::timeout(limit, async {
            while !self.inner.queue.lock().is_empty()
                || self
                    .inner
                    .writing
                    .load(std::sync::atomic::Ordering::Acquire)
                    > 0
            {
                let _ = tokio::time::timeout(Duration::from_millis(50), self.inner.idle.notified())
                    .await;
            }
        })
        .await;
    }
}

impl Inner {
    async fn run(self: Arc<Self>, number: usize) {
        loop {
            self.wake[number].notified().await;
            tokio::task::yield_now().await;
            loop {
                let batch: Vec<Finish> = {
                    let mut queue = self.queue.lock();
                    if number > 0 && queue.len() < HELP_AT {
                        break;
                    }
                    let count = queue.len().min(BATCH_MAX);
                    let batch = queue.drain(..count).collect();
                    if count > 0 {
                        self.writing
                            .fetch_add(1, std::sync::atomic::Ordering::AcqRel);
                    }
                    batch
                };
                if batch.is_empty() {
                    break;
                }
                self.write(batch, Alone::Leaves).await;
                self.done();
            }
        }
    }

    /// One batch is durable, or given up.
    fn done(&self) {
        self.writing
            .fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
        self.idle.notify_one();
    }

    /// Goes on with one result that could not be written now, so that the writer is free for
    /// those that can.
    fn insist(self: &Arc<Self>, item: Finish) {
        self.writing
            .fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        let inner = self.clone();
        tokio::spawn(async move {
            inner.write(vec![item], Alone::Stays).await;
            inner.done();
        });
    }

    async fn write(self: &Arc<Self>, mut batch: Vec<Finish>, alone: Alone) {
        batch.sort_unstable_by_key(|f| f.job_id);
        self.shared
            .metrics
            .finish_batch_size
            .observe(batch.len() as f64);
        let mut pause = Duration::from_millis(5);
        let mut work = vec![batch];
        while let Some(mut part) = work.pop() {
            let permit = match alone {
                Alone::Leaves => None,
                Alone::Stays => self.insisting.acquire().await.ok(),
            };
            let finished = self.shared.store.finish(&part, self.shared.session).await;
            drop(permit);
            match finished {
                Ok(done) => {
                    pause = Duration::from_millis(5);
                    self.lines.go_on(done.lines);
                    let revisions = done.revisions;
                    let (written, left): (Vec<_>, Vec<_>) = part
                        .into_iter()
                        .partition(|f| revisions.contains_key(&f.job_id));
                    for item in &written {
                        self.written(item);
                    }
                    if !left.is_empty() {
                        work.extend(self.decide_unapplied(left).await);
                    }
                }
                Err(error) => match classify(&error) {
                    // A batch too large for its time limit is made smaller, too.
                    DbKind::Invariant | DbKind::Data | DbKind::Defect | DbKind::Retry
                        if part.len() > 1 =>
                    {
                        let rest = part.split_off(part.len() / 2);
                        work.push(rest);
                        work.push(part);
                    }
                    kind @ (DbKind::Invariant | DbKind::Data | DbKind::Defect) => {
                        tracing::error!(error = &error as &dyn std::error::Error, job = %part[0].job_id, kind = kind.as_str(), "a result could not be written");
                        work.extend(self.without_follow_ups(part.swap_remove(0)));
                    }
                    kind @ (DbKind::Retry | DbKind::Lost | DbKind::Full) => {
                        self.shared.metrics.db_errors.inc(kind.as_str());
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_millis(500));
                        // Whether it took effect is not known: written ones are told apart
                        // by reading them again, since they no longer match. Somebody's lock
                        // on one row keeps no other result waiting.
                        match (kind, alone) {
                            (DbKind::Retry, Alone::Leaves) => {
                                part.drain(..).for_each(|item| self.insist(item));
                            }
                            (DbKind::Retry, Alone::Stays) => work.insert(0, part),
                            _ => work.push(part),
                        }
                    }
                },
            }
        }
    }

    /// A success whose follow-ups the database refuses ends as a failure that says so;
    /// anything else is left to the lease.
    fn without_follow_ups(&self, mut item: Finish) -> Option<Vec<Finish>> {
        match &item.goal {
            Goal::Success { follow_ups, .. } if !follow_ups.is_empty() => {
                let names: Vec<_> = follow_ups.iter().map(|f| f.job_type.as_str()).collect();
                item.goal = Goal::Failed(RunError {
                    code: Code::UnknownJobType.as_str().to_owned(),
                    class: Class::Permanent,
                    message: format!(
                        "a follow-up could not be created; are these job types in the catalogue: {}?",
                        names.join(", ")
                    ),
                });
                Some(vec![item])
            }
            _ => {
                self.shared.metrics.finishes.inc("unwritable");
                self.shared.runs.remove(item.job_id, item.run);
                None
            }
        }
    }

    /// Decides on what a statement did not match; answers what is to be tried again.
    async fn decide_unapplied(&self, left: Vec<Finish>) -> Option<Vec<Finish>> {
        let verdicts = match self
            .shared
            .store
            .reread_unfinished(&left, self.shared.session)
            .await
        {
            Ok(verdicts) => verdicts,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "results could not be checked; they are tried again"
                );
                tokio::time::sleep(Duration::from_millis(200)).await;
                return Some(left);
            }
        };
        let mut again = Vec::new();
        for (mut item, verdict) in left.into_iter().zip(verdicts) {
            match verdict {
                Unapplied::Again => again.push(item),
                Unapplied::CancelRequested => {
                    item.goal = Goal::Cancelled;
                    again.push(item);
                }
                Unapplied::Spent => {
                    if let Goal::Retrying(error, _) = item.goal {
                        item.goal = Goal::Failed(error);
                    }
                    again.push(item);
                }
                Unapplied::Applied => self.written(&item),
                Unapplied::Lost => {
                    tracing::warn!(job = %item.job_id, run = item.run, "the lease was lost; the result is dropped");
                    self.shared.metrics.lease_lost.inc();
                    self.shared.runs.remove(item.job_id, item.run);
                }
            }
        }
        (!again.is_empty()).then_some(again)
    }

    fn written(&self, item: &Finish) {
        self.shared.runs.note_written();
        self.shared.metrics.finishes.inc(item.goal.state().as_str());
        let begun = self.shared.runs.begun(item.job_id, item.run);
        let attempt = begun.map_or(0, |(attempt, _)| attempt);
        self.shared.runs.remove(item.job_id, item.run);
        let error = match &item.goal {
            // Its timestamps tell of a job that succeeds at once.
            Goal::Success { .. } if item.run == 1 => return,
            Goal::Success { .. } | Goal::Cancelled | Goal::Pending(_) => None,
            Goal::Failed(error) => {
                self.shared.metrics.dead_letters.inc(error.class.as_str());
                Some(error)
            }
            Goal::Retrying(error, _) => Some(error),
            Goal::Outage(error, _) => {
                self.shared.metrics.attempts_returned.inc("outage");
                Some(error)
            }
        };
        self.shared.history.history(HistoryEntry {
            job_id: item.job_id,
            run: item.run,
            at: Utc::now(),
            from: "running",
            to: item.goal.state().as_str().to_owned(),
            attempt: (attempt - i32::from(item.goal.refunds())).max(0),
            started_at: begun.map(|(_, at)| at),
            worker: Some(self.shared.session),
            worker_name: Some(self.shared.name.clone()),
            code: error.map(|e| e.code.clone()),
            class: error.map(|e| e.class),
            message: error.map(|e| e.message.clone()),
        });
    }
}
