//! How many jobs a user may have that have not ended (PROTOCOL.md §5c).
//!
//! `user_load.credit` is a promise: so many jobs of the user may still come without anybody
//! counting. It is never more than the limit less the jobs that are there, since whoever
//! adds a job takes one from it in the same transaction, and an end gives nothing back. Only
//! where it does not suffice are the jobs counted, under the row's lock and in a statement
//! of its own, which sees whatever was added under that lock before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::PgConnection;

use super::Store;
use crate::domain::ids::JobId;
use crate::error::{Code, Error};

/// The highest limit that there is; a limit above it is this one.
pub const MAX_JOBS: i64 = 1_000_000_000;

/// A row is made, or locked as it is. Sorted by the database, as everywhere where rows of
/// several users are locked.
const LOCK: &str = "insert into user_load as l (user_id, job_limit, credit) \
     select u.user_id, 0, 0 from unnest($1::text[]) u (user_id) order by u.user_id \
     on conflict (user_id) do update set credit = l.credit returning l.user_id, l.job_limit, l.credit";
const RENEW: &str = include_str!("sql/user_load_renew.sql");
/// Jobs that are not refused take credit as well, as far as there is any. No join, whose
/// plan could read the whole table.
const DEBIT: &str = "insert into user_load as l (user_id, job_limit, credit) \
     select u.user_id, 0, -count(*)::int from unnest($1::text[]) u (user_id) group by u.user_id order by u.user_id \
     on conflict (user_id) do update set credit = greatest(l.credit + excluded.credit, 0)";
const EXISTING: &str = "select job_id from jobs where job_id = any($1)";
/// After a restart with a lower default: what was promised under the old one is void. The
/// rows are locked in the order in which submits lock them.
const LOWERED: &str = "with m as materialized (select l.user_id from user_load l where l.job_limit > $1 and l.credit > 0 \
     and not exists (select 1 from user_limits s where s.user_id = l.user_id and s.max_jobs is not null) \
     order by l.user_id for no key update of l) \
     update user_load l set credit = least(l.credit, 0) from m where l.user_id = m.user_id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("user_load_lock", LOCK),
    ("user_load_renew", RENEW),
    ("user_load_debit", DEBIT),
    ("user_load_existing", EXISTING),
    ("user_load_lowered", LOWERED),
];

/// Where the jobs of several users are counted in one statement, each count ends here; who
/// has more is counted alone.
const COUNT_TOGETHER: i32 = 1000;
/// After a refusal a user is refused for so long without the database being asked.
const REFUSED_FOR: Duration = Duration::from_millis(100);
/// Counting takes at most this part of the time: one in so many.
const COUNT_SHARE: u32 = 20;
/// A count of fewer jobs costs little, and may follow another one at once.
const CHEAP_COUNT: i64 = 10_000;
/// The least delay that a refusal recommends: a job has to end first.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The most users that are remembered; beyond, those whose pause is over are forgotten.
const REMEMBERED: usize = 10_000;

/// The limit of those who have none of their own, and what this process knows of users at
/// their limit.
#[derive(Debug)]
pub struct JobLimit {
    default: i64,
    pauses: Mutex<HashMap<String, Pause>>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    /// The limit that was found.
    limit: i64,
    /// Until then the user is refused without a look.
    refused_until: Option<Instant>,
    /// Until then the user's jobs are not counted again.
    counted_until: Instant,
}

/// A user's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The limit when the jobs were last counted; 0: they never were.
    pub(super) limit: i64,
    /// What may still come; negative: not known.
    pub(super) credit: i64,
}

/// A count of a user's jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    /// The limit that was found.
    pub(super) limit: i64,
    /// The jobs; as many as the limit: or more.
    pub(super) jobs: i64,
    /// How long it took.
    pub(super) took: Duration,
    /// Whether it left less than was asked for.
    pub(super) full: bool,
}

impl Count {
    /// For how long it is not repeated.
    pub(super) fn pause(&self) -> Duration {
        if self.jobs < CHEAP_COUNT {
            Duration::ZERO
        } else {
            self.took * COUNT_SHARE
        }
    }
}

impl JobLimit {
    /// With this limit for users that have none of their own; 0: no limit.
    pub fn new(default: i64) -> Self {
        Self {
            default: if default == 0 { MAX_JOBS } else { default }.clamp(1, MAX_JOBS),
            pauses: Mutex::default(),
        }
    }

    /// The limit of users that have none of their own.
    pub fn default_limit(&self) -> i64 {
        self.default
    }

    /// The refusal of a user who was at the limit a moment ago.
    pub(super) fn refused(&self, user: &str) -> Option<Error> {
        let pauses = self.pauses.lock();
        if pauses.is_empty() {
            return None;
        }
        let pause = pauses.get(user)?;
        let wait = pause
            .refused_until?
            .checked_duration_since(Instant::now())?;
        (!wait.is_zero()).then(|| too_many(user, pause.limit, wait))
    }

    /// Whether the user's jobs may be counted; `Err`: that took long, not long ago.
    pub(super) fn may_count(&self, user: &str) -> Result<(), Duration> {
        let pauses = self.pauses.lock();
        let wait = pauses
            .get(user)
            .and_then(|pause| pause.counted_until.checked_duration_since(Instant::now()));
        match wait {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(()),
        }
    }

