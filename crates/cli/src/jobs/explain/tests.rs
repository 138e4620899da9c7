use prost_types::Timestamp;
use tenure_proto::v1::wait::Reason;

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_000, 0).expect("in range")
}

fn waiting_for(reason: Reason) -> v1::Job {
    v1::Job {
        job_id: "j".to_owned(),
        job_type: "t".to_owned(),
        queue: "q".to_owned(),
        state: v1::JobState::Pending.into(),
        attempt: 1,
        max_attempts: 3,
        wait: Some(v1::Wait {
            reason: reason.into(),
            message: "so it is".to_owned(),
            until: Some(at(1_060)),
            blocking_job_id: "b".to_owned(),
        }),
        ..v1::Job::default()
    }
}

fn commands(job: v1::Job) -> Vec<String> {
    let job = view::Job::from(job);
    next(&job).into_iter().map(|it| it.command).collect()
}

#[test]
fn every_reason_to_wait_has_something_to_do() {
    for (reason, command) in [
        (Reason::QueuePaused, "tenure queues"),
        (Reason::Scheduled, "tenure retry-now j --reason 'WHY'"),
        (Reason::Backoff, "tenure set-attempts j 8 --reason 'WHY'"),
        (Reason::Order, "tenure explain b"),
        (Reason::Concurrency, "tenure list --state running --type t"),
        (Reason::NoWorker, "tenure workers"),
        (Reason::Backlog, "tenure queues"),
        (Reason::Dispatched, "tenure workers"),
    ] {
        let commands = commands(waiting_for(reason));
        assert!(commands.contains(&command.to_owned()), "{commands:?}");
        assert!(
            commands.contains(&"tenure cancel j --reason 'WHY'".to_owned()),
            "{commands:?}"
        );
    }
}

#[test]
fn all_commands_can_be_parsed() {
    use clap::Parser as _;
    let mut jobs: Vec<v1::Job> = (1..=8)
        .filter_map(|reason| Reason::try_from(reason).ok())
        .map(waiting_for)
        .collect();
    for state in [
        v1::JobState::Running,
        v1::JobState::Success,
        v1::JobState::Failed,
    ] {
        jobs.push(v1::Job {
            job_id: "j".to_owned(),
            state: state.into(),
            ..v1::Job::default()
        });
    }
    for command in jobs.into_iter().flat_map(commands) {
        let words = command.replace('\'', "");
        let parsed = crate::args::Cli::try_parse_from(words.split(' '));
        assert!(parsed.is_ok(), "{command}: {:?}", parsed.err());
    }
}

#[test]
fn each_state_has_its_sentence() {
    let sentence = |job: v1::Job| summary(&view::Job::from(job), &[], now());
    assert_eq!(
        sentence(waiting_for(Reason::Backoff)),
        "it waits (pending): so it is, until 1970-01-01T00:17:40Z (in 1m)"
    );
    let mut job = v1::Job {
        state: v1::JobState::Running.into(),
        attempt: 2,
        max_attempts: 5,
        cancel_requested: true,
        progress: Some(v1::Progress {
            done: 3,
            total: 9,
            message: "rows".to_owned(),
        }),
        ..v1::Job::default()
    };
    assert_eq!(
        sentence(job.clone()),
        "it runs, attempt 2 of 5, 3 of 9 rows; a cancel was asked for"
    );
    let started = |run, worker: &str, session: &str| {
        view::JobEvent::from(v1::JobEvent {
            run,
            from_state: v1::JobState::Pending.into(),
            to_state: v1::JobState::Running.into(),
            worker: worker.to_owned(),
            session: session.to_owned(),
            time: Some(at(880)),
            ..v1::JobEvent::default()
        })
    };
    job.run = 2;
    let on = |events: &[view::JobEvent]| {
        let text = summary(&view::Job::from(job.clone()), events, now());
        text.split(", attempt").next().map(str::to_owned)
    };
    assert_eq!(
        on(&[started(1, "w0", "s0"), started(2, "w1", "s1")]).as_deref(),
        Some("it runs on w1 (session s1) since 1970-01-01T00:14:40Z")
    );
    assert_eq!(
        on(&[started(2, "", "s1")]).as_deref(),
        Some("it runs on the worker of session s1 since 1970-01-01T00:14:40Z")
    );
    assert_eq!(on(&[started(1, "w0", "s0")]).as_deref(), Some("it runs"));
    job.state = v1::JobState::Failed.into();
    job.finish_time = Some(at(880));
    job.last_error = Some(v1::JobError {
        code: "X".to_owned(),
        ..v1::JobError::default()
    });
    assert_eq!(
        sentence(job.clone()),
        "it failed for good at 1970-01-01T00:14:40Z (2m ago) with X, attempt 2 of 5"
    );
    job.state = v1::JobState::Success.into();
    assert!(sentence(job.clone()).starts_with("it ended well at 1970"));
    job.state = v1::JobState::Cancelled.into();
    assert!(sentence(job).starts_with("it was cancelled at 1970"));
    assert_eq!(
        sentence(v1::Job {
            state: v1::JobState::Timeout.into(),
            max_attempts: 2,
            ..v1::Job::default()
        }),
        "it is timeout, attempt 0 of 2"
    );
}

