//! The steps of bulk replays: picked by whichever process is free, each one transaction
//! that replays some letters, writes their outcomes and moves the operation on. So whoever
//! is killed leaves a whole number of steps behind, and another one makes the next.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::list::{EXAMINED_PER_PAGE, Scan};
use super::replay::{By, Target};
use super::replay_parts::replay_each;
use super::{DeadLetterCursor, DeadLetterFilter, Decision, LetterResult, Order, Outcome};
use crate::domain::ids::DeadLetterId;
use crate::error::Result;
use crate::storage::{DbKind, Store, classify, db_error};

// Not locked by another process: that one makes its step.
const PICK: &str = "select bulk_replay_id, filter, rate, reason, actor, started_at, cursor_failed_at, cursor_id, examined \
     from bulk_replays where state = 'running' and next_at <= now() order by next_at limit 1 for no key update skip locked";
const OUTCOMES: &str = "insert into bulk_replay_outcomes (bulk_replay_id, position, letter_id, job_id, outcome, replay_id, message) \
     select $1, $2 + i.n, i.letter, i.job, i.outcome, i.replay, i.message \
     from unnest($3::uuid[], $4::uuid[], $5::text[], $6::uuid[], $7::text[]) \
     with ordinality i (letter, job, outcome, replay, message, n)";
// From the time when this step was due on, so that the pace is kept; but what was missed is
// not made up for, so that there is no storm after an outage.
const ADVANCE: &str = "update bulk_replays set cursor_failed_at = $2, cursor_id = $3, examined = examined + $4, \
     replayed = replayed + $5, already_done = already_done + $6, key_taken = key_taken + $7, \
     not_replayable = not_replayable + $8, changed = changed + $9, progress_at = clock_timestamp(), \
     state = case when $10 then 'done' else state end, ended_at = case when $10 then clock_timestamp() end, \
     next_at = greatest(next_at + $11 * interval '1 ms', now()) \
     where bulk_replay_id = $1 \
     returning greatest(0, (extract(epoch from next_at - clock_timestamp()) * 1000)::bigint)";
/// Only the one whose step failed; and not where another process has made it since.
const PUT_OFF: &str = "update bulk_replays set next_at = now() + interval '1 s' \
     where bulk_replay_id = $1 and state = 'running' and next_at <= now()";
/// Letters that failed before it was begun and are not counted yet: which of them count as
/// others, whatever their messages, is known only then. The coalesce keeps the planner from the
/// index of open letters, of which there are many.
const UNCOUNTED: &str = "select exists (select 1 from dead_letter_counts where n > 0 and status = 'open' and last_failed_at <= $1) \
     or exists (select 1 from dead_letters \
     where (status is distinct from counted_status or failures is distinct from counted_failures) \
     and (cause_id is null or failures is distinct from counted_failures) and coalesce(status = 'open', false) \
     and last_failed_at <= $1)";
const WAIT: &str =
    "update bulk_replays set next_at = now() + $2 * interval '1 ms' where bulk_replay_id = $1";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("bulk_step_pick", PICK),
    ("bulk_step_outcomes", OUTCOMES),
    ("bulk_step_advance", ADVANCE),
    ("bulk_step_put_off", PUT_OFF),
    ("bulk_step_uncounted", UNCOUNTED),
    ("bulk_step_wait", WAIT),
];

/// The letters of one step, at most: their locks are held for as long as it takes.
const STEP_MAX: i32 = 200;

/// Steps a second, where the rate allows for less than [`STEP_MAX`] in each.
const STEPS_PER_SECOND: i32 = 5;

/// The longest that one step may take, its commit included.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// How long a bulk replay of one cause waits for letters to be counted.
const COUNT_PAUSE: Duration = Duration::from_millis(100);

/// What one call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BulkTick {
    /// No bulk replay is due, or others make their steps.
    Idle,
    /// A step was made.
    Step {
        /// Of this bulk replay.
        id: Uuid,
        /// Letters that it came to.
        examined: usize,
        /// When its next step is due; `None`: it has come to its end.
        next_in: Option<Duration>,
    },
}

