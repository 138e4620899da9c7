//! `submit`, `get` and `list`.

mod cancel;
mod explain;
mod operate;
mod text;

use std::fmt::Write as _;

use anyhow::Context as _;
use chrono::Utc;
use tenure_proto::v1;
use uuid::Uuid;

pub(crate) use self::cancel::{cancel, cancel_many};
pub(crate) use self::explain::{explain, next_text, timeline_table};
pub(crate) use self::operate::{reschedule, retry_now, set_attempts};
pub(crate) use self::text::{error_label, error_text, job_text, wait_text};
use crate::args::{GetArgs, ListArgs, SubmitArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::output::{Output, escape, pairs, say, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::shell::{Line, quoted};
use crate::values::{self, millis, read_payload};
use crate::{view, watch};

/// How often a submit is sent again; its request id makes that safe.
const SUBMIT_REPEATS: u32 = 3;
/// What is said of a duplicate.
const EARLIER: &str = "an earlier submit made this job";
const NO_JOB: &str = "the gateway answered without a job";
/// How often a reading call is sent again.
pub(crate) const READ_REPEATS: u32 = 1;

/// `tenure submit`.
pub(crate) async fn submit(
    client: &Client,
    args: SubmitArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let (wait, wait_timeout) = (args.wait, args.wait_timeout);
    let accepted = send(client, spec(args)?).await?;
    let job = if wait {
        if accepted.queue_paused {
            say("its queue is paused, and it waits until somebody resumes it");
        }
        Some(watch::follow(client, &accepted.job_id, wait_timeout).await?)
    } else {
        None
    };
    let exit = job.as_ref().map_or(Exit::Ok, |job| job.state().into());
    let state = job.as_ref().map_or(accepted.state, |job| job.state);
    let submitted = view::Submitted {
        job_id: accepted.job_id,
        duplicate: accepted.duplicate,
        state: view::state(state),
        queue_paused: accepted.queue_paused,
        job: job.map(view::Job::from),
    };
    out.emit(&submitted, |it| match &it.job {
        // The job says all of it, and where it stands now.
        Some(job) if it.duplicate => format!("{EARLIER}\n{}", job_text(job)),
        Some(job) => job_text(job),
        None => submitted_text(it),
    })?;
    Ok(exit)
}

/// A job that was submitted and is not waited for, and how to go on.
fn submitted_text(it: &view::Submitted) -> String {
    let line = |verb: &str| Line::new([verb]).name(&it.job_id).text();
    let mut text = accepted_text(&it.job_id, it.duplicate, &it.state);
    if it.queue_paused {
        let _ = writeln!(
            text,
            "its queue is paused, and it waits; `{}` says why",
            escape(&line("explain"))
        );
    } else {
        let verb = if matches!(it.state.as_str(), "success" | "failed" | "cancelled") {
            ("get", "shows it")
        } else {
            ("watch", "follows it until it ends")
        };
        let _ = writeln!(text, "next: `{}` {}", escape(&line(verb.0)), verb.1);
    }
    text
}

/// The first lines after a submit.
pub(crate) fn accepted_text(job_id: &str, duplicate: bool, state: &str) -> String {
    let duplicate = if duplicate { EARLIER } else { "" };
    pairs([
        ("job", job_id.to_owned()),
        ("state", state.to_owned()),
        ("duplicate", duplicate.to_owned()),
    ])
}

fn spec(args: SubmitArgs) -> Result<v1::JobSpec, Failure> {
    let now = Utc::now();
    Ok(v1::JobSpec {
        job_type: args.job_type,
        payload: read_payload(&args.payload)?.into(),
        lane: args
            .lane
            .map_or(v1::Lane::Unspecified, v1::Lane::from)
            .into(),
        run_at: args.run_at.map(|when| when.from(now)).transpose()?,
        max_attempts: args.max_attempts.unwrap_or(0),
        timeout_ms: args.timeout.map_or(0, millis),
        expires_at: args.expires_at.map(|when| when.from(now)).transpose()?,
        labels: values::labels(args.labels)?,
        dedupe_key: args.dedupe_key.unwrap_or_default(),
        request_id: args.request_id.unwrap_or_default(),
        user_id: args.for_user.unwrap_or_default(),
        ordering_key: args.ordering_key.unwrap_or_default(),
        ordering_policy: args
            .on_failure
            .map_or(v1::OrderingPolicy::Unspecified, v1::OrderingPolicy::from)
            .into(),
        concurrency_key: args.concurrency_key.unwrap_or_default(),
        max_concurrency: args.max_concurrency.unwrap_or(0),
    })
}

/// Submits a job; a lost answer is asked for again under the same request id.
pub(crate) async fn send(
    client: &Client,
    mut spec: v1::JobSpec,
) -> Result<v1::SubmitJobResponse, Failure> {
    if spec.request_id.is_empty() {
        spec.request_id = Uuid::new_v4().to_string();
    }
    let request_id = spec.request_id.clone();
    let request = v1::SubmitJobRequest { job: Some(spec) };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.submit_job(request).await }
    };
    let answer = client.unary(SUBMIT_REPEATS, request, call).await;
    answer.map_err(|failure| match failure.exit {
        Exit::TryLater if failure.outcome_unknown => failure.hint(format!(
            "the job may have been accepted all the same; `--request-id {}` makes it safe to submit it again",
            quoted(&request_id)
        )),
        _ => failure,
    })
}

