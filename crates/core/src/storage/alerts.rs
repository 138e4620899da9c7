//! What operators should be told of dead letters (requirement G5): a new cause, growth, and
//! the age of the oldest open letter. Each is raised once, however many sweepers look, and
//! its webhook is a job of its own, written in the statement that raises it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::dead_letters::last_error;
use super::{Store, db_error};
use crate::domain::ids::{DeadLetterId, JobId};
use crate::domain::job::LastError;
use crate::error::Result;

/// The owner of the jobs that send alerts.
pub const ALERTS_USER: &str = "tenure-alerts";

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("alerts_open", OPEN),
    ("alerts_uncounted", UNCOUNTED),
    ("alerts_own_open", OWN_OPEN),
    ("alerts_oldest", OLDEST),
    ("alerts_level", LEVEL),
    ("alerts_growth", GROWTH),
    ("alerts_levels_prune", PRUNE_LEVELS),
    ("alerts_new_causes", NEW_CAUSES),
    ("alerts_raise", RAISE),
];

const OPEN: &str =
    "select queue_name, sum(open)::bigint as open from dead_letter_causes group by queue_name";
/// What waits for longer than a fold comes round: a backlog, as after an upgrade, and not the
/// letters of this moment, of which there are always some while something is broken.
const UNCOUNTED: &str = "select coalesce((select noted_at from dead_letter_counts order by count_id limit 1) \
     < now() - interval '1 minute', false) or exists (select 1 from dead_letters \
     where (status is distinct from counted_status or failures is distinct from counted_failures) \
     and coalesce(status_changed_at, last_failed_at) < now() - interval '1 minute')";
/// Letters of alerts that could not be sent are nothing to alert of: each would make another.
const OWN_OPEN: &str = "select count(*) from dead_letters where user_id = $1 and status = 'open'";
/// The first of the index of open letters that is somebody's.
const OLDEST: &str = "select id, last_failed_at, (extract(epoch from now() - last_failed_at) * 1000)::bigint as age_ms \
     from dead_letters where status = 'open' and user_id is distinct from $1 order by last_failed_at, id limit 1";
const LEVEL: &str = "insert into dead_letter_levels (at, open) values (date_trunc('minute', now()), $1) on conflict do nothing";
/// Against the least of the window: letters that came and were dealt with do not hide others.
const GROWTH: &str =
    "select min(open) from dead_letter_levels where at >= now() - $1 * interval '1 ms'";
const PRUNE_LEVELS: &str =
    "delete from dead_letter_levels where at < now() - $1 * interval '1 ms' - interval '1 hour'";
const NEW_CAUSES: &str = "select c.cause_id, c.queue_name, c.job_type, c.error_code, c.error_class, c.error_message, \
     c.open, c.sample_letter_id from dead_letter_causes c where c.first_failed_at > now() - interval '1 day' and c.open > 0 \
     and not exists (select 1 from alerts a where a.kind = 'new_cause' and a.key = c.cause_id::text) \
     and (c.job_type <> 'notify_webhook' or exists (select 1 from dead_letters d where d.cause_id = c.cause_id \
     and d.status = 'open' and d.user_id is distinct from $2)) \
     order by c.first_failed_at limit $1";
/// Raised again only after the pause; the job follows in the same statement, so that an alert
/// is sent exactly if it was raised.
const RAISE: &str = "with a as (insert into alerts as a (kind, key, detail) values ($1, $2, $3::jsonb) \
     on conflict (kind, key) do update set raised_at = now(), detail = excluded.detail \
     where a.raised_at <= now() - $4::bigint * interval '1 ms' returning 1), \
     j as (insert into jobs (job_id, user_id, queue, lane, job_type, payload, parked, wake_at, max_attempts, timeout_ms, submitted_by) \
     select $5, $6, t.queue, t.lane, t.name, $7, true, now() + interval '1 day', t.max_attempts, t.timeout_ms, 'sweeper' \
     from a join job_types t on t.name = 'notify_webhook' where $7::bytea is not null returning 1), \
     cr as (insert into user_load as l (user_id, job_limit, credit) select $6, 0, -1 from j \
     on conflict (user_id) do update set credit = greatest(l.credit - 1, 0)) \
     select (select count(*) from a), (select count(*) from j)";

