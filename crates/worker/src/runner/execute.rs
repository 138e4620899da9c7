//! Running one handler: its time limit, its panic, its stop, and what its end means.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::job_type::MAX_PAYLOAD_BYTES;
use tenure_core::domain::state::{Event, Facts, JobState, transition};
use tenure_core::error::{Class, Code, clean_text};
use tenure_core::storage::finish::{Finish, Goal, NewFollowUp, RunError};
use tokio::time::Instant;

use super::Shared;
use super::finisher::Finisher;
use super::running::{Running, StopReason};
use crate::handler::{JobContext, JobError, Outcome, Success};

/// The largest result that is kept.
const MAX_RESULT_BYTES: usize = 64 * 1024;
/// The longest snooze.
const MAX_SNOOZE: Duration = Duration::from_hours(24);

/// What a run came to.
enum Ended {
    Handler(Result<Outcome, JobError>),
    Panicked(String),
    TimedOut,
    Stopped(StopReason),
}

/// Starts the handler of a claimed run on the handlers' runtime.
pub(super) fn spawn(shared: Arc<Shared>, finisher: Finisher, running: Arc<Running>) {
    let slot = shared.runs.slot();
    let handlers = shared.handlers.clone();
    handlers.spawn(async move {
        let context = JobContext::new(
            running.clone(),
            shared.session,
            shared.history.clone(),
            shared.handlers.clone(),
            slot,
        );
        let started = Instant::now();
        let delay = running.claimed.locked_at - running.claimed.ready_at;
        shared
            .metrics
            .job_start_delay
            .observe(delay.num_milliseconds().max(0) as f64 / 1000.0);
        let ended = run(&shared, &running, context).await;
        if matches!(ended, Ended::Stopped(StopReason::HandBack)) {
            // A thread may still work on it. Handed back now, the job could start elsewhere
            // beside it; a thread that does not listen leaves the job to its lease.
            running.idle.cancelled().await;
        }
        running.set_ended();
        shared.metrics.job_duration.observe(
            shared.metrics.job_type(&running.claimed.job_type),
            started.elapsed().as_secs_f64(),
        );
        if let Some(goal) = goal(&shared, &running, ended) {
            finisher.finish(Finish {
                job_id: running.claimed.job_id,
                run: running.claimed.run,
                progress: running.last_progress(matches!(goal, Goal::Success { .. })),
                goal,
            });
        } else {
            // The lease is lost, or may be: the sweeper takes the job back.
            shared.metrics.lease_lost.inc();
            tracing::warn!(
                job = %running.claimed.job_id,
                run = running.claimed.run,
                "stopped: the lease could not be kept"
            );
            shared
                .runs
                .remove(running.claimed.job_id, running.claimed.run);
        }
    });
}

async fn run(shared: &Shared, running: &Running, context: JobContext) -> Ended {
    let Some(handler) = shared.registry.get(&running.claimed.job_type) else {
        let error = JobError::temporary(
            Code::UnhandledJobType.as_str(),
            "this worker has no handler for the job type",
        );
        return Ended::Handler(Err(error.by_tenure()));
    };
    let deadline = context.deadline();
    let payload = Bytes::copy_from_slice(&running.claimed.payload);
    let mut work = AssertUnwindSafe(handler.run(context, payload)).catch_unwind();
    let ended = tokio::select! {
        biased;
        () = running.halt.cancelled() => Ended::Stopped(running.stop_reason().unwrap_or(StopReason::LeaseLost)),
        result = &mut work => match result {
            Ok(result) => Ended::Handler(result),
            Err(panic) => Ended::Panicked(panic_text(panic.as_ref())),
        },
        () = tokio::time::sleep_until(deadline) => Ended::TimedOut,
        () = grace_over(running, shared.config.worker.cancel_grace) => {
            shared.metrics.cancels.inc("dropped");
            Ended::Stopped(StopReason::CancelRequested)
        }
    };
    // What the handler holds is dropped here, where a panic of it ends nothing else: the
    // run would stay renewed for ever without an end.
    if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(work))) {
        tracing::error!(
            job = %running.claimed.job_id,
            panic = panic_text(panic.as_ref()),
            "the handler panicked while it was dropped"
        );
    }
    ended
}

/// Returns when a handler that was told to stop has had its time to do so.
async fn grace_over(running: &Running, grace: Duration) {
    running.stop.cancelled().await;
    tokio::time::sleep(grace).await;
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "the handler panicked: {}",
        text.as_deref().unwrap_or("without a message")
    )
}

/// What the end of a run makes of the job; `None`: nothing may be written.
fn goal(shared: &Shared, running: &Running, ended: Ended) -> Option<Goal> {
    let goal = match ended {
        Ended::Stopped(StopReason::LeaseLost) => return None,
        Ended::Stopped(StopReason::CancelRequested) => Goal::Cancelled,
        Ended::Stopped(StopReason::HandBack) => Goal::Pending(Duration::ZERO),
        Ended::Handler(Ok(Outcome::Done(success))) => match check(success) {
            Ok(goal) => goal,
            Err(error) => after_error(shared, running, error),
        },
        Ended::Handler(Ok(Outcome::Snooze(delay))) => after_snooze(shared, running, delay),
        Ended::Handler(Err(error)) => after_error(shared, running, told_apart(error)),
        Ended::Panicked(text) => after_error(
            shared,
            running,
            JobError::temporary(Code::Panic.as_str(), text),
        ),
        Ended::TimedOut => {
            let limit = running.claimed.timeout.as_millis();
            let text = format!("the run took longer than its limit of {limit} ms");
            after_error(
                shared,
                running,
                JobError::temporary(Code::ExecutionTimeout.as_str(), text),
            )
        }
    };
    // A lease that was lost while the handler returned goes before everything.
    (running.stop_reason() != Some(StopReason::LeaseLost)).then_some(goal)
}

