//! How many imports one worker works on at once.

use tokio::sync::{Semaphore, SemaphorePermit};

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

/// The places of a worker's imports.
#[derive(Debug)]
pub(super) struct Slots {
    all: Semaphore,
    ahead: Semaphore,
    /// Those of the tables, in their order.
    tables: Vec<Semaphore>,
}

impl Slots {
    /// For so many tables, and with so many connections to the database.
    pub(super) fn new(tables: usize, connections: u32) -> Self {
        let per_table = || Semaphore::new(AT_ONCE_PER_TABLE);
        Self {
            all: Semaphore::new(AT_ONCE),
            ahead: Semaphore::new(ahead_at_once(connections)),
            tables: (0..tables).map(|_| per_table()).collect(),
        }
    }

    /// Waits for a place, which is free again when the answer is dropped. That of the table
    /// comes first: whoever waits for a table keeps no other import waiting.
    pub(super) async fn take(
        &self,
        context: &JobContext,
        table: Option<usize>,
    ) -> Result<Vec<SemaphorePermit<'_>>, JobError> {
        let table = table.and_then(|place| self.tables.get(place));
        let mut permits = Vec::new();
        for slots in table.into_iter().chain([&self.all]) {
            let permit = if let Ok(permit) = slots.try_acquire() {
                permit
            } else {
                context.progress(0, 0, "waits for other imports of this worker");
                tokio::select! {
                    permit = slots.acquire() => permit.map_err(|_| stopped())?,
                    () = context.cancelled() => return Err(stopped()),
                }
            };
            permits.push(permit);
        }
        Ok(permits)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_ahead_of_their_turn_leave_half_of_the_connections() {
        for (connections, imports) in [(1, 0), (3, 0), (4, 1), (8, 2), (11, 2), (12, 3), (99, 3)] {
            assert_eq!(ahead_at_once(connections), imports, "{connections}");
        }
    }
}
