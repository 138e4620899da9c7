//! Following jobs: one look at the database for all that this process watches.
//!
//! Each watched job has a slot with its latest state. A watcher takes from it when it
//! can, so a slow one gets fewer, later states and holds nobody back. Looks follow each
//! other at 100 ms while something changes and slow down to 500 ms while nothing does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Job;
use tenure_core::domain::wait::Wait;
use tenure_core::storage::Store;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::explain;

/// The pause between looks while something changes.
const BUSY: Duration = Duration::from_millis(100);
/// The longest pause while nothing changes.
const IDLE: Duration = Duration::from_millis(500);
/// The longest that one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// Without an answer of the database for this long the watchers are sent away.
const BLIND: Duration = Duration::from_secs(15);
/// The most jobs that one look asks for; more take turns.
const LOOK_MAX: usize = 2000;
/// The most watchers of this process.
const MAX_WATCHERS: usize = 10_000;
/// The most watchers of one caller.
const MAX_WATCHERS_OF_ONE: usize = 1000;

/// Follows jobs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Hub {
    shared: Arc<Shared>,
}

struct Shared {
    watched: Mutex<Watched>,
    added: Notify,
    stop: CancellationToken,
}

#[derive(Default)]
struct Watched {
    slots: HashMap<JobId, Slot>,
    callers: HashMap<String, usize>,
    watchers: usize,
}

struct Slot {
    latest: watch::Sender<News>,
    watchers: usize,
}

/// What a slot holds.
#[derive(Clone)]
enum News {
    Job(Arc<Told>),
    /// The database has not answered for too long.
    Blind,
}

/// A job as it is told: with why it waited when it was read.
#[derive(Debug)]
pub(crate) struct Told {
    job: Job,
    wait: Option<Wait>,
}

impl Told {
    /// A job with why it waits now.
    pub(crate) async fn of(store: &Store, job: Job) -> Result<Self> {
        let mut told = Self::all(store, vec![job]).await?;
        told.pop()
            .ok_or_else(|| Error::new(Code::Internal, "a job is not told"))
    }

    async fn all(store: &Store, jobs: Vec<Job>) -> Result<Vec<Self>> {
        let mut waits = store.waits(&jobs).await?;
        Ok(jobs
            .into_iter()
            .map(|job| Self {
                wait: waits.remove(&job.job_id),
                job,
            })
            .collect())
    }
}

impl Hub {
    /// Starts to look, until `stop`; then the watchers are sent away as well.
    pub(crate) fn start(store: Store, stop: CancellationToken) -> Self {
        let hub = Self {
            shared: Arc::new(Shared {
                watched: Mutex::default(),
                added: Notify::new(),
                stop: stop.clone(),
            }),
        };
        let shared = hub.shared.clone();
        tokio::spawn(async move { stop.run_until_cancelled(shared.look_for_ever(store)).await });
        hub
    }

    /// The changes of a job after a revision, until it has ended. `first` is as it was read
    /// just now; with revision 0 it comes first. With a store, each change has the timeline.
    ///
    /// # Errors
    /// `OVERLOADED` where there are too many watchers.
    pub(crate) fn watch(
        &self,
        caller: &str,
        first: Told,
        after: i64,
        timelines: Option<Store>,
    ) -> Result<impl Stream<Item = Result<v1::WatchJobResponse, Status>> + Send + use<>> {
        let first = Arc::new(first);
        let (latest, seat) = self.shared.take_seat(caller, &first)?;
        // Another watcher of this job may know more already.
        let first = match &*latest.borrow() {
            News::Job(known) if known.job.revision > first.job.revision => known.clone(),
            _ => first,
        };
        let state = Watcher {
            latest,
            next: Some(News::Job(first)),
            told: after,
            seat,
            timelines,
        };
        Ok(futures::stream::unfold(Some(state), |state| async move {
            let mut watcher = state?;
            match watcher.answer().await {
                Ok(Some((answer, is_final))) => {
                    // A final state is the last one.
                    Some((Ok(answer), (!is_final).then_some(watcher)))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error.into()), None)),
            }
        }))
    }
}

/// One watcher of one job.
struct Watcher {
    latest: watch::Receiver<News>,
    /// What is looked at first.
    next: Option<News>,
    /// The revision that was told last.
    told: i64,
    seat: Seat,
    /// Where timelines are read, for a watcher that wants them.
    timelines: Option<Store>,
}

impl Watcher {
    /// The next change as it is told, and whether it is the end.
    async fn answer(&mut self) -> Result<Option<(v1::WatchJobResponse, bool)>> {
        let Some(told) = self.change().await? else {
            return Ok(None);
        };
        let timeline = match &self.timelines {
            Some(store) => bounded(explain::timeline(store, &told.job)).await?,
            None => Vec::new(),
        };
        let answer = v1::WatchJobResponse {
            job: Some(explain::with_wait(told.job.clone(), told.wait.clone())),
            timeline,
        };
        Ok(Some((answer, told.job.state.is_final())))
    }

    /// The next state that this watcher has not seen; `None`: it has seen the end.
    async fn change(&mut self) -> Result<Option<Arc<Told>>> {
        loop {
            let news = match self.next.take() {
                Some(news) => news,
                None => self.news().await?,
            };
            let News::Job(told) = news else {
                return Err(Error::new(
                    Code::DatabaseUnavailable,
                    "the database does not answer; watch again from the last revision",
                ));
            };
            let (revision, is_final) = (told.job.revision, told.job.state.is_final());
            // A revision that nobody has told yet can only be a mistake: what is final is
            // told all the same, or the watcher would wait for ever.
            if revision > self.told || (is_final && revision != self.told) {
                self.told = revision;
                return Ok(Some(told));
            }
            if is_final {
                return Ok(None);
            }
        }
    }

