//! `explain`: why a job is as it is, and what can be done.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use tenure_proto::v1;

use super::{NO_JOB, error_label, error_text, read_with, wait_text};
use crate::args::ExplainArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::output::{Output, block, cut, escape, pairs, table};
use crate::shell::Line;
use crate::values::{human_duration, relative};
use crate::view::{self, Next};

/// So many characters of an error stand in the timeline.
const SHOWN_ERROR: usize = 80;

/// A worker tells of itself every five seconds; one that has not for so long is silent.
const SILENT: Duration = Duration::from_secs(11);

/// `tenure explain`.
pub(crate) async fn explain(
    client: &Client,
    args: ExplainArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let answer = read_with(client, &args.job_id, v1::JobView::Full).await?;
    let job = view::Job::from(answer.job.context(NO_JOB)?);
    let timeline = answer.timeline.into_iter();
    let timeline: Vec<_> = timeline.map(view::JobEvent::from).collect();
    let mut summary = summary(&job, &timeline, Utc::now());
    if let Some(hold) = answer.hold {
        summary.push_str(&silence(&hold));
    }
    let explained = view::Explained {
        summary,
        next: next(&job),
        job,
        timeline,
    };
    out.emit(&explained, text)?;
    Ok(Exit::Ok)
}

/// How the job stands, in a sentence.
fn summary(job: &view::Job, timeline: &[view::JobEvent], now: DateTime<Utc>) -> String {
    let attempts = format!("attempt {} of {}", job.attempt, job.max_attempts);
    let at = |time: &Option<String>| {
        let Some(time) = time else {
            return String::new();
        };
        relative(time, now).map_or_else(
            || format!(" at {time}"),
            |relative| format!(" at {time} ({relative})"),
        )
    };
    let mut text = match job.state.as_str() {
        "running" => {
            let progress = job.progress.as_ref();
            let progress = progress.map(|it| match (it.total, it.message.as_str()) {
                (total, message) if total > 0 => format!(", {} of {total} {message}", it.done),
                (_, message) => format!(", {} done {message}", it.done),
            });
            let progress = progress.unwrap_or_default();
            let on = holder(job, timeline).unwrap_or_default();
            format!("it runs{on}, {attempts}{}", progress.trim_end())
        }
        "success" => format!("it ended well{}", at(&job.finish_time)),
        "failed" => {
            let code = job.last_error.as_ref().map_or("", |error| &error.code);
            format!(
                "it failed for good{} with {code}, {attempts}",
                at(&job.finish_time)
            )
        }
        "cancelled" => format!("it was cancelled{}", at(&job.finish_time)),
        state => match &job.wait {
            Some(wait) => {
                let mut text = format!("it waits ({state}): {}", wait_text(wait));
                let until = wait.until.as_deref();
                if let Some(relative) = until.and_then(|until| relative(until, now)) {
                    let _ = write!(text, " ({relative})");
                }
                text
            }
            None => format!("it is {state}, {attempts}"),
        },
    };
    if job.cancel_requested && job.finish_time.is_none() {
        text.push_str("; a cancel was asked for");
    }
    text
}

/// That the worker of a running job is not heard of, where it is so; empty otherwise.
fn silence(hold: &v1::Hold) -> String {
    let silent = hold.silent_ms.and_then(|ms| u64::try_from(ms).ok());
    let Some(silent) = silent.map(Duration::from_millis) else {
        return String::new();
    };
    if silent < SILENT {
        return String::new();
    }
    let mut text = format!(
        "; its worker was last heard of {} ago",
        human_duration(silent)
    );
    if let Some(end) = view::time(hold.lease_end_time) {
        let _ = write!(
            text,
            "; unless it comes back, the job is taken back when its lease ends at {end}"
        );
    }
    text
}

/// The worker that runs it, by the start of its present run.
fn holder(job: &view::Job, timeline: &[view::JobEvent]) -> Option<String> {
    let began = |event: &&view::JobEvent| {
        event.run == job.run
            && event.to_state == "running"
            && event.from_state.as_deref() == Some("pending")
    };
    let start = timeline.iter().rev().find(began)?;
    let since = start.time.as_ref();
    let since = since.map_or_else(String::new, |time| format!(" since {time}"));
    match (&start.worker, &start.session) {
        (Some(name), Some(session)) => Some(format!(" on {name} (session {session}){since}")),
        (Some(name), None) => Some(format!(" on {name}{since}")),
        (None, Some(session)) => Some(format!(" on the worker of session {session}{since}")),
        (None, None) => None,
    }
}

