//! Bulk replays: begun, steered and read. What they do is in `bulk_step`.

use sqlx::types::Json;
use uuid::Uuid;

use super::bulk_types::{BulkRow, OutcomeRow};
use super::{
    BulkAction, BulkChange, BulkOutcome, BulkReplay, BulkState, Decision, NewBulkReplay, Outcome,
};
use crate::error::{Code, Error, Result};
use crate::storage::{Store, db_error};

/// The outcomes that one page looks at.
const OUTCOMES_EXAMINED: i64 = 10_000;

macro_rules! columns {
    () => {
        "bulk_replay_id, state, filter, rate, reason, actor, started_at, ended_at, progress_at, matching, examined, \
         replayed, already_done, key_taken, not_replayable, changed"
    };
}

const START: &str = concat!(
    "with b as (insert into bulk_replays (bulk_replay_id, filter, rate, reason, actor, request_id, matching) \
     values ($1, $2, $3, $4, $5, $6, $7) on conflict (actor, request_id) do nothing returning *), \
     a as (insert into bulk_replay_actions (action_id, bulk_replay_id, action, actor, reason, rate, state_before, state_after) \
     select tenure_uuid7(), bulk_replay_id, 'start', actor, reason, rate, '', state from b) \
     select ",
    columns!(),
    " from b"
);
const BEGUN: &str = concat!(
    "select ",
    columns!(),
    ", (select a.rate from bulk_replay_actions a where a.bulk_replay_id = b.bulk_replay_id and a.action = 'start' \
     order by a.at limit 1) as rate_asked from bulk_replays b where actor = $1 and request_id = $2"
);
const GET: &str = concat!(
    "select ",
    columns!(),
    " from bulk_replays where bulk_replay_id = $1"
);
const LIST: &str = concat!(
    "select ",
    columns!(),
    " from bulk_replays where bulk_replay_id < $1 order by bulk_replay_id desc limit $2"
);
const LOCK: &str =
    "select state, rate from bulk_replays where bulk_replay_id = $1 for no key update";
const CONTROL: &str = concat!(
    "with b as (update bulk_replays set state = $2, rate = $3, next_at = now(), \
     ended_at = case when $2 = 'cancelled' then now() end where bulk_replay_id = $1 returning *), \
     a as (insert into bulk_replay_actions (action_id, bulk_replay_id, action, actor, reason, rate, state_before, state_after) \
     select tenure_uuid7(), bulk_replay_id, $4, $5, $6, rate, $7, state from b) \
     select ",
    columns!(),
    " from b"
);
// Positions have no gaps: the range bounds the work, however rare the outcome is.
const OUTCOMES: &str = "select o.position, o.letter_id, o.job_id, o.outcome, o.replay_id, o.message, d.status \
     from bulk_replay_outcomes o left join dead_letters d on d.id = o.letter_id \
     where o.bulk_replay_id = $1 and o.position > $2 and o.position <= $3 and ($4::text is null or o.outcome = $4) \
     order by o.position limit $5";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("bulk_replay_start", START),
    ("bulk_replay_begun", BEGUN),
    ("bulk_replay_get", GET),
    ("bulk_replay_list", LIST),
    ("bulk_replay_lock", LOCK),
    ("bulk_replay_control", CONTROL),
    ("bulk_replay_outcomes", OUTCOMES),
    ("bulk_replay_actions", ACTIONS),
];

/// The latest so many of a bulk replay's actions are told.
const ACTIONS_SHOWN: i64 = 200;
const ACTIONS: &str = "select * from (select action_id, action, at, actor, reason, rate, state_before, state_after \
     from bulk_replay_actions where bulk_replay_id = $1 order by at desc, action_id desc limit $2) a order by at, action_id";

/// One that the same request began, and the rate that it asked for: it may have been steered
/// since. `None`: retention has removed the record of it.
#[derive(sqlx::FromRow)]
struct BegunRow {
    #[sqlx(flatten)]
    bulk: BulkRow,
    rate_asked: Option<i32>,
}

fn bulk_not_found(id: Uuid) -> Error {
    Error::new(
        Code::BulkReplayNotFound,
        format!("there is no bulk replay {id}"),
    )
}

impl Store {
    /// Begins a bulk replay, or finds the one that the same request began before.
    ///
    /// # Errors
    /// REQUEST_ID_CONFLICT where that one was another, and DATABASE_UNAVAILABLE.
    pub async fn start_bulk_replay(&self, asked: &NewBulkReplay) -> Result<BulkReplay> {
        if let Some(begun) = self.begun(asked).await? {
            return Ok(begun);
        }
        // A filter by cause must find letters that failed a moment ago.
        self.freshen_causes().await?;
        let (matching, _) = self.matching(&asked.filter).await?;
        let row: Option<BulkRow> = sqlx::query_as(START)
            .bind(Uuid::now_v7())
            .bind(Json(&asked.filter))
            .bind(asked.rate)
            .bind(&asked.decision.reason)
            .bind(&asked.decision.actor)
            .bind(&asked.request_id)
            .bind(matching.len() as i64)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        if let Some(row) = row {
            return row.into_bulk();
        }
        // The same request at the same time was faster.
        self.begun(asked).await?.ok_or_else(|| {
            Error::new(
                Code::DatabaseUnavailable,
                "the bulk replay changes hands just now; try again",
            )
        })
    }

