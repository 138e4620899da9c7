//! Follows a job until it ends, over lost connections.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tenure_proto::v1::{self, JobState};
use tonic::Status;

use crate::args::WatchArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure, is_broken_stream, retry_delay};
use crate::jobs::{job_text, read, wait_text};
use crate::output::Output;
use crate::pace::Pace;
use crate::progress::{Meter, Unit};
use crate::shell::Line;
use crate::values::human_duration;
use crate::view;

/// How often in a row the stream may break.
const MAX_BREAKS: u32 = 8;
/// A stream that is silent for longer is opened anew, and the job is read: it
/// could have lost its source without having ended.
const MAX_SILENCE: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// `tenure watch`.
pub(crate) async fn run(
    client: &Client,
    args: WatchArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    // A wrong id or address shows at once, and an ended job needs no stream.
    let mut job = read(client, &args.job_id).await?;
    if !is_final(job.state()) {
        job = follow(client, &args.job_id, args.wait_timeout).await?;
    }
    let exit = job.state().into();
    out.emit(&view::Job::from(job), job_text)?;
    Ok(exit)
}

/// Follows a job and shows its progress; answers with the job at its end.
/// Without a limit it waits as long as the job takes.
pub(crate) async fn follow(
    client: &Client,
    job_id: &str,
    limit: Option<Duration>,
) -> Result<v1::Job, Failure> {
    let mut follower = Follower {
        client,
        job_id,
        revision: 0,
        told: None,
        meter: Meter::new(&format!("job {job_id}"), Unit::Steps),
        pace: Pace::default(),
    };
    let run = async {
        let job = follower.run().await?;
        // Only a read has the payload; the end itself is known already.
        Ok(read(client, job_id).await.unwrap_or(job))
    };
    // A token may run out before the job ends.
    let run = async {
        run.await
            .map_err(|failure: Failure| failure.expired_meanwhile(job_id))
    };
    let ended = async {
        let Some(limit) = limit else {
            return run.await;
        };
        match tokio::time::timeout(limit, run).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(
                Exit::TryLater,
                format!(
                    "the job has not ended within {}; it goes on",
                    human_duration(limit)
                ),
            )
            .hint(goes_on(job_id))),
        }
    };
    tokio::select! {
        result = ended => result,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot wait for Ctrl-C")?;
            Err(Failure::new(Exit::Interrupted, "interrupted; the job goes on").hint(goes_on(job_id)))
        }
    }
}

fn goes_on(job_id: &str) -> String {
    let line = |verb: &str| Line::new([verb]).name(job_id).text();
    format!(
        "`{}` follows it, `{}` cancels it",
        line("watch"),
        line("cancel")
    )
}

struct Follower<'a> {
    client: &'a Client,
    job_id: &'a str,
    /// The last revision seen.
    revision: i64,
    /// What was told last: the state, the attempt and why it waits.
    told: Option<(i32, i32, Option<i32>)>,
    meter: Meter,
    pace: Pace,
}

