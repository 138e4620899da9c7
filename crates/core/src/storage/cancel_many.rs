//! Cancelling by filter, a bounded number of jobs with each call.
//!
//! A call walks down the ids, newest first, from where the call before it ended. It looks at
//! a bounded number of rows, takes a bounded number of unfinished ones that match, and
//! cancels them in one statement by the rules of the single cancel: all of them or none.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::cancel::{cancelled_checked, cancelled_columns, cancelled_rest, damaged};
use super::list::{JobFilter, SCAN_LIMIT};
use super::pool::on_hot;
use super::{DbKind, Store, classify, db_error};
use crate::domain::ids::{JobId, UserId};
use crate::error::Result;

/// The most jobs that one call cancels.
pub const CANCEL_LIMIT: i64 = 1000;

/// How often a statement that could not get its locks in time is tried, with fewer jobs
/// each time.
const TRIES: i32 = 6;
/// The pause before it is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// What both statements begin with. No statement may end a damaged job, and it must not keep
/// the others. That is read in one snapshot with the job, so that one
/// that another transaction has just claimed is not taken for it.
/// $1 owner, $2 below this id, $3 rows to look at, $4 the moment of the first call, $5 states,
/// $6 type, $7 queue, $8 labels, $9 jobs to take.
macro_rules! hits {
    ($owner:literal) => {
        concat!(
            "with scan as materialized (select j.job_id, j.status, j.job_type, j.queue, j.labels, j.created_at, j.finished_at, \
             j.started_at, j.life \
             from jobs j where ",
            $owner,
            " and j.job_id < $2 order by j.job_id desc limit $3), \
             hit as materialized (select s.job_id, s.status, s.started_at, s.life from scan s \
             where s.finished_at is null and s.created_at <= coalesce($4, now()) \
             and ($5::text[] is null or s.status = any($5)) and ($6::text is null or s.job_type = $6) \
             and ($7::text is null or s.queue = $7) and ($8::jsonb is null or s.labels @> $8) \
             order by s.job_id desc limit $9), \
             h as materialized (select job_id, status, ",
            damaged!("hit"),
            " as damaged from hit), "
        )
    };
}

/// What both answer with: the counts, and where the next call begins.
macro_rules! answer {
    () => {
        "(select count(*) from h where damaged) as failed, \
         array(select job_id from h where damaged order by job_id desc limit 20) as damaged, coalesce($4, now()) as began, \
         case when (select count(*) from hit) = $9 then (select job_id from hit order by job_id limit 1) \
         when (select count(*) from scan) = $3 then (select job_id from scan order by job_id limit 1) end as next"
    };
}

macro_rules! count_only {
    ($owner:literal) => {
        concat!(
            hits!($owner),
            "n as materialized (select count(*) filter (where status <> 'running') as cancelled, \
             count(*) filter (where status = 'running') as requested from h where not damaged) \
             select n.cancelled, n.requested, 0::bigint as already_ended, ",
            answer!(),
            " from n"
        )
    };
}

/// The coalesce keeps the planner from the indexes of unfinished jobs, which stale statistics
/// make look empty: it would read all of one for each job.
/// $10 the caller, $11 the message for its own jobs, $12 for others', $13 the id of the
/// record, $14 the reason, $15 the filter.
macro_rules! cancel_all {
    ($owner:literal) => {
        concat!(
            hits!($owner),
            "l as materialized (select j.job_id, case when j.user_id = $10 then $11 else $12 end as message \
             from h join jobs j on j.job_id = h.job_id \
             where not h.damaged and coalesce(j.finished_at is null, false) and ($5::text[] is null or j.status = any($5)) \
             order by j.job_id for no key update of j), \
             u as (update jobs j set ",
            cancelled_columns!("l.message"),
            " from l where j.job_id = l.job_id and j.status in ('pending', 'retrying', 'timeout', 'running') \
             returning j.job_id, j.status, j.life, j.started_at, j.queue, j.ordering_key, j.order_seq), ",
            cancelled_rest!(),
            ", n as materialized (select count(*) filter (where status <> 'running') as cancelled, \
             count(*) filter (where status = 'running') as requested, \
             (select count(*) from h where damaged) as failed from u), \
             a as (insert into job_actions (action_id, action, actor, user_id, reason, before, after) \
             select $13, 'cancel_many', $10, $1, $14, $15::jsonb, \
             jsonb_strip_nulls(jsonb_build_object('cancelled', n.cancelled, 'requested', n.requested, \
             'failed', nullif(n.failed, 0))) from n returning 1) \
             select n.cancelled, n.requested, (select count(*) from h where not damaged) - n.cancelled - n.requested as already_ended, ",
            answer!(),
            " from n cross join ",
            cancelled_checked!(),
            " where k.checked is null and (select count(*) from a) = 1"
        )
    };
}

