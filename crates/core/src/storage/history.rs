//! History and logs of jobs: what tells the story and decides nothing.
//!
//! Written through a bounded queue in batches (requirements H1–H4). A slow database
//! never holds up the work: when the queue is full, DEBUG goes first, and what is
//! dropped is counted.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::{JobId, SessionId};
use crate::error::{Class, Result, clean_text};
use crate::telemetry::metrics::Metrics;

// Who takes a lost lease back knows its holder's session alone; the name is in `workers`.
const HISTORY: &str = "insert into job_history (job_id, run, at, entry_id, from_state, to_state, attempt, worker, error_code, error_message, worker_name, started_at, error_class) \
     select h.job_id, h.run, h.at, h.entry_id, h.from_state, h.to_state, h.attempt, h.worker, h.error_code, h.error_message, \
     coalesce(h.worker_name, w.name), h.started_at, h.error_class \
     from unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[], $7::int[], $8::uuid[], $9::text[], $10::text[], $11::text[], $12::timestamptz[], $13::text[]) \
     h (job_id, run, at, entry_id, from_state, to_state, attempt, worker, error_code, error_message, worker_name, started_at, error_class) \
     left join workers w on w.session = h.worker \
     on conflict do nothing";
const LOGS: &str = "insert into job_logs (job_id, run, at, entry_id, level, message) \
     select * from unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::uuid[], $5::text[], $6::text[]) on conflict do nothing";
const LOGS_OF: &str =
    "select run, at, level, message from job_logs where job_id = $1 order by at, entry_id limit $2";
const HISTORY_OF: &str = "select run, at, from_state, to_state, attempt, worker, worker_name, error_code, error_message \
     from job_history where job_id = $1 order by at, entry_id limit $2";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("write_history", HISTORY),
    ("write_logs", LOGS),
    ("logs_of", LOGS_OF),
    ("history_of", HISTORY_OF),
];

/// Entries that may wait.
const QUEUE_MAX: usize = 50_000;
/// The most entries of one batch.
const BATCH_MAX: usize = 5_000;
/// How long an entry waits for company.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// Above this share of the queue, DEBUG is dropped at the door.
const DEBUG_LIMIT: usize = QUEUE_MAX / 2;

/// An unhappy transition, or the end of a run that followed one.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// The job.
    pub job_id: JobId,
    /// The run that it ended.
    pub run: i32,
    /// When it was seen.
    pub at: DateTime<Utc>,
    /// The state before.
    pub from: &'static str,
    /// The state after; `timeout` is told by its own entry.
    pub to: String,
    /// Starts that counted, after it.
    pub attempt: i32,
    /// When the run that it ended was claimed, by the database's clock.
    pub started_at: Option<DateTime<Utc>>,
    /// The worker's session.
    pub worker: Option<SessionId>,
    /// The worker's name; where it is not known, that of the session in `workers` is taken.
    pub worker_name: Option<Arc<str>>,
    /// The error's code.
    pub code: Option<String>,
    /// The error's class.
    pub class: Option<Class>,
    /// The error's summary.
    pub message: Option<String>,
}

/// A line that a handler logged.
#[derive(Clone, Debug)]
pub struct LogEntry {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub run: i32,
    /// When.
    pub at: DateTime<Utc>,
    /// DEBUG, INFO, WARN or ERROR.
    pub level: &'static str,
    /// The line.
    pub message: String,
}

enum Entry {
    History(HistoryEntry),
    Log(LogEntry),
    Flush(tokio::sync::oneshot::Sender<()>),
}

/// Takes entries without ever waiting. Cheap to clone.
#[derive(Clone)]
pub struct HistoryWriter {
    queue: mpsc::Sender<Entry>,
    metrics: Arc<Metrics>,
}

impl HistoryWriter {
    /// Starts the background task.
    pub fn start(store: Store, metrics: Arc<Metrics>) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(run(store, entries, metrics.clone()));
        Self { queue, metrics }
    }

    /// Notes a transition.
    pub fn history(&self, entry: HistoryEntry) {
        if self.queue.try_send(Entry::History(entry)).is_err() {
            self.metrics.batch_dropped.inc("history");
        }
    }

    /// Notes a handler's line.
    pub fn log(&self, entry: LogEntry) {
        let entry = LogEntry {
            message: clean_text(&entry.message, 4000),
            ..entry
        };
        let crowded = self.queue.capacity() < QUEUE_MAX - DEBUG_LIMIT;
        if (crowded && entry.level == "DEBUG") || self.queue.try_send(Entry::Log(entry)).is_err() {
            self.metrics.batch_dropped.inc("log");
        }
    }

    /// Writes what waits; bounded by `limit`.
    pub async fn flush(&self, limit: Duration) {
        let (done, written) = tokio::sync::oneshot::channel();
        let _ = tokio::time::timeout(limit, async {
            if self.queue.send(Entry::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        })
        .await;
    }
}

