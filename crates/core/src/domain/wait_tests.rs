use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::domain::ids::UserId;
use crate::domain::job::{Lane, LastError, Waiting};

pub(crate) fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("a time")
}

pub(crate) fn job(state: JobState, waiting: Waiting) -> Job {
    Job {
        job_id: JobId::new(),
        user_id: UserId::from_stored("ada".into()),
        job_type: "noop".into(),
        queue: "default".into(),
        lane: Lane::Normal,
        state,
        run: 1,
        attempt: 0,
        max_attempts: 5,
        revision: 1,
        progress_done: 0,
        progress_total: 0,
        progress_message: None,
        last_error: None,
        result: None,
        payload: None,
        labels: BTreeMap::new(),
        dedupe_key: None,
        submitted_by: None,
        created_at: at(0),
        run_at: at(60),
        started_at: None,
        finished_at: None,
        expires_at: None,
        timeout: Duration::from_mins(1),
        cancel_requested: false,
        line: None,
        waiting,
    }
}

/// Nothing is in the way.
fn clear() -> Around {
    Around {
        has_worker: true,
        ..Around::default()
    }
}

fn told(job: &Job, around: &Around) -> Wait {
    wait(job, around).expect("a reason")
}

#[test]
fn only_what_waits_has_a_reason_and_all_that_waits_has_one() {
    for state in JobState::ALL {
        for bits in 0..16 {
            let row = Waiting {
                later: bits & 1 > 0,
                parked: bits & 2 > 0,
                held: bits & 4 > 0,
                ..Waiting::default()
            };
            let around = Around {
                has_worker: bits & 8 > 0,
                ..Around::default()
            };
            let waits = matches!(state, JobState::Pending | JobState::Retrying);
            let found = wait(&job(state, row), &around);
            assert_eq!(found.is_some(), waits, "{state}");
            assert!(found.is_none_or(|wait| !wait.message.is_empty()));
        }
    }
}

#[test]
fn the_first_reason_that_holds_is_told() {
    // Everything at once, taken away one after the other.
    let mut around = Around {
        paused: Some(Paused {
            by: None,
            reason: Some("new disks".into()),
        }),
        system_paused: None,
        has_worker: false,
        blocked_by: Some(JobId::new()),
        blocked_by_failed: true,
        ahead: 3,
        last_end: Some((at(1), Some("DOWN".into()))),
        sweepers_silent: None,
    };
    let mut it = job(
        JobState::Pending,
        Waiting {
            later: true,
            parked: true,
            held: true,
            wake_at: Some(at(90)),
        },
    );
    it.line = Some(Line::Ordered {
        key: "k".into(),
        blocks: false,
    });
    let wait = told(&it, &around);
    assert_eq!((wait.reason, wait.until), (Reason::QueuePaused, None));
    assert_eq!(wait.message, "its queue \"default\" is paused: new disks");
    assert_eq!(wait.blocked_by, None);

    around.system_paused = Some(Paused {
        by: Some("the system".into()),
        reason: Some("results are written late".into()),
    });
    around.paused = Some(Paused {
        by: Some("olga".into()),
        reason: Some("new disks".into()),
    });
    assert_eq!(
        told(&it, &around).message,
        "its queue \"default\" is paused by olga: new disks; and by the system: results are written late"
    );
    around.paused = None;
    let wait = told(&it, &around);
    assert_eq!(wait.reason, Reason::QueuePaused);
    assert_eq!(
        wait.message,
        "its queue \"default\" is paused by the system: results are written late"
    );

    around.system_paused = None;
    let wait = told(&it, &around);
    assert_eq!((wait.reason, wait.until), (Reason::Scheduled, Some(at(60))));

    it.started_at = Some(at(1));
    it.attempt = 1;
    let wait = told(&it, &around);
    assert_eq!((wait.reason, wait.until), (Reason::Backoff, Some(at(60))));
    assert_eq!(
        wait.message,
        "its last run ended with DOWN at 2023-11-14 22:13:21 UTC; attempt 2 of 5 is due at 2023-11-14 22:14:20 UTC"
    );

    it.waiting.later = false;
    let wait = told(&it, &around);
    assert_eq!(
        (wait.reason, wait.blocked_by),
        (Reason::Order, around.blocked_by)
    );
    assert!(wait.message.contains("\"k\""), "{}", wait.message);
    assert!(wait.message.contains("replay it"), "{}", wait.message);
    around.blocked_by_failed = false;
    let wait = told(&it, &around);
    assert!(wait.message.ends_with("has not ended"), "{}", wait.message);

    it.line = Some(Line::Limited {
        key: "k".into(),
        most: 5,
    });
    let wait = told(&it, &around);
    assert_eq!((wait.reason, wait.blocked_by), (Reason::Concurrency, None));
    assert!(wait.message.contains("\"k\""), "{}", wait.message);
    assert!(wait.message.contains("(5)"), "{}", wait.message);

    it.waiting.held = false;
    assert_eq!(told(&it, &around).reason, Reason::NoWorker);

    around.has_worker = true;
    let wait = told(&it, &around);
    assert_eq!(wait.reason, Reason::Backlog);
    assert!(wait.message.ends_with("3 of its user are ahead"));

    it.waiting.parked = false;
    let wait = told(&it, &around);
    assert_eq!(
        (wait.reason, wait.until),
        (Reason::Dispatched, Some(at(90)))
    );
}