const COUNT_OF_USER: &str = count_only!("j.user_id = $1");
const COUNT_OF_ALL: &str = count_only!("$1::text is null");
const CANCEL_OF_USER: &str = cancel_all!("j.user_id = $1");
const CANCEL_OF_ALL: &str = cancel_all!("$1::text is null");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("cancel_many_count_of_user", COUNT_OF_USER),
    ("cancel_many_count_of_all", COUNT_OF_ALL),
    ("cancel_many_of_user", CANCEL_OF_USER),
    ("cancel_many_of_all", CANCEL_OF_ALL),
];

/// Where a series of calls is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The moment of the first call, by the database's clock: jobs that were accepted
    /// later are left alone.
    pub began: DateTime<Utc>,
    /// The next job is below this id.
    pub below: JobId,
}

/// Who cancels, and what the jobs' records will say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Canceller {
    /// The caller.
    pub name: String,
    /// What its own jobs say.
    pub own_message: String,
    /// What the jobs of others say.
    pub other_message: String,
    /// The reason alone, for the record.
    pub reason: Option<String>,
}

/// What a call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelledMany {
    /// Jobs that waited, and are cancelled.
    pub cancelled: i64,
    /// Jobs that run, and are to end.
    pub requested: i64,
    /// Jobs that went on to another state between the look and the cancel.
    pub already_ended: i64,
    /// Jobs that are damaged, which is in the log, and were left as they are.
    pub failed: i64,
    /// Where the next call begins; `None`: all were looked at.
    pub next: Option<Position>,
}

#[derive(sqlx::FromRow)]
struct Answer {
    cancelled: i64,
    requested: i64,
    already_ended: i64,
    failed: i64,
    damaged: Vec<Uuid>,
    began: DateTime<Utc>,
    next: Option<Uuid>,
}

impl Store {
    /// Cancels up to [`CANCEL_LIMIT`] unfinished jobs that match, from a position on
    /// (`None`: from the newest job on), and notes who did it. `by` `None`: only counts.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; then none was cancelled, or the call can be made again.
    pub async fn cancel_many(
        &self,
        filter: &JobFilter,
        from: Option<Position>,
        by: Option<&Canceller>,
    ) -> Result<CancelledMany> {
        let note = Uuid::now_v7();
        for turn in 0..TRIES {
            let limit = (CANCEL_LIMIT >> turn).max(1);
            match self.try_cancel_many(filter, from, by, note, limit).await {
                // Jobs that end just now hold their rows for a moment, and what they have
                // written is seen by the next statement.
                Err(error)
                    if turn + 1 < TRIES
                        && matches!(classify(&error), DbKind::Retry | DbKind::Invariant) =>
                {
                    tokio::time::sleep(PAUSE * (turn as u32 + 1)).await;
                }
                answer => {
                    let answer = answer.map_err(db_error)?;
                    if answer.failed > 0 {
                        tracing::error!(
                            jobs = ?answer.damaged,
                            count = answer.failed,
                            "jobs that have started are not in the ledger, or were replayed and have no letter: they cannot be cancelled"
                        );
                    }
                    return Ok(CancelledMany {
                        cancelled: answer.cancelled,
                        requested: answer.requested,
                        already_ended: answer.already_ended,
                        failed: answer.failed,
                        next: answer.next.map(|below| Position {
                            began: answer.began,
                            below: JobId(below),
                        }),
                    });
                }
            }
        }
        Err(db_error(sqlx::Error::PoolTimedOut))
    }

    async fn try_cancel_many(
        &self,
        filter: &JobFilter,
        from: Option<Position>,
        by: Option<&Canceller>,
        note: Uuid,
        limit: i64,
    ) -> Result<Answer, sqlx::Error> {
        let user = filter.user_id.as_ref().map(UserId::as_str);
        let statement = match (user, by) {
            (Some(_), None) => COUNT_OF_USER,
            (None, None) => COUNT_OF_ALL,
            (Some(_), Some(_)) => CANCEL_OF_USER,
            (None, Some(_)) => CANCEL_OF_ALL,
        };
        let states: Option<Vec<&str>> = (!filter.states.is_empty())
            .then(|| filter.states.iter().map(|state| state.as_str()).collect());
        let labels = (!filter.labels.is_empty()).then_some(Json(&filter.labels));
        let query = sqlx::query_as(statement)
            .bind(user)
            .bind(from.map_or(Uuid::max(), |from| from.below.uuid()))
            .bind(SCAN_LIMIT)
            .bind(from.map(|from| from.began))
            .bind(&states)
            .bind(filter.job_type.as_deref())
            .bind(filter.queue.as_deref())
            .bind(labels)
            .bind(limit);
        let query = match by {
            None => query,
            Some(by) => query
                .bind(&by.name)
                .bind(&by.own_message)
                .bind(&by.other_message)
                .bind(note)
                .bind(&by.reason)
                .bind(Json(serde_json::json!({
                    "user_id": user,
                    "states": states,
                    "job_type": filter.job_type,
                    "queue": filter.queue,
                    "labels": filter.labels,
                }))),
        };
        on_hot!(self, fetch_one, query)
    }
}
