use super::*;
use crate::domain::job::Waiting;
use crate::domain::wait::tests::{at, job as sample};

fn job(state: JobState, run: i32, attempt: i32) -> Job {
    Job {
        run,
        attempt,
        ..sample(state, Waiting::default())
    }
}

fn holder(name: &str) -> Holder {
    Holder {
        session: None,
        name: Some(name.to_owned()),
    }
}

fn past(run: i32, from: JobState, to: JobState, began: i64, ended: i64) -> Past {
    Past {
        at: at(ended),
        run,
        from,
        to,
        attempt: run,
        refunded: false,
        started_at: Some(at(began)),
        holder: holder("w"),
        code: Some("DOWN".into()),
        temporary: None,
        message: Some("m".into()),
    }
}

fn claimed(run: i32, name: &str, began: Option<i64>) -> Claimed {
    Claimed {
        run,
        holder: holder(name),
        at: began.map(at),
    }
}

/// (run, from, to) of each event.
fn shape(events: &[Event]) -> Vec<(i32, Option<JobState>, JobState)> {
    events.iter().map(|e| (e.run, e.from, e.to)).collect()
}

use JobState::{Cancelled, Failed, Pending, Retrying, Running, Success, Timeout};

#[test]
fn a_happy_job_is_told_from_its_row() {
    let mut it = job(Success, 1, 1);
    it.started_at = Some(at(2));
    it.finished_at = Some(at(5));
    let facts = Facts {
        last: Some(claimed(1, "w", None)),
        ..Facts::default()
    };
    let events = merge(&it, Vec::new(), Vec::new(), &facts);
    assert_eq!(
        shape(&events),
        [
            (1, None, Pending),
            (1, Some(Pending), Running),
            (1, Some(Running), Success)
        ]
    );
    assert_eq!(events[1].holder, holder("w"));
    assert_eq!(events[2].held_for, Some(Duration::from_secs(3)));
    assert_eq!(events[2].holder, holder("w"));
    assert!(events.iter().all(|e| e.error.is_none()));
}

#[test]
fn a_take_back_and_the_run_elsewhere_stand_in_order_whatever_the_clocks_say() {
    let mut it = job(Success, 2, 2);
    it.started_at = Some(at(2));
    it.finished_at = Some(at(40));
    let mut done = past(2, Running, Success, 33, 1);
    (done.code, done.message) = (None, None);
    done.holder = holder("other");
    let mut back = past(1, Timeout, Pending, 2, 31);
    back.started_at = None;
    // Unsorted, and the second worker's clock is behind by half a minute.
    let events = merge(
        &it,
        vec![done, back, past(1, Running, Timeout, 2, 31)],
        Vec::new(),
        &Facts::default(),
    );
    assert_eq!(
        shape(&events),
        [
            (1, None, Pending),
            (1, Some(Pending), Running),
            (1, Some(Running), Timeout),
            (1, Some(Timeout), Pending),
            (2, Some(Pending), Running),
            (2, Some(Running), Success),
        ]
    );
    assert_eq!(events[2].held_for, Some(Duration::from_secs(29)));
    assert_eq!(events[2].message, "the lease of w ran out");
    assert_eq!(events[3].held_for, None);
    assert_eq!(events[5].at, at(40), "the database knows the end");
    assert_eq!(events[5].held_for, Some(Duration::from_secs(7)));
}

#[test]
fn a_run_that_goes_on_has_its_worker() {
    let mut it = job(Running, 2, 2);
    it.started_at = Some(at(2));
    let facts = Facts {
        held: Some(claimed(2, "now", Some(20))),
        last: Some(claimed(2, "now", None)),
        cancel: Some((at(25), "enough".into())),
    };
    let events = merge(
        &it,
        vec![past(1, Running, Retrying, 2, 4)],
        Vec::new(),
        &facts,
    );
    let last = &events[3..];
    assert_eq!(
        shape(last),
        [(2, Some(Pending), Running), (2, Some(Running), Running)]
    );
    assert_eq!((last[0].at, &last[0].holder), (at(20), &holder("now")));
    assert_eq!(last[0].attempt, 2);
    assert_eq!(last[1].message, "asked to end: enough");
    let error = events[2].error.as_ref().expect("an error");
    assert_eq!((error.code.as_str(), error.temporary), ("DOWN", Some(true)));
    // The row as it was read and the lock as it was read later need not fit.
    it.state = Pending;
    assert_eq!(merge(&it, Vec::new(), Vec::new(), &facts).len(), 3);
}

