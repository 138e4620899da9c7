//! What a running handler knows and can do.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::Utc;
use tenure_core::domain::ids::{JobId, SessionId, UserId};
use tenure_core::domain::lease::Fence;
use tenure_core::storage::history::{HistoryWriter, LogEntry};
use tokio::time::Instant;
use uuid::Uuid;

use crate::runner::{Running, Slot};

/// How much a log line matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// For developers; dropped first when the log cannot keep up.
    Debug,
    /// What happened.
    Info,
    /// Something to look at.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// The run that a handler works on. Cheap to clone.
#[derive(Clone)]
pub struct JobContext {
    inner: Arc<Inner>,
}

struct Inner {
    running: Arc<Running>,
    session: SessionId,
    deadline: Instant,
    history: HistoryWriter,
    blocking: tokio::runtime::Handle,
    // Held for as long as anybody can still work on the run.
    _slot: Slot,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.running.idle.cancel();
    }
}

impl JobContext {
    pub(crate) fn new(
        running: Arc<Running>,
        session: SessionId,
        history: HistoryWriter,
        blocking: tokio::runtime::Handle,
        slot: Slot,
    ) -> Self {
        let deadline = Instant::now() + running.claimed.timeout;
        Self {
            inner: Arc::new(Inner {
                running,
                session,
                deadline,
                history,
                blocking,
                _slot: slot,
            }),
        }
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        self.inner.running.claimed.job_id
    }

    /// The id under which the job's effects are claimed: the same through retries and
    /// replays, and so the right business key for effects elsewhere.
    pub fn event_id(&self) -> Uuid {
        self.job_id().uuid()
    }

    /// The dispatch number of this run.
    pub fn run(&self) -> i32 {
        self.inner.running.claimed.run
    }

    /// 1, and one more for each replay from the dead letters.
    pub fn life(&self) -> i32 {
        self.inner.running.claimed.life
    }

    /// Starts that counted in this life, this one included.
    pub fn attempt(&self) -> i32 {
        self.inner.running.claimed.attempt
    }

    /// The most starts.
    pub fn max_attempts(&self) -> i32 {
        self.inner.running.claimed.max_attempts
    }

    /// How often the job has been put off in this life.
    pub fn snoozes(&self) -> i32 {
        self.inner.running.claimed.snoozes
    }

    /// The owner of the job.
    pub fn user_id(&self) -> &UserId {
        &self.inner.running.claimed.user_id
    }

    /// The job type's name.
    pub fn job_type(&self) -> &str {
        &self.inner.running.claimed.job_type
    }

    /// The submitter's labels.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.inner.running.claimed.labels
    }

    /// The W3C `traceparent` of whoever submitted the job.
    pub fn trace_parent(&self) -> Option<&str> {
        self.inner.running.claimed.trace_parent.as_deref()
    }

    /// When the time limit of this run passes.
    pub fn deadline(&self) -> Instant {
        self.inner.deadline
    }

    /// What fences this run's writes.
    pub fn fence(&self) -> Fence {
        Fence {
            job_id: self.job_id(),
            run: self.run(),
            session: self.inner.session,
        }
    }

    /// Whether the work must stop: a cancel, a lost lease, or the end of the process.
    pub fn is_cancelled(&self) -> bool {
        self.inner.running.stop.is_cancelled()
    }

    /// Waits until the work must stop.
    pub async fn cancelled(&self) {
        self.inner.running.stop.cancelled().await;
    }

    /// Tells how far the work is. Cheap; only the last is kept and is written within
    /// about a second. Within one run it only grows, up to its total, and is told as whole
    /// when the run has succeeded. The next run begins where its handler says.
    pub fn progress(&self, done: i64, total: i64, message: &str) {
        self.inner.running.set_progress(done, total, message);
    }

    /// Writes a line to the job's log. Never waits.
    pub fn log(&self, level: LogLevel, message: impl Into<String>) {
        self.inner.history.log(LogEntry {
            job_id: self.job_id(),
            run: self.run(),
            at: Utc::now(),
            level: level.as_str(),
            message: message.into(),
        });
    }

    /// Runs work that computes or blocks on a thread of its own. If the run must stop,
    /// the caller goes on at once, and the thread finds out by [`Self::is_cancelled`];
    /// its slot stays taken until it ends.
    ///
    /// # Panics
    /// Where `work` panics: the panic goes on in the handler.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let context = self.clone();
        let task = self.inner.blocking.spawn_blocking(move || work(&context));
        match task.await {
            Ok(value) => value,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going away, and this future with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}
