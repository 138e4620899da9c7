//! What happened to a job (requirement A9): its own times, the history of its unhappy runs
//! and what operators did, as one list. The happy path writes no history, so submit, start
//! and end are made from the job's row.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::ids::SessionId;
use super::job::{Job, LastError};
use super::state::JobState;

/// The most events of a timeline; the latest are kept.
pub const MAX_EVENTS: usize = 200;

/// Something that happened.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// When.
    pub at: DateTime<Utc>,
    /// The run.
    pub run: i32,
    /// The state before; `None`: there was no job.
    pub from: Option<JobState>,
    /// The state after.
    pub to: JobState,
    /// Starts that counted, after it.
    pub attempt: i32,
    /// Who worked on it.
    pub holder: Holder,
    /// What went wrong.
    pub error: Option<EventError>,
    /// For how long the run that it ended was held.
    pub held_for: Option<Duration>,
    /// A sentence for people.
    pub message: String,
}

/// A worker, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holder {
    /// Its session.
    pub session: Option<SessionId>,
    /// Its name.
    pub name: Option<String>,
}

/// The error of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventError {
    /// A stable code.
    pub code: String,
    /// Whether a retry could help; `None`: nobody kept it.
    pub temporary: Option<bool>,
    /// A summary for people.
    pub message: String,
}

/// A line of the job's history.
#[derive(Clone, PartialEq, Debug)]
pub struct Past {
    /// When it was seen, by the clock of whom that wrote it.
    pub at: DateTime<Utc>,
    /// The run that it ended.
    pub run: i32,
    /// The state before.
    pub from: JobState,
    /// The state after.
    pub to: JobState,
    /// Starts that counted, after it.
    pub attempt: i32,
    /// Whether it gave the run's attempt back.
    pub refunded: bool,
    /// When the run was claimed; `None`: nobody kept it.
    pub started_at: Option<DateTime<Utc>>,
    /// Whose run it was.
    pub holder: Holder,
    /// The error's code.
    pub code: Option<String>,
    /// Whether a retry could have helped; `None`: nobody kept it.
    pub temporary: Option<bool>,
    /// The error's summary.
    pub message: Option<String>,
}

/// Something that an operator did.
#[derive(Clone, PartialEq, Debug)]
pub struct Act {
    /// When.
    pub at: DateTime<Utc>,
    /// The run after it.
    pub run: i32,
    /// Starts that counted, after it.
    pub attempt: i32,
    /// The state before.
    pub from: JobState,
    /// The state after.
    pub to: JobState,
    /// Who did what, and why.
    pub message: String,
}

/// A claimed run and who has, or had, it.
#[derive(Clone, PartialEq, Debug)]
pub struct Claimed {
    /// The run.
    pub run: i32,
    /// The worker.
    pub holder: Holder,
    /// When it was claimed; `None`: not known.
    pub at: Option<DateTime<Utc>>,
}

/// What rows beside the history tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Facts {
    /// The run that is held now.
    pub held: Option<Claimed>,
    /// The run that was claimed last, by the ledger.
    pub last: Option<Claimed>,
    /// When a cancel was asked for, and why.
    pub cancel: Option<(DateTime<Utc>, String)>,
}

/// The latest events of a job, the oldest first. Runs stand in their order whatever the
/// clocks of their workers say; `past` and `acts` may be in any order.
pub fn merge(job: &Job, past: Vec<Past>, acts: Vec<Act>, facts: &Facts) -> Vec<Event> {
    let mut line = Line::default();
    let mut starts = starts_of(&past);
    if let Some(held) = facts
        .held
        .as_ref()
        .filter(|_| job.state == JobState::Running)
        && let Some(at) = held.at
    {
        let start = Start {
            at,
            attempt: job.attempt,
            holder: held.holder.clone(),
        };
        starts.entry(held.run).or_insert(start);
    }
    add_first_start(job, &past, facts, &mut starts);
    line.add(Rank::Submit, submitted(job));
    for act in acts {
        line.add(Rank::Act, acted(act));
    }
    for (run, start) in &starts {
        line.add(Rank::Start, started(*run, start));
    }
    if let Some((at, reason)) = &facts.cancel
        && job.finished_at != Some(*at)
    {
        line.add(Rank::Cancel, cancel_asked(job, *at, reason));
    }
    let mut end_is_told = false;
    for entry in past {
        let is_end = job.finished_at.is_some() && entry.run == job.run && entry.to == job.state;
        end_is_told |= is_end;
        // The transaction that ended the job knows the time better than who wrote of it.
        let at = job.finished_at.filter(|_| is_end).unwrap_or(entry.at);
        let rank = match entry.from {
            JobState::Timeout => Rank::TakenBack,
            JobState::Failed => Rank::Replayed,
            _ => Rank::End,
        };
        line.add(rank, ended(entry, at));
    }
    if let Some(at) = job.finished_at.filter(|_| !end_is_told) {
        line.add(Rank::End, end_by_row(job, at, facts, &starts));
    }
    line.sorted(&starts)
}

