//! The submit pipeline (PROTOCOL.md §5 and §6): check, write, then publish.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::Utc;
use tenure_core::broker::envelope::Envelope;
use tenure_core::broker::publisher::{Outgoing, Publisher};
use tenure_core::domain::ids::check_name;
use tenure_core::domain::job::{Lane, NewJob};
use tenure_core::domain::payload_schema::{Misfit, PayloadSchema};
use tenure_core::domain::state::JobState;
use tenure_core::storage::batch_writer::{Committed, OnCommitted, SubmitWriter, Submitted};
use tenure_core::storage::job_types::{Catalogue, KnownType};
use tenure_core::storage::lane_hints::LaneHints;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tokio::sync::Semaphore;
use v1::submit_jobs_response::{Outcome, outcome};

use crate::admission::{Admission, Declined};
use crate::call::Caller;
use crate::check::{self, Asked};
use crate::convert;

/// The most jobs of one call.
pub(crate) const MAX_JOBS: usize = 1000;

/// Checking a large call lets others run after this many jobs.
const CHECKED_AT_ONCE: usize = 64;

/// A payload up to this size is checked against its schema on the spot; a larger one on a
/// thread for such work, where it keeps nobody waiting.
const CHECKED_IN_PLACE: usize = 4 * 1024;

/// How many of those run at once.
pub(crate) const LARGE_CHECKS: usize = 4;

/// Takes jobs in.
pub(crate) struct Pipeline {
    /// The job types.
    pub(crate) catalogue: Catalogue,
    /// Writes.
    pub(crate) writer: SubmitWriter,
    /// Tells the workers.
    pub(crate) publisher: Publisher,
    /// Where the backlog is.
    pub(crate) hints: LaneHints,
    /// What is taken in.
    pub(crate) admission: Admission,
    /// Bounds the checks of large payloads that run at once.
    pub(crate) large_checks: Arc<Semaphore>,
}

impl Pipeline {
    /// Accepts one job.
    ///
    /// # Errors
    /// What is wrong with it, or why it could not be written.
    pub(crate) async fn one(
        &self,
        caller: &Caller,
        spec: v1::JobSpec,
    ) -> Result<v1::SubmitJobResponse> {
        self.hints.fresh().await;
        let job = self.prepare(caller, "job", spec).await?;
        let paused = self.paused(&job.0);
        let mut outcomes = self.write(vec![job]).await;
        outcomes
            .pop()
            .unwrap_or_else(|| Err(no_outcome()))
            .map(|submitted| accepted(submitted, paused))
    }

    /// Accepts several jobs, each with its own outcome.
    ///
    /// # Errors
    /// A call with no job or too many.
    pub(crate) async fn many(
        &self,
        caller: &Caller,
        specs: Vec<v1::JobSpec>,
    ) -> Result<Vec<Outcome>> {
        if specs.is_empty() || specs.len() > MAX_JOBS {
            return Err(Error::invalid(
                "jobs",
                format!("must be 1 to {MAX_JOBS}; there are {}", specs.len()),
            ));
        }
        self.hints.fresh().await;
        let mut results: Vec<Option<Result<v1::SubmitJobResponse>>> =
            Vec::with_capacity(specs.len());
        let mut jobs = Vec::with_capacity(specs.len());
        let mut paused = Vec::with_capacity(specs.len());
        for (index, spec) in specs.into_iter().enumerate() {
            if index % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            match self.prepare(caller, &format!("jobs[{index}]"), spec).await {
                Ok(job) => {
                    paused.push(self.paused(&job.0));
                    jobs.push(job);
                    results.push(None);
                }
                Err(error) => results.push(Some(Err(error))),
            }
        }
        let written = self.write(jobs).await;
        let mut written = written
            .into_iter()
            .zip(paused)
            .map(|(outcome, paused)| outcome.map(|submitted| accepted(submitted, paused)));
        Ok(results
            .into_iter()
            .map(|checked| {
                checked.unwrap_or_else(|| written.next().unwrap_or_else(|| Err(no_outcome())))
            })
            .map(|result| Outcome {
                result: Some(match result {
                    Ok(accepted) => outcome::Result::Accepted(accepted),
                    Err(error) => outcome::Result::Refused(error.to_rpc_status()),
                }),
            })
            .collect())
    }

