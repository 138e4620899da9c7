//! Renewing leases (PROTOCOL.md §8). Progress rides along.

use std::time::Duration;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::{JobId, SessionId};
use crate::error::{Result, clean_text};

/// The statement, with what it does about a row that is locked.
macro_rules! renew {
    ($locked:literal) => {
        concat!(
            "with l as materialized (select j.job_id, m.done, m.total, m.message \
             from unnest($1::uuid[], $2::int[], $5::bigint[], $6::bigint[], $7::text[]) m (job_id, run, done, total, message) \
             join jobs j on j.job_id = m.job_id \
             where j.run = m.run and j.status = 'running' and j.locked_by = $3 and j.lease_until > now() \
             order by j.job_id for no key update of j",
            $locked,
            ") update jobs j set lease_until = now() + $4 * interval '1 ms', \
             progress_done = coalesce(l.done, j.progress_done), progress_total = coalesce(l.total, j.progress_total), \
             progress_message = coalesce(l.message, j.progress_message), rev = j.rev + (l.done is not null)::int \
             from l where j.job_id = l.job_id returning j.job_id, j.run, j.cancel_requested_at is not null"
        )
    };
}

const RENEW: &str = renew!(" skip locked");
/// Waits for as long as `lock_timeout` lets it. A row that a take-back has changed meanwhile
/// is not the one that was asked for, and is left out.
const RENEW_WAITING: &str = renew!("");
const STILL_MINE: &str = "select j.job_id from unnest($1::uuid[], $2::int[]) m (job_id, run) \
     join jobs j on j.job_id = m.job_id and j.run = m.run where j.status = 'running' and j.locked_by = $3 \
     and j.lease_until > now()";

const CANCEL_REQUESTS: &str = "select job_id from jobs where job_id = any($1) and status = 'running' \
     and cancel_requested_at is not null";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("renew", RENEW),
    ("renew_waiting", RENEW_WAITING),
    ("renew_still_mine", STILL_MINE),
    ("cancel_requests", CANCEL_REQUESTS),
];

/// A run whose lease is to be renewed.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub run: i32,
    /// Its progress where that changed: done, total, message.
    pub progress: Option<(i64, i64, String)>,
}

/// A renewed lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewed {
    /// The job.
    pub job_id: JobId,
    /// The run.
    pub run: i32,
    /// Whether a cancel was asked for.
    pub cancel_requested: bool,
}

impl Store {
    /// Renews leases of one session; a lease that ended, or whose row is locked just
    /// now, is missing from the answer. `items` are sorted and unique by job.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn renew(
        &self,
        items: &[Renewal],
        session: SessionId,
        lease: Duration,
    ) -> Result<Vec<Renewed>> {
        self.renew_by(RENEW, items, session, lease).await
    }

    /// Renews a lease whose row is locked by others again and again: gets in line for the
    /// row, for a short time. `None`: it has ended.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE, also where the row stayed locked.
    pub async fn renew_waiting(
        &self,
        item: &Renewal,
        session: SessionId,
        lease: Duration,
    ) -> Result<Option<Renewed>> {
        let items = std::slice::from_ref(item);
        let renewed = self.renew_by(RENEW_WAITING, items, session, lease).await?;
        Ok(renewed.first().copied())
    }

    async fn renew_by(
        &self,
        statement: &'static str,
        items: &[Renewal],
        session: SessionId,
        lease: Duration,
    ) -> Result<Vec<Renewed>> {
        let ids: Vec<_> = items.iter().map(|i| i.job_id.uuid()).collect();
        let runs: Vec<_> = items.iter().map(|i| i.run).collect();
        let done: Vec<_> = items
            .iter()
            .map(|i| i.progress.as_ref().map(|p| p.0))
            .collect();
        let total: Vec<_> = items
            .iter()
            .map(|i| i.progress.as_ref().map(|p| p.1))
            .collect();
        let text: Vec<_> = items
            .iter()
            .map(|i| i.progress.as_ref().map(|p| clean_text(&p.2, 255)))
            .collect();
        let rows: Vec<(uuid::Uuid, i32, bool)> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(statement)
                .bind(ids)
                .bind(runs)
                .bind(session.uuid())
                .bind(lease.as_millis() as i64)
                .bind(done)
                .bind(total)
                .bind(text)
        )
        .map_err(db_error)?;
        Ok(rows
            .into_iter()
            .map(|(id, run, cancel_requested)| Renewed {
                job_id: JobId(id),
                run,
                cancel_requested,
            })
            .collect())
    }

    /// Which of these runs this session still holds a valid lease of.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn still_mine(
        &self,
        runs: &[(JobId, i32)],
        session: SessionId,
    ) -> Result<Vec<JobId>> {
        let (ids, numbers): (Vec<_>, Vec<_>) =
            runs.iter().map(|(id, run)| (id.uuid(), *run)).unzip();
        let rows: Vec<uuid::Uuid> = on_hot!(
            self,
            fetch_all,
            sqlx::query_scalar(STILL_MINE)
                .bind(ids)
                .bind(numbers)
                .bind(session.uuid())
        )
        .map_err(db_error)?;
        Ok(rows.into_iter().map(JobId).collect())
    }

    /// Which of these running jobs somebody has asked to cancel.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn cancel_requests(&self, ids: &[JobId]) -> Result<Vec<JobId>> {
        let ids: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
        let asked: Vec<uuid::Uuid> = on_hot!(
            self,
            fetch_all,
            sqlx::query_scalar(CANCEL_REQUESTS).bind(ids)
        )
        .map_err(db_error)?;
        Ok(asked.into_iter().map(JobId).collect())
    }
}