/// When a run began, and under whom.
struct Start {
    at: DateTime<Utc>,
    attempt: i32,
    holder: Holder,
}

/// What of one run comes first where times do not tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Submit,
    Act,
    Start,
    Cancel,
    End,
    TakenBack,
    Replayed,
}

#[derive(Default)]
struct Line(Vec<(Rank, Event)>);

impl Line {
    fn add(&mut self, rank: Rank, event: Event) {
        self.0.push((rank, event));
    }

    fn sorted(mut self, starts: &BTreeMap<i32, Start>) -> Vec<Event> {
        let ends: BTreeMap<i32, DateTime<Utc>> = self
            .0
            .iter()
            .filter(|(rank, _)| *rank == Rank::End)
            .map(|(_, event)| (event.run, event.at))
            .collect();
        // An end comes after its start, and a replay after the end, though the clock of a
        // worker dates them the other way round.
        self.0.sort_by_key(|(rank, event)| {
            let begun = starts.get(&event.run).filter(|_| *rank > Rank::Start);
            let mut at = begun.map_or(event.at, |start| event.at.max(start.at));
            if let Some(end) = ends.get(&event.run).filter(|_| *rank == Rank::Replayed) {
                at = at.max(*end);
            }
            (event.run, at, *rank)
        });
        let surplus = self.0.len().saturating_sub(MAX_EVENTS);
        self.0
            .into_iter()
            .skip(surplus)
            .map(|(_, event)| event)
            .collect()
    }
}

fn starts_of(past: &[Past]) -> BTreeMap<i32, Start> {
    past.iter()
        .filter(|entry| entry.from == JobState::Running)
        .filter_map(|entry| {
            let start = Start {
                at: entry.started_at?,
                attempt: entry.attempt + i32::from(entry.refunded),
                holder: entry.holder.clone(),
            };
            Some((entry.run, start))
        })
        .collect()
}

/// The row keeps its first start, which a run without history has nowhere else.
fn add_first_start(job: &Job, past: &[Past], facts: &Facts, starts: &mut BTreeMap<i32, Start>) {
    let Some(at) = job.started_at else {
        return;
    };
    if starts.values().any(|start| start.at == at) {
        return;
    }
    // It is the first run, but for a job that expired before it started and was replayed.
    let never_ran = |run: i32| {
        let mut of_run = past.iter().filter(|entry| entry.run == run).peekable();
        of_run.peek().is_some() && of_run.all(|entry| entry.from != JobState::Running)
    };
    let run = (1..=job.run).find(|run| !never_ran(*run)).unwrap_or(1);
    let holder = facts.last.as_ref().filter(|last| last.run == run);
    starts.entry(run).or_insert(Start {
        at,
        attempt: 1,
        holder: holder.map(|last| last.holder.clone()).unwrap_or_default(),
    });
}

fn submitted(job: &Job) -> Event {
    Event {
        at: job.created_at,
        run: 1,
        from: None,
        to: JobState::Pending,
        attempt: 0,
        holder: Holder::default(),
        error: None,
        held_for: None,
        message: match &job.submitted_by {
            Some(by) => format!("submitted by {by}"),
            None => "submitted".to_owned(),
        },
    }
}

fn acted(act: Act) -> Event {
    Event {
        at: act.at,
        run: act.run,
        from: Some(act.from),
        to: act.to,
        attempt: act.attempt,
        holder: Holder::default(),
        error: None,
        held_for: None,
        message: act.message,
    }
}

