//! What operators do to single jobs, each act in one statement that is guarded by the
//! job's state and leaves a row in `job_actions`.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::pool::on_hot;
use super::{DbKind, Store, classify, db_error};
use crate::domain::ids::JobId;
use crate::domain::state::JobState;
use crate::error::{Code, Error, Result};

const SET_START: &str = include_str!("sql/job_set_start.sql");
const SET_ATTEMPTS: &str = include_str!("sql/job_set_attempts.sql");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("job_set_start", SET_START),
    ("job_set_attempts", SET_ATTEMPTS),
];

/// How often a statement that could not get its lock is tried.
const TRIES: usize = 5;

/// An act on one job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Due now.
    RetryNow,
    /// Not before a time; a time that has passed is now.
    Reschedule(DateTime<Utc>),
    /// The most starts.
    SetMaxAttempts(i32),
}

impl Action {
    /// The name in `job_actions`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryNow => "retry_now",
            Self::Reschedule(_) => "reschedule",
            Self::SetMaxAttempts(_) => "set_max_attempts",
        }
    }

    /// The kind of act of a name, for its [`sentence`](Kind::sentence).
    pub(super) fn of(name: &str) -> Option<Kind> {
        match name {
            "retry_now" => Some(Kind::RetryNow),
            "reschedule" => Some(Kind::Reschedule),
            "set_max_attempts" => Some(Kind::SetMaxAttempts),
            _ => None,
        }
    }
}

/// An act without its argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    RetryNow,
    Reschedule,
    SetMaxAttempts,
}

impl Kind {
    /// What happened, for people.
    pub(super) fn sentence(self, actor: &str, before: &Snapshot, after: &Snapshot) -> String {
        match self {
            Self::RetryNow => format!("{actor} made it due"),
            Self::Reschedule => format!(
                "{actor} moved its start from {} to {}",
                clock(before.run_at),
                clock(after.run_at)
            ),
            Self::SetMaxAttempts => format!(
                "{actor} changed its most attempts from {} to {}",
                before.max_attempts, after.max_attempts
            ),
        }
    }
}

fn clock(at: Option<DateTime<Utc>>) -> String {
    at.map(|at| at.format("%Y-%m-%d %H:%M:%S UTC").to_string())
        .unwrap_or_default()
}

/// What `before` and `after` of an act on one job hold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Snapshot {
    pub(super) state: String,
    pub(super) run: i32,
    pub(super) attempt: i32,
    pub(super) max_attempts: i32,
    pub(super) run_at: Option<DateTime<Utc>>,
}

/// Who acts, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Actor {
    /// The caller.
    pub name: String,
    /// The reason that it gave.
    pub reason: Option<String>,
}

/// What came of an act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Acted {
    /// It took effect, and is in the record.
    Done,
    /// The job was so already; nothing changed, and nothing is in the record.
    Already,
    /// The job's state does not allow it.
    Conflict(JobState),
    /// It would expire before that start.
    Expires(DateTime<Utc>),
    /// The number is below the starts that it has, or will have; the least allowed.
    TooFew(i32),
    /// There is no such job.
    Missing,
}

#[derive(sqlx::FromRow)]
struct Verdict {
    was: String,
    verdict: String,
    attempt: i32,
    expires_at: Option<DateTime<Utc>>,
    changed: i64,
    noted: i64,
}

impl Verdict {
    /// Whether it should have changed the job and has not.
    fn missed(&self) -> bool {
        self.verdict == "apply" && self.changed == 0
    }
}

impl Store {
    /// Does this to a job and notes who did it, or says why not.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE. Done again it is [`Acted::Already`].
    pub async fn act_on_job(&self, id: JobId, action: Action, actor: &Actor) -> Result<Acted> {
        let note = Uuid::now_v7();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_act(id, action, actor, note).await {
                // Somebody holds the row: a claim, a renewal, a finish.
                Err(error) if tries < TRIES && classify(&error) == DbKind::Retry => {}
                // Or held it while this statement waited: what was decided on the new row
                // could not be done to the one of the statement's snapshot.
                Ok(Some(row)) if tries < TRIES && row.missed() => {}
                answer => return read(answer.map_err(db_error)?),
            }
        }
    }

    async fn try_act(
        &self,
        id: JobId,
        action: Action,
        actor: &Actor,
        note: Uuid,
    ) -> Result<Option<Verdict>, sqlx::Error> {
        let query = match action {
            Action::RetryNow => sqlx::query_as(SET_START)
                .bind(id.uuid())
                .bind(None::<DateTime<Utc>>),
            Action::Reschedule(at) => sqlx::query_as(SET_START).bind(id.uuid()).bind(at),
            Action::SetMaxAttempts(most) => sqlx::query_as(SET_ATTEMPTS).bind(id.uuid()).bind(most),
        };
        let query = query
            .bind(note)
            .bind(action.as_str())
            .bind(&actor.name)
            .bind(&actor.reason);
        on_hot!(self, fetch_optional, query)
    }
}

fn read(verdict: Option<Verdict>) -> Result<Acted> {
    let Some(row) = verdict else {
        return Ok(Acted::Missing);
    };
    if row.missed() {
        return Err(Error::new(
            Code::DatabaseUnavailable,
            "the job changes just now; try again",
        ));
    }
    let state = row
        .was
        .parse()
        .map_err(|e| Error::new(Code::Internal, "a job has an unknown state").with_source(e))?;
    Ok(match (row.verdict.as_str(), row.expires_at) {
        ("apply", _) if row.changed == 1 && row.noted == 1 => Acted::Done,
        ("same", _) => Acted::Already,
        ("state", _) => Acted::Conflict(state),
        ("expires", Some(at)) => Acted::Expires(at),
        ("low", _) => Acted::TooFew(row.attempt + i32::from(state != JobState::Running)),
        _ => return Err(Error::new(Code::Internal, "an act on a job took no effect")),
    })
}
