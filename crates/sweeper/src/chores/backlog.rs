//! Counts how many jobs wait in the database for each lane, for the gateways to refuse by
//! (docs/adr/0004). A long count is made seldom: counting takes a twentieth of the time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::config::AdmissionConfig;
use tenure_core::domain::job::Lane;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::backlog::CountedLane;
use tenure_core::telemetry::metrics::Metrics;
use tokio::time::Instant;

use super::Chore;

/// How often the chore looks which lanes are due.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The least pause between two counts of a lane that has a backlog.
const BUSY: Duration = Duration::from_millis(200);
/// That of one that had none.
const IDLE: Duration = Duration::from_secs(1);
/// A count takes one in so many parts of the time.
const SHARE: u32 = 20;
/// Where there is no threshold, a count goes no further than this.
const COUNT_CAP: i64 = 100_000;
/// How often the list of lanes is read while none of them is due.
const LANES_EVERY: Duration = Duration::from_millis(500);

/// The chore.
pub struct CountBacklog {
    store: Store,
    config: AdmissionConfig,
    metrics: Arc<Metrics>,
    /// When each lane is due by what this sweeper knows.
    due: HashMap<(String, Lane), Instant>,
    read_at: Option<Instant>,
}

impl CountBacklog {
    /// A chore that has counted nothing yet.
    pub fn new(store: Store, config: AdmissionConfig, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            config,
            metrics,
            due: HashMap::new(),
            read_at: None,
        }
    }

    fn is_due(&self, lane: &CountedLane, now: Instant) -> bool {
        let by_us = self.due.get(&(lane.queue.clone(), lane.lane));
        // Another sweeper may have counted just now.
        by_us.is_none_or(|at| *at <= now) && lane.age >= BUSY
    }
}

impl Chore for CountBacklog {
    const NAME: &'static str = "backlog";

    async fn run_once(&mut self) -> Result<bool> {
        let now = Instant::now();
        let some_due = self.due.values().any(|at| *at <= now);
        let read = self
            .read_at
            .is_none_or(|at| now.duration_since(at) >= LANES_EVERY);
        if !some_due && !read {
            return Ok(false);
        }
        let lanes = self.store.counted_lanes().await?;
        self.read_at = Some(now);
        self.due.retain(|(queue, lane), _| {
            lanes
                .iter()
                .any(|it| it.queue == *queue && it.lane == *lane)
        });
        for lane in lanes {
            if !self.is_due(&lane, Instant::now()) {
                continue;
            }
            let most = count_limit(&self.config, lane.max_backlog);
            let began = Instant::now();
            let jobs = self
                .store
                .count_backlog(&lane.queue, lane.lane, most)
                .await?;
            let took = began.elapsed();
            self.metrics.lane_backlog.set(
                self.metrics.queue_lane(&lane.queue, lane.lane.as_str()),
                jobs,
            );
            let pause = (took * SHARE).max(if jobs > 0 { BUSY } else { IDLE });
            self.due
                .insert((lane.queue, lane.lane), Instant::now() + pause);
        }
        Ok(false)
    }
}

/// How far a lane is counted: to where even high work is refused, and no further.
fn count_limit(config: &AdmissionConfig, own: Option<i64>) -> i64 {
    let per_queue =
        own.or((config.max_backlog_per_queue > 0).then_some(config.max_backlog_per_queue));
    let in_all = (config.max_backlog > 0).then_some(config.max_backlog);
    let limit = match (per_queue, in_all) {
        (Some(one), Some(all)) => one.min(all),
        (Some(limit), None) | (None, Some(limit)) => limit,
        (None, None) => return COUNT_CAP,
    };
    limit.saturating_mul(11) / 10 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_as_far_as_it_matters() {
        let config = |max_backlog_per_queue, max_backlog| AdmissionConfig {
            max_backlog_per_queue,
            max_backlog,
            ..AdmissionConfig::default()
        };
        assert_eq!(count_limit(&config(100, 0), None), 111);
        assert_eq!(count_limit(&config(100, 50), None), 56);
        assert_eq!(count_limit(&config(100, 0), Some(0)), 1);
        assert_eq!(count_limit(&config(0, 0), None), COUNT_CAP);
    }
}
