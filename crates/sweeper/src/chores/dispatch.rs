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
use tenure_core::storage::dispatch::{Dispatched, DueLane, Picked, Tick, Ticked};
use tenure_core::storage::dispatch_known::KnownUsers;
use tenure_core::telemetry::metrics::Metrics;
use tokio::time::Instant;

use super::pace::{self, Batch, Pace, Plan};
use super::topology::Topology;

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
    pace: Pace,
    known: KnownUsers,
    lanes: Vec<(String, Lane)>,
    lanes_read: Option<Instant>,
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
            pace: Pace::default(),
            known: KnownUsers::default(),
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
        self.look_at_probes().await?;
        let (mut tick, due) = self.store.begin_tick(&known, &self.known).await?;
        let (mut ticked, mut outgoing) = (Vec::new(), Vec::new());
        for lane in due {
            let depth = ready
                .get(&(lane.queue.clone(), lane.lane()))
                .copied()
                .unwrap_or(0);
            let (left, batch) = self.fill(&mut tick, &lane, depth).await?;
            ticked.push(left);
            outgoing.extend(batch);
        }
        let again = if ticked.iter().any(|t| t.pause == self.busy) {
            self.busy
        } else {
            self.idle
        };
        if let Err(error) = tick.commit(&ticked).await {
            // What was taken may be there still.
            self.known = KnownUsers::default();
            return Err(error);
        }
        for batch in outgoing {
            self.publisher.publish(batch);
        }
        Ok(again)
    }

    /// Takes from the backlog of a lane what there is room for.
    async fn fill(
        &mut self,
        tick: &mut Tick,
        lane: &DueLane,
        depth: i32,
    ) -> Result<(Ticked, Option<Outgoing>)> {
        let now = Instant::now();
        let plan = self.pace.plan(lane, depth);
        self.tell(lane, plan);
        let picked = if plan.room > 0 && lane.backlog && !lane.paused() {
            tick.pick(lane, plan.room, &mut self.known).await?
        } else {
            Picked {
                jobs: Vec::new(),
                cursor_user: lane.cursor_user.clone(),
                exhausted: !lane.backlog,
            }
        };
        let jobs = picked.jobs.len();
        let messages = jobs.div_ceil(plan.bundle);
        if let Some(last) = picked.jobs.last() {
            let last = (last.job_id(), last.run);
            let sent = Batch {
                jobs,
                messages,
                last,
            };
            self.pace.sent(lane, plan, sent, now);
        }
        let ticked = Ticked {
            queue: lane.queue.clone(),
            lane: lane.lane(),
            cursor_user: picked.cursor_user,
            pause: if pace::is_busy(lane) && !lane.paused() {
                self.busy
            } else {
                self.idle
            },
            msgs: messages as i32,
            // What this tick has emptied is empty, though it was not at its start: at a
            // steady rate there is something parked at every start, and jobs would
            // wait for a tick for ever.
            direct: picked.exhausted && !lane.paused() && plan.held + jobs < plan.window / 2,
            grow: lane.may_grow,
            window_msgs: plan.window_msgs,
            busy: lane.backlog,
        };
        if jobs == 0 {
            return Ok((ticked, None));
        }
        let label = self.metrics.queue_lane(&lane.queue, lane.lane().as_str());
        self.metrics.dispatched_jobs.inc_by(label, jobs as u64);
        let outgoing = Outgoing {
            queue: lane.queue.clone(),
            lane: lane.lane(),
            bundle: plan.bundle,
            jobs: picked.jobs.iter().map(envelope).collect(),
        };
        Ok((ticked, Some(outgoing)))
    }

    /// Keeps the gauges of a lane.
    fn tell(&self, lane: &DueLane, plan: Plan) {
        let label = self.metrics.queue_lane(&lane.queue, lane.lane().as_str());
        let window = i64::try_from(plan.window).unwrap_or(i64::MAX);
        self.metrics.lane_window_jobs.set(label, window);
        for (by, paused) in [("hand", lane.by_hand), ("system", lane.by_system)] {
            let label = self.metrics.queue_by(&lane.queue, by);
            self.metrics.queue_paused.set(label, i64::from(paused));
        }
    }

    /// Asks what has become of the jobs by which the lanes are measured.
    async fn look_at_probes(&mut self) -> Result<()> {
        let probes = self.pace.probes();
        if probes.is_empty() {
            return Ok(());
        }
        let found = self.store.look_at_sent(&probes).await?;
        let found: Vec<_> = probes.into_iter().zip(found).collect();
        self.pace.look(&found, Instant::now());
        Ok(())
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
            self.lanes_read = Some(Instant::now());
        }
        Ok(())
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