    async fn begun(&self, asked: &NewBulkReplay) -> Result<Option<BulkReplay>> {
        let Some(request_id) = &asked.request_id else {
            return Ok(None);
        };
        let row: Option<BegunRow> = sqlx::query_as(BEGUN)
            .bind(&asked.decision.actor)
            .bind(request_id)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        let Some(BegunRow { bulk, rate_asked }) = row else {
            return Ok(None);
        };
        let begun = bulk.into_bulk()?;
        if begun.filter == asked.filter
            && begun.reason == asked.decision.reason
            && rate_asked.is_none_or(|rate| rate == asked.rate)
        {
            return Ok(Some(begun));
        }
        Err(Error::new(
            Code::RequestIdConflict,
            format!(
                "this request_id began bulk replay {}, which has another filter, rate or reason",
                begun.id
            ),
        )
        .with_meta("bulk_replay_id", begun.id.to_string()))
    }

    /// A bulk replay.
    ///
    /// # Errors
    /// BULK_REPLAY_NOT_FOUND and DATABASE_UNAVAILABLE.
    pub async fn get_bulk_replay(&self, id: Uuid) -> Result<BulkReplay> {
        let row: Option<BulkRow> = sqlx::query_as(GET)
            .bind(id)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        row.ok_or_else(|| bulk_not_found(id))?.into_bulk()
    }

    /// What was done to a bulk replay and by whom, its start included; the latest
    /// 200, the oldest first.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn bulk_replay_actions(&self, id: Uuid) -> Result<Vec<BulkAction>> {
        sqlx::query_as(ACTIONS)
            .bind(id)
            .bind(ACTIONS_SHOWN)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }

    /// A page of at most `limit` bulk replays before `before`, the newest first, and
    /// whether there are more.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_bulk_replays(
        &self,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<(Vec<BulkReplay>, bool)> {
        let mut rows: Vec<BulkRow> = sqlx::query_as(LIST)
            .bind(before.unwrap_or(Uuid::max()))
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let bulk = rows
            .into_iter()
            .map(BulkRow::into_bulk)
            .collect::<Result<_>>()?;
        Ok((bulk, more))
    }

    /// Steers a bulk replay; a step that is under way is waited for. To cancel one that is
    /// cancelled changes nothing.
    ///
    /// # Errors
    /// BULK_REPLAY_NOT_FOUND, BULK_REPLAY_ENDED, and DATABASE_UNAVAILABLE.
    pub async fn control_bulk_replay(
        &self,
        id: Uuid,
        change: BulkChange,
        decision: &Decision,
    ) -> Result<BulkReplay> {
        let mut tx = self.pool().begin().await.map_err(db_error)?;
        let row: Option<(String, i32)> = sqlx::query_as(LOCK)
            .bind(id)
            .fetch_optional(&mut *tx)
            .await
            .map_err(db_error)?;
        let (text, rate) = row.ok_or_else(|| bulk_not_found(id))?;
        let state = BulkState::of_row(&text)?;
        let Some(control) = change.of(state, rate) else {
            drop(tx);
            if (change, state) == (BulkChange::Cancel, BulkState::Cancelled) {
                return self.get_bulk_replay(id).await;
            }
            return Err(Error::new(
                Code::BulkReplayEnded,
                format!("bulk replay {id} is {text}; start another one"),
            ));
        };
        let row: BulkRow = sqlx::query_as(CONTROL)
            .bind(id)
            .bind(control.state.as_str())
            .bind(control.rate)
            .bind(control.action)
            .bind(&decision.actor)
            .bind(&decision.reason)
            .bind(text)
            .fetch_one(&mut *tx)
            .await
            .map_err(db_error)?;
        tx.commit().await.map_err(db_error)?;
        row.into_bulk()
    }

    /// A page of at most `limit` outcomes after `after`, in the order in which it came to
    /// the letters, and where the next page begins.
    ///
    /// # Errors
    /// BULK_REPLAY_NOT_FOUND and DATABASE_UNAVAILABLE.
    pub async fn bulk_replay_outcomes(
        &self,
        id: Uuid,
        outcome: Option<Outcome>,
        after: i64,
        limit: u32,
    ) -> Result<(Vec<BulkOutcome>, Option<i64>)> {
        let examined = self.get_bulk_replay(id).await?.counts.examined;
        let bound = after.saturating_add(OUTCOMES_EXAMINED);
        let mut rows: Vec<OutcomeRow> = sqlx::query_as(OUTCOMES)
            .bind(id)
            .bind(after)
            .bind(bound)
            .bind(outcome.map(Outcome::as_str))
            .bind(i64::from(limit) + 1)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let next = if rows.len() > limit as usize {
            rows.truncate(limit as usize);
            rows.last().map(|row| row.position)
        } else {
            (examined > bound).then_some(bound)
        };
        let outcomes = rows
            .into_iter()
            .map(OutcomeRow::into_outcome)
            .collect::<Result<_>>()?;
        Ok((outcomes, next))
    }
}
