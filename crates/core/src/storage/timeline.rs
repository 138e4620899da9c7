//! Reading what happened to a job: the history of its runs, what operators did to it, and
//! who holds it now.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::job_actions::{Action, Snapshot};
use super::{Store, db_error};
use crate::domain::ids::SessionId;
use crate::domain::job::Job;
use crate::domain::state::JobState;
use crate::domain::timeline::{Act, Claimed, Event, Facts, Holder, MAX_EVENTS, Past, merge};
use crate::error::{Class, Code, Error, Result};

const PAST: &str = "select run, at, from_state, to_state, attempt, worker, worker_name, started_at, error_code, error_class, error_message \
     from job_history where job_id = $1 order by at desc, entry_id desc limit $2";
const ACTS: &str = "select at, action, actor, reason, before, after from job_actions where job_id = $1 \
     order by at desc limit $2";
const FACTS: &str = "select j.run, j.locked_by, j.locked_at, h.name as holder, p.run as last_run, p.worker as last_worker, \
     l.name as last_name, j.cancel_requested_at, j.cancel_reason \
     from jobs j left join workers h on h.session = j.locked_by \
     left join processed_events p on p.event_id = j.job_id left join workers l on l.session = p.worker \
     where j.job_id = $1";

const HOLD: &str = "select (extract(epoch from now() - w.last_contact_at) * 1000)::bigint as silent_ms, j.lease_until \
     from jobs j left join workers w on w.session = j.locked_by where j.job_id = $1 and j.status = 'running'";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("timeline_past", PAST),
    ("timeline_acts", ACTS),
    ("timeline_facts", FACTS),
    ("timeline_hold", HOLD),
];

/// How the worker that runs a job is heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, sqlx::FromRow)]
pub struct Hold {
    /// For how long it has told nothing of itself, in milliseconds; `None`: nothing is known
    /// of it.
    pub silent_ms: Option<i64>,
    /// When its lease ends, unless it renews it.
    pub lease_until: Option<DateTime<Utc>>,
}

#[derive(sqlx::FromRow)]
struct PastRow {
    run: i32,
    at: DateTime<Utc>,
    from_state: String,
    to_state: String,
    attempt: i32,
    worker: Option<Uuid>,
    worker_name: Option<String>,
    started_at: Option<DateTime<Utc>>,
    error_code: Option<String>,
    error_class: Option<String>,
    error_message: Option<String>,
}

#[derive(sqlx::FromRow)]
struct ActRow {
    at: DateTime<Utc>,
    action: String,
    actor: String,
    reason: Option<String>,
    before: Json<Snapshot>,
    after: Json<Snapshot>,
}

#[derive(sqlx::FromRow)]
struct FactsRow {
    run: i32,
    locked_by: Option<Uuid>,
    locked_at: Option<DateTime<Utc>>,
    holder: Option<String>,
    last_run: Option<i32>,
    last_worker: Option<Uuid>,
    last_name: Option<String>,
    cancel_requested_at: Option<DateTime<Utc>>,
    cancel_reason: Option<String>,
}

impl Store {
    /// What happened to a job, the oldest first; the latest [`MAX_EVENTS`] events. What
    /// workers and sweepers write of it may be some seconds late.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn timeline(&self, job: &Job) -> Result<Vec<Event>> {
        let id = job.job_id.uuid();
        let past: Vec<PastRow> = sqlx::query_as(PAST)
            .bind(id)
            .bind(MAX_EVENTS as i64)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let acts: Vec<ActRow> = sqlx::query_as(ACTS)
            .bind(id)
            .bind(MAX_EVENTS as i64)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let facts: Option<FactsRow> = sqlx::query_as(FACTS)
            .bind(id)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        let past = past
            .into_iter()
            .map(Past::try_from)
            .collect::<Result<_>>()?;
        let acts = acts.into_iter().map(Act::try_from).collect::<Result<_>>()?;
        let facts = facts.map(Facts::from).unwrap_or_default();
        Ok(merge(job, past, acts, &facts))
    }
}

impl Store {
    /// How the worker is heard of that runs this job; `None`: it does not run.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn hold_of(&self, job: &Job) -> Result<Option<Hold>> {
        sqlx::query_as(HOLD)
            .bind(job.job_id.uuid())
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)
    }
}

impl TryFrom<PastRow> for Past {
    type Error = Error;

    fn try_from(row: PastRow) -> Result<Self> {
        let (from, to) = (state(&row.from_state)?, state(&row.to_state)?);
        let outage = row
            .error_code
            .as_deref()
            .and_then(Code::parse)
            .is_some_and(Code::is_own_outage);
        Ok(Self {
            at: row.at,
            run: row.run,
            from,
            to,
            attempt: row.attempt,
            refunded: from == JobState::Running
                && (to == JobState::Pending || (to == JobState::Retrying && outage)),
            started_at: row.started_at,
            holder: holder(row.worker, row.worker_name),
            code: row.error_code,
            temporary: row
                .error_class
                .map(|class| class == Class::Temporary.as_str()),
            message: row.error_message,
        })
    }
}

impl TryFrom<ActRow> for Act {
    type Error = Error;

    fn try_from(row: ActRow) -> Result<Self> {
        let (before, after) = (row.before.0, row.after.0);
        let mut message = match Action::of(&row.action) {
            Some(action) => action.sentence(&row.actor, &before, &after),
            // A later release's.
            None => format!("{} did {}", row.actor, row.action),
        };
        if let Some(reason) = row.reason {
            message.push_str(": ");
            message.push_str(&reason);
        }
        Ok(Self {
            at: row.at,
            run: after.run,
            attempt: after.attempt,
            from: state(&before.state)?,
            to: state(&after.state)?,
            message,
        })
    }
}

impl From<FactsRow> for Facts {
    fn from(row: FactsRow) -> Self {
        Self {
            held: row.locked_by.map(|session| Claimed {
                run: row.run,
                holder: holder(Some(session), row.holder),
                at: row.locked_at,
            }),
            last: row.last_run.map(|run| Claimed {
                run,
                holder: holder(row.last_worker, row.last_name),
                at: None,
            }),
            cancel: row
                .cancel_requested_at
                .map(|at| (at, row.cancel_reason.unwrap_or_default())),
        }
    }
}

fn holder(session: Option<Uuid>, name: Option<String>) -> Holder {
    Holder {
        session: session.map(SessionId),
        name,
    }
}

fn state(text: &str) -> Result<JobState> {
    text.parse().map_err(|e| {
        Error::new(Code::Internal, "a job's history has an unknown state").with_source(e)
    })
}
