//! What has become of jobs that were sent: how a dispatcher measures its lanes.

use std::collections::HashMap;

use super::pool::on_hot;
use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::state::JobState;
use crate::error::Result;

const SENT: &str = "select job_id, run, status, parked, held or run_at > now() as put_off \
     from jobs where job_id = any($1)";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("dispatch_sent", SENT)];

/// What has become of a job since it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// No worker has it yet.
    Waits,
    /// It is in the backlog again: there was no slot for it, or its message was lost.
    Back,
    /// A worker has taken it, or it has ended.
    Taken,
    /// It is to start later, or has to wait for its turn: it tells nothing of the workers.
    PutOff,
}

impl Store {
    /// What has become of runs that were sent, in their order.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn look_at_sent(&self, runs: &[(JobId, i32)]) -> Result<Vec<Sent>> {
        let ids: Vec<_> = runs.iter().map(|(id, _)| id.uuid()).collect();
        let rows: Vec<(uuid::Uuid, i32, String, bool, bool)> =
            on_hot!(self, fetch_all, sqlx::query_as(SENT).bind(ids)).map_err(db_error)?;
        let known: HashMap<_, _> = rows
            .into_iter()
            .map(|(id, run, status, parked, put_off)| (id, (run, status, parked, put_off)))
            .collect();
        Ok(runs
            .iter()
            .map(|(id, sent)| match known.get(&id.uuid()) {
                Some((run, status, parked, put_off))
                    if run == sent && status == JobState::Pending.as_str() =>
                {
                    match (put_off, parked) {
                        (true, _) => Sent::PutOff,
                        (false, true) => Sent::Back,
                        (false, false) => Sent::Waits,
                    }
                }
                _ => Sent::Taken,
            })
            .collect())
    }
}
