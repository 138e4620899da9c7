//! Listing jobs, newest first, a page at a time.
//!
//! Ids are UUIDv7, so their order is the order of acceptance, and a page goes on after
//! the last id of the page before. A page looks at a bounded number of rows: where the
//! filters match few of them, it comes back short (even empty) with the place to go on
//! from. Nothing is ever counted.

use std::collections::BTreeMap;

use sqlx::types::Json;
use uuid::Uuid;

use super::jobs::{JobRow, job_columns};
use super::{Store, db_error};
use crate::domain::ids::{JobId, UserId};
use crate::domain::job::Job;
use crate::domain::state::JobState;
use crate::error::Result;

/// The most rows that one page looks at.
pub const SCAN_LIMIT: i64 = 10_000;

/// The filters stand outside of the bounded scan, so that the scan stays bounded.
macro_rules! page_of {
    ($owner:literal) => {
        concat!(
            "select j.* from (select ",
            job_columns!(),
            ", null::bytea as payload from jobs j where ",
            $owner,
            " and j.job_id < $2 order by j.job_id desc limit $3) j \
             where ($4::text[] is null or j.status = any($4)) and ($5::text is null or j.job_type = $5) \
             and ($6::text is null or j.queue = $6) and ($7::jsonb is null or j.labels @> $7) \
             order by j.job_id desc limit $8"
        )
    };
}
macro_rules! scan_end {
    ($owner:literal) => {
        concat!(
            "select j.job_id from jobs j where ",
            $owner,
            " and j.job_id < $2 order by j.job_id desc offset $3 limit 1"
        )
    };
}

const PAGE_OF_USER: &str = page_of!("j.user_id = $1");
const PAGE_OF_ALL: &str = page_of!("$1::text is null");
const SCAN_END_OF_USER: &str = scan_end!("j.user_id = $1");
const SCAN_END_OF_ALL: &str = scan_end!("$1::text is null");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("list_page_of_user", PAGE_OF_USER),
    ("list_page_of_all", PAGE_OF_ALL),
    ("list_scan_end_of_user", SCAN_END_OF_USER),
    ("list_scan_end_of_all", SCAN_END_OF_ALL),
];

/// Which jobs a list has. The conditions are joined with AND.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobFilter {
    /// The owner; `None`: everybody's.
    pub user_id: Option<UserId>,
    /// Any of these states; empty: all.
    pub states: Vec<JobState>,
    /// This job type.
    pub job_type: Option<String>,
    /// This queue.
    pub queue: Option<String>,
    /// All of these labels; empty: whatever labels.
    pub labels: BTreeMap<String, String>,
}

impl JobFilter {
    /// Whether a row of the scan may be left out.
    fn is_selective(&self) -> bool {
        !self.states.is_empty()
            || self.job_type.is_some()
            || self.queue.is_some()
            || !self.labels.is_empty()
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct JobPage {
    /// The jobs, newest first, without payloads. May be fewer than asked for, even none,
    /// while there are more.
    pub jobs: Vec<Job>,
    /// The next page comes after this id; `None`: this was the last one.
    pub next: Option<JobId>,
}

impl Store {
    /// A page of up to `limit` jobs after `after` (`None`: from the newest on).
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_jobs(
        &self,
        filter: &JobFilter,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<JobPage> {
        let user = filter.user_id.as_ref().map(UserId::as_str);
        let (page, scan_end) = if user.is_some() {
            (PAGE_OF_USER, SCAN_END_OF_USER)
        } else {
            (PAGE_OF_ALL, SCAN_END_OF_ALL)
        };
        let after = after.map_or(Uuid::max(), JobId::uuid);
        // One more than asked for tells whether there is a next page.
        let wanted = limit as i64 + 1;
        let scan = if filter.is_selective() {
            SCAN_LIMIT.max(wanted)
        } else {
            wanted
        };
        let states: Option<Vec<&str>> = (!filter.states.is_empty())
            .then(|| filter.states.iter().map(|state| state.as_str()).collect());
        let labels = (!filter.labels.is_empty()).then_some(Json(&filter.labels));
        let rows: Vec<JobRow> = sqlx::query_as(page)
            .bind(user)
            .bind(after)
            .bind(scan)
            .bind(states)
            .bind(filter.job_type.as_deref())
            .bind(filter.queue.as_deref())
            .bind(labels)
            .bind(wanted)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let mut jobs = rows
            .into_iter()
            .map(Job::try_from)
            .collect::<Result<Vec<_>>>()?;
        if jobs.len() > limit {
            jobs.truncate(limit);
            let next = jobs.last().map(|job| job.job_id);
            return Ok(JobPage { jobs, next });
        }
        if !filter.is_selective() {
            return Ok(JobPage { jobs, next: None });
        }
        let next: Option<Uuid> = sqlx::query_scalar(scan_end)
            .bind(user)
            .bind(after)
            .bind(scan - 1)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        Ok(JobPage {
            jobs,
            next: next.map(JobId),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_beside_the_owner_widen_the_scan() {
        let mut filter = JobFilter {
            user_id: Some(UserId::from_stored("ada".into())),
            ..JobFilter::default()
        };
        assert!(!filter.is_selective());
        filter.labels.insert("k".into(), "v".into());
        assert!(filter.is_selective());
        let filter = JobFilter {
            states: vec![JobState::Failed],
            ..JobFilter::default()
        };
        assert!(filter.is_selective());
    }
}