async fn run(store: Store, mut entries: mpsc::Receiver<Entry>, metrics: Arc<Metrics>) {
    let mut batch = Vec::new();
    loop {
        batch.clear();
        if entries.recv_many(&mut batch, BATCH_MAX).await == 0 {
            return;
        }
        let deadline = tokio::time::Instant::now() + FLUSH_INTERVAL;
        while batch.len() < BATCH_MAX && !batch.iter().any(|e| matches!(e, Entry::Flush(_))) {
            let room = BATCH_MAX - batch.len();
            match tokio::time::timeout_at(deadline, entries.recv_many(&mut batch, room)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        let (mut history, mut logs, mut flushed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in batch.drain(..) {
            match entry {
                Entry::History(entry) => history.push(entry),
                Entry::Log(entry) => logs.push(entry),
                Entry::Flush(done) => flushed.push(done),
            }
        }
        // One retry: more would let the queue fill behind a database that is down.
        for attempt in 0..2 {
            let result = async {
                store.write_history(&history).await?;
                store.write_logs(&logs).await
            };
            match result.await {
                Ok(()) => break,
                Err(error) if attempt == 1 => {
                    metrics
                        .batch_dropped
                        .inc_by("history", history.len() as u64);
                    metrics.batch_dropped.inc_by("log", logs.len() as u64);
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        entries = history.len() + logs.len(),
                        "history was dropped"
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
}

/// A line of a job's log.
pub type LogLine = (i32, DateTime<Utc>, String, String);

/// A line of a job's history.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct HistoryLine {
    /// The run.
    pub run: i32,
    /// When.
    pub at: DateTime<Utc>,
    /// The state before.
    pub from_state: String,
    /// The state after.
    pub to_state: String,
    /// Starts that counted.
    pub attempt: i32,
    /// The worker's session.
    pub worker: Option<Uuid>,
    /// The worker's name.
    pub worker_name: Option<String>,
    /// The error's code.
    pub error_code: Option<String>,
    /// The error's summary.
    pub error_message: Option<String>,
}

impl Store {
    async fn write_history(&self, entries: &[HistoryEntry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        sqlx::query(HISTORY)
            .bind(entries.iter().map(|e| e.job_id.uuid()).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.run).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.at).collect::<Vec<_>>())
            .bind(entries.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.from).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.to.as_str()).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.attempt).collect::<Vec<_>>())
            .bind(
                entries
                    .iter()
                    .map(|e| e.worker.map(SessionId::uuid))
                    .collect::<Vec<_>>(),
            )
            .bind(
                entries
                    .iter()
                    .map(|e| e.code.as_deref().map(|c| clean_text(c, 64)))
                    .collect::<Vec<_>>(),
            )
            .bind(
                entries
                    .iter()
                    .map(|e| e.message.as_deref().map(|m| clean_text(m, 2000)))
                    .collect::<Vec<_>>(),
            )
            .bind(
                entries
                    .iter()
                    .map(|e| e.worker_name.as_deref())
                    .collect::<Vec<_>>(),
            )
            .bind(entries.iter().map(|e| e.started_at).collect::<Vec<_>>())
            .bind(
                entries
                    .iter()
                    .map(|e| e.class.map(Class::as_str))
                    .collect::<Vec<_>>(),
            )
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(())
    }

    async fn write_logs(&self, entries: &[LogEntry]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        sqlx::query(LOGS)
            .bind(entries.iter().map(|e| e.job_id.uuid()).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.run).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.at).collect::<Vec<_>>())
            .bind(entries.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>())
            .bind(entries.iter().map(|e| e.level).collect::<Vec<_>>())
            .bind(
                entries
                    .iter()
                    .map(|e| e.message.as_str())
                    .collect::<Vec<_>>(),
            )
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(())
    }

    /// A job's log, the oldest line first.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn logs_of(&self, id: JobId, limit: i64) -> Result<Vec<LogLine>> {
        sqlx::query_as(LOGS_OF)
            .bind(id.uuid())
            .bind(limit)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }

    /// A job's unhappy transitions, the oldest first.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn history_of(&self, id: JobId, limit: i64) -> Result<Vec<HistoryLine>> {
        sqlx::query_as(HISTORY_OF)
            .bind(id.uuid())
            .bind(limit)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }
}