    async fn news(&mut self) -> Result<News> {
        let stop = self.seat.shared.stop.clone();
        tokio::select! {
            changed = self.latest.changed() => {
                changed.map_err(|_| Error::new(Code::Internal, "a watched job lost its slot"))?;
                Ok(self.latest.borrow_and_update().clone())
            }
            () = stop.cancelled() => Err(Error::new(
                Code::ShuttingDown,
                "this gateway is stopping; watch again from the last revision",
            )),
        }
    }
}

/// A watcher's place; given back when it is dropped.
struct Seat {
    shared: Arc<Shared>,
    caller: String,
    job_id: JobId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut watched = self.shared.watched.lock();
        watched.watchers -= 1;
        if let Some(count) = watched.callers.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                watched.callers.remove(&self.caller);
            }
        }
        if let Some(slot) = watched.slots.get_mut(&self.job_id) {
            slot.watchers -= 1;
            if slot.watchers == 0 {
                watched.slots.remove(&self.job_id);
            }
        }
    }
}

impl Shared {
    fn take_seat(
        self: &Arc<Self>,
        caller: &str,
        first: &Arc<Told>,
    ) -> Result<(watch::Receiver<News>, Seat)> {
        let mut watched = self.watched.lock();
        let own = watched.callers.get(caller).copied().unwrap_or_default();
        let limit = if own >= MAX_WATCHERS_OF_ONE {
            Some((MAX_WATCHERS_OF_ONE, "you watch"))
        } else if watched.watchers >= MAX_WATCHERS {
            Some((MAX_WATCHERS, "this gateway watches"))
        } else {
            None
        };
        if let Some((limit, who)) = limit {
            return Err(Error::new(
                Code::Overloaded,
                format!("{who} {limit} jobs already, which is the limit"),
            ));
        }
        watched.watchers += 1;
        *watched.callers.entry(caller.to_owned()).or_default() += 1;
        let job_id = first.job.job_id;
        let slot = watched.slots.entry(job_id).or_insert_with(|| Slot {
            latest: watch::Sender::new(News::Job(first.clone())),
            watchers: 0,
        });
        slot.watchers += 1;
        let latest = slot.latest.subscribe();
        drop(watched);
        self.added.notify_one();
        Ok((
            latest,
            Seat {
                shared: self.clone(),
                caller: caller.to_owned(),
                job_id,
            },
        ))
    }

    async fn look_for_ever(&self, store: Store) {
        let mut pause = BUSY;
        let mut answered = Instant::now();
        loop {
            let known = self.known();
            if known.is_empty() {
                self.added.notified().await;
                answered = Instant::now();
                pause = BUSY;
                continue;
            }
            let started = Instant::now();
            match look(&store, &known).await {
                Ok(changed) => {
                    answered = Instant::now();
                    pause = if changed.is_empty() {
                        (pause * 3 / 2).min(IDLE)
                    } else {
                        BUSY
                    };
                    self.tell(changed);
                }
                Err(error) => {
                    pause = IDLE;
                    if answered.elapsed() > BLIND {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "watchers are sent away"
                        );
                        self.tell_blind();
                        answered = Instant::now();
                    }
                }
            }
            // Looking takes a fifth of the time at most, however many are watched.
            let pause_now = pause.max(started.elapsed() * 4);
            tokio::select! {
                () = tokio::time::sleep(pause_now) => {}
                // A new watcher most likely waits for a job that is about to change.
                () = self.added.notified() => {
                    tokio::time::sleep(BUSY.max(started.elapsed() * 4)).await;
                    pause = BUSY;
                }
            }
        }
    }

    /// What is watched, with the revision that its slot has.
    fn known(&self) -> Vec<(JobId, i64)> {
        let watched = self.watched.lock();
        let revision = |news: &News| match news {
            News::Job(told) => told.job.revision,
            News::Blind => 0,
        };
        watched
            .slots
            .iter()
            .map(|(id, slot)| (*id, revision(&slot.latest.borrow())))
            .collect()
    }

    fn tell(&self, changed: Vec<Told>) {
        let watched = self.watched.lock();
        for told in changed {
            if let Some(slot) = watched.slots.get(&told.job.job_id) {
                slot.latest.send_replace(News::Job(Arc::new(told)));
            }
        }
    }

    fn tell_blind(&self) {
        for slot in self.watched.lock().slots.values() {
            slot.latest.send_replace(News::Blind);
        }
    }
}

async fn look(store: &Store, known: &[(JobId, i64)]) -> Result<Vec<Told>> {
    let mut changed = Vec::new();
    for part in known.chunks(LOOK_MAX) {
        let found = bounded(async {
            let jobs = store.changed_jobs(part).await?;
            Told::all(store, jobs).await
        });
        changed.extend(found.await?);
    }
    Ok(changed)
}

/// A look that is given up when it takes too long.
async fn bounded<T>(look: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LOOK_TIMEOUT, look)
        .await
        .map_err(|_| Error::new(Code::DatabaseUnavailable, "the database does not answer"))?
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