/// Open letters of a queue.
#[derive(Clone, PartialEq, Eq, Debug, sqlx::FromRow)]
pub struct OpenLetters {
    /// The queue.
    #[sqlx(rename = "queue_name")]
    pub queue: String,
    /// How many.
    pub open: i64,
}

/// The open letter that has waited for the longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OldestLetter {
    /// The letter.
    pub id: DeadLetterId,
    /// Its last failure.
    pub last_failed_at: DateTime<Utc>,
    /// How long ago that was, by the database's clock.
    pub age: Duration,
}

/// A cause that nobody was told of.
#[derive(Clone, Debug)]
pub struct NewCause {
    /// Its fingerprint.
    pub id: Uuid,
    /// The queue.
    pub queue: String,
    /// The job type; empty for messages that could not be read.
    pub job_type: String,
    /// The error of one of its letters.
    pub error: LastError,
    /// Its open letters.
    pub open: i64,
    /// One of them.
    pub sample: DeadLetterId,
}

/// Something to tell.
#[derive(Clone, PartialEq, Debug)]
pub struct Alert {
    /// What kind: `new_cause`, `growth` or `oldest`.
    pub kind: &'static str,
    /// What it is about, within the kind.
    pub key: String,
    /// What there is to say.
    pub detail: Value,
    /// The payload of the job that sends it; `None`: nobody is called.
    pub webhook: Option<Vec<u8>>,
}

type CauseRow = (
    Uuid,
    String,
    String,
    String,
    String,
    Option<String>,
    i64,
    Uuid,
);

impl Store {
    /// The open letters by queue, as they are counted.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn open_letters(&self) -> Result<Vec<OpenLetters>> {
        sqlx::query_as(OPEN)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }

    /// Whether there are letters that wait to be counted for longer than that takes: what
    /// is counted of the open ones, and of when a cause was first seen, is not so yet.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn letters_uncounted(&self) -> Result<bool> {
        sqlx::query_scalar(UNCOUNTED)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)
    }

    /// How many of the open letters are of jobs that send alerts.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn open_letters_of_alerts(&self) -> Result<i64> {
        sqlx::query_scalar(OWN_OPEN)
            .bind(ALERTS_USER)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)
    }

    /// The open letter that failed the longest time ago, but for those of alerts.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn oldest_letter(&self) -> Result<Option<OldestLetter>> {
        let row: Option<(Uuid, DateTime<Utc>, i64)> = sqlx::query_as(OLDEST)
            .bind(ALERTS_USER)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        Ok(row.map(|(id, last_failed_at, age_ms)| OldestLetter {
            id: DeadLetterId(id),
            last_failed_at,
            age: Duration::from_millis(u64::try_from(age_ms).unwrap_or_default()),
        }))
    }

    /// Notes how many letters are open, and answers by how many that is more than the least
    /// of the time before.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn letter_growth(&self, open: i64, window: Duration) -> Result<i64> {
        let window = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        sqlx::query(LEVEL)
            .bind(open)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        let least: Option<i64> = sqlx::query_scalar(GROWTH)
            .bind(window)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        sqlx::query(PRUNE_LEVELS)
            .bind(window)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(open - least.unwrap_or(open))
    }

    /// Up to `limit` causes of the last day that nobody was told of, the oldest first; none
    /// that only alerts have.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn new_causes(&self, limit: i64) -> Result<Vec<NewCause>> {
        let rows: Vec<CauseRow> = sqlx::query_as(NEW_CAUSES)
            .bind(limit)
            .bind(ALERTS_USER)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let cause =
            |(id, queue, job_type, code, class, message, open, sample): CauseRow| NewCause {
                id,
                queue,
                job_type,
                error: last_error(code, &class, message),
                open,
                sample: DeadLetterId(sample),
            };
        Ok(rows.into_iter().map(cause).collect())
    }

    /// Raises an alert, with the job that sends it; `false`: it was raised less than `pause`
    /// ago, or at all where there is none. Safe to repeat.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn raise_alert(&self, alert: &Alert, pause: Option<Duration>) -> Result<bool> {
        let (raised, _): (i64, i64) = sqlx::query_as(RAISE)
            .bind(alert.kind)
            .bind(&alert.key)
            .bind(alert.detail.to_string())
            .bind(pause.and_then(|pause| i64::try_from(pause.as_millis()).ok()))
            .bind(JobId::new().uuid())
            .bind(ALERTS_USER)
            .bind(&alert.webhook)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        Ok(raised > 0)
    }
}