#[test]
fn a_retry_says_what_went_wrong_whoever_remembers_it() {
    let mut it = job(
        JobState::Retrying,
        Waiting {
            later: true,
            ..Waiting::default()
        },
    );
    it.last_error = Some(LastError {
        code: "DOWN".into(),
        temporary: true,
        message: "m".into(),
    });
    assert!(
        told(&it, &clear())
            .message
            .starts_with("its last run ended with DOWN;")
    );
    let snoozed = Around {
        last_end: Some((at(1), None)),
        ..clear()
    };
    assert!(
        told(&it, &snoozed)
            .message
            .starts_with("it was put off at 2023")
    );
    it.waiting.later = false;
    let wait = told(&it, &clear());
    assert_eq!((wait.reason, wait.until), (Reason::Backoff, None));
    assert!(wait.message.contains("within seconds"), "{}", wait.message);
}

#[test]
fn an_expiry_is_told_while_it_counts() {
    let mut it = job(JobState::Pending, Waiting::default());
    it.expires_at = Some(at(3600));
    assert!(told(&it, &clear()).message.contains("EXPIRED"));
    it.started_at = Some(at(1));
    assert!(!told(&it, &clear()).message.contains("EXPIRED"));
}

#[test]
fn the_backlog_counts_up_to_its_cap() {
    let parked = Waiting {
        parked: true,
        ..Waiting::default()
    };
    let it = job(JobState::Pending, parked);
    for (ahead, words) in [
        (0, "the next of its user"),
        (AHEAD_CAP, "100 of its user are ahead"),
        (AHEAD_CAP + 1, "more than 100 of its user are ahead"),
    ] {
        let around = Around { ahead, ..clear() };
        let message = told(&it, &around).message;
        assert!(message.ends_with(words), "{message}");
    }
}

#[test]
fn a_sweeper_that_is_missed_is_told_where_the_job_waits_for_one() {
    let around = Around {
        sweepers_silent: Some(Duration::from_secs(25)),
        ..clear()
    };
    let parked = job(
        JobState::Pending,
        Waiting {
            parked: true,
            ..Waiting::default()
        },
    );
    let due = job(JobState::Retrying, Waiting::default());
    for waiting in [&parked, &due] {
        let message = told(waiting, &around).message;
        assert!(
            message.contains("no sweeper has dispatched jobs for 25 s"),
            "{message}"
        );
        assert!(!told(waiting, &clear()).message.contains("sweeper"));
    }
    let sent = job(JobState::Pending, Waiting::default());
    assert!(!told(&sent, &around).message.contains("sweeper"));
    for (seconds, text) in [
        (119, "119 s"),
        (120, "2 min"),
        (7_200, "2 h"),
        (1 << 40, "a day"),
    ] {
        let told = sweepers_silent(Duration::from_secs(seconds));
        assert!(told.contains(text), "{told}");
    }
}
