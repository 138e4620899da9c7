//! Locking letters, and the jobs behind them, to decide about them.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::{DeadLetterStatus, Outcome};
use crate::domain::state::JobState;

const FIND: &str =
    "select id, job_id from dead_letters where id = any($1) or job_id = any($1) order by id";
// A statement of its own: what the next one reads of these jobs is what it is going to stay.
const LOCK_JOBS: &str =
    "select job_id from jobs where job_id = any($1) order by job_id for no key update";
const LOCK_LETTERS: &str = "select d.id, d.job_id, d.status, d.replayable, d.replay_id, d.bulk_replay_id, \
     j.status as job_status, j.run, j.job_type, j.user_id as owner, j.dedupe_key, \
     k.job_id is not distinct from j.job_id as owns_key \
     from dead_letters d left join jobs j on j.job_id = d.job_id \
     left join job_dedupe k on k.user_id = j.user_id and k.scope = j.job_type and k.key = j.dedupe_key \
     where d.id = any($1) order by d.id for no key update of d";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("dead_letters_find", FIND),
    ("dead_letters_lock_jobs", LOCK_JOBS),
    ("dead_letters_lock", LOCK_LETTERS),
];

/// A locked letter, and what is known of its job, which is locked too.
#[derive(Clone, Debug, sqlx::FromRow)]
pub(super) struct Facts {
    pub(super) id: Uuid,
    pub(super) job_id: Option<Uuid>,
    status: String,
    pub(super) replayable: bool,
    pub(super) replay_id: Option<Uuid>,
    pub(super) bulk_replay_id: Option<Uuid>,
    job_status: Option<String>,
    pub(super) run: Option<i32>,
    pub(super) job_type: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) dedupe_key: Option<String>,
    pub(super) owns_key: bool,
}

impl Facts {
    /// The letter's status; a spelling that this binary does not know allows nothing.
    pub(super) fn status(&self) -> Option<DeadLetterStatus> {
        DeadLetterStatus::parse(&self.status)
    }

    /// The job's state; `None`: it is not there.
    pub(super) fn job(&self) -> Option<JobState> {
        self.job_status
            .as_deref()
            .and_then(|text| text.parse().ok())
    }
}

/// What was decided about a letter before anything was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) outcome: Outcome,
    pub(super) message: String,
}

impl Verdict {
    pub(super) fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
        }
    }

    pub(super) fn done() -> Self {
        Self::new(Outcome::Done, "")
    }
}

/// Finds the letters that these ids name, their own or their jobs', and locks them in the
/// order of the protocol. Must run inside a transaction.
pub(super) async fn lock(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<Vec<Facts>, sqlx::Error> {
    let found: Vec<(Uuid, Option<Uuid>)> = sqlx::query_as(FIND)
        .bind(ids)
        .fetch_all(&mut *connection)
        .await?;
    let letters: Vec<Uuid> = found.iter().map(|(id, _)| *id).collect();
    let mut jobs: Vec<Uuid> = found.iter().filter_map(|(_, job)| *job).collect();
    jobs.sort_unstable();
    sqlx::query(LOCK_JOBS)
        .bind(jobs)
        .execute(&mut *connection)
        .await?;
    sqlx::query_as(LOCK_LETTERS)
        .bind(letters)
        .fetch_all(connection)
        .await
}

/// Where each of the given ids leads: to the place of its letter among the facts.
pub(super) fn places(facts: &[Facts]) -> HashMap<Uuid, usize> {
    let jobs = facts.iter().enumerate();
    let mut places: HashMap<Uuid, usize> = jobs
        .filter_map(|(place, fact)| Some((fact.job_id?, place)))
        .collect();
    places.extend(
        facts
            .iter()
            .enumerate()
            .map(|(place, fact)| (fact.id, place)),
    );
    places
}
