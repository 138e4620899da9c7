//! Why jobs wait and what happened to them, as messages of the API.

use tenure_core::Result;
use tenure_core::domain::job::Job;
use tenure_core::domain::state::JobState;
use tenure_core::domain::timeline::Event;
use tenure_core::domain::wait::{Reason, Wait};
use tenure_core::storage::Store;
use tenure_proto::v1;

use crate::convert;

/// A job with why it waits.
pub(crate) async fn job(store: &Store, job: Job) -> Result<v1::Job> {
    let wait = store.waits(std::slice::from_ref(&job)).await?;
    let wait = wait.into_values().next();
    Ok(with_wait(job, wait))
}

/// Jobs with why they wait, which is read for all of them at once.
pub(crate) async fn jobs(store: &Store, jobs: Vec<Job>) -> Result<Vec<v1::Job>> {
    let mut waits = store.waits(&jobs).await?;
    Ok(jobs
        .into_iter()
        .map(|job| {
            let wait = waits.remove(&job.job_id);
            with_wait(job, wait)
        })
        .collect())
}

/// A job and why it waits.
pub(crate) fn with_wait(job: Job, why: Option<Wait>) -> v1::Job {
    v1::Job {
        wait: why.map(wait),
        ..convert::job(job)
    }
}

/// What happened to a job.
pub(crate) async fn timeline(store: &Store, job: &Job) -> Result<Vec<v1::JobEvent>> {
    let events = store.timeline(job).await?;
    Ok(events.into_iter().map(event).collect())
}

/// How the worker of a job that runs is heard of.
pub(crate) async fn hold(store: &Store, job: &Job) -> Result<Option<v1::Hold>> {
    if job.state != JobState::Running {
        return Ok(None);
    }
    let hold = store.hold_of(job).await?;
    Ok(hold.map(|hold| v1::Hold {
        silent_ms: hold.silent_ms.map(|silent| silent.max(0)),
        lease_end_time: hold.lease_until.map(convert::time),
    }))
}

fn wait(wait: Wait) -> v1::Wait {
    use v1::wait::Reason as Named;
    v1::Wait {
        reason: match wait.reason {
            Reason::QueuePaused => Named::QueuePaused,
            Reason::Scheduled => Named::Scheduled,
            Reason::Backoff => Named::Backoff,
            Reason::Order => Named::Order,
            Reason::Concurrency => Named::Concurrency,
            Reason::NoWorker => Named::NoWorker,
            Reason::Backlog => Named::Backlog,
            Reason::Dispatched => Named::Dispatched,
        }
        .into(),
        message: wait.message,
        until: wait.until.map(convert::time),
        blocking_job_id: wait.blocked_by.map(|id| id.to_string()).unwrap_or_default(),
    }
}

fn event(event: Event) -> v1::JobEvent {
    v1::JobEvent {
        time: Some(convert::time(event.at)),
        run: event.run,
        from_state: event
            .from
            .map_or(v1::JobState::Unspecified, convert::state)
            .into(),
        to_state: convert::state(event.to).into(),
        attempt: event.attempt,
        worker: event.holder.name.unwrap_or_default(),
        session: event
            .holder
            .session
            .map(|session| session.to_string())
            .unwrap_or_default(),
        error: event.error.map(|error| v1::JobError {
            code: error.code,
            error_class: error
                .temporary
                .map_or(v1::ErrorClass::Unspecified, convert::error_class)
                .into(),
            message: error.message,
        }),
        duration_ms: event.held_for.map(convert::millis).unwrap_or_default(),
        message: event.message,
    }
}
