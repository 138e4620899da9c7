//! Jobs that have lost leases (PROTOCOL.md §11): what kills its worker must not take
//! innocents along, and a job of a worker that was merely killed must start again soon.
//!
//! After one loss they run side by side, started one at a time. After two in a row a job
//! is a suspect: it runs alone among those that have lost any, so that a third loss is
//! its own, and it cannot be the second or third of another.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::inbox::Waiting;

/// For this long a job that has lost a lease is watched before another one may start
/// beside it: what kills its worker mostly does so at once.
const PROBATION: Duration = Duration::from_millis(200);
/// From so many losses in a row on a job runs alone among those that have lost any.
const ALONE_FROM: i16 = 2;
/// What waits for the end of another one is put off after this, for another worker to
/// take: in hand it would keep the lane's other messages waiting.
const HOLD: Duration = Duration::from_secs(1);
/// More than these that wait are put off at once.
const LATE_MAX: usize = 64;

/// What runs here of those that have lost leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Here {
    any: bool,
    alone: bool,
}

impl Here {
    /// Adds a job with so many losses in a row.
    #[must_use]
    pub(super) fn with(self, lost: i16) -> Self {
        Self {
            any: self.any || lost > 0,
            alone: self.alone || lost >= ALONE_FROM,
        }
    }
}

/// Decides when they start, and keeps those that wait.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    late: VecDeque<Waiting>,
    /// Until then no other one starts.
    probation: Option<Instant>,
}

impl Suspects {
    /// Whether a job may start beside what runs here; if so, it counts as started.
    pub(super) fn admit(&mut self, lost: i16, here: &mut Here, now: Instant) -> bool {
        if !self.may_start(lost, *here, now) {
            return false;
        }
        if lost > 0 {
            self.probation = Some(now + PROBATION);
            *here = here.with(lost);
        }
        true
    }

    fn may_start(&self, lost: i16, here: Here, now: Instant) -> bool {
        lost <= 0 || (!must_wait(lost, here) && self.probation.is_none_or(|until| until <= now))
    }

    /// Keeps a job that may not start yet.
    pub(super) fn wait(&mut self, mut waiting: Waiting, now: Instant) {
        waiting.late_since.get_or_insert(now);
        self.late.push_back(waiting);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.late.is_empty()
    }

    /// Takes the first that may start now.
    pub(super) fn next(&mut self, here: Here, now: Instant) -> Option<Waiting> {
        let first = self
            .late
            .iter()
            .position(|w| self.may_start(w.lost, here, now))?;
        self.late.remove(first)
    }

    /// Takes what should not be kept in hand any longer.
    pub(super) fn take_overdue(&mut self, here: Here, room: bool, now: Instant) -> Vec<Waiting> {
        let (overdue, late): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|w| {
            (!room || must_wait(w.lost, here))
                && w.late_since
                    .is_some_and(|since| now.duration_since(since) >= HOLD)
        });
        self.late = late.into();
        let mut overdue = overdue;
        overdue.extend(self.late.drain(LATE_MAX.min(self.late.len())..));
        overdue
    }

    /// Takes everything.
    pub(super) fn take_all(&mut self) -> Vec<Waiting> {
        self.late.drain(..).collect()
    }

    /// When to look again, unless something ends before.
    pub(super) fn next_look(&self, now: Instant) -> Option<Instant> {
        if self.late.is_empty() {
            return None;
        }
        let held = self.late.iter().filter_map(|w| w.late_since);
        held.map(|since| since + HOLD)
            .chain(self.probation)
            .filter(|at| *at > now)
            .min()
    }
}

/// Whether it may start only after something has ended.
fn must_wait(lost: i16, here: Here) -> bool {
    if lost >= ALONE_FROM {
        here.any
    } else {
        here.alone
    }
}

#[cfg(test)]
mod tests {
    use super::super::inbox::tests::waiting_lost;
    use super::*;

    /// What of these may start at once, in this order, and what runs then.
    fn admitted(losses: &[i16], mut here: Here) -> Vec<i16> {
        let mut suspects = Suspects::default();
        let mut now = Instant::now();
        let mut started = Vec::new();
        for lost in losses {
            if suspects.admit(*lost, &mut here, now) {
                started.push(*lost);
            }
            now += PROBATION;
        }
        started
    }

    #[test]
    fn a_suspect_of_two_losses_runs_alone_among_those_that_have_lost_any() {
        let nothing = Here::default();
        assert_eq!(admitted(&[0, 1, 1, 0, 2], nothing), [0, 1, 1, 0]);
        assert_eq!(admitted(&[2, 1, 0, 2, 3], nothing), [2, 0]);
        assert_eq!(admitted(&[2], nothing.with(0)), [2]);
        assert_eq!(admitted(&[2, 1], nothing.with(1)), [1]);
        assert_eq!(admitted(&[2, 1, 0], nothing.with(2)), [0]);
    }

    #[test]
    fn after_one_loss_they_start_one_at_a_time() {
        let mut suspects = Suspects::default();
        let (mut here, now) = (Here::default(), Instant::now());
        assert!(suspects.admit(1, &mut here, now));
        assert!(!suspects.admit(1, &mut here, now));
        assert!(suspects.admit(0, &mut here, now), "others go on");
        assert!(suspects.admit(1, &mut here, now + PROBATION));
    }

    #[test]
    fn what_waits_starts_when_it_may_and_is_put_off_when_that_takes_long() {
        let mut suspects = Suspects::default();
        let now = Instant::now();
        assert_eq!(suspects.next_look(now), None);
        let (mut here, alone) = (Here::default(), Here::default().with(2));
        assert!(suspects.admit(1, &mut here, now));
        for lost in [2, 1] {
            suspects.wait(waiting_lost(lost), now);
        }
        assert_eq!(suspects.next_look(now), Some(now + PROBATION));
        // The one with two losses waits for the end of the first, the other for its probation.
        let later = now + PROBATION;
        assert_eq!(suspects.next(here, now).map(|w| w.lost), None);
        assert_eq!(suspects.next(here, later).map(|w| w.lost), Some(1));
        assert_eq!(
            suspects.next(Here::default(), later).map(|w| w.lost),
            Some(2)
        );
        // Beside one that runs alone nothing of the kind is kept for long.
        for lost in [2, 1] {
            suspects.wait(waiting_lost(lost), now);
        }
        assert!(suspects.take_overdue(alone, true, later).is_empty());
        assert_eq!(suspects.take_overdue(alone, true, now + HOLD).len(), 2);
        assert!(suspects.is_empty());
    }

    #[test]
    fn what_is_in_hand_is_bounded_and_never_looked_at_without_end() {
        let mut suspects = Suspects::default();
        let now = Instant::now();
        for _ in 0..LATE_MAX + 9 {
            suspects.wait(waiting_lost(1), now);
        }
        let excess = suspects.take_overdue(Here::default(), true, now);
        assert_eq!((excess.len(), suspects.late.len()), (9, LATE_MAX));
        // Without a slot nothing is left to look for in the past.
        let long_after = now + HOLD * 10;
        assert_eq!(suspects.next_look(long_after), None);
        assert_eq!(
            suspects
                .take_overdue(Here::default(), false, long_after)
                .len(),
            LATE_MAX
        );
    }
}
