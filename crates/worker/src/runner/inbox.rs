//! Envelopes that have arrived and are not decided yet, by lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::broker::consumer::Receipt;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Lane;
use tokio::time::Instant;

/// A message that waits for its envelopes: acknowledged when the last one is decided. There
/// is none where a job's turn was learned of otherwise.
#[derive(Debug)]
pub(super) struct Ticket(Mutex<Option<Receipt>>);

impl Ticket {
    pub(super) fn new(receipt: Receipt) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(receipt))))
    }

    pub(super) fn without_message() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(receipt) = self.0.get_mut().take() {
            receipt.settle();
        }
    }
}

/// An envelope that is not decided yet.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) job_id: JobId,
    pub(super) run: i32,
    pub(super) queue: Arc<str>,
    pub(super) lane: Lane,
    /// Leases lost in a row.
    pub(super) lost: i16,
    pub(super) arrived: Instant,
    /// Since when it is not claimed for what else has lost leases here.
    pub(super) late_since: Option<Instant>,
    /// How often a claim was tried.
    pub(super) tries: u8,
    /// What acknowledges its message once nobody holds it any more.
    pub(super) ticket: Arc<Ticket>,
}

/// The envelopes of each lane, taken by weight so that no lane starves.
#[derive(Debug)]
pub(super) struct Inbox {
    lanes: [VecDeque<Waiting>; 3],
    weights: [i64; 3],
    credit: [i64; 3],
    /// The lanes that something came from.
    seen: [bool; 3],
}

impl Inbox {
    /// Lanes with these weights: high, normal, low; what is missing weighs 1.
    pub(super) fn new(weights: &[u32]) -> Self {
        let weight = |lane: usize| i64::from(weights.get(lane).copied().unwrap_or(1).max(1));
        Self {
            lanes: Default::default(),
            weights: [weight(0), weight(1), weight(2)],
            credit: [0; 3],
            seen: [false; 3],
        }
    }

    /// The lanes that something came from since this was last asked.
    pub(super) fn take_seen(&mut self) -> [bool; 3] {
        std::mem::take(&mut self.seen)
    }

    /// Whether each of these lanes has something.
    pub(super) fn has(&self, wanted: [bool; 3]) -> bool {
        let mut lanes = self.lanes.iter().zip(wanted);
        lanes.all(|(lane, wanted)| !wanted || !lane.is_empty())
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.seen[waiting.lane as usize] = true;
        self.lanes[waiting.lane as usize].push_back(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(VecDeque::is_empty)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// Takes up to `limit` envelopes: smooth weighted round robin over the lanes that
    /// have any. A lane that has none keeps its credit and gains nothing: with jobs so slow
    /// that one is taken now and then, lanes are empty in between, and what they have not
    /// got yet is still theirs.
    pub(super) fn take(&mut self, limit: usize) -> Vec<Waiting> {
        let mut taken = Vec::with_capacity(limit.min(self.len()));
        while taken.len() < limit {
            let mut total = 0;
            let mut best: Option<usize> = None;
            for (index, lane) in self.lanes.iter().enumerate() {
                if lane.is_empty() {
                    continue;
                }
                let weight = self.weights[index];
                total += weight;
                self.credit[index] += weight;
                if best.is_none_or(|b| self.credit[index] > self.credit[b]) {
                    best = Some(index);
                }
            }
            let Some(best) = best else { break };
            self.credit[best] -= total;
            taken.extend(self.lanes[best].pop_front());
        }
        taken
    }

    /// Takes what has waited for longer than `hold`.
    pub(super) fn take_overdue(&mut self, hold: Duration, now: Instant) -> Vec<Waiting> {
        let mut overdue = Vec::new();
        for lane in &mut self.lanes {
            while lane
                .front()
                .is_some_and(|w| now.duration_since(w.arrived) >= hold)
            {
                overdue.extend(lane.pop_front());
            }
        }
        overdue
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.lanes.iter_mut().flat_map(std::mem::take).collect()
    }

    /// When the first of them will be overdue.
    pub(super) fn next_overdue(&self, hold: Duration) -> Option<Instant> {
        self.lanes
            .iter()
            .filter_map(VecDeque::front)
            .map(|w| w.arrived + hold)
            .min()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An envelope of a job that has lost so many leases in a row.
    pub(in super::super) fn waiting_lost(lost: i16) -> Waiting {
        Waiting {
            lost,
            ..waiting(Lane::Normal)
        }
    }

    fn waiting(lane: Lane) -> Waiting {
        Waiting {
            job_id: JobId::new(),
            run: 1,
            queue: "q".into(),
            lane,
            lost: 0,
            arrived: Instant::now(),
            late_since: None,
            tries: 0,
            ticket: Arc::new(Ticket(Mutex::new(None))),
        }
    }

    #[test]
    fn lanes_share_by_weight_and_none_starves() {
        let mut inbox = Inbox::new(&[6, 3, 1]);
        for _ in 0..100 {
            for lane in Lane::ALL {
                inbox.push(waiting(lane));
            }
        }
        let taken = inbox.take(100);
        let count = |lane| taken.iter().filter(|w| w.lane == lane).count();
        assert_eq!(
            (count(Lane::High), count(Lane::Normal), count(Lane::Low)),
            (60, 30, 10)
        );
        assert_eq!(inbox.take(1000).len(), 200);
        assert!(inbox.is_empty());
    }

    #[test]
    fn one_lane_alone_gets_everything() {
        let mut inbox = Inbox::new(&[6, 3, 1]);
        for _ in 0..10 {
            inbox.push(waiting(Lane::Low));
        }
        assert_eq!(inbox.take(7).len(), 7);
        assert_eq!(inbox.len(), 3);
    }

    /// All slots are taken for so long that everything goes back before the next one is free.
    #[test]
    fn a_share_that_comes_one_by_one_is_the_same_share() {
        let mut inbox = Inbox::new(&[6, 3, 1]);
        let mut counts = [0; 3];
        for _ in 0..100 {
            for lane in Lane::ALL {
                inbox.push(waiting(lane));
            }
            let taken = inbox.take(1);
            counts[taken[0].lane as usize] += 1;
            inbox.take_all();
            assert!(inbox.take(1).is_empty());
        }
        assert_eq!(counts, [60, 30, 10]);
    }

    #[test]
    fn lanes_that_had_something_are_waited_for_and_others_are_not() {
        let mut inbox = Inbox::new(&[6, 3, 1]);
        inbox.push(waiting(Lane::High));
        inbox.push(waiting(Lane::Low));
        inbox.take_all();
        let seen = inbox.take_seen();
        assert_eq!(seen, [true, false, true]);
        inbox.push(waiting(Lane::High));
        assert!(!inbox.has(seen));
        inbox.push(waiting(Lane::Low));
        assert!(inbox.has(seen));
        assert!(inbox.has([false; 3]));
    }

    #[test]
    fn the_weights_are_a_setting() {
        let mut inbox = Inbox::new(&[1, 1, 2]);
        for _ in 0..100 {
            for lane in Lane::ALL {
                inbox.push(waiting(lane));
            }
        }
        let taken = inbox.take(40);
        let low = taken.iter().filter(|w| w.lane == Lane::Low).count();
        assert_eq!(low, 20);
    }
}
