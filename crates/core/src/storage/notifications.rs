//! In-app notifications: one per user, template and key; a user's inbox of them.

use chrono::{DateTime, Utc};
use sqlx::Row;
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::{JobId, UserId};
use crate::domain::lease::Fence;
use crate::error::Result;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("notification_insert", INSERT),
    ("notifications_page", PAGE),
    ("notifications_page_unread", PAGE_UNREAD),
    ("notifications_newest_unread", NEWEST_UNREAD),
    ("notifications_mark", MARK),
    ("notifications_mark_step", MARK_STEP),
];

/// One statement, so the shared lock on the job lasts no longer than the write: it
/// keeps the sweeper from taking the job back between the check and the commit.
pub(crate) const INSERT: &str = "\
with f as materialized (
    select 1 from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share),
i as (
    insert into notifications (id, user_id, template, dedupe_key, job_id, data)
    select $4, $5, $6, $7, $1, $8 from f
    on conflict (user_id, template, dedupe_key) do nothing returning 1)
select (select count(*) from f) as held, (select count(*) from i) as created";

macro_rules! page {
    ($unread:literal) => {
        concat!(
            "select id, user_id, template, dedupe_key, job_id, data::text as data, created_at, read_at \
             from notifications where user_id = $1 and id < $2",
            $unread,
            " order by id desc limit $3"
        )
    };
}
const PAGE: &str = page!("");
const PAGE_UNREAD: &str = page!(" and read_at is null");

const NEWEST_UNREAD: &str =
    "select id from notifications where user_id = $1 and read_at is null order by id desc limit 1";
/// The rows are locked in the order of their ids (those of the array are sorted), so that
/// two of these never wait for each other in a ring. A row is looked up at a time: as one
/// condition, the ids could be compared with all that is unread.
const MARK: &str = "\
with n as materialized (
    select r.id from unnest($2::uuid[]) i (id) cross join lateral (
        select n.id from notifications n where n.id = i.id and n.user_id = $1 and n.read_at is null
        for no key update) r)
update notifications m set read_at = now() from n where m.id = n.id";
const MARK_STEP: &str = "\
with n as materialized (
    select id from notifications where user_id = $1 and read_at is null and id <= $2
    order by id limit $3 for no key update)
update notifications m set read_at = now() from n where m.id = n.id";

/// The most notifications that one statement marks.
pub const MARK_MAX: usize = 1000;

/// What became of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// The row was written.
    Created,
    /// The user has it already.
    AlreadyThere,
    /// The lease was lost; nothing was written.
    LeaseLost,
}

/// A notification in an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Its id (UUIDv7).
    pub id: Uuid,
    /// Whom it is for.
    pub user_id: UserId,
    /// What it tells.
    pub template: String,
    /// What makes it one of a kind for its user and template.
    pub key: String,
    /// The job that it came from.
    pub job_id: Option<JobId>,
    /// What the template is filled with, a JSON object.
    pub data: String,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it was marked as read.
    pub read_at: Option<DateTime<Utc>>,
}

/// A page of an inbox.
#[derive(Debug, Clone)]
pub struct NotificationPage {
    /// The notifications, newest first.
    pub notifications: Vec<Notification>,
    /// The next page comes after this id; `None`: this was the last one.
    pub next: Option<Uuid>,
}

#[derive(sqlx::FromRow)]
struct NotificationRow {
    id: Uuid,
    user_id: String,
    template: String,
    dedupe_key: String,
    job_id: Option<Uuid>,
    data: String,
    created_at: DateTime<Utc>,
    read_at: Option<DateTime<Utc>>,
}

impl From<NotificationRow> for Notification {
    fn from(row: NotificationRow) -> Self {
        Self {
            id: row.id,
            user_id: UserId::from_stored(row.user_id),
            template: row.template,
            key: row.dedupe_key,
            job_id: row.job_id.map(JobId),
            data: row.data,
            created_at: row.created_at,
            read_at: row.read_at,
        }
    }
}

/// Writes a notification, once per user, template and key, under the job's fence.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin; repeating is safe.
pub async fn insert(
    store: &Store,
    fence: Fence,
    user_id: &UserId,
    template: &str,
    key: &str,
    data: &serde_json::Value,
) -> Result<Notified> {
    let row = sqlx::query(INSERT)
        .bind(fence.job_id.uuid())
        .bind(fence.run)
        .bind(fence.session.uuid())
        .bind(Uuid::now_v7())
        .bind(user_id.as_str())
        .bind(template)
        .bind(key)
        .bind(data)
        .fetch_one(store.pool())
        .await
        .map_err(db_error)?;
    let held: i64 = row.try_get("held").map_err(db_error)?;
    let created: i64 = row.try_get("created").map_err(db_error)?;
    Ok(match (held, created) {
        (0, _) => Notified::LeaseLost,
        (_, 0) => Notified::AlreadyThere,
        _ => Notified::Created,
    })
}

impl Store {
    /// A page of up to `limit` notifications of a user after `after` (`None`: from the
    /// newest on).
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_notifications(
        &self,
        user_id: &UserId,
        unread_only: bool,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<NotificationPage> {
        let statement = if unread_only { PAGE_UNREAD } else { PAGE };
        // One more than asked for tells whether there is a next page.
        let rows: Vec<NotificationRow> = sqlx::query_as(statement)
            .bind(user_id.as_str())
            .bind(after.unwrap_or(Uuid::max()))
            .bind(limit as i64 + 1)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let more = rows.len() > limit;
        let notifications: Vec<Notification> = rows
            .into_iter()
            .take(limit)
            .map(Notification::from)
            .collect();
        let next = notifications.last().filter(|_| more).map(|last| last.id);
        Ok(NotificationPage {
            notifications,
            next,
        })
    }

    /// Marks up to [`MARK_MAX`] notifications of a user as read, whose ids are sorted; says
    /// how many were not. Those of other users are left alone.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe.
    pub async fn mark_notifications_read(&self, user_id: &UserId, ids: &[Uuid]) -> Result<u64> {
        let done = sqlx::query(MARK)
            .bind(user_id.as_str())
            .bind(ids)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(done.rows_affected())
    }

    /// The newest notification of a user that is not read; `None`: all are.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn newest_unread(&self, user_id: &UserId) -> Result<Option<Uuid>> {
        sqlx::query_scalar(NEWEST_UNREAD)
            .bind(user_id.as_str())
            .fetch_optional(self.pool())
            .await
            .map_err(db_error)
    }

    /// Marks the oldest [`MARK_MAX`] unread notifications of a user up to `newest` as
    /// read; says how many there were. Fewer than that: there are no more.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe.
    pub async fn mark_oldest_read(&self, user_id: &UserId, newest: Uuid) -> Result<u64> {
        let done = sqlx::query(MARK_STEP)
            .bind(user_id.as_str())
            .bind(newest)
            .bind(MARK_MAX as i64)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(done.rows_affected())
    }
}
