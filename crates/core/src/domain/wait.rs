//! Why a job waits (requirement A9, invariant V5): from what is known of it and around it
//! to one reason with a sentence. For people: nothing is decided by it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::ids::JobId;
use super::job::Job;
use super::line::Line;
use super::state::JobState;

/// Counts of jobs ahead stop here.
pub const AHEAD_CAP: i64 = 100;

/// A sweeper that has not dispatched for so long is missed: it does many times a second, also
/// where there is nothing to send.
pub const SWEEPER_SILENT: Duration = Duration::from_secs(10);

/// The reasons. Where several hold, the first of this order is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// Its queue is paused.
    QueuePaused,
    /// Its `run_at` is later, and it has never started.
    Scheduled,
    /// It has run, and waits for the time of its next run.
    Backoff,
    /// An earlier job with its ordering key has not ended.
    Order,
    /// As many jobs with its concurrency key have their turn as may.
    Concurrency,
    /// Nobody who lives has a handler for it.
    NoWorker,
    /// It is in the database's backlog.
    Backlog,
    /// It was sent, or is about to be.
    Dispatched,
}

/// Why a job waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The reason.
    pub reason: Reason,
    /// The same in a sentence.
    pub message: String,
    /// When the reason ends by itself; `None`: not by itself, or nobody knows.
    pub until: Option<DateTime<Utc>>,
    /// The job that it waits for, with [`Reason::Order`].
    pub blocked_by: Option<JobId>,
}

/// A pause of the queue of a waiting job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Paused {
    /// Who has paused it.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// What is around a waiting job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Around {
    /// The pause of its queue by hand.
    pub paused: Option<Paused>,
    /// The one by the system.
    pub system_paused: Option<Paused>,
    /// Whether a worker that lives, and does not stop, has its type and queue.
    pub has_worker: bool,
    /// The job that its line waits for, where it is held.
    pub blocked_by: Option<JobId>,
    /// Whether that job has failed, and blocks the line.
    pub blocked_by_failed: bool,
    /// Parked jobs of its user, queue and lane that come first; at most one more than
    /// [`AHEAD_CAP`].
    pub ahead: i64,
    /// When its last run ended, and with which code; a snooze has none.
    pub last_end: Option<(DateTime<Utc>, Option<String>)>,
    /// For how long no sweeper has dispatched, where that is long.
    pub sweepers_silent: Option<Duration>,
}

/// Why this job waits; `None`: it does not, it runs or has ended.
pub fn wait(job: &Job, around: &Around) -> Option<Wait> {
    if !matches!(job.state, JobState::Pending | JobState::Retrying) {
        return None;
    }
    let row = &job.waiting;
    let reason = reason(job, around);
    let place = || format!("queue {:?}, lane {}", job.queue, job.lane.as_str());
    let (mut message, until) = match reason {
        Reason::QueuePaused => (paused(job, around), None),
        Reason::Scheduled => (
            format!("it does not start before {}", clock(job.run_at)),
            Some(job.run_at),
        ),
        Reason::Backoff => (backoff(job, around), row.later.then_some(job.run_at)),
        Reason::Order | Reason::Concurrency => (line(job, around), None),
        Reason::NoWorker => (
            format!(
                "no live worker takes jobs of type {:?} from queue {:?}",
                job.job_type, job.queue
            ),
            None,
        ),
        Reason::Backlog => (
            match around.ahead {
                0 => format!("in the backlog of {}; the next of its user", place()),
                ahead @ 1..=AHEAD_CAP => {
                    format!(
                        "in the backlog of {}; {ahead} of its user are ahead",
                        place()
                    )
                }
                _ => format!(
                    "in the backlog of {}; more than {AHEAD_CAP} of its user are ahead",
                    place()
                ),
            },
            None,
        ),
        Reason::Dispatched => (
            match row.wake_at {
                Some(again) => format!(
                    "sent to {}; if no worker has taken it by {}, it is sent again",
                    place(),
                    clock(again)
                ),
                None => format!("sent to {}", place()),
            },
            row.wake_at,
        ),
    };
    let for_sweeper = reason == Reason::Backlog || (reason == Reason::Backoff && !row.later);
    if let Some(silent) = around.sweepers_silent.filter(|_| for_sweeper) {
        message.push_str("; ");
        message.push_str(&sweepers_silent(silent));
    }
    if let Some(expires_at) = job.expires_at.filter(|_| can_expire(job)) {
        message.push_str("; it fails with EXPIRED unless it starts by ");
        message.push_str(&clock(expires_at));
    }
    Some(Wait {
        reason,
        message,
        until,
        blocked_by: around.blocked_by.filter(|_| reason == Reason::Order),
    })
}

