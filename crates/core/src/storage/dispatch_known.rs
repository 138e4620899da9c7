//! What a dispatcher remembers of the backlog while looking at it is slow.
//!
//! A job that is sent leaves its place in the index of parked rows, but the entry stays until
//! it is cleaned up, which an old transaction of anybody's can keep from happening for hours.
//! Looking for the first parked row then reads all that was ever sent, again at each tick. So
//! after a slow look the next ones begin behind the last job that each user has sent. What
//! comes back below it (a retry, a replay) waits until everything is looked at again: full
//! looks take a tenth of the time at most, and are five seconds apart at most.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::dispatch::{Dispatched, DueLane};
use crate::domain::job::Lane;

/// A look that took less is made again at each tick.
const SLOW: Duration = Duration::from_millis(20);
/// Looks at everything take at most this part of the time: one in so many.
const SHARE: u32 = 10;
/// The longest that what came back below has to wait for the next full look.
const LONGEST: Duration = Duration::from_secs(5);

/// The users of the lanes whose backlogs are slow to look at.
#[derive(Debug, Default)]
pub struct KnownUsers {
    lanes: HashMap<(String, Lane), Known>,
}

/// The users of a lane, with the last job that each has sent.
#[derive(Debug)]
struct Known {
    until: Instant,
    sent: HashMap<String, Uuid>,
}

impl KnownUsers {
    /// The lanes that had more than was taken when they were looked at last, as the
    /// statement of due lanes names them.
    pub(super) fn waiting(&self) -> Vec<String> {
        let now = Instant::now();
        let known = self.lanes.iter().filter(|(_, known)| known.until > now);
        known
            .map(|((queue, lane), _)| super::dispatch::lane_name(queue, *lane))
            .collect()
    }

    /// What is known of a lane, unless it has to be looked at as a whole.
    pub(super) fn of(&mut self, lane: &DueLane) -> Option<(Vec<&str>, Vec<Uuid>)> {
        let key = (lane.queue.clone(), lane.lane());
        if self.lanes.get(&key)?.until <= Instant::now() {
            self.lanes.remove(&key);
            return None;
        }
        let sent = &self.lanes.get(&key)?.sent;
        Some(sent.iter().map(|(user, job)| (user.as_str(), *job)).unzip())
    }

    /// The last jobs that these users have sent; nil: not known.
    pub(super) fn sent(&self, lane: &DueLane, users: &[&str]) -> Vec<Uuid> {
        let known = self.lanes.get(&(lane.queue.clone(), lane.lane()));
        let sent = |user: &&str| known.and_then(|known| known.sent.get(*user)).copied();
        users
            .iter()
            .map(|user| sent(user).unwrap_or_default())
            .collect()
    }

    /// Notes what was taken. `looked`: how long a look at everything took, where this was one.
    pub fn took(&mut self, lane: &DueLane, jobs: &[Dispatched], looked: Option<Duration>) {
        let key = (lane.queue.clone(), lane.lane());
        match looked {
            Some(time) if time < SLOW => {
                self.lanes.remove(&key);
                return;
            }
            Some(time) => {
                let until = Instant::now() + (time * SHARE).min(LONGEST);
                let sent = HashMap::new();
                self.lanes.insert(key.clone(), Known { until, sent });
            }
            None => {}
        }
        let Some(known) = self.lanes.get_mut(&key) else {
            return;
        };
        for job in jobs {
            let sent = known.sent.entry(job.user_id.clone()).or_default();
            *sent = job.job_id().uuid().max(*sent);
        }
    }

    /// Looks at everything of a lane at the next tick.
    pub(super) fn forget(&mut self, lane: &DueLane) {
        self.lanes.remove(&(lane.queue.clone(), lane.lane()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_slow_look_is_remembered_and_for_a_while() {
        let (mut known, lane) = (KnownUsers::default(), DueLane::for_test(1, 0, 0));
        let mut jobs = vec![Dispatched::for_test("ann"), Dispatched::for_test("ann")];
        jobs.sort_by_key(Dispatched::job_id);
        let last = jobs[1].job_id().uuid();
        known.took(&lane, &jobs, Some(SLOW / 2));
        assert!(known.of(&lane).is_none() && known.waiting().is_empty());
        known.took(&lane, &jobs, Some(SLOW * 100));
        assert_eq!(known.of(&lane), Some((vec!["ann"], vec![last])));
        assert_eq!(known.waiting(), ["q/2"]);
        assert_eq!(known.sent(&lane, &["bob", "ann"]), [Uuid::nil(), last]);
        // It goes on, and a quick look ends it.
        let next = Dispatched::for_test("bob");
        known.took(&lane, std::slice::from_ref(&next), None);
        assert_eq!(known.sent(&lane, &["bob"]), [next.job_id().uuid()]);
        known.took(&lane, &[], Some(Duration::ZERO));
        assert!(known.of(&lane).is_none());
        known.took(&lane, &jobs, Some(SLOW));
        known.forget(&lane);
        assert!(known.of(&lane).is_none());
    }
}
