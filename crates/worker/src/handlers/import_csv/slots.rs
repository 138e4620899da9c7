//! How many imports one worker works on at once.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::stopped;
use super::write::WRITING;
use crate::handler::{JobContext, JobError};

/// The most imports: each may hold some tens of megabytes, and a connection to the database
/// while it writes.
const AT_ONCE: usize = 8;
/// The most of these for one table: it may be locked, and the others should go on.
const AT_ONCE_PER_TABLE: usize = 2;
/// The most of these that may write several batches at once.
const AHEAD_AT_ONCE: usize = 3;

/// How long an import waits for its place: it has one of the worker's slots meanwhile, and
/// its time limit runs.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it is put off then: the longer, the more often it was.
const PUT_OFF: Duration = Duration::from_secs(5);
const LONGEST_PUT_OFF: Duration = Duration::from_mins(1);

/// What an import gets that asks for a place.
pub(super) enum Place<'s> {
    /// The place, which is free again when this is dropped.
    Taken(Vec<SemaphorePermit<'s>>),
    /// None now: it is to come again after this time.
    PutOff(Duration),
}

/// The places of a worker's imports.
#[derive(Debug)]
pub(super) struct Slots {
    all: Semaphore,
    ahead: Semaphore,
    /// Those of the tables, in their order.
    tables: Vec<Semaphore>,
    max_snoozes: u32,
}

impl Slots {
    /// For so many tables, with so many connections to the database, and for jobs that may be
    /// put off so often.
    pub(super) fn new(tables: usize, connections: u32, max_snoozes: u32) -> Self {
        let per_table = || Semaphore::new(AT_ONCE_PER_TABLE);
        Self {
            all: Semaphore::new(AT_ONCE),
            ahead: Semaphore::new(ahead_at_once(connections)),
            tables: (0..tables).map(|_| per_table()).collect(),
            max_snoozes,
        }
    }

    /// Waits for a place, for a short time. That of the table comes first: whoever waits for a
    /// table keeps no other import waiting.
    pub(super) async fn take(
        &self,
        context: &JobContext,
        table: Option<usize>,
    ) -> Result<Place<'_>, JobError> {
        // One more would fail it.
        let may_come_again = u32::try_from(context.snoozes()).unwrap_or(0) < self.max_snoozes;
        let until = Instant::now() + PATIENCE;
        let table = table.and_then(|place| self.tables.get(place));
        let mut permits = Vec::new();
        for slots in table.into_iter().chain([&self.all]) {
            let permit = if let Ok(permit) = slots.try_acquire() {
                permit
            } else {
                context.progress(0, 0, "waits for other imports of this worker");
                tokio::select! {
                    biased;
                    () = context.cancelled() => return Err(stopped()),
                    permit = slots.acquire() => permit.map_err(|_| stopped())?,
                    () = tokio::time::sleep_until(until), if may_come_again => {
                        return Ok(Place::PutOff(put_off(context.snoozes())));
                    }
                }
            };
            permits.push(permit);
        }
        Ok(Place::Taken(permits))
    }

    /// Leave to write several batches at once, until the answer is dropped; `None`: not now.
    pub(super) fn ahead(&self) -> Option<SemaphorePermit<'_>> {
        self.ahead.try_acquire().ok()
    }
}

/// How many imports may write several batches at once. The batches ahead of their turn keep
/// their connections until it comes: no more than half of all, so that the batches which they
/// wait for, and everybody else, find one.
fn ahead_at_once(connections: u32) -> usize {
    (connections as usize / 2 / (WRITING - 1)).min(AHEAD_AT_ONCE)
}

/// How long an import is put off that was so this often before.
fn put_off(snoozes: i32) -> Duration {
    let times = u32::try_from(snoozes).unwrap_or(0) / 4 + 1;
    PUT_OFF.saturating_mul(times).min(LONGEST_PUT_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_ahead_of_their_turn_leave_half_of_the_connections() {
        for (connections, imports) in [(1, 0), (3, 0), (4, 1), (8, 2), (11, 2), (12, 3), (99, 3)] {
            assert_eq!(ahead_at_once(connections), imports, "{connections}");
        }
    }

    #[test]
    fn the_longer_an_import_waits_the_longer_it_is_put_off() {
        let seconds: Vec<_> = [0, 3, 4, 20, 44, 1_000]
            .map(|snoozes| put_off(snoozes).as_secs())
            .to_vec();
        assert_eq!(seconds, [5, 5, 10, 30, 60, 60]);
    }
}
