//! Fills the broker's windows from the backlog (PROTOCOL.md §13).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::broker::depths::Depths;
use tenure_core::broker::envelope::{Envelope, inline_payload};
use tenure_core::broker::publisher::{Outgoing, Publisher};
use tenure_core::config::Config;
use tenure_core::domain::job::Lane;
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::dispatch::{Dispatched, DueLane, Picked, Ticked};
use tenure_core::telemetry::metrics::Metrics;

use super::topology::Topology;

/// Messages may still be on their way for this long, in milliseconds: they count as ready.
const IN_TRANSIT: i64 = 200;
/// After this long, what was sent and is not ready any more has been taken.
const TAKEN: i64 = 100;
/// The window's bounds, in messages.
const WINDOW: std::ops::RangeInclusive<i32> = 16..=1024;
/// The most jobs of one tick and lane.
const TICK_MAX: usize = 4000;
/// How often the list of lanes is read.
const LANES_EVERY: Duration = Duration::from_secs(2);

/// The chore.
pub struct Dispatch {
    store: Store,
    busy: Duration,
    idle: Duration,
    publisher: Publisher,
    depths: Depths,
    topology: Arc<Topology>,
    metrics: Arc<Metrics>,
    lanes: Vec<(String, Lane)>,
    lanes_read: Option<tokio::time::Instant>,
}

impl Dispatch {
    /// A dispatcher; any number of them may run.
    pub fn new(
        store: Store,
        config: &Config,
        publisher: Publisher,
        depths: Depths,
        topology: Arc<Topology>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store,
            busy: config.sweeper.dispatch_busy,
            idle: config.sweeper.dispatch_idle,
            publisher,
            depths,
            topology,
            metrics,
            lanes: Vec::new(),
            lanes_read: None,
        }
    }

    /// One tick over all lanes that are due; answers after what time to come again.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE, BROKER_UNAVAILABLE: nothing is lost, the next tick goes on.
    pub async fn run_once(&mut self) -> Result<Duration> {
        // Sending more while confirms are late would only pile up duplicates.
        if !self.publisher.is_connected() || self.publisher.is_lagging() {
            return Ok(self.idle);
        }
        self.read_lanes().await?;
        let mut ready = HashMap::new();
        for (queue, lane) in self.lanes.clone() {
            // One bad queue must not keep the others waiting.
            let depth = match self.depth(&queue, lane).await {
                Ok(Some(depth)) => depth,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        queue,
                        lane = lane.as_str(),
                        "a lane is left out of this tick"
                    );
                    continue;
                }
            };
            self.metrics.lane_ready_messages.set(
                self.metrics.queue_lane(&queue, lane.as_str()),
                i64::from(depth),
            );
            ready.insert((queue, lane), depth as i32);
        }
        let known: Vec<_> = ready.keys().cloned().collect();
        if known.is_empty() {
            return Ok(self.idle);
        }
        let (mut tick, due) = self.store.begin_tick(&known).await?;
        let (mut ticked, mut outgoing) = (Vec::new(), Vec::new());
        for lane in due {
            let depth = ready
                .get(&(lane.queue.clone(), lane.lane()))
                .copied()
                .unwrap_or(0);
            let plan = plan(&lane, depth);
            let picked = if plan.room > 0 && lane.backlog && !lane.paused {
                tick.pick(&lane, plan.room).await?
            } else {
                Picked {
                    jobs: Vec::new(),
                    cursor_user: lane.cursor_user.clone(),
                    exhausted: !lane.backlog,
                }
            };
            let bundle = lane.bundle_max.max(1) as usize;
            let msgs = picked.jobs.len().div_ceil(bundle) as i32;
            ticked.push(Ticked {
                queue: lane.queue.clone(),
                lane: lane.lane(),
                cursor_user: picked.cursor_user,
                pause: if lane.backlog && !lane.paused {
                    self.busy
                } else {
                    self.idle
                },
                msgs,
                // What this tick has emptied is empty, though it was not at its start: at a
                // steady rate there is something parked at every start, and jobs would
                // wait for a tick for ever.
                direct: picked.exhausted && !lane.paused && depth + msgs < lane.window_msgs / 2,
                grow: lane.may_grow,
                window_msgs: plan.window,
            });
            if !picked.jobs.is_empty() {
                let label = self.metrics.queue_lane(&lane.queue, lane.lane().as_str());
                self.metrics
                    .dispatched_jobs
                    .inc_by(label, picked.jobs.len() as u64);
                outgoing.push(Outgoing {
                    queue: lane.queue.clone(),
                    lane: lane.lane(),
                    bundle,
                    jobs: picked.jobs.iter().map(envelope).collect(),
                });
            }
        }
        let again = if ticked.iter().any(|t| t.pause == self.busy) {
            self.busy
        } else {
            self.idle
        };
        tick.commit(&ticked).await?;
        for batch in outgoing {
            self.publisher.publish(batch);
        }
        Ok(again)
    }

    /// The ready messages of a lane, whose queue is declared again where it is missing;
    /// `None`: it cannot be, and that was told a moment ago.
    async fn depth(&mut self, queue: &str, lane: Lane) -> Result<Option<u32>> {
        if let Some(depth) = self.depths.ready(queue, lane).await? {
            return Ok(Some(depth));
        }
        Ok(self.topology.restore(queue).await?.then_some(0))
    }

    async fn read_lanes(&mut self) -> Result<()> {
        if self.lanes_read.is_none_or(|at| at.elapsed() >= LANES_EVERY) {
            let queues = self.topology.queues().await?;
            self.lanes = queues
                .into_iter()
                .flat_map(|q| Lane::ALL.map(|lane| (q.clone(), lane)))
                .collect();
            self.lanes_read = Some(tokio::time::Instant::now());
        }
        Ok(())
    }
}

