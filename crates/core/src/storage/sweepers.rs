//! Whether any sweeper does its work, as its ticks over the lanes tell. For people alone.

use std::time::Duration;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::wait::SWEEPER_SILENT;
use crate::error::Result;

/// An idle sweeper ticks as well. Nobody misses one while no job is in the backlog and none is
/// overdue.
const SILENT: &str = "select case when max(l.hint_at) is not null \
     then (extract(epoch from now() - greatest(max(l.hint_at), 'epoch')) * 1000)::bigint end from lanes l \
     where coalesce((select true from jobs where parked limit 1), \
     (select true from jobs where wake_at < now() - interval '10 s' limit 1), false)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("sweepers_silent", SILENT)];

impl Store {
    /// For how long no sweeper has dispatched, where jobs wait for one and it is long; `None`:
    /// one does, or no job waits for it.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn sweepers_silent_for(&self) -> Result<Option<Duration>> {
        let answer: Result<Option<i64>, sqlx::Error> =
            on_hot!(self, fetch_one, sqlx::query_scalar(SILENT));
        Ok(answer
            .map_err(db_error)?
            .map(|ms| Duration::from_millis(ms.max(0).unsigned_abs()))
            .filter(|silent| *silent > SWEEPER_SILENT))
    }
}