/// What one can do now.
fn next(job: &view::Job) -> Vec<Next> {
    let id = job.job_id.as_str();
    let step = |line: Line, does: &str| Next {
        command: line.text(),
        does: does.to_owned(),
    };
    let cancel = || step(Line::new(["cancel", id]).why(), "cancels it");
    let watch = || step(Line::new(["watch", id]), "follows it until it ends");
    match job.state.as_str() {
        "success" => vec![step(Line::new(["get", id]), "shows its result")],
        "cancelled" => Vec::new(),
        "failed" => vec![
            step(
                Line::new(["dead-letters", "show", id]),
                "shows what was done about it so far",
            ),
            step(
                Line::new(["dead-letters", "replay", id]).why(),
                "runs it again",
            ),
            step(
                Line::new(["dead-letters", "resolve", id]).why(),
                "notes that it is dealt with",
            ),
        ],
        "running" => vec![watch(), cancel()],
        _ => {
            let mut steps = waiting(job);
            steps.push(watch());
            steps.push(cancel());
            steps
        }
    }
}

/// What helps against the reason of a wait.
fn waiting(job: &view::Job) -> Vec<Next> {
    let id = job.job_id.as_str();
    let step = |line: Line, does: &str| Next {
        command: line.text(),
        does: does.to_owned(),
    };
    let queues = |does| step(Line::new(["queues"]), does);
    let workers = |does| step(Line::new(["workers"]), does);
    let Some(wait) = &job.wait else {
        return Vec::new();
    };
    match wait.reason.as_str() {
        "queue_paused" => vec![
            queues("shows which queues are paused, by whom and why"),
            step(
                Line::new(["queues", "resume", &job.queue]),
                "lets its jobs start again, unless the system has paused it",
            ),
        ],
        "scheduled" | "backoff" => {
            let mut steps = vec![
                step(Line::new(["retry-now", id]).why(), "makes it due now"),
                step(
                    Line::new(["reschedule", id, "--in", "1h"]).why(),
                    "puts it off",
                ),
            ];
            if wait.reason == "backoff" {
                let more = (job.max_attempts + 5).clamp(1, 100).to_string();
                steps.push(step(
                    Line::new(["set-attempts", id, &more]).why(),
                    "gives it more attempts",
                ));
            }
            steps
        }
        "order" => {
            let blocking = wait.blocking_job_id.iter();
            let explain = |other: &String| {
                step(
                    Line::new(["explain", other]),
                    "explains the job that it waits for",
                )
            };
            blocking.map(explain).collect()
        }
        "concurrency" => vec![step(
            Line::new(["list", "--state", "running"]).option("--type", Some(&job.job_type)),
            "shows what runs",
        )],
        "no_worker" => vec![workers("shows which workers there are, and for what")],
        "backlog" => vec![
            queues("shows how much is ahead"),
            workers("shows how many slots are free"),
        ],
        "dispatched" => vec![workers("shows whether the workers are in contact")],
        _ => Vec::new(),
    }
}

fn text(it: &view::Explained) -> String {
    let job = &it.job;
    let mut text = pairs([
        ("job", job.job_id.clone()),
        ("type", job.job_type.clone()),
        ("queue", format!("{}, lane {}", job.queue, job.lane)),
        ("user", job.user_id.clone()),
        ("state", it.summary.clone()),
    ]);
    if let Some(error) = &job.last_error {
        let _ = writeln!(
            text,
            "\n{}: {} ({})",
            error_label(&job.state),
            escape(&error.code),
            escape(&error.error_class)
        );
        text.push_str(&block(&error.message));
    }
    if !it.next.is_empty() {
        text.push_str("\nwhat you can do:\n");
        text.push_str(&next_text(&it.next));
    }
    text.push('\n');
    text.push_str(&timeline_table(&it.timeline));
    text
}

/// The commands with what they do.
pub(crate) fn next_text(next: &[Next]) -> String {
    let lines = pairs(next.iter().map(|it| (it.command.as_str(), it.does.clone())));
    lines.lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  {line}");
        text
    })
}

/// What happened to a job, the oldest first.
pub(crate) fn timeline_table(timeline: &[view::JobEvent]) -> String {
    if timeline.is_empty() {
        return "nothing is recorded of its runs yet\n".to_owned();
    }
    let header = [
        "TIME",
        "RUN",
        "ATTEMPT",
        "FROM → TO",
        "WORKER",
        "TOOK",
        "WHAT",
    ];
    table(&header, timeline.iter().map(event_row))
}

fn event_row(event: &view::JobEvent) -> Vec<String> {
    let change = event.from_state.as_ref().map_or_else(
        || format!("→ {}", event.to_state),
        |from| format!("{from} → {}", event.to_state),
    );
    let took = event.duration_ms.and_then(|ms| u64::try_from(ms).ok());
    let error = event.error.as_ref().map(error_text);
    // A message that is the error's code alone says it twice.
    let code = event.error.as_ref().map(|error| error.code.as_str());
    let message = Some(event.message.clone()).filter(|message| Some(message.as_str()) != code);
    let what: Vec<String> = [message, error]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    vec![
        event.time.clone().unwrap_or_default(),
        event.run.to_string(),
        event.attempt.to_string(),
        change,
        event.worker.clone().unwrap_or_default(),
        took.map(|ms| human_duration(Duration::from_millis(ms)))
            .unwrap_or_default(),
        cut(&what.join("; "), SHOWN_ERROR),
    ]
}

#[cfg(test)]
mod tests;
