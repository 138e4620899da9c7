//! The parts of a batch of submits: rows with their places, and the calls that wait for them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lines::LineKey;
use super::submit::{Committed, Row, Submitted};
use super::submit_lines::ordered;
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

impl Part {
    /// Parts of one user each, to be written one after the other: each job of an ordering
    /// key after those before it, whosever they are.
    pub(super) fn by_user(self) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        let mut of_user: HashMap<String, usize> = HashMap::new();
        let mut of_line: HashMap<LineKey, usize> = HashMap::new();
        for (place, row) in self.places.into_iter().zip(self.rows) {
            let line = ordered(&row.job);
            let after = line.as_ref().and_then(|line| of_line.get(line)).copied();
            let user = row.job.user_id.as_str();
            let at = match of_user.get(user).copied() {
                Some(at) if after.is_none_or(|after| after <= at) => at,
                _ => {
                    parts.push(Self::default());
                    of_user.insert(user.to_owned(), parts.len() - 1);
                    parts.len() - 1
                }
            };
            if let Some(line) = line {
                of_line.insert(line, at);
            }
            parts[at].push(place, row);
        }
        parts
    }
}

/// Rows that are put aside while the others of their batch are written, with what comes
/// behind them in their lines.
#[derive(Default)]
pub(super) struct Aside {
    rows: Vec<(usize, Row)>,
    lines: HashSet<LineKey>,
}

impl Aside {
    /// Puts a row aside.
    pub(super) fn push(&mut self, place: usize, row: Row) {
        self.lines.extend(ordered(&row.job));
        self.rows.push((place, row));
    }

    /// Puts aside what comes behind something in its line; answers with the rest.
    pub(super) fn take_behind(&mut self, part: Part) -> Part {
        if self.lines.is_empty() {
            return part;
        }
        let mut rest = Part::default();
        for (place, row) in part.places.into_iter().zip(part.rows) {
            if ordered(&row.job).is_some_and(|line| self.lines.contains(&line)) {
                self.rows.push((place, row));
            } else {
                rest.push(place, row);
            }
        }
        rest
    }

    /// All of them, in the order of the batch.
    pub(super) fn into_part(mut self) -> Part {
        self.rows.sort_by_key(|(place, _)| *place);
        let (places, rows) = self.rows.into_iter().unzip();
        Part { places, rows }
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
