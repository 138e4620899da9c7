//! Writing a batch of submitted jobs with their keys (PROTOCOL.md §5).

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::admission::{self, JobLimit};
use super::submit_keys::{answer_followers, bind_keys, collapse, keys_of};
use super::{Store, scarce, submit_lines};
use crate::domain::ids::JobId;
use crate::domain::job::NewJob;
use crate::domain::line::Line;
use crate::domain::state::JobState;
use crate::error::Result;

const INSERT: &str = include_str!("sql/submit.sql");

pub(super) const STATEMENTS: &[(&str, &str)] = &[("submit", INSERT)];

/// An accepted submit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// The job, or the earlier one with the same key.
    pub job_id: JobId,
    /// Whether an earlier submit made it.
    pub duplicate: bool,
    /// Its state.
    pub state: JobState,
}

/// A job that this process has just made durable and that is ready to be published.
#[derive(Debug)]
pub struct Committed {
    /// The job.
    pub job: NewJob,
    /// The database's time of its creation.
    pub created_at: DateTime<Utc>,
}

/// One row of a batch.
pub(super) struct Row {
    /// The job.
    pub(super) job: NewJob,
    /// Whether it goes into the backlog instead of to the broker.
    pub(super) parked: bool,
}

/// A row that repeats a key of an earlier row of its batch: its place, the other's, and the
/// scope of the key.
pub(super) type Follower = (usize, usize, String);

/// What a batch came to.
pub(super) struct Written {
    /// One outcome for each row; `None`: nothing is written, since its user's credit did not
    /// suffice and the jobs must be counted.
    pub(super) outcomes: Vec<Option<Result<Submitted>>>,
    /// When the inserted rows were created; `true`: due later, or without a turn yet.
    pub(super) inserted: HashMap<JobId, (DateTime<Utc>, bool)>,
}

impl Store {
    /// Opens connections and prepares the submit on them, so that the first burst after a
    /// start does not pay for it.
    ///
    /// # Errors
    /// Whatever the database says; the first submits will find out for themselves.
    pub(super) async fn warm_submits(&self, connections: usize) -> Result<(), sqlx::Error> {
        // Side by side, each with one: whoever held some and waited for more could wait
        // for somebody who does the same.
        let calls = (0..connections).map(|_| async {
            let mut held = self.hold().await?;
            let limit = held.limit();
            let answer = tokio::time::timeout(limit, insert(held.connection(), &[], &[])).await;
            held.settle(answer)
        });
        for answer in futures::future::join_all(calls).await {
            answer?;
        }
        Ok(())
    }

    /// Writes a batch: one statement where no row has a key, else one transaction.
    ///
    /// Safe to repeat with the same rows after an unknown commit: a row that is there
    /// already is left as it is, and a key that is bound to its own job is its own.
    pub(super) async fn write_submits(
        &self,
        rows: &[Row],
        limit: &JobLimit,
    ) -> Result<Written, sqlx::Error> {
        let (leaders, followers) = collapse(rows);
        let mut outcomes: Vec<Option<Result<Submitted>>> = rows.iter().map(|_| None).collect();
        // Given up on in the middle, or after an error, the connection is closed: nothing
        // of the transaction can reach the next user.
        let mut held = self.hold().await?;
        let leaders =
            scarce::refuse_at_once(&mut held, rows, leaders, limit, &mut outcomes).await?;
        let mut open = leaders;
        let (inserted, short) = loop {
            let lines = submit_lines::of(rows, &open);
            let alone =
                lines.is_empty() && open.iter().all(|i| keys_of(&rows[*i].job).next().is_none());
            if alone {
                break insert_or_tell(held.connection(), rows, &open).await?;
            }
            held.run("begin").await?;
            let connection = held.connection();
            submit_lines::lock(connection, &lines).await?;
            let accepted = bind_keys(connection, rows, &open, &mut outcomes).await?;
            let (mut inserted, short) = insert_or_tell(connection, rows, &accepted).await?;
            // What has no credit is written later, and so is what comes behind it in its line.
            let late = submit_lines::behind(rows, &accepted, &short);
            if !late.is_empty() {
                held.run("rollback").await?;
                open.retain(|index| outcomes[*index].is_none() && !late.contains(index));
                continue;
            }
            // Whoever looks for a job of these keys must not find one that is not there.
            scarce::unbind_rows(connection, rows, &short).await?;
            submit_lines::give_turns(connection, rows, &accepted, &lines, &mut inserted).await?;
            held.run("commit").await?;
            break (inserted, short);
        };
        held.done();
        for index in open {
            if !short.contains(&index) {
                outcomes[index].get_or_insert(Ok(fresh(&rows[index].job)));
            }
        }
        answer_followers(rows, followers, &mut outcomes);
        Ok(Written { outcomes, inserted })
    }
}