fn reason(job: &Job, around: &Around) -> Reason {
    let row = &job.waiting;
    if around.paused.is_some() || around.system_paused.is_some() {
        Reason::QueuePaused
    } else if job.state == JobState::Retrying || (row.later && job.started_at.is_some()) {
        Reason::Backoff
    } else if row.later {
        Reason::Scheduled
    } else if row.held {
        match &job.line {
            Some(Line::Limited { .. }) => Reason::Concurrency,
            _ => Reason::Order,
        }
    } else if !around.has_worker {
        Reason::NoWorker
    } else if row.parked {
        Reason::Backlog
    } else {
        Reason::Dispatched
    }
}

fn paused(job: &Job, around: &Around) -> String {
    let told: Vec<String> = [&around.paused, &around.system_paused]
        .into_iter()
        .flatten()
        .map(|pause| {
            let by = pause.by.as_ref().map(|who| format!(" by {who}"));
            let why = pause.reason.as_ref().map(|why| format!(": {why}"));
            by.unwrap_or_default() + &why.unwrap_or_default()
        })
        .collect();
    format!("its queue {:?} is paused{}", job.queue, told.join("; and"))
}

fn backoff(job: &Job, around: &Around) -> String {
    let ended = match &around.last_end {
        Some((at, Some(code))) => format!("its last run ended with {code} at {}", clock(*at)),
        Some((at, None)) => format!("it was put off at {}", clock(*at)),
        None => match &job.last_error {
            Some(error) => format!("its last run ended with {}", error.code),
            None => "it was put off".to_owned(),
        },
    };
    let next = job.attempt + 1;
    if job.waiting.later {
        format!(
            "{ended}; attempt {next} of {} is due at {}",
            job.max_attempts,
            clock(job.run_at)
        )
    } else {
        format!(
            "{ended}; attempt {next} of {} is due and begins within seconds",
            job.max_attempts
        )
    }
}

fn line(job: &Job, around: &Around) -> String {
    let key = match &job.line {
        Some(Line::Limited { key, most }) => {
            return format!(
                "as many jobs with its concurrency key {key:?} have their turn as may ({most})"
            );
        }
        Some(Line::Ordered { key, .. }) => key.as_str(),
        None => "",
    };
    match around.blocked_by {
        Some(id) if around.blocked_by_failed => format!(
            "job {id} with the same ordering key {key:?} has failed and blocks those behind it: replay it, or \
             resolve or ignore its dead letter"
        ),
        Some(id) => format!("job {id} with the same ordering key {key:?} has not ended"),
        None => format!("it is about to be the first with its ordering key {key:?}"),
    }
}

/// Whether its expiry still counts: the rule of waking.
fn can_expire(job: &Job) -> bool {
    job.state == JobState::Retrying || job.started_at.is_none()
}

/// That no sweeper works, in a sentence.
pub fn sweepers_silent(silent: Duration) -> String {
    let time = match silent.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..86_400 => format!("{} h", seconds / 3_600),
        _ => "more than a day".to_owned(),
    };
    format!("no sweeper has dispatched jobs for {time}: none runs, or none reaches the broker")
}

/// A time for people, to the second.
fn clock(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
#[path = "wait_tests.rs"]
pub(super) mod tests;
