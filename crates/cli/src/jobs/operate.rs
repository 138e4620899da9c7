//! `retry-now`, `reschedule` and `set-attempts`: what operators do to one job.

use anyhow::Context as _;
use chrono::Utc;
use tenure_proto::v1;

use super::{READ_REPEATS, wait_text};
use crate::args::{RescheduleArgs, RetryNowArgs, SetAttemptsArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::output::{Output, pairs};
use crate::values::When;
use crate::view;

const NO_JOB: &str = "the gateway answered without a job";

/// `tenure retry-now`.
pub(crate) async fn retry_now(
    client: &Client,
    args: RetryNowArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::RetryJobNowRequest {
        job_id: args.job_id,
        reason: args.reason,
    };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.retry_job_now(request).await }
    };
    // The job may have started since, and a second call would be refused.
    let answer = client.unary(0, request, call).await?;
    tell("the job is due now", answer.job, out)
}

/// `tenure reschedule`.
pub(crate) async fn reschedule(
    client: &Client,
    args: RescheduleArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let when = args.at.or(args.wait.map(When::In));
    let when = when.ok_or_else(|| Failure::usage("give --at or --in"))?;
    let request = v1::RescheduleJobRequest {
        job_id: args.job_id,
        run_at: Some(when.from(Utc::now())?),
        reason: args.reason,
    };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.reschedule_job(request).await }
    };
    // As above, where the time is near.
    let answer = client.unary(0, request, call).await?;
    tell(
        "the job starts at its new time or later; where that has passed, as soon as it can",
        answer.job,
        out,
    )
}

/// `tenure set-attempts`.
pub(crate) async fn set_attempts(
    client: &Client,
    args: SetAttemptsArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::SetJobMaxAttemptsRequest {
        job_id: args.job_id,
        max_attempts: args.max_attempts,
        reason: args.reason,
    };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.set_job_max_attempts(request).await }
    };
    // Setting the same number again changes nothing.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    tell("the job may start so often now", answer.job, out)
}

fn tell(what: &str, job: Option<v1::Job>, out: &mut Output) -> Result<Exit, Failure> {
    let job = view::Job::from(job.context(NO_JOB)?);
    out.emit(&job, |job| format!("{what}\n{}", text(job)))?;
    Ok(Exit::Ok)
}

/// What these verbs change.
fn text(job: &view::Job) -> String {
    pairs([
        ("job", job.job_id.clone()),
        ("state", job.state.clone()),
        (
            "waits",
            job.wait.as_ref().map_or_else(String::new, wait_text),
        ),
        ("run at", job.run_at.clone().unwrap_or_default()),
        (
            "attempt",
            format!("{} of {}", job.attempt, job.max_attempts),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn parse(line: &[&str]) -> Option<RescheduleArgs> {
        let line = ["tenure", "reschedule"].iter().chain(line);
        match Cli::try_parse_from(line).ok()?.verb {
            Verb::Reschedule(args) => Some(args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_of_two_ways_to_say_when() {
        let at = parse(&["j", "--at", "2030-01-31T08:00:00Z"]).expect("parses");
        assert!(matches!(at.at, Some(When::At(_))));
        let wait = parse(&["j", "--in", "10m"]).expect("parses");
        assert_eq!(wait.wait, Some(std::time::Duration::from_mins(10)));
        assert!(parse(&["j"]).is_none());
        assert!(parse(&["j", "--at", "+1m", "--in", "1m"]).is_none());
    }

    #[test]
    fn the_job_is_told_as_it_is_now() {
        let job = view::Job::from(v1::Job {
            job_id: "j".to_owned(),
            state: v1::JobState::Pending.into(),
            attempt: 2,
            max_attempts: 9,
            ..v1::Job::default()
        });
        assert_eq!(
            text(&job),
            "job      j\nstate    pending\nattempt  2 of 9\n"
        );
    }
}