impl Follower<'_> {
    async fn run(&mut self) -> Result<v1::Job, Failure> {
        let mut breaks = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.revision;
            let broken = match self.stream().await {
                Ok(Some(job)) => return Ok(job),
                Ok(None) => None,
                Err(status) if is_broken_stream(status.code()) => Some(status),
                Err(status) => return Err(self.client.failure(&status)),
            };
            if self.revision > before {
                breaks = 0;
                pause = FIRST_PAUSE;
            }
            if let Some(status) = broken {
                breaks += 1;
                if breaks > MAX_BREAKS {
                    return Err(self.client.failure(&status).hint(goes_on(self.job_id)));
                }
                if breaks == 2 {
                    self.meter.note("the connection is lost, trying again");
                }
                let wanted = retry_delay(&status).unwrap_or_default();
                pause = pause.max(wanted.min(LONGEST_PAUSE));
            } else {
                // The stream ended, or was silent: what it may have missed is
                // in the job itself.
                let job = read(self.client, self.job_id).await?;
                breaks = 0;
                if let Some(job) = self.see(job) {
                    return Ok(job);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads one stream: the ended job, or nothing where the stream ended first.
    async fn stream(&mut self) -> Result<Option<v1::Job>, Status> {
        let request = v1::WatchJobRequest {
            job_id: self.job_id.to_owned(),
            after_revision: self.revision,
            view: v1::JobView::Basic.into(),
        };
        let mut jobs = self.client.jobs();
        let response = self.client.limited(jobs.watch_job(request)).await?;
        let mut changes = response.into_inner();
        loop {
            let Ok(change) = tokio::time::timeout(MAX_SILENCE, changes.message()).await else {
                return Ok(None);
            };
            let Some(change) = change? else {
                return Ok(None);
            };
            if let Some(job) = change.job.and_then(|job| self.see(job)) {
                return Ok(Some(job));
            }
        }
    }

    /// Shows a job; gives it back where it has ended.
    fn see(&mut self, job: v1::Job) -> Option<v1::Job> {
        // A read may be older than what the stream told before it ended.
        if job.revision < self.revision {
            return None;
        }
        self.revision = job.revision;
        if job.job_type == "import_csv" {
            self.meter.set_unit(Unit::Bytes);
        }
        let (done, total, message) = job.progress.as_ref().map_or((0, 0, ""), |progress| {
            let count = |n: i64| u64::try_from(n).unwrap_or(0);
            (
                count(progress.done),
                count(progress.total),
                progress.message.as_str(),
            )
        });
        if is_final(job.state()) {
            self.meter.set_last(done, total, message);
            // The end itself is what the verb prints.
            return Some(job);
        }
        self.tell(&job);
        let message = if job.job_type == "import_csv" {
            self.pace.tell(done, total, message, Instant::now())
        } else {
            message.to_owned()
        };
        self.meter.set(done, total, &message);
        None
    }

    /// Says a new state or attempt, or another reason to wait.
    fn tell(&mut self, job: &v1::Job) {
        let wait = job.wait.as_ref().map(|wait| wait.reason);
        let now = (job.state, job.attempt, wait);
        if self.told != Some(now) {
            self.told = Some(now);
            let text = state_text(job);
            if job.state() == JobState::Retrying {
                self.meter.note(&text);
            } else {
                self.meter.change(&text);
            }
        }
    }
}

fn is_final(state: JobState) -> bool {
    matches!(
        state,
        JobState::Success | JobState::Failed | JobState::Cancelled
    )
}

fn state_text(job: &v1::Job) -> String {
    let state = view::state(job.state);
    let wait = job.wait.clone().map(view::Wait::from);
    let wait = wait.map_or_else(String::new, |wait| format!("; {}", wait_text(&wait)));
    match (job.state(), &job.last_error) {
        (JobState::Running, _) => {
            format!("{state}, attempt {} of {}", job.attempt, job.max_attempts)
        }
        (JobState::Retrying | JobState::Failed, Some(error)) => format!(
            "{state} after attempt {} of {}: {}: {}{wait}",
            job.attempt, job.max_attempts, error.code, error.message
        ),
        _ => format!("{state}{wait}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_with_what_matters() {
        let mut job = v1::Job {
            state: JobState::Running.into(),
            attempt: 2,
            max_attempts: 5,
            ..v1::Job::default()
        };
        assert_eq!(state_text(&job), "running, attempt 2 of 5");
        job.state = JobState::Retrying.into();
        job.last_error = Some(v1::JobError {
            code: "X".to_owned(),
            message: "y".to_owned(),
            ..v1::JobError::default()
        });
        assert_eq!(state_text(&job), "retrying after attempt 2 of 5: X: y");
        job.wait = Some(v1::Wait {
            message: "waits for its next run".to_owned(),
            ..v1::Wait::default()
        });
        assert_eq!(
            state_text(&job),
            "retrying after attempt 2 of 5: X: y; waits for its next run"
        );
        job.wait = None;
        job.state = JobState::Success.into();
        assert_eq!(state_text(&job), "success");
    }
}