/// What a tick may send on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plan {
    /// Jobs.
    room: usize,
    /// The window from now on, in messages.
    window: i32,
}

/// Decides how much a lane gets. The window follows the throughput: a lane that was
/// found empty although the last tick had filled it gets twice as much; one whose
/// messages stay gets less, since what waits in the database is dispatched more fairly.
fn plan(lane: &DueLane, ready: i32) -> Plan {
    let recent = lane.since_ms < IN_TRANSIT;
    let in_transit = if recent { lane.last_tick_msgs } else { 0 };
    let starved = ready == 0
        && lane.backlog
        && lane.since_ms >= TAKEN
        && lane.last_tick_msgs >= lane.window_msgs / 2;
    let window = if starved {
        lane.window_msgs * 2
    } else if ready > lane.window_msgs * 3 / 4 && !recent {
        lane.window_msgs - lane.window_msgs / 8
    } else {
        lane.window_msgs
    };
    let window = window.clamp(*WINDOW.start(), *WINDOW.end());
    let room = (window - ready - in_transit).max(0) as usize;
    Plan {
        room: (room * lane.bundle_max.max(1) as usize).min(TICK_MAX),
        window,
    }
}

fn envelope(job: &Dispatched) -> Envelope {
    Envelope {
        job_id: job.job_id(),
        event_id: job.job_id(),
        run: job.run,
        job_type: job.job_type.clone(),
        user_id: job.user_id.clone(),
        attempt: job.attempt,
        lost: job.lost,
        dedupe_key: job.dedupe_key.clone(),
        created_at: job.created_at,
        traceparent: job.trace_parent.clone(),
        payload: job.payload.as_deref().and_then(inline_payload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(window: i32, last: i32, since_ms: i64) -> DueLane {
        DueLane::for_test(window, last, since_ms)
    }

    #[test]
    fn the_window_bounds_what_is_sent() {
        assert_eq!(plan(&lane(64, 0, 1000), 0).room, 64 * 32);
        assert_eq!(plan(&lane(1024, 0, 1000), 0).room, TICK_MAX);
        assert_eq!(plan(&lane(128, 0, 1000), 90).room, 38 * 32);
        assert_eq!(plan(&lane(128, 0, 1000), 500).room, 0);
        assert_eq!(plan(&lane(128, 100, 50), 10).room, 18 * 32);
    }

    #[test]
    fn the_window_follows_the_throughput() {
        assert_eq!(plan(&lane(128, 128, 120), 0).window, 256);
        assert_eq!(plan(&lane(128, 128, 50), 0).window, 128);
        assert_eq!(plan(&lane(1024, 1024, 120), 0).window, 1024);
        assert!(plan(&lane(128, 0, 1000), 120).window < 128);
        assert_eq!(plan(&lane(16, 0, 1000), 16).window, 16);
    }
}
