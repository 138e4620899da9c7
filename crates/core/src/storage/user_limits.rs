//! What single users may do where it differs from the configuration.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::pool::Held;
use super::{Store, db_error};
use crate::error::Result;

/// A page after a user. What was taken back is kept for a while, so that all who look for
/// changes see it.
const PAGE: &str = "select user_id, max_jobs, submits_per_second, submit_burst, weight, updated_by, updated_at \
     from user_limits where user_id > $1 \
     and (max_jobs is not null or submits_per_second is not null or submit_burst is not null or weight is not null) \
     order by user_id limit $2";
const FIND: &str = "select user_id, max_jobs, submits_per_second, submit_burst, weight, updated_by, updated_at \
     from user_limits where user_id = $1 \
     and (max_jobs is not null or submits_per_second is not null or submit_burst is not null or weight is not null)";
const CHANGED: &str = "select user_id, max_jobs, submits_per_second, submit_burst, weight, updated_by, updated_at \
     from user_limits where updated_at > now() - $1 * interval '1 ms'";
const SET: &str = "insert into user_limits as s (user_id, max_jobs, submits_per_second, submit_burst, weight, updated_by) \
     values ($1, $2, $3, $4, $5, $6) on conflict (user_id) do update set \
     max_jobs = case when 'max_jobs' = any($7::text[]) then excluded.max_jobs else s.max_jobs end, \
     submits_per_second = case when 'submits_per_second' = any($7::text[]) then excluded.submits_per_second \
     else s.submits_per_second end, \
     submit_burst = case when 'submit_burst' = any($7::text[]) then excluded.submit_burst else s.submit_burst end, \
     weight = case when 'weight' = any($7::text[]) then excluded.weight else s.weight end, \
     updated_by = excluded.updated_by, updated_at = now() \
     returning s.user_id, s.max_jobs, s.submits_per_second, s.submit_burst, s.weight, s.updated_by, s.updated_at";
/// What was promised under the old limit is void. The row is made where there is none, so
/// that who counts at this moment waits for the new limit.
const VOID: &str = "insert into user_load as l (user_id, job_limit, credit) values ($1, 0, 0) \
     on conflict (user_id) do update set credit = least(l.credit, 0)";
/// Whose row somebody else is about to set is not forgotten: to wait for it, with this user's
/// row locked, could be to wait for each other.
const FORGET: &str = "delete from user_limits where user_id in (select user_id from user_limits \
     where updated_at < now() - interval '1 day' \
     and max_jobs is null and submits_per_second is null and submit_burst is null and weight is null \
     order by user_id limit 1000 for update skip locked)";
const JOBS: &str = "select count(*) from (select 1 from jobs where user_id = $1 and finished_at is null limit $2) x";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("user_limits_page", PAGE),
    ("user_limits_find", FIND),
    ("user_limits_changed", CHANGED),
    ("user_limits_set", SET),
    ("user_limits_void", VOID),
    ("user_limits_forget", FORGET),
    ("user_limits_jobs", JOBS),
];

/// A change may be committed this much later than it is dated.
const COMMIT_LAG: Duration = Duration::from_mins(1);

/// The limits by name.
pub const LIMITS: [&str; 4] = ["max_jobs", "submits_per_second", "submit_burst", "weight"];

/// Limits; `None`: the default.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct UserLimits {
    /// The most jobs that have not ended.
    pub max_jobs: Option<i64>,
    /// The most submits in a second.
    pub submits_per_second: Option<f64>,
    /// The submits that may come at once.
    pub submit_burst: Option<i64>,
    /// The share of a backlog.
    pub weight: Option<i32>,
}

/// The limits of a user.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredLimits {
    /// The user.
    pub user_id: String,
    /// The limits.
    pub limits: UserLimits,
    /// Who set them.
    pub updated_by: Option<String>,
    /// When.
    pub updated_at: DateTime<Utc>,
}

type Columns = (
    String,
    Option<i64>,
    Option<f64>,
    Option<i64>,
    Option<i32>,
    Option<String>,
    DateTime<Utc>,
);