fn check(success: Success) -> Result<Goal, JobError> {
    if success.result.len() > MAX_RESULT_BYTES {
        return Err(JobError::permanent(
            Code::PayloadTooLarge.as_str(),
            format!(
                "the handler's result is {} bytes long; at most {MAX_RESULT_BYTES} are kept",
                success.result.len()
            ),
        ));
    }
    if !success.result.is_empty()
        && serde_json::from_slice::<serde::de::IgnoredAny>(&success.result).is_err()
    {
        return Err(JobError::permanent(
            Code::PayloadInvalid.as_str(),
            "the handler's result is not JSON",
        ));
    }
    let mut follow_ups = Vec::with_capacity(success.follow_ups.len());
    for job in success.follow_ups {
        if job.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(JobError::permanent(
                Code::PayloadTooLarge.as_str(),
                "a follow-up's payload is too large",
            ));
        }
        tenure_core::domain::payload::check_object(&job.payload).map_err(|why| {
            JobError::permanent(
                Code::PayloadInvalid.as_str(),
                format!("a follow-up's payload {why}"),
            )
        })?;
        follow_ups.push(NewFollowUp {
            job_id: JobId::new(),
            job_type: job.job_type,
            payload: job.payload,
        });
    }
    Ok(Goal::Success {
        result: (!success.result.is_empty()).then_some(success.result),
        follow_ups,
    })
}

fn after_snooze(shared: &Shared, running: &Running, delay: Duration) -> Goal {
    let limit = shared.config.retry.max_snoozes;
    if running.stop_reason() == Some(StopReason::CancelRequested) {
        Goal::Cancelled
    } else if i64::from(running.claimed.snoozes) < i64::from(limit) {
        Goal::Pending(delay.clamp(Duration::from_millis(1), MAX_SNOOZE))
    } else {
        let text = format!("the handler put the job off more than {limit} times");
        let error = JobError::permanent(Code::SnoozeLimit.as_str(), text);
        after_error(shared, running, error)
    }
}

/// The code is what machines go by: one that breaks its form is replaced by one that says so.
fn with_legal_code(error: JobError) -> JobError {
    let legal = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    if (1..=64).contains(&error.code.len()) && error.code.bytes().all(legal) {
        return error;
    }
    JobError {
        code: Code::ErrorCodeInvalid.as_str().to_owned(),
        message: format!(
            "the handler gave the code {:?}, which is not 1 to 64 of A-Z, 0-9 and _: {}",
            clean_text(&error.code, 64),
            error.message
        ),
        ..error
    }
}

/// A handler's error is not taken for what Tenure has decided: POISON is what killed its
/// workers, and CANCELLED what somebody has cancelled.
fn told_apart(error: JobError) -> JobError {
    if error.by_tenure || !Code::parse(&error.code).is_some_and(Code::is_verdict) {
        return error;
    }
    JobError {
        code: Code::HandlerError.as_str().to_owned(),
        message: format!(
            "the handler gave the code {}, which only Tenure itself gives: {}",
            error.code, error.message
        ),
        ..error
    }
}

/// Whether a run that ended so gives its attempt back.
fn is_forgiven(shared: &Shared, running: &Running, error: &JobError) -> bool {
    let claimed = &running.claimed;
    let lasted = claimed
        .outage_since
        .and_then(|since| (claimed.locked_at - since).to_std().ok())
        .unwrap_or_default();
    error.class == Class::Temporary
        && Code::parse(&error.code).is_some_and(Code::is_own_outage)
        && lasted < shared.config.retry.outage_patience
}

fn after_error(shared: &Shared, running: &Running, error: JobError) -> Goal {
    let error = with_legal_code(error);
    let facts = Facts {
        attempt: running.claimed.attempt,
        // Whether this was the last attempt is decided when the finish is written: an
        // operator may have changed the most attempts since the claim.
        max_attempts: i32::MAX,
        lost: running.claimed.lost,
        poison_limit: i16::MAX,
        cancel_requested: running.stop_reason() == Some(StopReason::CancelRequested),
    };
    let event = match error.class {
        Class::Temporary if is_forgiven(shared, running, &error) => Event::Outage,
        Class::Temporary => Event::FailTemporarily,
        Class::Permanent => Event::FailPermanently,
    };
    let run_error = RunError {
        code: error.code,
        class: error.class,
        message: error.message,
    };
    match transition(JobState::Running, event, &facts).map(|t| t.to) {
        Some(JobState::Retrying) => {
            let schedule = shared.schedule(&running.claimed.job_type);
            let delay = shared.retry.delay(
                &schedule,
                running.claimed.attempt,
                error.retry_after,
                rand::random(),
            );
            if event == Event::Outage {
                Goal::Outage(run_error, delay)
            } else {
                Goal::Retrying(run_error, delay)
            }
        }
        Some(JobState::Cancelled) => Goal::Cancelled,
        _ => Goal::Failed(run_error),
    }
}
