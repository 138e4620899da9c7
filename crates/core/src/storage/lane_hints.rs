//! What a gateway knows of the lanes: whether to publish at once, and how large the
//! bundles are (PROTOCOL.md §13).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::Store;
use super::dispatch::LaneHint;
use crate::domain::job::Lane;

/// How long a reading is good without another one being asked for.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
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
    lanes: HashMap<String, [Option<LaneHint>; 3]>,
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

    /// Whether to publish directly: no backlog is known of. A lane that is not known, or
    /// a reading older than a second, counts as direct.
    pub fn direct(&self, queue: &str, lane: Lane) -> bool {
        self.hint(queue, lane).is_none_or(|hint| hint.direct)
    }

    /// The most envelopes of one message.
    pub fn bundle(&self, queue: &str, lane: Lane) -> usize {
        self.hint(queue, lane)
            .map_or(crate::domain::job::MAX_BUNDLE, |hint| hint.bundle_max)
    }

    fn hint(&self, queue: &str, lane: Lane) -> Option<LaneHint> {
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
            .and_then(|lanes| lanes[lane as usize].clone())
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
                    let mut lanes: HashMap<String, [Option<LaneHint>; 3]> = HashMap::new();
                    for hint in hints {
                        let (slot, queue) = (hint.lane as usize, hint.queue.clone());
                        lanes.entry(queue).or_default()[slot] = Some(hint);
                    }
                    *inner.read.write() = Reading {
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
