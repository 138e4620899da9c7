//! Claiming runs (PROTOCOL.md §7): job → running and the ledger → running, in one statement.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::{JobId, SessionId, UserId};
use crate::domain::state::JobState;
use crate::error::Result;

const CLAIM: &str = include_str!("sql/claim.sql");
const REREAD: &str = "select j.job_id, j.run, j.status, j.locked_by, \
     j.held or (j.ordering_key is not null and coalesce(j.order_seq, 0) >= 0) as held, j.run_at <= now() as due, \
     q.paused or q.system_paused as paused, coalesce(j.expires_at <= now() and j.started_at is null, false) as expired \
     from jobs j join queues q on q.name = j.queue where j.job_id = any($1)";
const ADOPT: &str = "update jobs j set lease_until = now() + $4 * interval '1 ms' \
     from unnest($1::uuid[], $2::int[]) m (job_id, run) \
     where j.job_id = m.job_id and j.run = m.run and j.status = 'running' and j.locked_by = $3 \
     returning j.job_id, j.run, j.attempt, j.max_attempts, j.lost, j.user_id, j.queue, j.job_type, \
     j.payload, j.labels, j.timeout_ms, j.trace_parent, j.run_at, j.locked_at, j.snoozes, j.outage_since, j.life";
const LEDGER: &str = "select event_id from processed_events where event_id = any($1)";
const DEFER: &str = "with l as materialized (select j.job_id from unnest($1::uuid[], $2::int[]) m (job_id, run) \
     join jobs j on j.job_id = m.job_id where j.run = m.run and j.status = 'pending' and not j.held \
     and (j.ordering_key is null or j.order_seq < 0) and j.run_at <= now() order by j.job_id for no key update of j skip locked) \
     update jobs j set parked = ($3 = 0), \
     wake_at = least(case when j.started_at is null then j.expires_at end, case when $3 = 0 then now() + interval '1 day' else now() + $3 * interval '1 ms' end) \
     from l where j.job_id = l.job_id";
const HALVE_BUNDLE: &str = "update lanes set bundle_max = greatest(bundle_max / 2, 1), bundle_changed_at = now() \
     where queue = $1 and lane = $2 and bundle_max > 1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("claim", CLAIM),
    ("claim_reread", REREAD),
    ("adopt", ADOPT),
    ("claim_ledger", LEDGER),
    ("defer", DEFER),
    ("halve_bundle", HALVE_BUNDLE),
];

/// A claimed run: everything that its handler needs.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The job.
    pub job_id: JobId,
    /// The claimed run.
    pub run: i32,
    /// 1, and one more for each replay.
    pub life: i32,
    /// Starts that counted, this one included.
    pub attempt: i32,
    /// The most starts.
    pub max_attempts: i32,
    /// Leases lost in a row.
    pub lost: i16,
    /// The owner.
    pub user_id: UserId,
    /// The queue.
    pub queue: String,
    /// The job type's name.
    pub job_type: String,
    /// The payload as it was submitted.
    pub payload: Vec<u8>,
    /// The submitter's labels.
    pub labels: BTreeMap<String, String>,
    /// The time limit of this run.
    pub timeout: Duration,
    /// The caller's `traceparent`.
    pub trace_parent: Option<String>,
    /// From when on it could start.
    pub ready_at: DateTime<Utc>,
    /// The database's time of the claim.
    pub locked_at: DateTime<Utc>,
    /// How often handlers have put it off in this life.
    pub snoozes: i32,
    /// Since when its runs end by outages of our own, by the database's clock.
    pub outage_since: Option<DateTime<Utc>>,
}

#[derive(sqlx::FromRow)]
struct RereadRow {
    job_id: uuid::Uuid,
    run: i32,
    status: String,
    locked_by: Option<uuid::Uuid>,
    held: bool,
    due: bool,
    paused: bool,
    expired: bool,
}

impl RereadRow {
    fn verdict(&self, wanted_run: i32, session: SessionId) -> Unmatched {
        if self.run != wanted_run {
            Unmatched::Stale
        } else if self.status == JobState::Running.as_str()
            && self.locked_by == Some(session.uuid())
        {
            Unmatched::Mine
        } else if self.status != JobState::Pending.as_str()
            || self.held
            || !self.due
            || self.expired
        {
            Unmatched::Stale
        } else if self.paused {
            Unmatched::Paused
        } else {
            Unmatched::Claimable
        }
    }
}

#[derive(sqlx::FromRow)]
struct ClaimedRow {
    job_id: uuid::Uuid,
    run: i32,
    life: i32,
    attempt: i32,
    max_attempts: i32,
    lost: i16,
    user_id: String,
    queue: String,
    job_type: String,
    payload: Vec<u8>,
    labels: Option<Json<BTreeMap<String, String>>>,
    timeout_ms: i64,
    trace_parent: Option<String>,
    run_at: DateTime<Utc>,
    locked_at: DateTime<Utc>,
    snoozes: i32,
    outage_since: Option<DateTime<Utc>>,
}

