//! Causes: letters with one queue, type, code and message, counted.
//!
//! No transaction that fails a job touches a counter, which would be one hot row for an
//! outage. Whoever writes a letter or changes it leaves a note of what there is to count, a
//! row of its own in `dead_letter_counts` (by a trigger, so that it is never forgotten); a
//! fold adds the notes up and removes them, and no letter is written for it. Letters from
//! before there were notes say themselves what was counted of them: those that say something
//! else by now stand in a partial index, and get their notes from here.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::last_error;
use super::verbs::persist;
use crate::domain::ids::DeadLetterId;
use crate::domain::job::LastError;
use crate::error::Result;
use crate::storage::pool::on_hot;
use crate::storage::{Store, db_error};

const LOCK: &str = "select pg_try_advisory_xact_lock($1)";
const FOLD: &str = include_str!("../sql/causes_fold.sql");

/// Notes for letters that the release before left uncounted. What was counted of one is taken
/// back where it was; nothing else changes, so that the triggers have nothing to note.
const ENLIST: &str = "with l as materialized (select id, cause_id, counted_status, queue_name, job_type, error_code, error_class, \
     error_message, status, failures, first_failed_at, last_failed_at, \
     coalesce(status_changed_at, last_failed_at) as since, tenure_cause(queue_name, job_type, error_code, error_message) as own from dead_letters \
     where status is distinct from counted_status or failures is distinct from counted_failures \
     order by id limit $1 for no key update skip locked), \
     u as (update dead_letters d set cause_id = l.own, counted_status = l.status, counted_failures = l.failures from l where d.id = l.id), \
     b as (insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code) \
     select id, -1, cause_id, counted_status, queue_name, coalesce(job_type, ''), error_code from l where counted_status is not null), \
     a as (insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code, error_class, \
     error_message, first_seen, last_failed_at, noted_at) select id, 1, own, status, queue_name, coalesce(job_type, ''), error_code, error_class, \
     error_message, case when failures = 1 then first_failed_at else last_failed_at end, last_failed_at, since from l) \
     select count(*) from l";

/// A replayed letter whose job has ended is resolved by the statement that ends the job. A
/// worker of the release before knows nothing of letters' ends: this makes up for it.
const SETTLE: &str = "with l as materialized (select id, job_id from dead_letters \
     where status = 'replayed' and id > $1 order by id limit $2), \
     n as (select l.id, j.status from l join jobs j on j.job_id = l.job_id where j.status in ('success', 'cancelled')), \
     e as (update dead_letters d set status = 'resolved', status_changed_at = now() from n \
     where d.id = n.id and d.status = 'replayed' returning d.id, d.user_id, d.replay_id, d.bulk_replay_id, n.status as ended), \
     a as (insert into dead_letter_actions (action_id, letter_id, action, user_id, status_before, status_after, replay_id, bulk_replay_id) \
     select tenure_uuid7(), id, case ended when 'success' then 'succeeded' else 'cancelled' end, user_id, 'replayed', 'resolved', \
     replay_id, bulk_replay_id from e returning 1) \
     select (select count(*) from l), (select id from l order by id desc limit 1), (select count(*) from a)";

macro_rules! list {
    ($key:literal) => {
        concat!(
            "select cause_id, queue_name, job_type, error_code, error_class, error_message, open, ignored, replayed, \
             resolved, first_failed_at, last_failed_at, sample_letter_id, ",
            $key,
            " as key from dead_letter_causes where (",
            $key,
            ", cause_id) < (coalesce($1::bigint, 9223372036854775807), \
             coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')) \
             and ($3::text is null or queue_name = $3) and ($4::text is null or job_type = $4) \
             and ($5::text is null or error_code = $5) and ($6 or open > 0) order by ",
            $key,
            " desc, cause_id desc limit $7"
        )
    };
}
const LIST_OPEN: &str = list!("open");
const LIST_LATEST: &str = list!("(extract(epoch from last_failed_at) * 1000000)::bigint");
const LIST_NEWEST: &str = list!("(extract(epoch from created_at) * 1000000)::bigint");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("causes_lock", LOCK),
    ("causes_enlist", ENLIST),
    ("causes_fold", FOLD),
    ("dead_letters_settle", SETTLE),
    ("causes_list_open", LIST_OPEN),
    ("causes_list_latest", LIST_LATEST),
    ("causes_list_newest", LIST_NEWEST),
];

/// The advisory lock of the fold: one at a time is enough, and needs no order of rows.
const FOLD_LOCK: i64 = 0x7465_6e75_7265_0007;

/// The notes of one fold that a caller waits for.
pub const FOLD_BATCH: i64 = 1_000;

/// The most notes of one fold. It takes a second or two, and reads what it has to sort from
/// memory.
pub const MAX_FOLD_BATCH: i64 = 32_000;

/// The causes of one queue, type and code; what is beyond counts as "other messages".
pub const MAX_CAUSES: i64 = 500;

/// The folds that a list makes before it reads: what is behind by more is the chore's.
const FOLDS_BEFORE_LIST: usize = 2;

/// What a fold did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folded {
    /// Notes that were counted and removed. A new letter has one; one that has changed has
    /// two, from where it was and to where it is.
    pub notes: i64,
    /// Causes that nobody had seen before.
    pub causes: i64,
}

/// What a look at replayed letters came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Letters that were resolved, because their jobs had ended.
    pub resolved: i64,
    /// Where the next look begins; `None`: from the start.
    pub next: Option<DeadLetterId>,
}

