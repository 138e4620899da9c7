//! One letter with its message, what was done about it, and the runs of its job.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{DeadLetter, DeadLetterRow, DeadLetterStatus, columns};
use crate::domain::timeline::Event;
use crate::error::{Code, Error, Result};
use crate::storage::{Store, db_error};

/// The actions that are shown with a letter: the latest.
pub const ACTIONS_SHOWN: i64 = 200;

/// One letter per job, so at most one row has the id in either place.
const GET: &str = concat!(
    "select ",
    columns!(),
    ", payload, message_properties::text as message_properties from dead_letters d where id = $1 or job_id = $1 limit 1"
);
const ACTIONS: &str = "select * from (select action_id, action, at, actor, user_id, reason, status_before, status_after, \
     replay_id, bulk_replay_id from dead_letter_actions where letter_id = $1 \
     order by at desc, action_id desc limit $2) a order by at, action_id";

pub(super) const STATEMENTS: &[(&str, &str)] =
    &[("dead_letter_get", GET), ("dead_letter_actions", ACTIONS)];

/// Something that was done about a letter.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its id.
    pub id: Uuid,
    /// `replay`, `ignore`, `resolve`, `reopen`; by the system `succeeded`, `cancelled`,
    /// `failed_again`.
    pub action: String,
    /// When.
    pub at: DateTime<Utc>,
    /// Who; `None`: the system.
    pub actor: Option<String>,
    /// The owner of the job.
    pub user_id: Option<String>,
    /// Why.
    pub reason: String,
    /// The status before.
    pub before: DeadLetterStatus,
    /// The status after.
    pub after: DeadLetterStatus,
    /// The replay.
    pub replay_id: Option<Uuid>,
    /// The bulk replay that it was part of.
    pub bulk_replay_id: Option<Uuid>,
}

/// A letter and its story.
#[derive(Clone, Debug)]
pub struct DeadLetterStory {
    /// The letter, with its payload.
    pub letter: DeadLetter,
    /// The latest [`ACTIONS_SHOWN`], the oldest first.
    pub actions: Vec<Action>,
    /// What happened to its job, as [`Store::timeline`] tells it; empty where retention has
    /// removed the job.
    pub timeline: Vec<Event>,
}

#[derive(sqlx::FromRow)]
struct ActionRow {
    action_id: Uuid,
    action: String,
    at: DateTime<Utc>,
    actor: Option<String>,
    user_id: Option<String>,
    reason: String,
    status_before: String,
    status_after: String,
    replay_id: Option<Uuid>,
    bulk_replay_id: Option<Uuid>,
}

impl ActionRow {
    fn into_action(self) -> Result<Action> {
        Ok(Action {
            id: self.action_id,
            action: self.action,
            at: self.at,
            actor: self.actor,
            user_id: self.user_id,
            reason: self.reason,
            before: DeadLetterStatus::of_row(&self.status_before)?,
            after: DeadLetterStatus::of_row(&self.status_after)?,
            replay_id: self.replay_id,
            bulk_replay_id: self.bulk_replay_id,
        })
    }
}

impl Store {
    /// A letter with its payload, by its own id or by its job's.
    ///
    /// # Errors
    /// DEAD_LETTER_NOT_FOUND and DATABASE_UNAVAILABLE.
    pub async fn get_dead_letter(&self, id: Uuid) -> Result<DeadLetter> {
        let row: Option<DeadLetterRow> = sqlx::query_as(GET)
            .bind(id)
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)?;
        row.ok_or_else(|| {
            Error::new(
                Code::DeadLetterNotFound,
                format!("there is no dead letter {id}, and no job of this id has one"),
            )
        })?
        .into_letter()
    }

    /// The same with what was done about it and with the runs of its job.
    ///
    /// # Errors
    /// DEAD_LETTER_NOT_FOUND and DATABASE_UNAVAILABLE.
    pub async fn dead_letter_story(&self, id: Uuid) -> Result<DeadLetterStory> {
        let letter = self.get_dead_letter(id).await?;
        let actions: Vec<ActionRow> = sqlx::query_as(ACTIONS)
            .bind(letter.id.uuid())
            .bind(ACTIONS_SHOWN)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let job = match letter.job_id {
            Some(job) => self.get_job(job, false).await?,
            None => None,
        };
        let timeline = match &job {
            Some(job) => self.timeline(job).await?,
            None => Vec::new(),
        };
        Ok(DeadLetterStory {
            letter,
            actions: actions
                .into_iter()
                .map(ActionRow::into_action)
                .collect::<Result<_>>()?,
            timeline,
        })
    }
}