#[test]
fn what_waited_when_it_ended_did_not_run() {
    let cancelled = |started: bool| {
        let mut it = job(Cancelled, 1 + i32::from(started), i32::from(started));
        it.started_at = started.then(|| at(2));
        it.finished_at = Some(at(9));
        it.last_error = Some(LastError {
            code: "CANCELLED".into(),
            temporary: false,
            message: "cancelled by its owner".into(),
        });
        let facts = Facts {
            last: started.then(|| claimed(1, "w", None)),
            cancel: Some((at(9), "cancelled by its owner".into())),
            ..Facts::default()
        };
        let past = if started {
            vec![past(1, Running, Retrying, 2, 4)]
        } else {
            Vec::new()
        };
        merge(&it, past, Vec::new(), &facts)
    };
    for (started, from) in [(false, Pending), (true, Retrying)] {
        let events = cancelled(started);
        let end = events.last().expect("an end");
        assert_eq!((end.from, end.to), (Some(from), Cancelled));
        assert_eq!(end.message, "cancelled by its owner");
        assert_eq!((end.held_for, &end.holder), (None, &Holder::default()));
    }
}

#[test]
fn a_job_that_expired_and_was_replayed_started_in_a_later_run() {
    let mut it = job(Running, 2, 1);
    it.started_at = Some(at(50));
    let mut expired = past(1, Pending, Failed, 0, 30);
    (expired.started_at, expired.attempt) = (None, 0);
    let events = merge(&it, vec![expired], Vec::new(), &Facts::default());
    assert_eq!(
        shape(&events),
        [
            (1, None, Pending),
            (1, Some(Pending), Failed),
            (2, Some(Pending), Running),
        ]
    );
}

#[test]
fn a_refund_is_seen_in_the_attempts() {
    let mut it = job(Pending, 2, 0);
    it.started_at = Some(at(2));
    let mut snoozed = past(1, Running, Pending, 2, 4);
    (snoozed.attempt, snoozed.refunded, snoozed.code) = (0, true, None);
    let events = merge(&it, vec![snoozed], Vec::new(), &Facts::default());
    let attempts: Vec<_> = events.iter().map(|e| e.attempt).collect();
    assert_eq!(attempts, [0, 1, 0]);
    assert!(events[2].error.is_none());
}

#[test]
fn acts_stand_between_the_runs() {
    let mut it = job(Pending, 2, 1);
    it.started_at = Some(at(2));
    let act = Act {
        at: at(10),
        run: 2,
        attempt: 1,
        from: Retrying,
        to: Pending,
        message: "olga made it due".into(),
    };
    let events = merge(
        &it,
        vec![past(1, Running, Retrying, 2, 4)],
        vec![act],
        &Facts::default(),
    );
    let last = events.last().expect("the act");
    assert_eq!((last.run, last.from, last.to), (2, Some(Retrying), Pending));
    assert_eq!(last.message, "olga made it due");
}

#[test]
fn the_latest_are_kept() {
    let mut it = job(Retrying, 501, 1);
    it.started_at = Some(at(10));
    let lines = (1..=500)
        .map(|run| {
            past(
                run,
                Running,
                Retrying,
                i64::from(run) * 10,
                i64::from(run) * 10 + 5,
            )
        })
        .collect();
    let events = merge(&it, lines, Vec::new(), &Facts::default());
    assert_eq!(events.len(), MAX_EVENTS);
    assert_eq!((events[0].run, events[0].to), (401, Running));
    assert_eq!(events[MAX_EVENTS - 1].run, 500);
}

#[test]
fn a_replay_stands_behind_the_failure_though_its_worker_dates_that_later() {
    let mut it = job(Success, 2, 1);
    it.started_at = Some(at(2));
    it.finished_at = Some(at(40));
    let mut replayed = past(1, Failed, Pending, 2, 9);
    replayed.started_at = None;
    let done = past(2, Running, Success, 33, 40);
    let failed = past(1, Running, Failed, 2, 10);
    let events = merge(
        &it,
        vec![replayed, done, failed],
        Vec::new(),
        &Facts::default(),
    );
    assert_eq!(
        shape(&events)[2..4],
        [(1, Some(Running), Failed), (1, Some(Failed), Pending),]
    );
}

#[test]
fn the_class_of_an_error_is_the_one_that_was_kept() {
    let mut it = job(Failed, 2, 2);
    it.started_at = Some(at(2));
    it.finished_at = Some(at(40));
    let classes = |kept: Option<bool>| -> Vec<Option<bool>> {
        let mut retried = past(1, Running, Retrying, 2, 9);
        let mut failed = past(2, Running, Failed, 33, 40);
        for entry in [&mut retried, &mut failed] {
            entry.temporary = kept;
        }
        let events = merge(&it, vec![retried, failed], Vec::new(), &Facts::default());
        let errors = events.iter().filter_map(|event| event.error.as_ref());
        errors.map(|error| error.temporary).collect()
    };
    assert_eq!(classes(Some(false)), [Some(false), Some(false)]);
    assert_eq!(classes(Some(true)), [Some(true), Some(true)]);
    // What the release before wrote: that it was tried again tells.
    assert_eq!(classes(None), [Some(true), None]);
}
