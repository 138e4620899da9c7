//! V5: what waits says why. And the timeline, as the rows tell it.

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::{Job, NewJob};
use tenure_core::domain::state::JobState;
use tenure_core::domain::wait::{Reason, Wait};
use tenure_core::storage::finish::Goal;
use tenure_core::storage::job_actions::Action;
use tenure_core::storage::workers::WorkerReport;

use crate::acts::{act, retry};
use crate::world::{World, job, success};

async fn read(world: &World, id: JobId) -> Job {
    let job = world.store.get_job(id, false).await.expect("reads");
    job.expect("the job")
}

async fn why(world: &World, id: JobId) -> Wait {
    let job = read(world, id).await;
    let mut waits = world.store.waits(&[job]).await.expect("a look");
    waits.remove(&id).expect("V5: a reason")
}

async fn worker(world: &World, draining: bool) -> SessionId {
    let report = WorkerReport {
        session: SessionId::new(),
        name: "worker-1".to_owned(),
        version: "1".to_owned(),
        queues: vec!["default".to_owned()],
        job_types: vec!["noop".to_owned()],
        slots: 4,
        running: 0,
        draining,
    };
    world.store.tell_worker(&report).await.expect("tells");
    report.session
}

#[tokio::test]
async fn v5_each_way_to_wait_has_its_reason() {
    let world = World::new().await;
    let session = SessionId::new();
    let sent = world.sent().await;
    let parked = world
        .submit(vec![job("ada"), job("ada"), job("bob")], true)
        .await;
    let later = NewJob {
        run_at: Some(chrono::Utc::now() + Duration::from_hours(1)),
        ..job("ada")
    };
    let later = world.submit(vec![later], false).await[0];
    let retrying = retry(&world, session).await;
    let snoozed = world.running(session).await;
    let snooze = Goal::Pending(Duration::from_hours(1));
    assert!(world.finish(snoozed, 1, snooze, session).await);

    // Nobody is there, or is about to leave.
    assert_eq!(why(&world, sent).await.reason, Reason::NoWorker);
    worker(&world, true).await;
    assert_eq!(why(&world, parked[0]).await.reason, Reason::NoWorker);
    worker(&world, false).await;

    let wait = why(&world, sent).await;
    assert_eq!(wait.reason, Reason::Dispatched);
    assert!(wait.until.is_some(), "{wait:?}");
    for (id, words) in [
        (parked[0], "the next of its user"),
        (parked[1], "1 of its user are ahead"),
        (parked[2], "the next of its user"),
    ] {
        let wait = why(&world, id).await;
        assert_eq!(wait.reason, Reason::Backlog);
        assert!(wait.message.contains(words), "{}", wait.message);
    }
    let wait = why(&world, later).await;
    assert_eq!(wait.reason, Reason::Scheduled);
    assert_eq!(wait.until, Some(read(&world, later).await.run_at));
    let wait = why(&world, retrying).await;
    assert_eq!(wait.reason, Reason::Backoff);
    assert!(
        wait.message.contains("DOWNSTREAM at 20"),
        "{}",
        wait.message
    );
    let wait = why(&world, snoozed).await;
    assert_eq!(wait.reason, Reason::Backoff);
    assert!(
        wait.message.starts_with("it was put off at 20"),
        "{}",
        wait.message
    );

    // All of one page at once; the rest says nothing.
    let running = world.running(session).await;
    let ended = world.running(session).await;
    assert!(world.finish(ended, 1, success(), session).await);
    world
        .sql("update queues set paused = true, pause_reason = 'new disks' where name = 'default'")
        .await;
    let ids = [sent, parked[0], later, retrying, snoozed, running, ended];
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(read(&world, id).await);
    }
    let waits = world.store.waits(&jobs).await.expect("a look");
    assert_eq!(waits.len(), 5);
    for id in &ids[..5] {
        assert_eq!(waits[id].reason, Reason::QueuePaused);
        assert!(
            waits[id].message.ends_with("new disks"),
            "{}",
            waits[id].message
        );
    }
}