    /// Notes a count, and whether it left less than was asked for.
    pub(super) fn counted(&self, user: &str, count: &Count) {
        let now = Instant::now();
        let pause = count.pause();
        if !count.full && pause.is_zero() {
            self.pauses.lock().remove(user);
            return;
        }
        let mut pauses = self.pauses.lock();
        if pauses.len() >= REMEMBERED {
            pauses.retain(|_, pause| {
                pause.counted_until > now || pause.refused_until.is_some_and(|until| until > now)
            });
        }
        pauses.insert(
            user.to_owned(),
            Pause {
                limit: count.limit,
                refused_until: count.full.then(|| now + pause.max(REFUSED_FOR)),
                counted_until: now + pause,
            },
        );
    }

    /// Forgets what is known of a user, whose limit has changed.
    pub fn forget(&self, user: &str) {
        self.pauses.lock().remove(user);
    }
}

/// The refusal of a user at the limit.
pub(super) fn too_many(user: &str, limit: i64, wait: Duration) -> Error {
    let what = if limit == 0 {
        format!("user {user:?} may not submit jobs: the limit of jobs is 0")
    } else {
        format!(
            "user {user:?} may have {limit} jobs that wait or run, and has no room for more; try again when some have ended"
        )
    };
    let error = Error::new(Code::TooManyPendingJobs, what)
        .with_quota(
            format!("user:{user}"),
            format!("at most {limit} jobs that have not ended; an operator can set another limit"),
        )
        .with_meta("user_id", user)
        .with_meta("limit", limit.to_string());
    if limit == 0 {
        // No end of a job makes room.
        error.lasting()
    } else {
        error.with_retry_after(wait.max(RETRY_AFTER))
    }
}

/// Locks the rows of users, sorted and unique or not; makes those that are missing.
pub(super) async fn lock(
    connection: &mut PgConnection,
    users: &[&str],
) -> Result<HashMap<String, Load>, sqlx::Error> {
    let rows: Vec<(String, i32, i32)> = sqlx::query_as(LOCK)
        .bind(users)
        .fetch_all(connection)
        .await?;
    Ok(loads(rows))
}

/// Counts the jobs of users whose rows are locked, and sets their credit by it. One user is
/// counted to the end; of several, who has many gets a negative credit and no decision.
pub(super) async fn renew(
    connection: &mut PgConnection,
    users: &[&str],
    limit: &JobLimit,
) -> Result<HashMap<String, Load>, sqlx::Error> {
    let cap = if users.len() == 1 {
        MAX_JOBS as i32
    } else {
        COUNT_TOGETHER
    };
    let rows: Vec<(String, i32, i32)> = sqlx::query_as(RENEW)
        .bind(users)
        .bind(limit.default)
        .bind(cap)
        .fetch_all(connection)
        .await?;
    Ok(loads(rows))
}

fn loads(rows: Vec<(String, i32, i32)>) -> HashMap<String, Load> {
    rows.into_iter()
        .map(|(user, limit, credit)| {
            let load = Load {
                limit: limit.into(),
                credit: credit.into(),
            };
            (user, load)
        })
        .collect()
}

/// Takes credit for jobs that are added without being refused, one for each name.
pub(super) async fn debit(
    connection: &mut PgConnection,
    owners: &[&str],
) -> Result<(), sqlx::Error> {
    sqlx::query(DEBIT).bind(owners).execute(connection).await?;
    Ok(())
}

/// Which of these jobs are there: an earlier commit whose answer was lost.
pub(super) async fn existing(
    connection: &mut PgConnection,
    ids: &[JobId],
) -> Result<Vec<JobId>, sqlx::Error> {
    let ids: Vec<uuid::Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let rows: Vec<uuid::Uuid> = sqlx::query_scalar(EXISTING)
        .bind(ids)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(JobId).collect())
}

impl Store {
    /// Makes credit that was given under a higher default void.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn apply_default_job_limit(&self, limit: &JobLimit) -> crate::Result<()> {
        let limit = i32::try_from(limit.default).unwrap_or(i32::MAX);
        sqlx::query(LOWERED)
            .bind(limit)
            .execute(self.pool())
            .await
            .map_err(super::db_error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(jobs: i64, full: bool) -> Count {
        Count {
            limit: 20_000,
            jobs,
            took: Duration::from_secs(1),
            full,
        }
    }

    #[test]
    fn a_refused_user_is_refused_for_a_moment_and_others_are_not() {
        let limit = JobLimit::new(5);
        assert!(limit.refused("ada").is_none());
        limit.counted("ada", &count(5, true));
        let error = limit.refused("ada").expect("refused");
        assert_eq!(error.code(), Code::TooManyPendingJobs);
        assert_eq!(error.retry_after(), Some(RETRY_AFTER));
        let never = too_many("ada", 0, Duration::ZERO);
        assert_eq!(never.retry_after(), None);
        assert!(limit.refused("bob").is_none());
        limit.forget("ada");
        assert!(limit.refused("ada").is_none());
    }

    #[test]
    fn a_long_count_is_not_repeated_at_once() {
        let limit = JobLimit::new(0);
        assert_eq!(limit.default_limit(), MAX_JOBS);
        limit.counted("ada", &count(CHEAP_COUNT - 1, false));
        assert!(limit.may_count("ada").is_ok());
        limit.counted("ada", &count(CHEAP_COUNT, false));
        let wait = limit.may_count("ada").expect_err("not yet");
        assert!(wait > Duration::from_secs(19), "{wait:?}");
        assert!(limit.refused("ada").is_none(), "what is left may be used");
    }
}