#[test]
fn a_worker_that_is_silent_is_told_with_what_becomes_of_its_job() {
    let mut hold = v1::Hold {
        silent_ms: Some(16_400),
        lease_end_time: Some(at(1_060)),
    };
    assert_eq!(
        silence(&hold),
        "; its worker was last heard of 16s ago; unless it comes back, the job is taken back when its lease ends at 1970-01-01T00:17:40Z"
    );
    hold.silent_ms = Some(6_000);
    assert_eq!(silence(&hold), "");
    hold.silent_ms = None;
    assert_eq!(silence(&hold), "");
}

#[test]
fn a_code_is_said_once() {
    let event = view::JobEvent::from(v1::JobEvent {
        message: "X".to_owned(),
        error: Some(v1::JobError {
            code: "X".to_owned(),
            message: "no".to_owned(),
            ..v1::JobError::default()
        }),
        ..v1::JobEvent::default()
    });
    let row = event_row(&event);
    assert_eq!(row.last().map(String::as_str), Some("X: no"));
}

#[test]
fn an_error_is_shown_in_full_and_its_lines_as_lines() {
    let long = format!("first\n  at second\u{1b}[2J {}", "x".repeat(300));
    let error = v1::JobError {
        code: "X".to_owned(),
        error_class: v1::ErrorClass::Permanent.into(),
        message: long.clone(),
    };
    let job = v1::Job {
        last_error: Some(error.clone()),
        ..v1::Job::default()
    };
    let text = text(&view::Explained {
        summary: String::new(),
        job: view::Job::from(job),
        next: Vec::new(),
        timeline: vec![view::JobEvent::from(v1::JobEvent {
            run: 2,
            attempt: 1,
            from_state: v1::JobState::Running.into(),
            to_state: v1::JobState::Retrying.into(),
            worker: "w1".to_owned(),
            duration_ms: 1_500,
            error: Some(error),
            time: Some(at(1)),
            ..v1::JobEvent::default()
        })],
    });
    assert!(
        text.contains("\nlast error: X (permanent)\n  first\n    at second\\u{1b}[2J xxx"),
        "{text}"
    );
    assert!(text.contains(&"x".repeat(300)), "{text}");
    assert!(!text.contains('\u{1b}'));
    let row = text.lines().last().expect("a row");
    assert!(row.starts_with("1970-01-01T00:00:01Z  2    1        running → retrying  w1      1s    X (permanent): first\\n"), "{row}");
    assert!(row.ends_with('…'), "{row}");
}

#[test]
fn a_job_without_a_timeline_says_so() {
    assert!(timeline_table(&[]).contains("nothing is recorded"));
}
