//! Submits that repeat an accepted one: they are answered by its job, even where nothing new
//! is taken in just now.

use sqlx::PgConnection;

use super::pool::answered;
use super::submit::Submitted;
use super::submit_keys::{answer_repeat, keys_of};
use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::job::NewJob;
use crate::domain::state::JobState;
use crate::error::Result;

/// The keys that are bound: not those that a submit could take over.
const BOUND: &str = "select t.ord, d.job_id, d.fingerprint, j.status \
     from unnest($1::text[], $2::text[], $3::text[]) with ordinality t (u, s, k, ord) \
     join job_dedupe d on d.user_id = t.u and d.scope = t.s and d.key = t.k left join jobs j on j.job_id = d.job_id \
     where d.bound_until > now() or j.finished_at is null or j.finished_at + coalesce(d.after_end, interval '0') > now()";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("bound_keys", BOUND)];

/// A bound key: its place in the question, its job, fingerprint and state.
type BoundKey = (i64, uuid::Uuid, Vec<u8>, Option<String>);

/// What jobs of these keys are answered with that repeat an accepted submit; `None`: nothing
/// is known of any of a job's keys. One look-up for all of them, and without a write.
pub(super) async fn find(
    connection: &mut PgConnection,
    jobs: &[&NewJob],
) -> Result<Vec<Option<Result<Submitted>>>, sqlx::Error> {
    let mut answers: Vec<Option<Result<Submitted>>> = jobs.iter().map(|_| None).collect();
    let asked: Vec<_> = jobs
        .iter()
        .enumerate()
        .flat_map(|(place, job)| keys_of(job).map(move |key| (place, key)))
        .collect();
    if asked.is_empty() {
        return Ok(answers);
    }
    let bound: Vec<BoundKey> = sqlx::query_as(BOUND)
        .bind(asked.iter().map(|(_, key)| &*key.user).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, key)| &*key.scope).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, key)| &*key.key).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    for (ord, job_id, fingerprint, status) in bound {
        let (place, key) = &asked[ord as usize - 1];
        let state = status
            .and_then(|status| status.parse().ok())
            .unwrap_or(JobState::Success);
        let answer = answer_repeat(jobs[*place], &key.scope, JobId(job_id), &fingerprint, state);
        // The request id speaks first: it names this very request.
        if answers[*place].is_none() || key.scope.is_empty() {
            answers[*place] = Some(answer);
        }
    }
    Ok(answers)
}

impl Store {
    /// What these jobs are answered with that repeat an accepted submit by one of their keys;
    /// `None`: they repeat none.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn find_repeats(&self, jobs: &[&NewJob]) -> Result<Vec<Option<Result<Submitted>>>> {
        let mut held = self.hold().await.map_err(db_error)?;
        let limit = held.limit();
        let answers = answered(limit, find(held.connection(), jobs)).await;
        let answers = answers.map_err(db_error)?;
        held.done();
        Ok(answers)
    }
}