/// What a row was found to be that a claim did not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmatched {
    /// Pending with this run and due: claim again.
    Claimable,
    /// Its queue is paused: defer without a delay, so that the dispatcher has it.
    Paused,
    /// Running already under this session: the outcome of a claim was not known.
    Mine,
    /// Another run, claimed elsewhere, final, not due, expired or held: nothing to do.
    Stale,
    /// There is no job, but the ledger knows the event: a late duplicate of a pruned job.
    Pruned,
    /// Neither job nor ledger row.
    Orphan,
}

impl Store {
    /// Claims runs for a session, in one statement. `runs` are (job, run), sorted and
    /// unique by job. Only what is returned was claimed and may start.
    ///
    /// # Errors
    /// The raw error: the caller decides by [`super::classify`] whether the outcome is known.
    pub async fn claim(
        &self,
        runs: &[(JobId, i32)],
        session: SessionId,
        lease: Duration,
    ) -> Result<Vec<Claimed>, sqlx::Error> {
        let (ids, numbers): (Vec<_>, Vec<_>) =
            runs.iter().map(|(id, run)| (id.uuid(), *run)).unzip();
        let rows: Vec<ClaimedRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(CLAIM)
                .bind(ids)
                .bind(numbers)
                .bind(session.uuid())
                .bind(lease.as_millis() as i64)
        )?;
        Ok(rows.into_iter().map(ClaimedRow::into_claimed).collect())
    }

    /// Reads again what a claim did not match, by id, so that the message can be
    /// settled for the right reason.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn reread_unclaimed(
        &self,
        runs: &[(JobId, i32)],
        session: SessionId,
    ) -> Result<Vec<(JobId, Unmatched)>> {
        let ids: Vec<_> = runs.iter().map(|(id, _)| id.uuid()).collect();
        let rows: Vec<RereadRow> =
            on_hot!(self, fetch_all, sqlx::query_as(REREAD).bind(&ids)).map_err(db_error)?;
        let known: BTreeMap<_, _> = rows.into_iter().map(|row| (row.job_id, row)).collect();
        let missing: Vec<_> = ids
            .iter()
            .filter(|id| !known.contains_key(id))
            .copied()
            .collect();
        let ledger: Vec<uuid::Uuid> = if missing.is_empty() {
            Vec::new()
        } else {
            on_hot!(self, fetch_all, sqlx::query_scalar(LEDGER).bind(&missing)).map_err(db_error)?
        };
        Ok(runs
            .iter()
            .map(|(id, wanted)| {
                let verdict = match known.get(&id.uuid()) {
                    None if ledger.contains(&id.uuid()) => Unmatched::Pruned,
                    None => Unmatched::Orphan,
                    Some(row) => row.verdict(*wanted, session),
                };
                (*id, verdict)
            })
            .collect())
    }

    /// Takes on runs that a claim of this session got whose answer was lost. The caller
    /// has made sure that none of them is in flight.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn adopt(
        &self,
        runs: &[(JobId, i32)],
        session: SessionId,
        lease: Duration,
    ) -> Result<Vec<Claimed>> {
        let (ids, numbers): (Vec<_>, Vec<_>) =
            runs.iter().map(|(id, run)| (id.uuid(), *run)).unzip();
        let rows: Vec<ClaimedRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(ADOPT)
                .bind(ids)
                .bind(numbers)
                .bind(session.uuid())
                .bind(lease.as_millis() as i64)
        )
        .map_err(db_error)?;
        Ok(rows.into_iter().map(ClaimedRow::into_claimed).collect())
    }

    /// Puts runs off that this worker cannot take now: parked where `delay` is zero,
    /// else looked at again after it. Rows that have changed since are left alone.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE. Nothing is lost by it: `wake_at` passes in any case.
    pub async fn defer(&self, runs: &[(JobId, i32)], delay: Duration) -> Result<u64> {
        let mut sorted = runs.to_vec();
        sorted.sort_unstable();
        sorted.dedup_by_key(|(id, _)| *id);
        let (ids, numbers): (Vec<_>, Vec<_>) =
            sorted.iter().map(|(id, run)| (id.uuid(), *run)).unzip();
        let done = on_hot!(
            self,
            execute,
            sqlx::query(DEFER)
                .bind(ids)
                .bind(numbers)
                .bind(delay.as_millis() as i64)
        )
        .map_err(db_error)?;
        Ok(done.rows_affected())
    }

    /// Halves the bundles of a lane whose envelopes wait at workers without a slot.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn halve_bundle(&self, queue: &str, lane: i16) -> Result<()> {
        on_hot!(
            self,
            execute,
            sqlx::query(HALVE_BUNDLE).bind(queue).bind(lane)
        )
        .map_err(db_error)?;
        Ok(())
    }
}

impl ClaimedRow {
    fn into_claimed(self) -> Claimed {
        Claimed {
            job_id: JobId(self.job_id),
            run: self.run,
            life: self.life,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            lost: self.lost,
            user_id: UserId::from_stored(self.user_id),
            queue: self.queue,
            job_type: self.job_type,
            payload: self.payload,
            labels: self.labels.map(|l| l.0).unwrap_or_default(),
            timeout: Duration::from_millis(self.timeout_ms.max(1) as u64),
            trace_parent: self.trace_parent,
            ready_at: self.run_at,
            locked_at: self.locked_at,
            snoozes: self.snoozes,
            outage_since: self.outage_since,
        }
    }
}
