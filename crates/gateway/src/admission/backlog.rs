//! How full the queues are, as far as this gateway knows: what the sweepers counted, and
//! what it has parked itself since (docs/adr/0004).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::config::AdmissionConfig;
use tenure_core::domain::job::Lane;
use tenure_core::storage::dispatch::LaneHint;
use tenure_core::{Code, Error, Result};
use tokio::time::Instant;

/// What was parked this much before a count began may have been committed after it.
const MARGIN: Duration = Duration::from_millis(50);
/// How long what was parked is remembered, in readings of 100 ms.
const REMEMBERED: usize = 600;
/// The least and the longest delay that a refusal recommends, and that where nothing is
/// known of how fast the backlog shrinks.
const RETRY_AT_LEAST: Duration = Duration::from_secs(1);
const RETRY_AT_MOST: Duration = Duration::from_secs(30);
const RETRY_UNKNOWN: Duration = Duration::from_secs(5);

/// The backlogs of all lanes.
pub(super) struct Backlog {
    per_queue: i64,
    in_all: i64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: HashMap<String, Queue>,
    /// The jobs of all queues.
    jobs: i64,
}

#[derive(Default)]
struct Queue {
    own_limit: Option<i64>,
    lanes: [LaneLevel; 3],
}

#[derive(Default)]
struct LaneLevel {
    /// What a sweeper counted.
    counted: i64,
    /// Which count that was, and when it began.
    stamp: i64,
    counted_at: Option<Instant>,
    /// What this gateway has parked since it started.
    parked: i64,
    /// Of these, what the count has in it.
    in_count: i64,
    /// What was parked at each of the last readings.
    history: VecDeque<(Instant, i64)>,
    /// By how many jobs a second the count has fallen.
    falls_by: f64,
}

impl LaneLevel {
    fn jobs(&self) -> i64 {
        (self.counted + self.parked - self.in_count).max(0)
    }

    /// Takes in a reading.
    fn read(&mut self, hint: &LaneHint, now: Instant) {
        self.history.push_back((now, self.parked));
        let mut forgotten = 0;
        if self.history.len() > REMEMBERED {
            forgotten = self.history.pop_front().map_or(0, |(_, parked)| parked);
        }
        if hint.backlog_stamp == self.stamp {
            return;
        }
        let Some(began) = now.checked_sub(hint.backlog_age) else {
            return;
        };
        self.falls_by = self.counted_at.map_or(0.0, |known| {
            let passed = began.saturating_duration_since(known).as_secs_f64();
            let fallen = (self.counted - hint.backlog).max(0) as f64;
            if passed > 0.0 { fallen / passed } else { 0.0 }
        });
        // In doubt a job counts twice for a moment, and not never.
        let before = began.checked_sub(MARGIN).unwrap_or(began);
        let at = self.history.partition_point(|(at, _)| *at <= before);
        self.in_count = at
            .checked_sub(1)
            .and_then(|at| self.history.get(at))
            .map_or(forgotten, |(_, parked)| *parked);
        self.counted = hint.backlog;
        self.counted_at = Some(began);
        self.stamp = hint.backlog_stamp;
    }
}

/// The threshold of a lane: low work is refused first, high work last.
fn threshold(limit: i64, lane: Lane) -> i64 {
    match lane {
        Lane::High => limit.saturating_mul(11) / 10,
        Lane::Normal => limit,
        Lane::Low => limit.saturating_mul(8) / 10,
    }
}

impl Backlog {
    /// Nothing is known yet.
    pub(super) fn new(config: &AdmissionConfig) -> Self {
        Self {
            per_queue: config.max_backlog_per_queue,
            in_all: config.max_backlog,
            state: Mutex::default(),
        }
    }

    /// Takes in a reading of the lanes.
    pub(super) fn read(&self, hints: &[LaneHint]) {
        self.read_at(hints, Instant::now());
    }

    fn read_at(&self, hints: &[LaneHint], now: Instant) {
        let mut state = self.state.lock();
        for hint in hints {
            let queue = state.queues.entry(hint.queue.clone()).or_default();
            queue.own_limit = hint.max_backlog;
            queue.lanes[hint.lane as usize].read(hint, now);
        }
        state.jobs = state
            .queues
            .values()
            .flat_map(|queue| queue.lanes.iter().map(LaneLevel::jobs))
            .sum();
    }

    /// Lets a job in, and counts it where it is going to be parked.
    ///
    /// # Errors
    /// QUEUE_FULL.
    pub(super) fn enter(&self, name: &str, lane: Lane, parked: bool) -> Result<()> {
        let mut state = self.state.lock();
        let in_all = state.jobs;
        if !state.queues.contains_key(name) {
            state.queues.insert(name.to_owned(), Queue::default());
        }
        let Some(queue) = state.queues.get_mut(name) else {
            return Ok(());
        };
        let jobs: i64 = queue.lanes.iter().map(LaneLevel::jobs).sum();
        let limit = queue
            .own_limit
            .or((self.per_queue > 0).then_some(self.per_queue));
        if let Some(limit) = limit.map(|limit| threshold(limit, lane))
            && jobs >= limit
        {
            let falls_by = queue.lanes.iter().map(|lane| lane.falls_by).sum();
            let what = format!("queue {name:?} has {jobs} jobs that wait");
            return Err(refusal(
                format!("queue:{name}"),
                what,
                jobs,
                limit,
                lane,
                falls_by,
            ));
        }
        let limit = threshold(self.in_all, lane);
        if self.in_all > 0 && in_all >= limit {
            let falls_by = state
                .queues
                .values()
                .flat_map(|queue| queue.lanes.iter().map(|lane| lane.falls_by))
                .sum();
            let what = format!("{in_all} jobs wait in all queues");
            let subject = "admission.max_backlog".to_owned();
            return Err(refusal(subject, what, in_all, limit, lane, falls_by));
        }
        if parked {
            queue.lanes[lane as usize].parked += 1;
            state.jobs += 1;
        }
        Ok(())
    }

