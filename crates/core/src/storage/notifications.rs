//! In-app notifications: one per user, template and key.

use sqlx::Row;
use uuid::Uuid;

use super::{Store, db_error};
use crate::domain::ids::UserId;
use crate::domain::lease::Fence;
use crate::error::Result;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[("notification_insert", INSERT)];

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
