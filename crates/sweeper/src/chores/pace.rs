//! How much of a lane the broker is given to hold: what the workers take in about two
//! seconds, as it is measured. What waits in the broker goes first come, first served; what
//! waits in the database is dispatched fairly. So a window that is too large lets one
//! user's jobs be in everybody's way, and one that is too small leaves workers without work.
//!
//! Measured is how long one job of a tick waits until a worker has it. With the jobs that
//! were ahead of it, that is the throughput.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Lane;
use tenure_core::storage::dispatch::DueLane;
use tenure_core::storage::sent::Sent;
use tokio::time::Instant;

/// The time whose throughput the window is: with the ticks' own time and what workers hold,
/// a job behind the whole of it starts within two seconds.
const TARGET: f64 = 1.5;
/// What a lane begins with when a backlog comes, whatever it took before: its jobs may be
/// of another kind. In jobs, like all of these.
const START: f64 = 512.0;
const LEAST: f64 = 16.0;
const MOST: f64 = 32_768.0;
/// The most jobs of one tick and lane.
const TICK_MAX: usize = 4000;
/// Messages may still be on their way for this long, in milliseconds: they count as ready.
const IN_TRANSIT: i64 = 200;
/// A window is given out in so many messages at least, so that all workers get some.
const MESSAGES: f64 = 32.0;
/// What a job that waits for longer than this would tell is known by then; another one is
/// watched.
const WATCHED_FOR: Duration = Duration::from_mins(1);
/// How many jobs a message of a lane holds that this dispatcher has sent nothing on.
const PER_MESSAGE: f64 = 8.0;

/// A job that is watched until a worker has it.
#[derive(Clone, Debug)]
struct Probe {
    job: JobId,
    run: i32,
    sent: Instant,
    /// The jobs up to and with this one that the broker had then.
    ahead: f64,
}

/// What is known of a lane.
#[derive(Clone, Debug)]
struct LanePace {
    probe: Option<Probe>,
    /// What the probe has told since the last tick.
    told: Option<Told>,
    per_message: f64,
}

impl Default for LanePace {
    fn default() -> Self {
        Self {
            probe: None,
            told: None,
            per_message: PER_MESSAGE,
        }
    }
}

/// What a probe tells.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Told {
    /// A worker has it, after so many seconds.
    Taken { ahead: f64, after: f64 },
    /// It has waited for so many seconds.
    Waits { ahead: f64, since: f64 },
    /// There was no slot for it.
    Back,
}

/// What a tick may send on a lane.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Plan {
    /// Jobs that may go.
    pub(super) room: usize,
    /// The window from now on, in jobs.
    pub(super) window: usize,
    /// The same in messages of full size, as the lane's row has it.
    pub(super) window_msgs: i32,
    /// The most envelopes of one message.
    pub(super) bundle: usize,
    /// About how many jobs the broker holds.
    pub(super) held: usize,
}

/// The lanes' paces.
#[derive(Debug, Default)]
pub(super) struct Pace {
    lanes: HashMap<(String, Lane), LanePace>,
}

impl Pace {
    /// The runs that are watched.
    pub(super) fn probes(&self) -> Vec<(JobId, i32)> {
        let probes = self.lanes.values().filter_map(|lane| lane.probe.as_ref());
        probes.map(|probe| (probe.job, probe.run)).collect()
    }

    /// Takes what has become of them.
    pub(super) fn look(&mut self, found: &[((JobId, i32), Sent)], now: Instant) {
        for lane in self.lanes.values_mut() {
            let Some(probe) = &lane.probe else { continue };
            let Some((_, sent)) = found.iter().find(|(run, _)| *run == (probe.job, probe.run))
            else {
                continue;
            };
            let (ahead, time) = (probe.ahead, now.duration_since(probe.sent));
            lane.told = match sent {
                Sent::Waits => Some(Told::Waits {
                    ahead,
                    since: time.as_secs_f64(),
                }),
                Sent::Back => Some(Told::Back),
                Sent::Taken => Some(Told::Taken {
                    ahead,
                    after: time.as_secs_f64(),
                }),
                Sent::PutOff => None,
            };
            if *sent != Sent::Waits || time > WATCHED_FOR {
                lane.probe = None;
            }
        }
    }

