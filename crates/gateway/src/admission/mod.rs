//! What is taken in: rates, backlogs, and the limits of single users. How many jobs a user
//! may have is decided where they are written, by the database.

mod backlog;
mod limits;
mod local;
mod rates;
mod repeats;

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::cache::rates::SharedRates;
use tenure_core::config::Config;
use tenure_core::domain::job::{Lane, NewJob};
use tenure_core::storage::Store;
use tenure_core::storage::admission::JobLimit;
use tenure_core::storage::batch_writer::Submitted;
use tenure_core::storage::dispatch::LaneHint;
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::{Code, Error, Result};
use tokio_util::sync::CancellationToken;

use self::backlog::Backlog;
pub(crate) use self::limits::Limits;
use self::rates::Rates;
use self::repeats::Repeats;

/// Decides on submits. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admission {
    /// What single users may do.
    pub(crate) limits: Arc<Limits>,
    rates: Arc<Rates>,
    backlog: Arc<Backlog>,
    repeats: Arc<Repeats>,
    metrics: Arc<Metrics>,
}

/// Why a job is not let in.
pub(crate) enum Declined {
    /// It is refused.
    Refused(Error),
    /// It repeats one that was accepted before.
    Repeats(Submitted),
}

/// A job that was let in.
pub(crate) struct Admitted {
    job: NewJob,
    parked: bool,
}

impl Admission {
    /// Starts what looks for changes until `stop`.
    ///
    /// # Errors
    /// CONFIG_INVALID where the address of Redis cannot be used.
    pub(crate) fn start(
        config: &Config,
        store: &Store,
        job_limit: Arc<JobLimit>,
        metrics: Arc<Metrics>,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let limits = Limits::start(store.clone(), &config.admission, job_limit, stop.clone());
        let shared = SharedRates::open(&config.cache)?;
        Ok(Self {
            rates: Rates::start(limits.clone(), shared, metrics.clone(), stop.clone()),
            backlog: Arc::new(Backlog::new(&config.admission)),
            repeats: Repeats::new(store.clone()),
            limits,
            metrics,
        })
    }

    /// Takes in what was read of the lanes.
    pub(crate) fn lanes_read(&self, hints: &[LaneHint]) {
        self.backlog.read(hints);
    }

    /// Decides on the jobs of one call, each with whether it is going to be parked.
    pub(crate) async fn admit(&self, jobs: Vec<(NewJob, bool)>) -> Vec<Result<Admitted, Declined>> {
        // Those that are refused, with their places, as far as they can repeat others.
        let mut refused: Vec<(usize, NewJob)> = Vec::new();
        let mut decided: Vec<Result<Admitted, Declined>> = Vec::with_capacity(jobs.len());
        for (place, (job, parked)) in jobs.into_iter().enumerate() {
            decided.push(match self.backlog.enter(&job.queue, job.lane, parked) {
                Ok(()) => Ok(Admitted { job, parked }),
                Err(error) => {
                    refused.push((place, job));
                    Err(Declined::Refused(error))
                }
            });
        }
        self.take_rates(&mut decided, &mut refused).await;
        refused.retain(|(_, job)| Repeats::may_repeat(job));
        if !refused.is_empty() {
            let (places, jobs): (Vec<usize>, Vec<NewJob>) = refused.into_iter().unzip();
            let answers = self.repeats.find(jobs).await;
            for (place, answer) in places.into_iter().zip(answers) {
                if let Some(answer) = answer {
                    decided[place] = Err(answer.map_or_else(Declined::Refused, Declined::Repeats));
                }
            }
        }
        for result in &decided {
            if let Err(Declined::Refused(error)) = result {
                self.count(error);
            }
        }
        decided
    }

    /// Refuses what is beyond the rates of its users.
    async fn take_rates(
        &self,
        decided: &mut [Result<Admitted, Declined>],
        refused: &mut Vec<(usize, NewJob)>,
    ) {
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        if self.rates.any() {
            for admitted in decided.iter().flatten() {
                let user = admitted.job.user_id.as_str();
                match wanted.get_mut(user) {
                    Some(count) => *count += 1,
                    None => {
                        wanted.insert(user.to_owned(), 1);
                    }
                }
            }
        }
        for (user, count) in wanted {
            let mut taken = self.rates.take(&user, count).await;
            if taken.granted >= count {
                continue;
            }
            for (place, slot) in decided.iter_mut().enumerate() {
                if !matches!(slot, Ok(it) if it.job.user_id.as_str() == user) {
                    continue;
                }
                if taken.granted > 0 {
                    taken.granted -= 1;
                    continue;
                }
                let refusal = Declined::Refused(taken.refusal(&user));
                if let Ok(Admitted { job, parked }) = std::mem::replace(slot, Err(refusal)) {
                    self.backlog.leave(&job.queue, job.lane, parked);
                    refused.push((place, job));
                }
            }
        }
    }

    /// Notes what has become of a job that was let in.
    pub(crate) fn done(&self, place: &Place, outcome: &Result<Submitted>) {
        let is_new = matches!(outcome, Ok(submitted) if !submitted.duplicate);
        if !is_new {
            self.backlog.leave(&place.queue, place.lane, place.parked);
        }
        if let Err(error) = outcome {
            self.count(error);
        }
    }

    fn count(&self, error: &Error) {
        let reason = match error.code() {
            Code::TooManyPendingJobs => "too_many_pending_jobs",
            Code::RateLimited => "rate_limited",
            Code::QueueFull => "queue_full",
            _ => return,
        };
        self.metrics.admission_refusals.inc(reason);
    }
}

/// Where a job goes.
pub(crate) struct Place {
    queue: String,
    lane: Lane,
    parked: bool,
}

impl Admitted {
    /// The job, with what is to be told when it was written.
    pub(crate) fn into_parts(self) -> (Place, (NewJob, bool)) {
        let place = Place {
            queue: self.job.queue.clone(),
            lane: self.job.lane,
            parked: self.parked,
        };
        (place, (self.job, self.parked))
    }
}
