//! What a gateway knows of the lanes: whether to publish at once, and how large the
//! bundles are (PROTOCOL.md §13).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::Store;
use super::dispatch::LaneHint;
use crate::domain::job::Lane;

/// How long a reading is good without another one being asked for.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
/// The least and the most jobs that one hint lets a gateway publish. Above, the dispatcher
/// is as quick, and knows how much the workers take.
const DIRECT_JOBS: (i64, i64) = (16, 512);
/// A reading older than this says nothing.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// How long a submit waits for a reading where there is none, after an idle time.
const AWAITED_FOR: Duration = Duration::from_millis(100);

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
}

impl Known {
    /// A hint as it was read; `earlier`: the one that was known before. The same hint read
    /// once more gives no new room.
    fn new(hint: LaneHint, earlier: Option<&Self>) -> Self {
        let left = match earlier {
            Some(earlier) if earlier.hint.hinted_ms == hint.hinted_ms => {
                earlier.left.load(Ordering::Relaxed)
            }
            _ => room(&hint),
        };
        Self {
            hint,
            left: AtomicI64::new(left),
        }
    }

    fn take(&self) -> bool {
        self.hint.stale || (self.hint.direct && self.left.fetch_sub(1, Ordering::Relaxed) > 0)
    }
}

/// How many jobs a gateway may publish by one hint: half of the window, which is what a
/// lane with a good hint has free at least. What is beyond waits in the database, where
/// users take turns.
fn room(hint: &LaneHint) -> i64 {
    let half = hint.window_msgs.saturating_mul(hint.bundle_max) / 2;
    (half as i64).clamp(DIRECT_JOBS.0, DIRECT_JOBS.1)
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
    pub fn take_direct(&self, queue: &str, lane: Lane) -> bool {
        self.with(queue, lane, Known::take).unwrap_or(true)
    }

    /// Whether the queue is known to be paused.
    pub fn paused(&self, queue: &str, lane: Lane) -> bool {
        self.with(queue, lane, |known| known.hint.paused)
            .unwrap_or(false)
    }

    /// The most envelopes of one message.
    pub fn bundle(&self, queue: &str, lane: Lane) -> usize {
        self.with(queue, lane, |known| known.hint.bundle_max)
            .unwrap_or(crate::domain::job::MAX_BUNDLE)
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
            match tokio::time::timeout(STALE_AFTER, inner.store.lane_hints()).await {
                Ok(Ok(hints)) => {
                    (inner.on_read)(&hints);
                    let mut lanes: HashMap<String, [Option<Known>; 3]> = HashMap::new();
                    let mut read = inner.read.write();
                    for hint in hints {
                        let (slot, queue) = (hint.lane as usize, hint.queue.clone());
                        let earlier = read.lanes.get(&queue).and_then(|l| l[slot].as_ref());
                        let known = Known::new(hint, earlier);
                        lanes.entry(queue).or_default()[slot] = Some(known);
                    }
                    *read = Reading {
                        at: Some(Instant::now()),
                        lanes,
                    };
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
        (0..2000).filter(|_| known.take()).count()
    }

    #[test]
    fn a_hint_is_good_for_half_of_the_window_once() {
        let first = Known::new(hint(100, 1), None);
        assert_eq!(taken(&first), 100);
        let same = Known::new(hint(100, 1), Some(&first));
        assert_eq!(taken(&same), 0);
        let newer = Known::new(hint(20, 2), Some(&same));
        assert_eq!(taken(&newer), 20);
        assert_eq!(taken(&Known::new(hint(1, 3), None)), 16);
        assert_eq!(taken(&Known::new(hint(9999, 3), None)), 512);
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
