//! The parts of a batch of submits: rows with their places, and the calls that wait for them.

use std::collections::VecDeque;
use std::ops::Range;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::submit::{Committed, Row, Submitted};
use crate::error::{Error, Result};

/// Where a call waits for its outcomes.
pub(super) type Reply = oneshot::Sender<Vec<Result<Submitted>>>;

/// What waits, and what is under way.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) groups: VecDeque<Group>,
    pub(super) jobs: usize,
    pub(super) bytes: usize,
    pub(super) writing: usize,
    /// Jobs that were put aside, since their users' jobs must be counted.
    pub(super) aside: usize,
}

/// The jobs of one call; they are answered together.
pub(super) struct Group {
    pub(super) rows: Vec<Row>,
    pub(super) reply: Reply,
}

impl Group {
    /// The bytes of all payloads.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.job.payload.len()).sum()
    }
}

/// Rows with their places in the batch.
#[derive(Default)]
pub(super) struct Part {
    pub(super) places: Vec<usize>,
    pub(super) rows: Vec<Row>,
}

impl Part {
    pub(super) fn push(&mut self, place: usize, row: Row) {
        self.places.push(place);
        self.rows.push(row);
    }

    pub(super) fn split_off(&mut self, at: usize) -> Self {
        Self {
            places: self.places.split_off(at),
            rows: self.rows.split_off(at),
        }
    }
}

/// How a part is written.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// With what credit there is.
    Credit,
    /// With a count of the users' jobs.
    Count,
}

/// What has become of a batch so far.
pub(super) struct Progress {
    pub(super) deadline: Instant,
    pub(super) outcomes: Vec<Option<Result<Submitted>>>,
    pub(super) committed: Vec<Committed>,
}

/// Calls with the places of their jobs.
pub(super) type Replies = Vec<(Range<usize>, Reply)>;

/// Answers the calls whose jobs all have an outcome; gives back the others.
pub(super) fn answer(replies: Replies, progress: &mut Progress) -> Replies {
    let mut waiting = Vec::new();
    for (places, reply) in replies {
        let outcomes = &mut progress.outcomes[places.clone()];
        if outcomes.iter().any(Option::is_none) {
            waiting.push((places, reply));
        } else {
            // A caller that has gone away has its request id or key to ask again.
            let _ = reply.send(outcomes.iter_mut().filter_map(Option::take).collect());
        }
    }
    waiting
}

/// Answers all calls; what has no outcome gets this refusal.
pub(super) fn finish(replies: Replies, progress: &mut Progress, refusal: &Error) {
    for (places, reply) in replies {
        let outcomes = progress.outcomes[places]
            .iter_mut()
            .map(|outcome| outcome.take().unwrap_or_else(|| Err(refusal.again())));
        let _ = reply.send(outcomes.collect());
    }
}