#[derive(sqlx::FromRow)]
struct Due {
    bulk_replay_id: Uuid,
    filter: Json<DeadLetterFilter>,
    rate: i32,
    reason: String,
    actor: String,
    started_at: DateTime<Utc>,
    cursor_failed_at: Option<DateTime<Utc>>,
    cursor_id: Option<Uuid>,
    examined: i64,
}

impl Due {
    /// The letters of one step.
    fn step(&self) -> u32 {
        (self.rate / STEPS_PER_SECOND).clamp(1, STEP_MAX) as u32
    }

    /// Open letters that failed before it was begun: one that fails again is not among them.
    fn filter(&self) -> DeadLetterFilter {
        // The database's times are whole microseconds, and the filter's end is exclusive.
        let frozen = self.started_at + TimeDelta::microseconds(1);
        DeadLetterFilter {
            failed_before: Some(
                self.filter
                    .failed_before
                    .map_or(frozen, |at| at.min(frozen)),
            ),
            ..self.filter.open()
        }
    }

    fn cursor(&self) -> Option<DeadLetterCursor> {
        Some(DeadLetterCursor {
            last_failed_at: self.cursor_failed_at?,
            id: DeadLetterId(self.cursor_id?),
        })
    }

    /// The pause after so many letters, in milliseconds.
    fn pause_ms(&self, letters: usize) -> i64 {
        letters as i64 * 1000 / i64::from(self.rate.max(1))
    }
}

impl Store {
    /// Makes a step of the bulk replay that has been due for the longest.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE and its kin; nothing has changed then, or the whole step was
    /// made.
    pub async fn bulk_replay_tick(&self) -> Result<BulkTick> {
        let mut picked = None;
        let step = tokio::time::timeout(STEP_LIMIT, self.step(&mut picked)).await;
        let error = match step {
            Ok(Ok(Some(tick))) => return Ok(tick),
            Ok(Ok(None)) => {
                // Its letters stand under their causes in the order in which they were
                // counted: to begin before all are would leave some behind.
                self.freshen_causes().await?;
                return Ok(picked.map_or(BulkTick::Idle, |id| BulkTick::Step {
                    id,
                    examined: 0,
                    next_in: Some(COUNT_PAUSE),
                }));
            }
            Ok(Err(error)) => error,
            Err(_) => sqlx::Error::PoolTimedOut,
        };
        if let Some(id) = picked
            && !matches!(classify(&error), DbKind::Lost)
        {
            // Another one that is due must not wait for the one that cannot go on.
            sqlx::query(PUT_OFF)
                .bind(id)
                .execute(self.pool())
                .await
                .map_err(db_error)?;
        }
        Err(db_error(error))
    }

    /// `None`: it waits until the letters are counted.
    async fn step(&self, picked: &mut Option<Uuid>) -> Result<Option<BulkTick>, sqlx::Error> {
        let mut held = self.hold().await?;
        held.run("begin").await?;
        let due: Option<Due> = sqlx::query_as(PICK)
            .fetch_optional(held.connection())
            .await?;
        let Some(due) = due else {
            held.run("commit").await?;
            held.done();
            return Ok(Some(BulkTick::Idle));
        };
        *picked = Some(due.bulk_replay_id);
        let tick = if due.filter.cause_id.is_some() && waits(held.connection(), &due).await? {
            None
        } else {
            Some(make(held.connection(), &due).await?)
        };
        held.run("commit").await?;
        held.done();
        Ok(tick)
    }
}

/// Puts the step off where letters that it may be about are not counted yet.
async fn waits(connection: &mut PgConnection, due: &Due) -> Result<bool, sqlx::Error> {
    let uncounted: bool = sqlx::query_scalar(UNCOUNTED)
        .bind(due.started_at)
        .fetch_one(&mut *connection)
        .await?;
    if uncounted {
        sqlx::query(WAIT)
            .bind(due.bulk_replay_id)
            .bind(COUNT_PAUSE.as_millis() as i64)
            .execute(connection)
            .await?;
    }
    Ok(uncounted)
}