#[tokio::test]
async fn v5_a_held_job_names_the_first_of_its_line() {
    let world = World::new().await;
    worker(&world, false).await;
    let ids = world
        .submit(vec![job("ada"), job("ada"), job("bob")], false)
        .await;
    for (seq, id) in ids.iter().enumerate() {
        world
            .sql(format!(
                "update jobs set ordering_key = 'o:acct-7', order_seq = {seq}, held = {} where job_id = '{id}'",
                seq > 0
            ))
            .await;
    }
    for id in &ids[1..] {
        let wait = why(&world, *id).await;
        assert_eq!(
            (wait.reason, wait.blocked_by),
            (Reason::Order, Some(ids[0]))
        );
        assert!(
            wait.message.contains(&ids[0].to_string()),
            "{}",
            wait.message
        );
    }
    // The head has ended and nobody has moved the next one up yet.
    world.store.cancel(ids[0], "").await.expect("cancels");
    let wait = why(&world, ids[1]).await;
    assert_eq!((wait.reason, wait.blocked_by), (Reason::Order, None));
}

#[tokio::test]
async fn a_silent_worker_is_none() {
    let world = World::new().await;
    let id = world.sent().await;
    let session = worker(&world, false).await;
    assert_eq!(why(&world, id).await.reason, Reason::Dispatched);
    world
        .sql(format!("update workers set last_contact_at = now() - interval '31 s' where session = '{session}'"))
        .await;
    assert_eq!(why(&world, id).await.reason, Reason::NoWorker);
}

#[tokio::test]
async fn the_timeline_has_the_runs_and_what_operators_did() {
    let world = World::new().await;
    let session = worker(&world, false).await;
    let id = retry(&world, session).await;
    act(&world, id, Action::RetryNow).await;
    act(&world, id, Action::SetMaxAttempts(9)).await;
    let later = chrono::Utc::now() + Duration::from_hours(1);
    act(&world, id, Action::Reschedule(later)).await;
    act(&world, id, Action::RetryNow).await;
    assert_eq!(world.claim(&[(id, 2)], session).await.len(), 1);
    world
        .store
        .cancel(id, "cancelled by its owner")
        .await
        .expect("notes");
    let events = world
        .store
        .timeline(&read(&world, id).await)
        .await
        .expect("reads");
    let told: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e.run,
                e.to,
                e.message.split(" from ").next().unwrap_or_default(),
            )
        })
        .collect();
    let reason = ": the disk is back";
    let due = format!("olga made it due{reason}");
    assert_eq!(
        told,
        [
            (1, JobState::Pending, "submitted"),
            (1, JobState::Running, "started"),
            (2, JobState::Pending, due.as_str()),
            (2, JobState::Pending, "olga changed its most attempts"),
            (2, JobState::Pending, "olga moved its start"),
            (2, JobState::Pending, due.as_str()),
            (2, JobState::Running, "started on worker-1"),
            (2, JobState::Running, "asked to end: cancelled by its owner"),
        ]
    );
    assert_eq!(events[2].from, Some(JobState::Retrying));
    assert!(
        events[3].message.contains("from 5 to 9"),
        "{}",
        events[3].message
    );
    assert_eq!(events[6].holder.session, Some(session));
    assert!(world.finish(id, 2, success(), session).await);
    let events = world
        .store
        .timeline(&read(&world, id).await)
        .await
        .expect("reads");
    let end = events.last().expect("an end");
    assert_eq!(
        (end.from, end.to),
        (Some(JobState::Running), JobState::Success)
    );
    assert_eq!(end.holder.name.as_deref(), Some("worker-1"));
}

#[tokio::test]
async fn how_the_worker_of_a_running_job_is_heard_of() {
    let world = World::new().await;
    let session = worker(&world, false).await;
    let id = world.running(session).await;
    let job = read(&world, id).await;
    world
        .sql(format!("update workers set last_contact_at = now() - interval '16 s' where session = '{session}'"))
        .await;
    let hold = world.store.hold_of(&job).await.expect("reads");
    let hold = hold.expect("it runs");
    let silent = hold.silent_ms.expect("the worker is known");
    assert!((16_000..60_000).contains(&silent), "{hold:?}");
    assert!(hold.lease_until.is_some(), "{hold:?}");
    let waiting = world.sent().await;
    let waiting = read(&world, waiting).await;
    assert_eq!(world.store.hold_of(&waiting).await.expect("reads"), None);
}