    /// Writes the jobs that are let in; answers one outcome each, in order.
    async fn write(&self, jobs: Vec<(NewJob, bool)>) -> Vec<Result<Submitted>> {
        let mut decided = Vec::with_capacity(jobs.len());
        let mut admitted = Vec::with_capacity(jobs.len());
        for decision in self.admission.admit(jobs).await {
            decided.push(decision.map(|job| {
                let (place, job) = job.into_parts();
                admitted.push(job);
                place
            }));
        }
        let written = if admitted.is_empty() {
            Vec::new()
        } else {
            self.writer.submit(admitted).await
        };
        let mut written = written.into_iter();
        decided
            .into_iter()
            .map(|decision| {
                let place = match decision {
                    Ok(place) => place,
                    Err(Declined::Repeats(earlier)) => return Ok(earlier),
                    Err(Declined::Refused(error)) => return Err(error),
                };
                let outcome = written.next().unwrap_or_else(|| Err(no_outcome()));
                self.admission.done(&place, &outcome);
                outcome
            })
            .collect()
    }

    /// Checks a job and decides whether it goes to the broker or into the backlog.
    async fn prepare(
        &self,
        caller: &Caller,
        path: &str,
        spec: v1::JobSpec,
    ) -> Result<(NewJob, bool)> {
        let (user, submitted_by) = caller.acting_for(&format!("{path}.user_id"), &spec.user_id)?;
        // Only a name that can be one is looked for.
        let job_type = if check_name(&spec.job_type).is_ok() {
            self.catalogue.get(&spec.job_type).await?
        } else {
            None
        };
        let near = if job_type.is_some() {
            Vec::new()
        } else {
            check::near(&spec.job_type, self.catalogue.all().keys())
        };
        let misfits = match &job_type {
            Some(known) => self.misfits(known, &spec.payload).await?,
            None => Vec::new(),
        };
        let asked = Asked {
            path,
            user,
            submitted_by,
            trace_parent: caller.trace_parent.clone(),
            job_type: job_type.as_deref().map(|known| &**known),
            near,
            misfits,
            now: Utc::now(),
        };
        let job = check::new_job(spec, asked)?;
        let parked = !self.publisher.is_connected()
            || !self.hints.take_direct(&job.queue, job.lane, job.job_id);
        Ok((job, parked))
    }

    fn paused(&self, job: &NewJob) -> bool {
        self.hints.paused(&job.queue, job.lane)
    }
}

impl Pipeline {
    /// Where a payload does not fit the schema of its job type. One that is too large, or
    /// is no JSON, has no place in a schema: the other checks tell of it.
    async fn misfits(&self, known: &Arc<KnownType>, payload: &Bytes) -> Result<Vec<Misfit>> {
        let Some(schema) = known.schema().await? else {
            return Ok(Vec::new());
        };
        if payload.len() > usize::try_from(known.max_payload_bytes).unwrap_or_default() {
            return Ok(Vec::new());
        }
        if payload.len() <= CHECKED_IN_PLACE {
            return Ok(misfits(&schema, payload));
        }
        // The permit goes with the work and not with the caller, so that callers who go
        // away cannot pile it up.
        let broke_off =
            |e| Error::new(Code::Internal, "checking a payload broke off").with_source(e);
        let permit = self.large_checks.clone().acquire_owned().await;
        let payload = payload.clone();
        let checking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            misfits(&schema, &payload)
        });
        checking.await.map_err(broke_off)
    }
}

fn misfits(schema: &PayloadSchema, payload: &[u8]) -> Vec<Misfit> {
    let payload = if payload.is_empty() { b"{}" } else { payload };
    serde_json::from_slice(payload)
        .map(|value| schema.misfits(&value))
        .unwrap_or_default()
}

fn accepted(submitted: Submitted, paused: bool) -> v1::SubmitJobResponse {
    v1::SubmitJobResponse {
        job_id: submitted.job_id.to_string(),
        duplicate: submitted.duplicate,
        state: convert::state(submitted.state).into(),
        // An earlier job runs or has ended, whatever its queue is now.
        queue_paused: paused && matches!(submitted.state, JobState::Pending | JobState::Retrying),
    }
}

fn no_outcome() -> Error {
    Error::new(Code::Internal, "the writer gave no outcome for a job")
}

/// Publishes what was committed together, a queue and lane at a time. `bundle_max`: the
/// most envelopes of one message, whatever the lane allows.
pub(crate) fn publish_committed(
    publisher: Publisher,
    hints: LaneHints,
    bundle_max: usize,
) -> OnCommitted {
    Arc::new(move |committed| {
        for ((queue, lane), jobs) in by_lane(committed) {
            let bundle = hints.bundle(&queue, lane).min(bundle_max);
            publisher.publish(Outgoing {
                queue,
                lane,
                bundle,
                jobs,
            });
        }
    })
}

fn by_lane(committed: Vec<Committed>) -> HashMap<(String, Lane), Vec<Envelope>> {
    let mut lanes: HashMap<(String, Lane), Vec<Envelope>> = HashMap::new();
    for Committed { job, created_at } in committed {
        let envelope = Envelope::from_new(&job, created_at);
        lanes
            .entry((job.queue, job.lane))
            .or_default()
            .push(envelope);
    }
    lanes
}