/// A job that was written now, or by a try whose answer was lost.
pub(super) fn fresh(job: &NewJob) -> Submitted {
    Submitted {
        job_id: job.job_id,
        duplicate: false,
        state: JobState::Pending,
    }
}

/// Inserts rows; answers with those that were inserted, and with the places of those that
/// were not because of their users' credit.
async fn insert_or_tell(
    connection: &mut PgConnection,
    rows: &[Row],
    which: &[usize],
) -> Result<(HashMap<JobId, (DateTime<Utc>, bool)>, Vec<usize>), sqlx::Error> {
    if which.is_empty() {
        return Ok((HashMap::new(), Vec::new()));
    }
    let inserted = insert(connection, rows, which).await?;
    let mut missing: Vec<usize> = Vec::new();
    if inserted.len() < which.len() {
        missing.extend(
            which
                .iter()
                .filter(|i| !inserted.contains_key(&rows[**i].job.job_id)),
        );
        let ids: Vec<JobId> = missing.iter().map(|i| rows[*i].job.job_id).collect();
        let there = admission::existing(connection, &ids).await?;
        missing.retain(|i| !there.contains(&rows[*i].job.job_id));
    }
    Ok((inserted, missing))
}

pub(super) async fn insert(
    connection: &mut PgConnection,
    rows: &[Row],
    which: &[usize],
) -> Result<HashMap<JobId, (DateTime<Utc>, bool)>, sqlx::Error> {
    let jobs = || which.iter().map(|i| &rows[*i].job);
    let mut users: HashMap<&str, i32> = HashMap::new();
    for job in jobs() {
        *users.entry(job.user_id.as_str()).or_default() += 1;
    }
    let (users, counts): (Vec<&str>, Vec<i32>) = users.into_iter().unzip();
    let labels = |job: &NewJob| {
        (!job.labels.is_empty())
            .then(|| serde_json::to_string(&job.labels).unwrap_or_else(|_| "{}".to_owned()))
    };
    let done: Vec<(uuid::Uuid, DateTime<Utc>, bool)> = sqlx::query_as(INSERT)
        .bind(jobs().map(|j| j.job_id.uuid()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.user_id.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.queue.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.lane.number()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.job_type.as_str()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.payload.as_slice()).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.run_at).collect::<Vec<_>>())
        .bind(which.iter().map(|i| rows[*i].parked).collect::<Vec<_>>())
        .bind(jobs().map(|j| j.max_attempts).collect::<Vec<_>>())
        .bind(
            jobs()
                .map(|j| j.timeout.as_millis() as i64)
                .collect::<Vec<_>>(),
        )
        .bind(jobs().map(|j| j.expires_at).collect::<Vec<_>>())
        .bind(jobs().map(labels).collect::<Vec<_>>())
        .bind(
            jobs()
                .map(|j| j.dedupe.as_ref().map(|d| d.key.as_str()))
                .collect::<Vec<_>>(),
        )
        .bind(
            jobs()
                .map(|j| j.submitted_by.as_deref())
                .collect::<Vec<_>>(),
        )
        .bind(
            jobs()
                .map(|j| j.trace_parent.as_deref())
                .collect::<Vec<_>>(),
        )
        .bind(users)
        .bind(counts)
        .bind(
            jobs()
                .map(|j| j.line.as_ref().map(Line::stored_key))
                .collect::<Vec<_>>(),
        )
        .bind(
            jobs()
                .map(|j| j.line.as_ref().and_then(Line::limit))
                .collect::<Vec<_>>(),
        )
        .bind(
            jobs()
                .map(|j| j.line.as_ref().is_some_and(Line::blocks))
                .collect::<Vec<_>>(),
        )
        .fetch_all(connection)
        .await?;
    Ok(done
        .into_iter()
        .map(|(id, at, later)| (JobId(id), (at, later)))
        .collect())
}