async fn make(connection: &mut PgConnection, due: &Due) -> Result<BulkTick, sqlx::Error> {
    let filter = due.filter();
    let scan = Scan {
        filter: &filter,
        order: Order::OldestFirst,
        after: due.cursor(),
        limit: due.step(),
        examined: EXAMINED_PER_PAGE,
    };
    let (keys, next) = scan.keys(connection).await?;
    let targets: Vec<Target> = keys.iter().map(|key| Target::new(key.id.uuid())).collect();
    let decision = Decision {
        actor: due.actor.clone(),
        reason: due.reason.clone(),
    };
    let by = By {
        decision: &decision,
        bulk: Some(due.bulk_replay_id),
    };
    let results = replay_each(connection, &targets, by).await?;
    write_outcomes(connection, due, &results).await?;
    let ended = next.is_none();
    let cursor = next.or(keys.last().copied()).or(due.cursor());
    let count = |outcome: Outcome| {
        let found = results.iter().filter(|result| result.outcome == outcome);
        found.count() as i64
    };
    let next_ms: i64 = sqlx::query_scalar(ADVANCE)
        .bind(due.bulk_replay_id)
        .bind(cursor.map(|cursor| cursor.last_failed_at))
        .bind(cursor.map(|cursor| cursor.id.uuid()))
        .bind(results.len() as i64)
        .bind(count(Outcome::Done))
        .bind(count(Outcome::AlreadyDone))
        .bind(count(Outcome::KeyTaken))
        .bind(count(Outcome::NotReplayable))
        .bind(count(Outcome::Changed))
        .bind(ended)
        .bind(due.pause_ms(results.len()))
        .fetch_one(connection)
        .await?;
    Ok(BulkTick::Step {
        id: due.bulk_replay_id,
        examined: results.len(),
        next_in: (!ended).then(|| Duration::from_millis(next_ms.unsigned_abs())),
    })
}

async fn write_outcomes(
    connection: &mut PgConnection,
    due: &Due,
    results: &[LetterResult],
) -> Result<(), sqlx::Error> {
    if results.is_empty() {
        return Ok(());
    }
    sqlx::query(OUTCOMES)
        .bind(due.bulk_replay_id)
        .bind(due.examined)
        .bind(results.iter().map(|result| result.id).collect::<Vec<_>>())
        .bind(
            results
                .iter()
                .map(|result| result.job_id.map(crate::domain::ids::JobId::uuid))
                .collect::<Vec<_>>(),
        )
        .bind(
            results
                .iter()
                .map(|result| stored(result.outcome).as_str())
                .collect::<Vec<_>>(),
        )
        .bind(
            results
                .iter()
                .map(|result| result.replay_id)
                .collect::<Vec<_>>(),
        )
        .bind(
            results
                .iter()
                .map(|result| result.message.as_str())
                .collect::<Vec<_>>(),
        )
        .execute(connection)
        .await?;
    Ok(())
}

/// A letter that was there a moment ago, and is not, has changed.
const fn stored(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::NotFound => Outcome::Changed,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(rate: i32) -> Due {
        Due {
            bulk_replay_id: Uuid::nil(),
            filter: Json(DeadLetterFilter::default()),
            rate,
            reason: String::new(),
            actor: String::new(),
            started_at: DateTime::<Utc>::from_timestamp_micros(1_000_000).expect("a time"),
            cursor_failed_at: None,
            cursor_id: None,
            examined: 0,
        }
    }

    #[test]
    fn the_pace_is_the_rate_whatever_the_size_of_a_step() {
        for rate in [1, 2, 5, 49, 50, 1000, 5000] {
            let due = due(rate);
            let (step, pause) = (i64::from(due.step()), due.pause_ms(due.step() as usize));
            assert!((1..=200).contains(&step), "{rate}");
            let per_second = step * 1000 / pause.max(1);
            assert!(
                per_second <= i64::from(rate) + i64::from(rate) / 20,
                "{rate}: {per_second}"
            );
        }
    }

    #[test]
    fn what_fails_later_is_not_taken() {
        let due = due(5);
        let frozen = due.filter().failed_before.expect("a bound");
        assert_eq!(frozen, due.started_at + TimeDelta::microseconds(1));
        let earlier = due.started_at - TimeDelta::seconds(1);
        let narrow = Due {
            filter: Json(DeadLetterFilter {
                failed_before: Some(earlier),
                ..DeadLetterFilter::default()
            }),
            ..due
        };
        assert_eq!(narrow.filter().failed_before, Some(earlier));
    }
}