    /// Decides how much a lane gets, which has so many messages ready.
    pub(super) fn plan(&mut self, lane: &DueLane, ready: i32) -> Plan {
        let pace = self
            .lanes
            .entry((lane.queue.clone(), lane.lane()))
            .or_default();
        let full = f64::from(lane.bundle_max.clamp(1, 32));
        let mut window = f64::from(lane.window_msgs.max(1)) * full;
        if lane.backlog && !lane.was_busy {
            window = window.min(START);
            pace.probe = None;
        }
        let told = pace.told.take();
        if let Some(told) = told {
            window = adapted(window, told);
        }
        let taken = matches!(told, Some(Told::Taken { .. }));
        // A clock that has gone back says nothing.
        let in_transit = if (0..IN_TRANSIT).contains(&lane.since_ms) && !taken {
            lane.last_tick_msgs
        } else {
            0
        };
        let held = f64::from(ready.saturating_add(in_transit).max(0)) * pace.per_message;
        Plan {
            room: ((window - held).max(0.0) as usize).min(TICK_MAX),
            window: window as usize,
            window_msgs: (window / full).ceil() as i32,
            bundle: (window / MESSAGES).clamp(1.0, full) as usize,
            held: held as usize,
        }
    }

    /// Notes what was sent by a plan: so many jobs in so many messages, this one last.
    pub(super) fn sent(&mut self, lane: &DueLane, plan: Plan, sent: Batch, now: Instant) {
        let Some(pace) = self.lanes.get_mut(&(lane.queue.clone(), lane.lane())) else {
            return;
        };
        pace.per_message = sent.jobs as f64 / sent.messages.max(1) as f64;
        if pace.probe.is_none() {
            pace.probe = Some(Probe {
                job: sent.last.0,
                run: sent.last.1,
                sent: now,
                ahead: (plan.held + sent.jobs) as f64,
            });
        }
    }
}

/// Whether a lane has or had a backlog a moment ago: then it is looked at often, since the
/// next jobs are not far.
pub(super) fn is_busy(lane: &DueLane) -> bool {
    lane.backlog || lane.was_busy
}

/// What a tick has sent on a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) jobs: usize,
    pub(super) messages: usize,
    /// The job that is last in the broker.
    pub(super) last: (JobId, i32),
}

