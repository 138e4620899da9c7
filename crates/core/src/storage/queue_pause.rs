//! Pausing queues: by hand, and by the system. A queue with either pause starts nothing;
//! what runs goes on, and what is submitted waits.

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::queues::QueueStatus;
use super::{DbKind, Store, classify, db_error};
use crate::error::Result;

const PAUSE: &str = include_str!("sql/queue_pause.sql");
const SYSTEM_PAUSE: &str = include_str!("sql/queue_system_pause.sql");
const SYSTEM_RESUME: &str = include_str!("sql/queue_system_resume.sql");
const READ: &str = "select name, paused, pause_reason, paused_by, paused_at, \
     system_paused, system_pause_reason, system_paused_at from queues where name = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("queue_pause", PAUSE),
    ("queue_system_pause", SYSTEM_PAUSE),
    ("queue_system_resume", SYSTEM_RESUME),
    ("queue_read", READ),
];

/// How often a statement that could not get its lock is tried.
const TRIES: usize = 5;

/// A pause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pause {
    /// Why; empty: nobody said.
    pub reason: String,
    /// Who set it; `None`: the system, or somebody who left no name.
    pub by: Option<String>,
    /// Since when; of one by the system: when it was last found to be needed.
    pub at: Option<DateTime<Utc>>,
}

/// The columns of a queue that tell of its pauses.
#[derive(sqlx::FromRow)]
pub(super) struct PauseRow {
    pub(super) name: String,
    paused: bool,
    pause_reason: Option<String>,
    paused_by: Option<String>,
    paused_at: Option<DateTime<Utc>>,
    system_paused: bool,
    system_pause_reason: Option<String>,
    system_paused_at: Option<DateTime<Utc>>,
}

impl PauseRow {
    /// A queue without its lanes.
    pub(super) fn into_status(self) -> QueueStatus {
        QueueStatus {
            name: self.name,
            lanes: Vec::new(),
            pause: self.paused.then(|| Pause {
                reason: self.pause_reason.unwrap_or_default(),
                by: self.paused_by,
                at: self.paused_at,
            }),
            system_pause: self.system_paused.then(|| Pause {
                reason: self.system_pause_reason.unwrap_or_default(),
                by: None,
                at: self.system_paused_at,
            }),
        }
    }
}

impl Store {
    /// Keeps the jobs of a queue from starting, until it is resumed. Done again it takes the
    /// new reason. `None`: there is no such queue.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn pause_queue(
        &self,
        queue: &str,
        reason: &str,
        actor: &str,
    ) -> Result<Option<QueueStatus>> {
        self.set_pause(queue, Some(reason), actor).await
    }

    /// Takes back a pause by hand, if there is one. `None`: there is no such queue.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn resume_queue(&self, queue: &str, actor: &str) -> Result<Option<QueueStatus>> {
        self.set_pause(queue, None, actor).await
    }

    async fn set_pause(
        &self,
        queue: &str,
        reason: Option<&str>,
        actor: &str,
    ) -> Result<Option<QueueStatus>> {
        let note = Uuid::now_v7();
        let mut tries = 0;
        let found: Option<(String, bool)> = loop {
            tries += 1;
            let setting = sqlx::query_as(PAUSE)
                .bind(queue)
                .bind(reason.is_some())
                .bind(reason)
                .bind(reason.map(|_| actor))
                .bind(note)
                .bind(actor)
                .fetch_optional(self.pool())
                .await;
            match setting {
                Err(error) if tries < TRIES && classify(&error) == DbKind::Retry => {}
                answer => break answer.map_err(db_error)?,
            }
        };
        let Some((name, changed)) = found else {
            return Ok(None);
        };
        if changed {
            tracing::info!(queue = name, actor, reason, "a queue was paused or resumed");
        }
        let row: Option<PauseRow> = sqlx::query_as(READ)
            .bind(queue)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        Ok(row.map(PauseRow::into_status))
    }

    /// Pauses queues for the system, or says that a pause is still needed; answers those that
    /// were not paused so. The pause ends when nobody has said so for a time
    /// ([`Store::end_system_pauses`]): whoever dies meanwhile leaves none behind.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn system_pause(&self, queues: &[String], reason: &str) -> Result<Vec<String>> {
        let notes: Vec<Uuid> = queues.iter().map(|_| Uuid::now_v7()).collect();
        sqlx::query_scalar(SYSTEM_PAUSE)
            .bind(queues)
            .bind(reason)
            .bind(notes)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }

    /// Ends the pauses by the system that were not confirmed for `quiet`; answers whose.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn end_system_pauses(&self, quiet: Duration) -> Result<Vec<String>> {
        sqlx::query_scalar(SYSTEM_RESUME)
            .bind(quiet.as_millis() as i64)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }
}
