//! What a gateway knows of the lanes: whether to publish at once, and how large the
//! bundles are (PROTOCOL.md §13).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::Store;
use super::dispatch::LaneHint;
use super::sent::Sent;
use crate::domain::ids::JobId;
use crate::domain::job::{Lane, MAX_BUNDLE};
use crate::error::Result;

/// How long a reading is good without another one being asked for.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
/// The least and the most jobs that a gateway publishes before it knows that workers take
/// them. Above, the dispatcher is as quick, and knows how much the workers take.
const DIRECT_JOBS: (i64, i64) = (16, 512);
/// A window is given out in so many messages at least, as the dispatcher does it.
const MESSAGES: usize = 32;
/// The run of a job that was just submitted.
const FIRST_RUN: i32 = 1;
/// A reading older than this says nothing.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// How long a submit waits for a reading where there is none, after an idle time.
const AWAITED_FOR: Duration = Duration::from_millis(500);

/// Called with each reading.
pub type OnRead = Box<dyn Fn(&[LaneHint]) + Send + Sync>;

/// The lanes as they were read last. Cheap to clone. Read again in the background, and
/// only while somebody asks, so that an idle gateway asks the database nothing.
#[derive(Clone)]
pub struct LaneHints {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    read: RwLock<Reading>,
    reading: AtomicBool,
    done: Notify,
    on_read: OnRead,
}

#[derive(Default)]
struct Reading {
    at: Option<Instant>,
    lanes: HashMap<String, [Option<Known>; 3]>,
}

/// A hint, and how many jobs may still go to the broker by it.
struct Known {
    hint: LaneHint,
    left: AtomicI64,
    /// The first job of those that went: until a worker has it, there is no new room. The
    /// messages that are ready do not tell, since consumers have fetched many of them.
    probe: OnceLock<JobId>,
}

impl Known {
    /// A hint as it was read; `earlier`: the one that was known before, and what has become
    /// of its probe, where it has one. The same hint read once more gives no new room.
    fn new(hint: LaneHint, earlier: Option<(&Self, Option<Sent>)>) -> Self {
        let mut known = Self {
            left: AtomicI64::new(room(&hint)),
            hint,
            probe: OnceLock::new(),
        };
        if let Some((earlier, sent)) = earlier {
            let waits = matches!(sent, Some(Sent::Waits | Sent::Back));
            if waits {
                known.probe.clone_from(&earlier.probe);
            }
            if waits || earlier.hint.hinted_ms == known.hint.hinted_ms {
                known.left = AtomicI64::new(earlier.left.load(Ordering::Relaxed));
            }
        }
        known
    }

    /// What has become of its probe; one that nobody has looked at yet waits.
    fn became(&self, looked: &HashMap<JobId, Sent>) -> Option<Sent> {
        let job = self.probe.get()?;
        Some(looked.get(job).copied().unwrap_or(Sent::Waits))
    }

    fn take(&self, job: JobId) -> bool {
        if self.hint.stale {
            return true;
        }
        let may = self.hint.direct && self.left.fetch_sub(1, Ordering::Relaxed) > 0;
        if may {
            self.probe.get_or_init(|| job);
        }
        may
    }
}

/// How many jobs a gateway may publish at once: half of the window, which is what a
/// lane with a good hint has free at least. What is beyond waits in the database, where
/// users take turns.
fn room(hint: &LaneHint) -> i64 {
    let half = hint.window_msgs.saturating_mul(hint.bundle_max) / 2;
    (half as i64).clamp(DIRECT_JOBS.0, DIRECT_JOBS.1)
}

fn bundle(hint: &LaneHint) -> usize {
    let window = hint.window_msgs.saturating_mul(hint.bundle_max);
    (window / MESSAGES).clamp(1, hint.bundle_max.max(1))
}

impl LaneHints {
    /// Reads when first asked.
    pub fn new(store: Store) -> Self {
        Self::watched(store, Box::new(|_| {}))
    }

    /// The same, and shows each reading to somebody.
    pub fn watched(store: Store, on_read: OnRead) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                read: RwLock::default(),
                reading: AtomicBool::new(false),
                done: Notify::new(),
                on_read,
            }),
        }
    }

    /// Waits a moment for a reading where the last one says nothing any more.
    pub async fn fresh(&self) {
        let is_stale = || {
            let at = self.inner.read.read().at;
            at.is_none_or(|at| at.elapsed() >= STALE_AFTER)
        };
        if !is_stale() {
            return;
        }
        let done = self.inner.done.notified();
        tokio::pin!(done);
        done.as_mut().enable();
        self.refresh();
        if is_stale() {
            // Without an answer the submit goes on: it is the database that decides.
            let _ = tokio::time::timeout(AWAITED_FOR, done).await;
        }
    }

    /// Whether to publish a job directly: no backlog is known of, and there is room for it
    /// in the broker's window. A lane that is not known, or a reading older than a second,
    /// counts as direct. Each call that says yes takes the room of one job.
    pub fn take_direct(&self, queue: &str, lane: Lane, job: JobId) -> bool {
        self.with(queue, lane, |known| known.take(job))
            .unwrap_or(true)
    }

    /// Whether the queue is known to be paused.
    pub fn paused(&self, queue: &str, lane: Lane) -> bool {
        self.with(queue, lane, |known| known.hint.paused)
            .unwrap_or(false)
    }

    /// The most envelopes of one message: fewer where the window is small, since consumers
    /// fetch a number of messages, however large they are.
    pub fn bundle(&self, queue: &str, lane: Lane) -> usize {
        self.with(queue, lane, |known| bundle(&known.hint))
            .unwrap_or(MAX_BUNDLE)
    }

    fn with<T>(&self, queue: &str, lane: Lane, ask: impl FnOnce(&Known) -> T) -> Option<T> {
        let read = self.inner.read.read();
        let age = read.at.map(|at| at.elapsed());
        if age.is_none_or(|age| age >= REFRESH_AFTER) {
            self.refresh();
        }
        if age.is_none_or(|age| age >= STALE_AFTER) {
            return None;
        }
        read.lanes
            .get(queue)
            .and_then(|lanes| lanes[lane as usize].as_ref())
            .map(ask)
    }

    fn refresh(&self) {
        if self.inner.reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let inner = self.inner.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(STALE_AFTER, inner.look()).await {
                Ok(Ok((hints, sent))) => {
                    (inner.on_read)(&hints);
                    inner.take_in(hints, &sent);
                }
                Ok(Err(error)) => tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "lane hints were not read"
                ),
                Err(_) => {}
            }
            inner.reading.store(false, Ordering::Release);
            inner.done.notify_waiters();
        });
    }
}