/// The window after this was told. It grows where it was the limit, and shrinks where a
/// job had to wait for longer than the target; by a factor of two at most, since one
/// measurement may be odd.
fn adapted(window: f64, told: Told) -> f64 {
    let new = match told {
        Told::Taken { ahead, after } => {
            // Looked at once a tick: shorter times cannot be told apart.
            let wanted = ahead / after.max(0.05) * TARGET;
            if after > TARGET {
                wanted.clamp(window / 2.0, window)
            } else if ahead * 2.0 >= window {
                wanted.clamp(window, window * 2.0)
            } else {
                window
            }
        }
        // No more than all of them were taken meanwhile.
        Told::Waits { ahead, since } if since > TARGET => window.min(ahead / since * TARGET),
        Told::Waits { .. } => window,
        Told::Back => window / 2.0,
    };
    new.clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(window_msgs: i32, last: i32, since_ms: i64) -> DueLane {
        DueLane::for_test(window_msgs, last, since_ms)
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < right * 0.01
    }

    /// A lane whose workers take so many jobs a second: the window after some seconds.
    fn settles(rate: f64, window_msgs: i32) -> f64 {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut due = lane(window_msgs, 0, 1000);
        let mut backlog_of_broker = 0.0_f64;
        // The probe is taken when so many more jobs were.
        let mut until_probe = None;
        for tick in 0..2000_u32 {
            let now = begin + Duration::from_millis(50) * tick;
            let taken = (rate * 0.05).min(backlog_of_broker);
            backlog_of_broker -= taken;
            let probes = pace.probes();
            if let (Some(left), [probe]) = (until_probe, probes.as_slice()) {
                let left: f64 = left - taken;
                let sent = if left <= 0.0 {
                    Sent::Taken
                } else {
                    Sent::Waits
                };
                until_probe = (left > 0.0).then_some(left);
                pace.look(&[(*probe, sent)], now);
            }
            let ready = (backlog_of_broker / 32.0).ceil() as i32;
            if let Some(lane) = pace.lanes.values_mut().next() {
                lane.per_message = 32.0;
            }
            let plan = pace.plan(&due, ready);
            due.was_busy = true;
            due.window_msgs = plan.window_msgs;
            if plan.room > 0 {
                backlog_of_broker += plan.room as f64;
                let had_none = pace.probes().is_empty();
                let batch = Batch {
                    jobs: plan.room,
                    messages: plan.room.div_ceil(32),
                    last: (JobId::new(), 1),
                };
                pace.sent(&due, plan, batch, now);
                if had_none {
                    until_probe = Some(backlog_of_broker);
                }
            }
        }
        f64::from(due.window_msgs) * 32.0
    }

    #[test]
    fn the_window_settles_at_what_the_workers_take_in_two_seconds() {
        for rate in [100.0, 400.0, 3000.0, 12_000.0] {
            for begin in [1, 16, 1024] {
                let window = settles(rate, begin);
                assert!(
                    (0.75..=2.0).contains(&(window / rate)),
                    "{rate} a second, from {begin}: {window}"
                );
            }
        }
        // A message of full size is the least.
        assert!(settles(2.0, 1024) <= 32.0);
    }

    #[test]
    fn a_window_grows_only_where_it_was_the_limit() {
        let taken = |ahead, after| Told::Taken { ahead, after };
        assert!(near(adapted(512.0, taken(512.0, 0.05)), 1024.0));
        assert!(near(adapted(512.0, taken(512.0, 1.28)), 600.0));
        assert!(near(adapted(4096.0, taken(5.0, 0.05)), 4096.0));
        assert!(near(adapted(4096.0, taken(4096.0, 10.0)), 2048.0));
        assert!(near(adapted(30_000.0, taken(30_000.0, 0.1)), MOST));
        let waits = |ahead, since| Told::Waits { ahead, since };
        assert!(near(adapted(512.0, waits(512.0, 1.0)), 512.0));
        assert!(near(adapted(512.0, waits(512.0, 6.0)), 128.0));
        assert!(near(adapted(512.0, Told::Back), 256.0));
        assert!(near(adapted(17.0, Told::Back), LEAST));
    }

    #[test]
    fn the_window_bounds_what_is_sent() {
        let mut pace = Pace::default();
        // A new backlog begins small, whatever was before.
        let plan = pace.plan(&lane(1024, 0, 1000), 0);
        assert_eq!((plan.room, plan.window, plan.bundle), (512, 512, 16));
        // Whichever dispatcher has seen the backlog before.
        let mut known = lane(1024, 0, 1000);
        known.was_busy = true;
        let plan = pace.plan(&known, 0);
        assert_eq!((plan.room, plan.bundle), (TICK_MAX, 32));
        // Messages that are ready, and those on their way.
        let plan = pace.plan(&lane(16, 0, 1000), 40);
        assert_eq!((plan.held, plan.room), (320, 192));
        let plan = pace.plan(&lane(16, 20, 50), 20);
        assert_eq!((plan.held, plan.room), (320, 192));
        assert_eq!(pace.plan(&lane(16, 0, 1000), 500).room, 0);
        let slow = pace.plan(&lane(1, 0, 1000), 0);
        assert_eq!((slow.room, slow.bundle), (32, 1));
    }

    #[test]
    fn a_lane_stays_busy_for_a_moment_after_its_backlog() {
        let mut due = lane(16, 0, 1000);
        assert!(is_busy(&due));
        (due.backlog, due.was_busy) = (false, true);
        assert!(is_busy(&due));
        due.was_busy = false;
        assert!(!is_busy(&due));
    }

    #[test]
    fn a_job_that_is_put_off_or_waits_for_too_long_is_watched_no_more() {
        let now = Instant::now();
        let (mut pace, due) = (Pace::default(), lane(16, 0, 1000));
        let last = (JobId::new(), 1);
        let batch = Batch {
            jobs: 10,
            messages: 1,
            last,
        };
        let plan = pace.plan(&due, 0);
        pace.sent(&due, plan, batch, now);
        pace.look(&[(last, Sent::PutOff)], now + Duration::from_secs(30));
        assert_eq!(pace.probes(), []);
        let mut known = due.clone();
        known.was_busy = true;
        let plan = pace.plan(&known, 0);
        assert_eq!(plan.window, 512, "it has told nothing");
        pace.sent(&known, plan, batch, now);
        pace.look(&[(last, Sent::Waits)], now + WATCHED_FOR / 2);
        assert_eq!(pace.probes(), [last]);
        pace.look(&[(last, Sent::Waits)], now + WATCHED_FOR * 2);
        assert_eq!(pace.probes(), []);
        assert!(
            pace.plan(&known, 0).window < 512,
            "this long is told all the same"
        );
    }
}
