//! Lines (PROTOCOL.md §12): jobs of one queue with one key, of which the first have their
//! turn and the others are held.
//!
//! Whatever ends a job that has its turn, or brings one to a line, notes the line in the same
//! statement (`line_turns`). Turns are given afterwards, by [`Store::give_turns`], behind the
//! line's advisory lock and in a statement that began after it: so the jobs with a turn are
//! counted exactly. Whoever ended the job calls it at once; if that process dies between the
//! two, a sweeper finds the note.

use std::collections::BTreeSet;

use sqlx::PgConnection;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::job::Lane;
use crate::error::Result;

/// Sorted, so that two of these never wait for each other.
const LOCK: &str = "select pg_advisory_xact_lock(h) from (select distinct hashtextextended(q || '/' || k, 0) as h \
     from unnest($1::text[], $2::text[]) t (q, k) order by 1) s";
const GIVE: &str = include_str!("sql/give_turns.sql");
const NOTED: &str = "select distinct queue, ordering_key from (select queue, ordering_key from line_turns \
     where noted_at < now() - $1 * interval '1 ms' order by note_id limit $2) n";
/// What is left to do, for whoever looks next.
const NOTE: &str = "insert into line_turns (queue, ordering_key) \
     select distinct q, k from unnest($1::text[], $2::text[]) t (q, k)";
/// A replay takes its own away, and waits for nobody here.
const UNBLOCK: &str = "with free as materialized (select c.job_id from blocked_lines c where not exists (\
     select 1 from dead_letters d where d.job_id = c.job_id and d.status = 'open') \
     order by c.job_id limit $1 for update skip locked), \
     gone as (delete from blocked_lines b using free where b.job_id = free.job_id \
     returning b.queue, b.ordering_key), \
     n as (insert into line_turns (queue, ordering_key) select distinct queue, ordering_key from gone) \
     select distinct queue, ordering_key from gone";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("lines_lock", LOCK),
    ("give_turns", GIVE),
    ("lines_noted", NOTED),
    ("lines_note", NOTE),
    ("lines_unblock", UNBLOCK),
];

/// How often turns are given in one go, where those who were next were cancelled meanwhile.
/// A line that is left without is noted again.
const GIVE_TRIES: usize = 5;

/// The most lines of one transaction.
const LINES_MAX: usize = 200;

/// A line: its queue and its key, as they are stored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, sqlx::FromRow)]
pub struct LineKey {
    /// The queue.
    pub queue: String,
    /// The key, with the two characters that tell its kind.
    #[sqlx(rename = "ordering_key")]
    pub key: String,
}

/// A job that has got its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turned {
    /// The job.
    pub job_id: JobId,
    /// Its run.
    pub run: i32,
    /// Leases lost in a row.
    pub lost: i16,
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// The job type's name.
    pub job_type: String,
    /// Whether it may start now; it may be due later.
    pub due: bool,
}

/// All but the id and the line is null where the job was not there any more, or locked.
#[derive(sqlx::FromRow)]
struct TurnedRow {
    job_id: uuid::Uuid,
    line_queue: String,
    line_key: String,
    run: Option<i32>,
    lost: Option<i16>,
    queue: Option<String>,
    lane: Option<i16>,
    job_type: Option<String>,
    due: Option<bool>,
}

impl TurnedRow {
    fn line(&self) -> LineKey {
        LineKey {
            queue: self.line_queue.clone(),
            key: self.line_key.clone(),
        }
    }

    fn turned(self) -> Option<Turned> {
        Some(Turned {
            job_id: JobId(self.job_id),
            run: self.run?,
            lost: self.lost?,
            queue: self.queue?,
            lane: Lane::from_number(self.lane?)?,
            job_type: self.job_type?,
            due: self.due?,
        })
    }
}

impl Store {
    /// Gives the next jobs of these lines their turn, as far as there is room; answers with
    /// them. What is due is parked.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE: the notes stay, and a sweeper comes back to them.
    pub async fn give_turns(&self, lines: &BTreeSet<LineKey>) -> Result<Vec<Turned>> {
        let lines: Vec<&LineKey> = lines.iter().collect();
        let mut turned = Vec::new();
        for part in lines.chunks(LINES_MAX) {
            let mut held = self.hold().await.map_err(db_error)?;
            held.run("begin").await.map_err(db_error)?;
            let limit = held.limit();
            let work = async {
                lock(held.connection(), part).await?;
                give(held.connection(), part, &[]).await
            };
            let answer = super::pool::answered(limit, work).await;
            turned.extend(answer.map_err(db_error)?);
            held.run("commit").await.map_err(db_error)?;
            held.done();
        }
        Ok(turned)
    }

    /// Lines that were noted longer ago than `age_ms` milliseconds, up to `limit`.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn noted_lines(&self, age_ms: i64, limit: i64) -> Result<BTreeSet<LineKey>> {
        let lines: Vec<LineKey> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(NOTED).bind(age_ms).bind(limit)
        )
        .map_err(db_error)?;
        Ok(lines.into_iter().collect())
    }

    /// Lets the lines go on whose blocking job has no open letter any more, up to `limit`
    /// jobs; answers with the lines.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn unblock_lines(&self, limit: i64) -> Result<BTreeSet<LineKey>> {
        let lines: Vec<LineKey> =
            on_hot!(self, fetch_all, sqlx::query_as(UNBLOCK).bind(limit)).map_err(db_error)?;
        Ok(lines.into_iter().collect())
    }
}

fn columns(lines: &[&LineKey]) -> (Vec<String>, Vec<String>) {
    lines
        .iter()
        .map(|line| (line.queue.clone(), line.key.clone()))
        .unzip()
}

/// Takes the locks of lines, within a transaction and before anything else in it.
pub(super) async fn lock(
    connection: &mut PgConnection,
    lines: &[&LineKey],
) -> Result<(), sqlx::Error> {
    let (queues, keys) = columns(lines);
    sqlx::query(LOCK)
        .bind(queues)
        .bind(keys)
        .execute(connection)
        .await?;
    Ok(())
}

/// Gives turns, behind the locks. Those of `direct` are left to their sender instead of
/// being parked. It waits for no job: a line whose next one somebody else has locked is noted
/// again, and a sweeper comes back to it.
pub(super) async fn give(
    connection: &mut PgConnection,
    lines: &[&LineKey],
    direct: &[uuid::Uuid],
) -> Result<Vec<Turned>, sqlx::Error> {
    let (queues, keys) = columns(lines);
    let (mut turned, mut left) = (Vec::new(), BTreeSet::new());
    for _ in 0..GIVE_TRIES {
        let rows: Vec<TurnedRow> = sqlx::query_as(GIVE)
            .bind(&queues)
            .bind(&keys)
            .bind(direct)
            .fetch_all(&mut *connection)
            .await?;
        left = rows
            .iter()
            .filter(|row| row.run.is_none())
            .map(TurnedRow::line)
            .collect();
        turned.extend(rows.into_iter().filter_map(TurnedRow::turned));
        if left.is_empty() {
            return Ok(turned);
        }
    }
    let (queues, keys) = columns(&left.iter().collect::<Vec<_>>());
    sqlx::query(NOTE)
        .bind(queues)
        .bind(keys)
        .execute(connection)
        .await?;
    Ok(turned)
}
