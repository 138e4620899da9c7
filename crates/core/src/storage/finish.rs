//! Finishing runs (PROTOCOL.md §9): job, ledger, dead letter and follow-ups, in one statement.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::lines::LineKey;
use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::{JobId, SessionId};
use crate::domain::state::JobState;
use crate::error::{Class, Result, clean_text};

const FINISH: &str = include_str!("sql/finish.sql");
const REREAD: &str = "select job_id, run, status, locked_by, cancel_requested_at is not null as cancel_requested, \
     attempt >= max_attempts as spent from jobs where job_id = any($1)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("finish", FINISH), ("finish_reread", REREAD)];

/// The longest error summary that is kept, in characters.
pub const MAX_ERROR_CHARS: usize = 2000;

/// What a run's end makes of the job.
#[derive(Clone, PartialEq, Debug)]
pub enum Goal {
    /// Done, with a result and follow-up jobs.
    Success {
        /// The result as JSON.
        result: Option<Vec<u8>>,
        /// Jobs that exist exactly if this one succeeded.
        follow_ups: Vec<NewFollowUp>,
    },
    /// Ended for good.
    Failed(RunError),
    /// A temporary error: again after the delay.
    Retrying(RunError, Duration),
    /// An outage of our own: again after the delay, and no attempt spent.
    Outage(RunError, Duration),
    /// Not done, and no attempt spent: handed back and parked at once, or looked at again
    /// after the delay of a snooze.
    Pending(Duration),
    /// The cancel request was seen.
    Cancelled,
}

impl Goal {
    /// The job's state after it.
    pub const fn state(&self) -> JobState {
        match self {
            Self::Success { .. } => JobState::Success,
            Self::Failed(_) => JobState::Failed,
            Self::Retrying(..) | Self::Outage(..) => JobState::Retrying,
            Self::Pending(_) => JobState::Pending,
            Self::Cancelled => JobState::Cancelled,
        }
    }

    /// Whether the run gives its attempt back.
    pub const fn refunds(&self) -> bool {
        matches!(self, Self::Pending(_) | Self::Outage(..))
    }
}

/// The error that ended a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunError {
    /// A stable code.
    pub code: String,
    /// Whether a retry could help.
    pub class: Class,
    /// A summary for people.
    pub message: String,
}

/// A follow-up job. Its id is made before the statement, so that a repeat is the same job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewFollowUp {
    /// Its id.
    pub job_id: JobId,
    /// The job type's name; it must be in the catalogue.
    pub job_type: String,
    /// A JSON object.
    pub payload: Vec<u8>,
}

/// One finish.
#[derive(Clone, Debug)]
pub struct Finish {
    /// The job.
    pub job_id: JobId,
    /// The run that ended.
    pub run: i32,
    /// What becomes of the job.
    pub goal: Goal,
    /// The last progress: done, total, message.
    pub progress: Option<(i64, i64, String)>,
}

/// What a statement of finishes did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// The jobs that matched, with their new revisions.
    pub revisions: HashMap<JobId, i64>,
    /// Lines whose next jobs may have their turn: the caller sees to it.
    pub lines: BTreeSet<LineKey>,
}

#[derive(sqlx::FromRow)]
struct FinishedRow {
    job_id: uuid::Uuid,
    rev: i64,
    line_queue: Option<String>,
    line_key: Option<String>,
}

/// What became of a finish that a statement did not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unapplied {
    /// Running and ours, and a cancel was requested: the goal must be cancelled.
    CancelRequested,
    /// Running and ours, and its attempts are spent by now: the goal must be failed.
    Spent,
    /// Running and ours: try again.
    Again,
    /// It is at the goal already: an earlier commit whose outcome was not known.
    Applied,
    /// The lease was lost: drop the result and count it.
    Lost,
}