/// What has become of the jobs by which the lanes are measured.
type Probed = HashMap<JobId, Sent>;

impl Inner {
    /// Reads the hints, and what has become of the probes.
    async fn look(&self) -> Result<(Vec<LaneHint>, Probed)> {
        let probes: Vec<(JobId, i32)> = {
            let read = self.read.read();
            let known = read.lanes.values().flatten().flatten();
            known
                .filter_map(|known| Some((*known.probe.get()?, FIRST_RUN)))
                .collect()
        };
        let sent = if probes.is_empty() {
            Vec::new()
        } else {
            self.store.look_at_sent(&probes).await?
        };
        let sent = probes.into_iter().map(|(job, _)| job).zip(sent).collect();
        Ok((self.store.lane_hints().await?, sent))
    }

    fn take_in(&self, hints: Vec<LaneHint>, sent: &Probed) {
        let mut lanes: HashMap<String, [Option<Known>; 3]> = HashMap::new();
        let mut read = self.read.write();
        for hint in hints {
            let (slot, queue) = (hint.lane as usize, hint.queue.clone());
            let earlier = read.lanes.get(&queue).and_then(|l| l[slot].as_ref());
            let earlier = earlier.map(|earlier| (earlier, earlier.became(sent)));
            let known = Known::new(hint, earlier);
            lanes.entry(queue).or_default()[slot] = Some(known);
        }
        *read = Reading {
            at: Some(Instant::now()),
            lanes,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(window_msgs: usize, hinted_ms: i64) -> LaneHint {
        LaneHint {
            queue: "q".to_owned(),
            lane: Lane::Normal,
            direct: true,
            bundle_max: 2,
            window_msgs,
            stale: false,
            hinted_ms,
            paused: false,
            backlog: 0,
            backlog_age: Duration::ZERO,
            backlog_stamp: 0,
            max_backlog: None,
        }
    }

    fn taken(known: &Known) -> usize {
        (0..2000).filter(|_| known.take(JobId::new())).count()
    }

    #[test]
    fn a_hint_is_good_for_half_of_the_window_once() {
        let first = Known::new(hint(100, 1), None);
        assert_eq!(taken(&first), 100);
        let same = Known::new(hint(100, 1), Some((&first, Some(Sent::Taken))));
        assert_eq!(taken(&same), 0);
        let newer = Known::new(hint(20, 2), Some((&same, None)));
        assert_eq!(taken(&newer), 20);
        assert_eq!(taken(&Known::new(hint(1, 3), None)), 16);
        assert_eq!(taken(&Known::new(hint(9999, 3), None)), 512);
    }

    #[test]
    fn there_is_no_new_room_until_a_worker_has_what_went_by_the_last() {
        let first = Known::new(hint(100, 1), None);
        let probe = JobId::new();
        assert!(first.take(probe) && first.take(JobId::new()));
        let looked = |sent| HashMap::from([(probe, sent)]);
        assert_eq!(first.became(&looked(Sent::Back)), Some(Sent::Back));
        // It went between the look and this reading.
        assert_eq!(first.became(&HashMap::new()), Some(Sent::Waits));
        let second = Known::new(hint(100, 2), Some((&first, Some(Sent::Waits))));
        assert_eq!(second.probe.get(), Some(&probe));
        assert_eq!(taken(&second), 98);
        let third = Known::new(hint(100, 3), Some((&second, Some(Sent::Back))));
        assert_eq!(taken(&third), 0);
        for sent in [Sent::Taken, Sent::PutOff] {
            let next = Known::new(hint(100, 4), Some((&third, Some(sent))));
            assert_eq!((next.probe.get(), taken(&next)), (None, 100));
        }
    }

    #[test]
    fn bundles_are_small_where_the_window_is() {
        let lane = |window_msgs, bundle_max| LaneHint {
            bundle_max,
            ..hint(window_msgs, 1)
        };
        assert_eq!(bundle(&lane(1024, 32)), 32);
        assert_eq!(bundle(&lane(16, 32)), 16);
        assert_eq!(bundle(&lane(1, 32)), 1);
        assert_eq!(bundle(&lane(1, 1)), 1);
    }

    #[test]
    fn without_a_dispatcher_nothing_is_held_back_and_with_a_backlog_all_is() {
        let stale = LaneHint {
            stale: true,
            ..hint(1, 1)
        };
        assert_eq!(taken(&Known::new(stale, None)), 2000);
        let behind = LaneHint {
            direct: false,
            ..hint(100, 1)
        };
        assert_eq!(taken(&Known::new(behind, None)), 0);
    }
}
