//! The submit writer: calls that arrive together share one statement and one commit.
//!
//! A batch is whatever came while the last one was being written; nobody waits for a
//! timer (PERFORMANCE.md, natural group commit). The second writer helps only when a
//! full batch waits already: two half-empty commits cost more than one.

mod writing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use super::Store;
use super::admission::JobLimit;
use super::batch_parts::{Group, Queue};
use super::submit::Row;
pub use super::submit::{Committed, Submitted};
use crate::domain::job::NewJob;
use crate::error::{Code, Error, Result};
use crate::telemetry::metrics::Metrics;

/// How a writer behaves.
#[derive(Clone, Copy, Debug)]
pub struct WriterSettings {
    /// Writers, each with a connection while it writes.
    pub writers: usize,
    /// The most jobs of one batch.
    pub batch_max: usize,
    /// The most jobs that may wait; more are refused as OVERLOADED.
    pub queue_max: usize,
    /// How long a batch is tried before its callers are told to come again.
    pub deadline: Duration,
}

/// Called with each batch after its commit.
pub type OnCommitted = Arc<dyn Fn(Vec<Committed>) + Send + Sync>;

/// Writes submitted jobs in batches. Cheap to clone.
#[derive(Clone)]
pub struct SubmitWriter {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    settings: WriterSettings,
    limit: Arc<JobLimit>,
    on_committed: OnCommitted,
    metrics: Arc<Metrics>,
    queue: Mutex<Queue>,
    scarce: Semaphore,
    wake: Vec<Notify>,
    idle: Notify,
    closed: AtomicBool,
}

/// The most bytes of payload in one batch: a statement of this size stays far within
/// its time limit.
const BATCH_BYTES: usize = 8 << 20;
/// The most bytes of payload that may wait; more are refused as OVERLOADED.
const QUEUE_BYTES: usize = 256 << 20;
/// A second writer starts at this many waiting jobs.
const HELP_AT: usize = 64;
/// How many transactions count users' jobs at once: a long count holds up nobody else.
const COUNTING: usize = 2;

impl SubmitWriter {
    /// Starts the writers, with no limit but that of users who have one of their own.
    pub fn start(
        store: Store,
        settings: WriterSettings,
        on_committed: OnCommitted,
        metrics: Arc<Metrics>,
    ) -> Self {
        let limit = Arc::new(JobLimit::new(0));
        Self::start_limited(store, settings, limit, on_committed, metrics)
    }

    /// Starts the writers with a limit of each user's jobs.
    pub fn start_limited(
        store: Store,
        settings: WriterSettings,
        limit: Arc<JobLimit>,
        on_committed: OnCommitted,
        metrics: Arc<Metrics>,
    ) -> Self {
        let shared = Arc::new(Shared {
            store,
            settings,
            limit,
            on_committed,
            metrics,
            queue: Mutex::new(Queue::default()),
            scarce: Semaphore::new(COUNTING),
            wake: (0..settings.writers.max(1))
                .map(|_| Notify::new())
                .collect(),
            idle: Notify::new(),
            closed: AtomicBool::new(false),
        });
        for number in 0..shared.wake.len() {
            // Owned tasks: a caller that goes away cannot cancel a transaction.
            tokio::spawn(shared.clone().run(number));
        }
        let warm = shared.clone();
        tokio::spawn(async move {
            // One more than writers: a reader may take one of them.
            if let Err(error) = warm.store.warm_submits(warm.wake.len() + 1).await {
                tracing::debug!(%error, "connections were not opened ahead");
            }
        });
        Self { shared }
    }

    /// Writes the jobs of one call, each with whether it is parked; answers one outcome
    /// each, in order, after a known commit.
    pub async fn submit(&self, jobs: Vec<(NewJob, bool)>) -> Vec<Result<Submitted>> {
        let count = jobs.len();
        let rows = jobs
            .into_iter()
            .map(|(job, parked)| Row { job, parked })
            .collect();
        let (reply, answer) = oneshot::channel();
        match self.shared.push(Group { rows, reply }) {
            Ok(()) => answer.await.unwrap_or_else(|_| {
                (0..count)
                    .map(|_| {
                        Err(Error::new(
                            Code::ShuttingDown,
                            "this gateway is stopping; try again",
                        ))
                    })
                    .collect()
            }),
            Err(refusal) => (0..count).map(|_| Err(refusal.again())).collect(),
        }
    }

    /// Takes no more, and waits until what is queued has been written.
    pub async fn drain(&self) {
        self.shared.closed.store(true, Ordering::Release);
        loop {
            let idle = self.shared.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            {
                let queue = self.shared.queue.lock();
                if queue.groups.is_empty() && queue.writing == 0 {
                    return;
                }
            }
            idle.await;
        }
    }
}

impl Shared {
    fn push(&self, group: Group) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(
                Code::ShuttingDown,
                "this gateway is stopping; try again",
            ));
        }
        let waiting = {
            let mut queue = self.queue.lock();
            let bytes = group.bytes();
            if queue.jobs + group.rows.len() > self.settings.queue_max.max(group.rows.len())
                || queue.bytes + bytes > QUEUE_BYTES
            {
                return Err(Error::new(
                    Code::Overloaded,
                    "too many submits wait to be written; try again",
                ));
            }
            queue.jobs += group.rows.len();
            queue.bytes += bytes;
            queue.groups.push_back(group);
            queue.jobs
        };
        self.wake[0].notify_one();
        if waiting >= HELP_AT {
            for helper in &self.wake[1..] {
                helper.notify_one();
            }
        }
        Ok(())
    }

    async fn run(self: Arc<Self>, number: usize) {
        loop {
            self.wake[number].notified().await;
            // Calls that have arrived but whose tasks have not run yet join this batch.
            for _ in 0..2 {
                tokio::task::yield_now().await;
            }
            while let Some(groups) = self.take(number) {
                self.write(groups).await;
                self.queue.lock().writing -= 1;
                self.idle.notify_waiters();
            }
        }
    }

    /// Takes the next batch: whole groups, up to the limit.
    fn take(&self, number: usize) -> Option<Vec<Group>> {
        let mut queue = self.queue.lock();
        if number > 0 && queue.jobs < HELP_AT {
            return None;
        }
        let mut groups: Vec<Group> = Vec::new();
        let (mut jobs, mut bytes) = (0, 0);
        while let Some(next) = queue.groups.front() {
            let more = next.bytes();
            if !groups.is_empty()
                && (jobs + next.rows.len() > self.settings.batch_max || bytes + more > BATCH_BYTES)
            {
                break;
            }
            jobs += next.rows.len();
            bytes += more;
            groups.extend(queue.groups.pop_front());
        }
        queue.jobs -= jobs;
        queue.bytes -= bytes;
        queue.writing += usize::from(!groups.is_empty());
        (!groups.is_empty()).then_some(groups)
    }
}