    /// A job that was let in is not there after all.
    pub(super) fn leave(&self, name: &str, lane: Lane, parked: bool) {
        if !parked {
            return;
        }
        let mut state = self.state.lock();
        if let Some(queue) = state.queues.get_mut(name) {
            queue.lanes[lane as usize].parked -= 1;
            state.jobs -= 1;
        }
    }
}

fn refusal(
    subject: String,
    what: String,
    jobs: i64,
    limit: i64,
    lane: Lane,
    falls_by: f64,
) -> Error {
    let excess = (jobs - limit + 1).max(1) as f64;
    let wait = if falls_by > 0.0 {
        Duration::try_from_secs_f64(excess / falls_by)
            .unwrap_or(RETRY_AT_MOST)
            .clamp(RETRY_AT_LEAST, RETRY_AT_MOST)
    } else {
        RETRY_UNKNOWN
    };
    let lane = lane.as_str();
    Error::new(
        Code::QueueFull,
        format!("{what}; {lane} jobs are taken again when it is fewer than {limit}"),
    )
    .with_quota(
        subject,
        format!("{lane} jobs are refused from {limit} waiting jobs on"),
    )
    .with_meta("lane", lane)
    .with_meta("limit", limit.to_string())
    .with_retry_after(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(lane: Lane, backlog: i64, stamp: i64, age: Duration) -> LaneHint {
        LaneHint {
            queue: "q".to_owned(),
            lane,
            direct: false,
            bundle_max: 32,
            window_msgs: 16,
            stale: false,
            hinted_ms: 1,
            paused: false,
            backlog,
            backlog_age: age,
            backlog_stamp: stamp,
            max_backlog: None,
        }
    }

    fn backlog(per_queue: i64, in_all: i64) -> Backlog {
        Backlog::new(&AdmissionConfig {
            max_backlog_per_queue: per_queue,
            max_backlog: in_all,
            ..AdmissionConfig::default()
        })
    }

    fn fits(backlog: &Backlog, lane: Lane) -> bool {
        let entered = backlog.enter("q", lane, true).is_ok();
        if entered {
            backlog.leave("q", lane, true);
        }
        entered
    }

    #[test]
    fn low_work_is_refused_first_and_high_work_last() {
        for (jobs, fitting) in [
            (79, [true, true, true]),
            (80, [true, true, false]),
            (99, [true, true, false]),
            (100, [true, false, false]),
            (109, [true, false, false]),
            (110, [false, false, false]),
        ] {
            let backlog = backlog(100, 0);
            backlog.read(&[hint(Lane::Normal, jobs, 1, Duration::ZERO)]);
            assert_eq!(
                Lane::ALL.map(|lane| fits(&backlog, lane)),
                fitting,
                "{jobs}"
            );
        }
    }

    #[test]
    fn what_this_gateway_parks_counts_at_once_and_a_refusal_says_when() {
        let backlog = backlog(3, 0);
        for _ in 0..3 {
            backlog.enter("q", Lane::Normal, true).expect("fits");
        }
        let error = backlog.enter("q", Lane::Normal, true).expect_err("full");
        assert_eq!(error.code(), Code::QueueFull);
        assert!(error.retry_after() >= Some(RETRY_AT_LEAST));
        backlog
            .enter("other", Lane::Normal, true)
            .expect("another queue");
        // What goes to the broker is no backlog.
        backlog.leave("q", Lane::Normal, true);
        backlog.enter("q", Lane::Normal, false).expect("fits");
        backlog.enter("q", Lane::Normal, false).expect("fits");
    }

    #[test]
    fn all_queues_together_have_a_threshold_as_well() {
        let backlog = backlog(0, 2);
        backlog.enter("a", Lane::Normal, true).expect("fits");
        backlog.enter("b", Lane::Normal, true).expect("fits");
        let error = backlog.enter("c", Lane::Normal, true).expect_err("full");
        assert!(error.message().contains("all queues"), "{error}");
    }

    #[test]
    fn a_count_takes_the_place_of_what_it_has_in_it() {
        let backlog = backlog(10, 0);
        let jobs = || backlog.state.lock().jobs;
        let begun = Instant::now();
        let read = |step: u32, hint| {
            backlog.read_at(&[hint], begun + Duration::from_millis(200) * step);
        };
        read(0, hint(Lane::Normal, 0, 1, Duration::ZERO));
        for _ in 0..4 {
            backlog.enter("q", Lane::Normal, true).expect("fits");
        }
        assert_eq!(jobs(), 4);
        // The same count again, older by what has passed.
        read(1, hint(Lane::Normal, 0, 1, Duration::from_millis(200)));
        assert_eq!(jobs(), 4);
        // A count that began after them has them, and this gateway adds none.
        read(2, hint(Lane::Normal, 4, 2, Duration::from_millis(100)));
        assert_eq!(jobs(), 4);
        // And one in which two have gone.
        read(3, hint(Lane::Normal, 2, 3, Duration::from_millis(100)));
        assert_eq!(jobs(), 2);
    }
}