/// Letters that have one cause.
#[derive(Clone, Debug)]
pub struct Cause {
    /// Its fingerprint.
    pub id: Uuid,
    /// The queue.
    pub queue: String,
    /// The job type; empty for messages that could not be read.
    pub job_type: String,
    /// The error of one of the letters.
    pub error: LastError,
    /// Letters now open.
    pub open: i64,
    /// Letters now ignored.
    pub ignored: i64,
    /// Letters now replayed and not ended.
    pub replayed: i64,
    /// Letters now resolved.
    pub resolved: i64,
    /// The first failure ever.
    pub first_failed_at: DateTime<Utc>,
    /// The last failure.
    pub last_failed_at: DateTime<Utc>,
    /// The letter that failed last.
    pub sample: DeadLetterId,
}

/// Which causes; everything that is set must match.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CauseFilter {
    /// This queue.
    pub queue: Option<String>,
    /// This job type.
    pub job_type: Option<String>,
    /// This error code.
    pub error_code: Option<String>,
    /// Also causes without an open letter.
    pub include_closed: bool,
}

/// The order of a list of causes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CauseOrder {
    /// Most open letters first.
    #[default]
    Open,
    /// The latest failure first.
    LatestFirst,
    /// The latest new cause first.
    NewestFirst,
}

/// Where a list of causes goes on: after this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CauseCursor {
    /// What it is ordered by.
    pub key: i64,
    /// Its id.
    pub id: Uuid,
}

#[derive(sqlx::FromRow)]
struct CauseRow {
    cause_id: Uuid,
    queue_name: String,
    job_type: String,
    error_code: String,
    error_class: String,
    error_message: Option<String>,
    open: i64,
    ignored: i64,
    replayed: i64,
    resolved: i64,
    first_failed_at: DateTime<Utc>,
    last_failed_at: DateTime<Utc>,
    sample_letter_id: Uuid,
    key: i64,
}

impl CauseRow {
    fn into_cause(self) -> Cause {
        Cause {
            id: self.cause_id,
            queue: self.queue_name,
            job_type: self.job_type,
            error: last_error(self.error_code, &self.error_class, self.error_message),
            open: self.open,
            ignored: self.ignored,
            replayed: self.replayed,
            resolved: self.resolved,
            first_failed_at: self.first_failed_at,
            last_failed_at: self.last_failed_at,
            sample: DeadLetterId(self.sample_letter_id),
        }
    }
}

impl Store {
    /// Counts up to `batch` notes of what has changed; `None`: somebody else does just now.
    /// `max_causes`: of one queue, type and code.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; nothing was changed then.
    pub async fn fold_causes(&self, batch: i64, max_causes: i64) -> Result<Option<Folded>> {
        persist(|| self.fold_once(batch, max_causes)).await
    }

    // On the pool whose planner is held to indexes: how many notes a batch has is a
    // parameter, and a guess of it could make it read all of them each second.
    async fn fold_once(&self, batch: i64, max_causes: i64) -> Result<Option<Folded>, sqlx::Error> {
        let mut held = self.hold().await?;
        held.run("begin").await?;
        let alone: bool = sqlx::query_scalar(LOCK)
            .bind(FOLD_LOCK)
            .fetch_one(held.connection())
            .await?;
        let folded = if alone {
            let _: i64 = sqlx::query_scalar(ENLIST)
                .bind(batch)
                .fetch_one(held.connection())
                .await?;
            let (notes, causes) = sqlx::query_as(FOLD)
                .bind(batch)
                .bind(max_causes)
                .fetch_one(held.connection())
                .await?;
            Some(Folded { notes, causes })
        } else {
            None
        };
        held.run("commit").await?;
        held.done();
        Ok(folded)
    }

    /// Looks at up to `batch` replayed letters after `after`, and resolves those whose jobs
    /// have ended.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe.
    pub async fn settle_dead_letters(
        &self,
        after: Option<DeadLetterId>,
        batch: i64,
    ) -> Result<Settled> {
        let (seen, last, resolved): (i64, Option<Uuid>, i64) = on_hot!(
            self,
            fetch_one,
            sqlx::query_as(SETTLE)
                .bind(after.map_or(Uuid::nil(), DeadLetterId::uuid))
                .bind(batch)
        )
        .map_err(db_error)?;
        Ok(Settled {
            resolved,
            next: last.filter(|_| seen == batch).map(DeadLetterId),
        })
    }

    /// Brings the counts up to date as far as a caller can wait for it.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn freshen_causes(&self) -> Result<()> {
        for _ in 0..FOLDS_BEFORE_LIST {
            match self.fold_causes(FOLD_BATCH, MAX_CAUSES).await? {
                Some(folded) if folded.notes == FOLD_BATCH => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// A page of at most `limit` causes in this order, from `after` on, and where the next
    /// page begins. Counts that change while a list is read move causes within it.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_causes(
        &self,
        filter: &CauseFilter,
        order: CauseOrder,
        after: Option<CauseCursor>,
        limit: u32,
    ) -> Result<(Vec<Cause>, Option<CauseCursor>)> {
        self.freshen_causes().await?;
        let sql = match order {
            CauseOrder::Open => LIST_OPEN,
            CauseOrder::LatestFirst => LIST_LATEST,
            CauseOrder::NewestFirst => LIST_NEWEST,
        };
        let mut rows: Vec<CauseRow> = sqlx::query_as(sql)
            .bind(after.map(|cursor| cursor.key))
            .bind(after.map(|cursor| cursor.id))
            .bind(&filter.queue)
            .bind(&filter.job_type)
            .bind(&filter.error_code)
            .bind(filter.include_closed)
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(|row| CauseCursor {
            key: row.key,
            id: row.cause_id,
        });
        Ok((rows.into_iter().map(CauseRow::into_cause).collect(), next))
    }
}
