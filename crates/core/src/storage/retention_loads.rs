//! The rows of `user_load` of users who have no jobs any more, not even ended ones.
//!
//! A row may go at any time: it is a promise of credit ([`super::admission`]), and where there
//! is none the user's jobs are counted, in a statement that began after the new row was
//! locked. Whoever has debited a row holds it until its jobs are committed, and a row that is
//! held is left.

use super::retention::Step;
use super::{Store, db_error};
use crate::error::Result;

/// The statements of this module, by name.
pub(super) const STATEMENTS: &[(&str, &str)] = &[("retention_user_loads", LOADS)];

/// Whether there are jobs is looked up user by user: the first in the order of users is
/// theirs, or they have none.
const LOADS: &str = "\
with page as materialized (select user_id from user_load where user_id > $1 order by user_id limit $2),
l as materialized (select u.user_id from page p join user_load u on u.user_id = p.user_id
    where (select j.user_id from jobs j where j.user_id >= p.user_id order by j.user_id limit 1)
        is distinct from p.user_id
    order by u.user_id for update of u skip locked),
d as (delete from user_load u using l where u.user_id = l.user_id returning 1)
select (select user_id from page order by user_id desc limit 1), (select count(*) from d)";

impl Store {
    /// Removes what is kept of the users among the next `limit` who have no jobs.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn prune_user_loads(&self, after: Option<&str>, limit: i64) -> Result<Step<String>> {
        let (next, removed): (Option<String>, i64) = sqlx::query_as(LOADS)
            .bind(after.unwrap_or_default())
            .bind(limit)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        Ok(Step {
            removed: removed.unsigned_abs(),
            next,
        })
    }
}