/// Reads a job.
pub(crate) async fn read(client: &Client, job_id: &str) -> Result<v1::Job, Failure> {
    let answer = read_with(client, job_id, v1::JobView::Basic).await?;
    Ok(answer.job.context(NO_JOB)?)
}

/// Reads a job, and what the view has beside it.
async fn read_with(
    client: &Client,
    job_id: &str,
    view: v1::JobView,
) -> Result<v1::GetJobResponse, Failure> {
    let request = v1::GetJobRequest {
        job_id: job_id.to_owned(),
        view: view.into(),
    };
    let call = |request| {
        let mut jobs = client.jobs();
        async move { jobs.get_job(request).await }
    };
    client.unary(READ_REPEATS, request, call).await
}

/// `tenure get`.
pub(crate) async fn get(client: &Client, args: GetArgs, out: &mut Output) -> Result<Exit, Failure> {
    let job = view::Job::from(read(client, &args.job_id).await?);
    out.emit(&job, job_text)?;
    Ok(Exit::Ok)
}

/// `tenure list`.
pub(crate) async fn list(
    client: &Client,
    args: ListArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let filter = args.filter;
    let filters = v1::ListJobsRequest {
        states: filter.states(),
        job_type: filter.job_type.unwrap_or_default(),
        queue: filter.queue.unwrap_or_default(),
        user_id: filter.user.unwrap_or_default(),
        labels: values::labels(filter.labels)?,
        ..v1::ListJobsRequest::default()
    };
    let (jobs, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListJobsRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut jobs = client.jobs();
            async move { jobs.list_jobs(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.jobs, page.next_page_token))
    })
    .await?;
    let list = view::JobList {
        jobs: jobs.into_iter().map(view::Job::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        let header = [
            "JOB",
            "TYPE",
            "STATE",
            "QUEUE",
            "LANE",
            "ATTEMPT",
            "USER",
            "CREATED",
            "LAST ERROR",
        ];
        if list.jobs.is_empty() {
            return NOTHING.to_owned();
        }
        let mut text = table(&header, list.jobs.iter().map(job_row));
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

fn job_row(job: &view::Job) -> Vec<String> {
    vec![
        job.job_id.clone(),
        job.job_type.clone(),
        job.state.clone(),
        job.queue.clone(),
        job.lane.clone(),
        format!("{}/{}", job.attempt, job.max_attempts),
        job.user_id.clone(),
        job.create_time.clone().unwrap_or_default(),
        job.last_error
            .as_ref()
            .map(|e| e.code.clone())
            .unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn submit_args(line: &[&str]) -> SubmitArgs {
        let line = ["tenure", "submit"].iter().chain(line);
        match Cli::try_parse_from(line).expect("parses").verb {
            Verb::Submit(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_submit_says_how_to_go_on() {
        let mut it = view::Submitted {
            job_id: "j".to_owned(),
            duplicate: false,
            state: "pending".to_owned(),
            queue_paused: false,
            job: None,
        };
        assert!(submitted_text(&it).ends_with("next: `tenure watch j` follows it until it ends\n"));
        it.queue_paused = true;
        let text = submitted_text(&it);
        assert!(text.contains("its queue is paused"), "{text}");
        assert!(text.contains("`tenure explain j`"), "{text}");
    }

    #[test]
    fn all_options_reach_the_job() {
        let spec = spec(submit_args(&[
            "noop",
            "--payload",
            "{\"a\": 1.0}",
            "--dedupe-key",
            "k",
            "--request-id",
            "r",
            "--lane",
            "high",
            "--run-at",
            "2030-01-01T00:00:00Z",
            "--expires-at",
            "+1h",
            "--max-attempts",
            "3",
            "--timeout",
            "30s",
            "--label",
            "a=b",
            "--label",
            "c=",
            "--for-user",
            "ann",
        ]))
        .expect("a spec");
        assert_eq!(spec.job_type, "noop");
        assert_eq!(spec.payload.as_ref(), b"{\"a\": 1.0}");
        assert_eq!(spec.lane(), v1::Lane::High);
        assert_eq!(spec.run_at.map(|time| time.seconds), Some(1_893_456_000));
        assert!(
            spec.expires_at
                .is_some_and(|time| time.seconds > Utc::now().timestamp())
        );
        assert_eq!((spec.max_attempts, spec.timeout_ms), (3, 30_000));
        assert_eq!(spec.labels.len(), 2);
        assert_eq!(
            (
                spec.dedupe_key.as_str(),
                spec.request_id.as_str(),
                spec.user_id.as_str()
            ),
            ("k", "r", "ann")
        );
    }

    #[test]
    fn what_is_not_given_is_left_to_the_job_type() {
        let spec = spec(submit_args(&["noop"])).expect("a spec");
        let expected = v1::JobSpec {
            job_type: "noop".to_owned(),
            payload: b"{}".as_slice().into(),
            ..v1::JobSpec::default()
        };
        assert_eq!(spec, expected);
    }
}