fn started(run: i32, start: &Start) -> Event {
    Event {
        at: start.at,
        run,
        from: Some(JobState::Pending),
        to: JobState::Running,
        attempt: start.attempt,
        holder: start.holder.clone(),
        error: None,
        held_for: None,
        message: match &start.holder.name {
            Some(name) => format!("started on {name}"),
            None => "started".to_owned(),
        },
    }
}

fn cancel_asked(job: &Job, at: DateTime<Utc>, reason: &str) -> Event {
    Event {
        at,
        run: job.run,
        from: Some(JobState::Running),
        to: JobState::Running,
        attempt: job.attempt,
        holder: Holder::default(),
        error: None,
        held_for: None,
        message: format!("asked to end: {reason}"),
    }
}

fn ended(entry: Past, at: DateTime<Utc>) -> Event {
    let message = sentence(&entry);
    Event {
        at,
        run: entry.run,
        from: Some(entry.from),
        to: entry.to,
        attempt: entry.attempt,
        holder: entry.holder,
        error: entry.code.map(|code| EventError {
            code,
            // What was written before classes were kept can be told where it was tried again.
            temporary: entry.temporary.or(match entry.to {
                JobState::Retrying | JobState::Timeout | JobState::Pending => Some(true),
                _ => None,
            }),
            message: entry.message.unwrap_or_default(),
        }),
        held_for: entry
            .started_at
            .filter(|_| entry.from == JobState::Running)
            .map(|start| span(start, at)),
        message,
    }
}

fn sentence(entry: &Past) -> String {
    use JobState::{Cancelled, Failed, Pending, Retrying, Running, Success, Timeout};
    let code = entry.code.as_deref().unwrap_or("no code");
    match (entry.from, entry.to) {
        (Running, Success) => "succeeded".to_owned(),
        (Running, Retrying) if entry.refunded => {
            format!("ended with {code}; it is tried again, and no attempt is spent")
        }
        (Running, Retrying) => format!("failed with {code}; it is tried again"),
        (Running, Pending) => "put off or handed back; no attempt is spent".to_owned(),
        (Running, Timeout) => match &entry.holder.name {
            Some(name) => format!("the lease of {name} ran out"),
            None => "the lease of its worker ran out".to_owned(),
        },
        (Timeout, Pending) if entry.refunded => {
            "taken back to run again; no attempt is spent".to_owned()
        }
        (Timeout, Pending) => "taken back to run again".to_owned(),
        (_, Cancelled) => "cancelled".to_owned(),
        (_, Failed) => format!("failed for good with {code}"),
        (from, to) => format!("went from {from} to {to}"),
    }
}

/// The end of a job that has no line in the history: it went well at once, it was
/// cancelled while it waited, or the line is not written yet.
fn end_by_row(job: &Job, at: DateTime<Utc>, facts: &Facts, starts: &BTreeMap<i32, Start>) -> Event {
    let last = facts.last.as_ref().filter(|last| last.run == job.run);
    let expired = |error: &LastError| error.code == "EXPIRED";
    let ran = last.is_some() && !job.last_error.as_ref().is_some_and(expired);
    let from = if ran || job.state == JobState::Success {
        JobState::Running
    } else if job.started_at.is_some() {
        JobState::Retrying
    } else {
        JobState::Pending
    };
    let error = job
        .last_error
        .as_ref()
        .filter(|_| job.state != JobState::Success);
    let message = match (job.state, error) {
        (JobState::Success, _) => "succeeded".to_owned(),
        (JobState::Cancelled, Some(error)) => error.message.clone(),
        (_, Some(error)) => format!("failed for good with {}", error.code),
        (state, None) => format!("ended in {state}"),
    };
    Event {
        at,
        run: job.run,
        from: Some(from),
        to: job.state,
        attempt: job.attempt,
        holder: last
            .filter(|_| from == JobState::Running)
            .map(|last| last.holder.clone())
            .unwrap_or_default(),
        error: error.map(|error| EventError {
            code: error.code.clone(),
            temporary: Some(error.temporary),
            message: error.message.clone(),
        }),
        held_for: starts
            .get(&job.run)
            .filter(|_| from == JobState::Running)
            .map(|start| span(start.at, at)),
        message,
    }
}

fn span(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