impl Store {
    /// Applies finishes of one session in one statement; answers with those that matched,
    /// and the lines that they have left a place in. `items` are sorted and unique by job.
    ///
    /// # Errors
    /// The raw error: the caller decides by [`super::classify`] whether the outcome is known.
    pub async fn finish(
        &self,
        items: &[Finish],
        session: SessionId,
    ) -> Result<Finished, sqlx::Error> {
        let mut rows = Columns::default();
        for item in items {
            rows.push(item);
        }
        let done: Vec<FinishedRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(FINISH)
                .bind(rows.ids)
                .bind(rows.runs)
                .bind(rows.goals)
                .bind(rows.delays)
                .bind(rows.refunds)
                .bind(rows.codes)
                .bind(rows.classes)
                .bind(rows.messages)
                .bind(rows.results)
                .bind(rows.done)
                .bind(rows.total)
                .bind(rows.progress)
                .bind(session.uuid())
                .bind(rows.parents)
                .bind(rows.follow_ids)
                .bind(rows.follow_types)
                .bind(rows.follow_payloads)
        )?;
        let mut finished = Finished::default();
        for row in done {
            finished.revisions.insert(JobId(row.job_id), row.rev);
            if let (Some(queue), Some(key)) = (row.line_queue, row.line_key) {
                finished.lines.insert(LineKey { queue, key });
            }
        }
        Ok(finished)
    }

    /// Reads again what a finish did not match.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn reread_unfinished(
        &self,
        items: &[Finish],
        session: SessionId,
    ) -> Result<Vec<Unapplied>> {
        let ids: Vec<_> = items.iter().map(|item| item.job_id.uuid()).collect();
        let rows: Vec<(uuid::Uuid, i32, String, Option<uuid::Uuid>, bool, bool)> =
            on_hot!(self, fetch_all, sqlx::query_as(REREAD).bind(ids)).map_err(db_error)?;
        let rows: HashMap<_, _> = rows.into_iter().map(|row| (JobId(row.0), row)).collect();
        Ok(items
            .iter()
            .map(|item| {
                let Some((_, run, status, locked_by, cancel, spent)) = rows.get(&item.job_id)
                else {
                    return Unapplied::Lost;
                };
                let goal = item.goal.state();
                let mine = *run == item.run
                    && status == JobState::Running.as_str()
                    && *locked_by == Some(session.uuid());
                let next_run =
                    item.run + i32::from(matches!(goal, JobState::Retrying | JobState::Pending));
                if mine && *cancel && !matches!(goal, JobState::Success | JobState::Cancelled) {
                    Unapplied::CancelRequested
                } else if mine && *spent && matches!(item.goal, Goal::Retrying(..)) {
                    Unapplied::Spent
                } else if mine {
                    Unapplied::Again
                } else if *run == next_run && status == goal.as_str() {
                    // Nobody else brings this run to this state: a take-back of a lost
                    // lease would have been counted, and changes nothing here.
                    Unapplied::Applied
                } else {
                    Unapplied::Lost
                }
            })
            .collect())
    }
}

/// The columns of the statement.
#[derive(Default)]
struct Columns {
    ids: Vec<uuid::Uuid>,
    runs: Vec<i32>,
    goals: Vec<&'static str>,
    delays: Vec<i64>,
    refunds: Vec<bool>,
    codes: Vec<Option<String>>,
    classes: Vec<Option<&'static str>>,
    messages: Vec<Option<String>>,
    results: Vec<Option<Vec<u8>>>,
    done: Vec<Option<i64>>,
    total: Vec<Option<i64>>,
    progress: Vec<Option<String>>,
    parents: Vec<uuid::Uuid>,
    follow_ids: Vec<uuid::Uuid>,
    follow_types: Vec<String>,
    follow_payloads: Vec<Vec<u8>>,
}

impl Columns {
    fn push(&mut self, item: &Finish) {
        self.ids.push(item.job_id.uuid());
        self.runs.push(item.run);
        self.goals.push(item.goal.state().as_str());
        let (mut delay, mut error, mut result) = (Duration::ZERO, None, None);
        match &item.goal {
            Goal::Success {
                result: r,
                follow_ups,
            } => {
                result.clone_from(r);
                for job in follow_ups {
                    self.parents.push(item.job_id.uuid());
                    self.follow_ids.push(job.job_id.uuid());
                    self.follow_types.push(job.job_type.clone());
                    self.follow_payloads.push(job.payload.clone());
                }
            }
            Goal::Failed(e) => error = Some(e),
            Goal::Retrying(e, d) | Goal::Outage(e, d) => (error, delay) = (Some(e), *d),
            Goal::Pending(d) => delay = *d,
            Goal::Cancelled => {}
        }
        self.delays.push(delay.as_millis() as i64);
        self.refunds.push(item.goal.refunds());
        // A failure can always be written down: cleaned and cut here, whoever wrote it.
        self.codes.push(error.map(|e| clean_text(&e.code, 64)));
        self.classes.push(error.map(|e| e.class.as_str()));
        self.messages
            .push(error.map(|e| clean_text(&e.message, MAX_ERROR_CHARS)));
        self.results.push(result);
        let progress = item.progress.as_ref();
        self.done.push(progress.map(|p| p.0));
        self.total.push(progress.map(|p| p.1));
        self.progress.push(progress.map(|p| clean_text(&p.2, 255)));
    }
}