impl From<Columns> for StoredLimits {
    fn from(row: Columns) -> Self {
        let (user_id, max_jobs, submits_per_second, submit_burst, weight, updated_by, updated_at) =
            row;
        Self {
            user_id,
            limits: UserLimits {
                max_jobs,
                submits_per_second,
                submit_burst,
                weight,
            },
            updated_by,
            updated_at,
        }
    }
}

impl Store {
    /// Up to `limit` users with limits of their own, by id, after one (empty: from the first).
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_user_limits(&self, after: &str, limit: i64) -> Result<Vec<StoredLimits>> {
        let rows: Vec<Columns> = sqlx::query_as(PAGE)
            .bind(after)
            .bind(limit)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        Ok(rows.into_iter().map(StoredLimits::from).collect())
    }

    /// What was set for a user.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn find_user_limits(&self, user: &str) -> Result<Option<StoredLimits>> {
        let row: Option<Columns> = sqlx::query_as(FIND)
            .bind(user)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        Ok(row.map(StoredLimits::from))
    }

    /// What was set or taken back (all limits `None`) within this time; what is told twice
    /// is the same.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn changed_user_limits(&self, within: Duration) -> Result<Vec<StoredLimits>> {
        let within = within.saturating_add(COMMIT_LAG).as_millis();
        let rows: Vec<Columns> = sqlx::query_as(CHANGED)
            // A century is all of them.
            .bind(
                i64::try_from(within)
                    .unwrap_or(i64::MAX)
                    .min(3_155_760_000_000),
            )
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        Ok(rows.into_iter().map(StoredLimits::from).collect())
    }

    /// Sets the limits of a user; all `None`: the defaults hold again.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn set_user_limits(
        &self,
        user: &str,
        limits: UserLimits,
        by: &str,
    ) -> Result<StoredLimits> {
        self.change_user_limits(user, limits, &LIMITS, by).await
    }

    /// Sets those limits of a user that are named, of [`LIMITS`]; `None`: the default holds
    /// again. The others stay, whoever changes them at the same time.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn change_user_limits(
        &self,
        user: &str,
        limits: UserLimits,
        names: &[&str],
        by: &str,
    ) -> Result<StoredLimits> {
        let is_named = |name| names.contains(&name);
        let limits = UserLimits {
            max_jobs: limits.max_jobs.filter(|_| is_named("max_jobs")),
            submits_per_second: limits
                .submits_per_second
                .filter(|_| is_named("submits_per_second")),
            submit_burst: limits.submit_burst.filter(|_| is_named("submit_burst")),
            weight: limits.weight.filter(|_| is_named("weight")),
        };
        let mut held = self.hold().await.map_err(db_error)?;
        let stored = set(&mut held, user, limits, names, by)
            .await
            .map_err(db_error)?;
        held.done();
        Ok(stored)
    }

    /// A user's jobs that have not ended, counted up to `most`.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn live_jobs_of(&self, user: &str, most: i64) -> Result<i64> {
        sqlx::query_scalar(JOBS)
            .bind(user)
            .bind(most)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)
    }
}

/// The limits first, then the credit under its lock: whoever counts afterwards reads them,
/// and whoever has counted before loses what it gave.
async fn set(
    held: &mut Held,
    user: &str,
    limits: UserLimits,
    names: &[&str],
    by: &str,
) -> Result<StoredLimits, sqlx::Error> {
    held.run("begin").await?;
    let row: Columns = sqlx::query_as(SET)
        .bind(user)
        .bind(limits.max_jobs)
        .bind(limits.submits_per_second)
        .bind(limits.submit_burst)
        .bind(limits.weight)
        .bind(by)
        .bind(names)
        .fetch_one(held.connection())
        .await?;
    sqlx::query(VOID)
        .bind(user)
        .execute(held.connection())
        .await?;
    sqlx::query(FORGET).execute(held.connection()).await?;
    held.run("commit").await?;
    Ok(row.into())
}
