//! Waking (PROTOCOL.md §10).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::finish::Goal;

use crate::audit::v4_holds;
use crate::world::{POISON_LIMIT, World, job, retrying, success};

#[tokio::test]
async fn v1_a_sent_job_whose_message_was_lost_is_parked() {
    let world = World::new().await;
    let id = world.sent().await;
    assert_eq!(world.wake(&[id]).await, [], "not before its time");
    world.let_time_pass(&[id]).await;
    let candidates = world
        .store
        .wake_candidates(Some(Duration::from_hours(1)), 10)
        .await
        .expect("reads");
    assert_eq!(candidates, [id]);
    assert_eq!(
        world.wake(&[id]).await,
        [(id, "pending".to_owned(), "pending".to_owned())]
    );
    let row = world.row(id).await;
    assert!(row.parked, "{row:?}");
    assert_eq!((row.run, row.attempt, row.lost), (1, 0, 0));
    v4_holds(&world, "a lost message").await;
}

#[tokio::test]
async fn v6_a_lost_lease_is_taken_back_once() {
    let world = World::new().await;
    let id = world.running(SessionId::new()).await;
    world.let_time_pass(&[id]).await;
    // Two sweepers at once, again and again.
    let wakes = (0..8).map(|_| {
        let store = world.store.clone();
        tokio::spawn(async move { store.wake(&[id], true, POISON_LIMIT).await.expect("wakes") })
    });
    let mut taken = Vec::new();
    for wake in futures::future::join_all(wakes).await {
        taken.extend(wake.expect("no panic"));
    }
    assert_eq!(taken.len(), 1);
    assert!(taken[0].is_take_back());
    let row = world.row(id).await;
    assert_eq!((row.run, row.attempt, row.lost), (2, 1, 1));
    assert!(row.parked && row.state() == JobState::Pending, "{row:?}");
    assert_eq!(row.last_error_code.as_deref(), Some("LEASE_EXPIRED"));
    let ledger = world.ledger(id).await.expect("a ledger row");
    assert_eq!((ledger.0, ledger.1.as_str()), (1, "retryable"));
    v4_holds(&world, "a take-back").await;
}

#[tokio::test]
async fn a_lease_is_not_taken_back_while_the_clock_is_in_doubt() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    world.let_time_pass(&[id]).await;
    let woken = world
        .store
        .wake(&[id], false, POISON_LIMIT)
        .await
        .expect("wakes");
    assert_eq!(woken.len(), 1);
    assert!(!woken[0].is_take_back());
    let row = world.row(id).await;
    assert_eq!((row.state(), row.run, row.lost), (JobState::Running, 1, 0));
    assert!(row.wake_in.is_some_and(|s| s > 0.0), "{row:?}");
    // The worker comes back and finishes.
    assert!(world.finish(id, 1, success(), session).await);
    v4_holds(&world, "an outage").await;
}

#[tokio::test]
async fn v6_the_last_attempt_and_poison_end_in_a_letter() {
    let world = World::new().await;
    let session = SessionId::new();
    let last = {
        let mut job = job("ada");
        job.max_attempts = 1;
        world.submit(vec![job], false).await[0]
    };
    let poison = world.sent().await;
    assert_eq!(world.claim(&[(last, 1)], session).await.len(), 1);
    for run in 1..=i32::from(POISON_LIMIT) {
        assert_eq!(world.claim(&[(poison, run)], session).await.len(), 1);
        world.let_time_pass(&[poison]).await;
        world.wake(&[poison]).await;
        v4_holds(&world, "a loss").await;
    }
    world.let_time_pass(&[last]).await;
    world.wake(&[last]).await;
    for (id, code) in [(last, "LEASE_EXPIRED"), (poison, "POISON")] {
        let row = world.row(id).await;
        assert_eq!(row.state(), JobState::Failed);
        assert_eq!(row.last_error_code.as_deref(), Some(code));
        assert_eq!(
            world.letter(id).await,
            Some(("open".to_owned(), code.to_owned(), 1))
        );
    }
    v4_holds(&world, "the end").await;
}

#[tokio::test]
async fn a_requested_cancel_survives_the_workers_death() {
    let world = World::new().await;
    let id = world.running(SessionId::new()).await;
    world.store.cancel(id, "enough").await.expect("cancels");
    world.let_time_pass(&[id]).await;
    assert_eq!(
        world.wake(&[id]).await,
        [(id, "running".to_owned(), "cancelled".to_owned())]
    );
    assert_eq!(world.state(id).await, JobState::Cancelled);
    v4_holds(&world, "a take-back").await;
}

#[tokio::test]
async fn v4_what_has_expired_fails_whether_it_ran_before_or_not() {
    let world = World::new().await;
    let session = SessionId::new();
    let soon = || {
        let mut job = job("ada");
        job.expires_at = Some(chrono::Utc::now() + Duration::from_mins(5));
        job
    };
    let ids = world
        .submit(vec![soon(), soon(), soon(), soon()], false)
        .await;
    let [fresh, retried, runs, handed_back] = ids[..] else {
        panic!("{ids:?}")
    };
    let runs_now = [(retried, 1), (runs, 1), (handed_back, 1)];
    assert_eq!(world.claim(&runs_now, session).await.len(), 3);
    let goal = Goal::Pending(Duration::ZERO);
    assert!(world.finish(handed_back, 1, goal, session).await);
    assert!(
        world
            .finish(retried, 1, retrying(Duration::from_secs(1000)), session)
            .await
    );
    // Looked at when it expires, not when its retry would come.
    assert!(world.row(retried).await.wake_in.is_some_and(|s| s < 301.0));
    world
        .sql(
            "update jobs set expires_at = now() - interval '1 s', wake_at = now() - interval '1 s'",
        )
        .await;
    let woken = world.wake(&[fresh, retried, runs, handed_back]).await;
    assert_eq!(woken.len(), 4);
    for id in [fresh, retried] {
        assert_eq!(world.state(id).await, JobState::Failed);
        assert_eq!(
            world.letter(id).await.map(|l| l.1).as_deref(),
            Some("EXPIRED")
        );
    }
    // What had started in time, and gave its attempt back, goes on.
    assert_eq!(world.claim(&[(handed_back, 2)], session).await.len(), 1);
    // What runs has started in time.
    assert_eq!(world.state(runs).await, JobState::Running);
    assert!(world.finish(runs, 1, success(), session).await);
    v4_holds(&world, "expiry").await;
}

#[tokio::test]
async fn v5_every_row_that_is_looked_at_moves_or_gets_a_later_time() {
    let world = World::new().await;
    let session = SessionId::new();
    let (sent, running, retried, snoozed) = (
        world.sent().await,
        world.running(session).await,
        world.running(session).await,
        world.running(session).await,
    );
    let handed_back = world.running(session).await;
    assert!(
        world
            .finish(retried, 1, retrying(Duration::ZERO), session)
            .await
    );
    assert!(
        world
            .finish(snoozed, 1, Goal::Pending(Duration::from_secs(1)), session)
            .await
    );
    assert!(
        world
            .finish(handed_back, 1, Goal::Pending(Duration::ZERO), session)
            .await
    );
    let ids = [sent, running, retried, snoozed, handed_back];
    world.let_time_pass(&ids).await;
    let candidates = world.store.wake_candidates(None, 100).await.expect("reads");
    assert_eq!(candidates.len(), ids.len());
    assert_eq!(world.wake(&candidates).await.len(), ids.len());
    let left = world.store.wake_candidates(None, 100).await.expect("reads");
    assert_eq!(left, Vec::<JobId>::new());
    for id in ids {
        let row = world.row(id).await;
        assert!(row.parked && row.state() == JobState::Pending, "{row:?}");
    }
    v4_holds(&world, "a full pass").await;
}

#[tokio::test]
async fn the_horizon_hides_only_what_the_full_pass_finds() {
    let world = World::new().await;
    let (near, far) = (world.sent().await, world.sent().await);
    world.let_time_pass(&[near]).await;
    world
        .sql(format!(
            "update jobs set wake_at = now() - interval '2 hours' where job_id = '{far}'"
        ))
        .await;
    let hour = Some(Duration::from_hours(1));
    assert_eq!(
        world.store.wake_candidates(hour, 10).await.expect("reads"),
        [near]
    );
    // The earliest first.
    assert_eq!(
        world.store.wake_candidates(None, 10).await.expect("reads"),
        [far, near]
    );
    world.store.push_wake(far).await.expect("pushes");
    assert_eq!(
        world.store.wake_candidates(None, 10).await.expect("reads"),
        [near]
    );
    assert!(
        world
            .row(far)
            .await
            .wake_in
            .is_some_and(|s| (50.0..=60.0).contains(&s))
    );
}

#[tokio::test]
async fn v5_what_no_claim_may_take_any_more_fails_instead_of_waiting() {
    let world = World::new().await;
    let session = SessionId::new();
    let (waiting, parked, lost) = (
        world.running(session).await,
        world.running(session).await,
        world.running(session).await,
    );
    for id in [waiting, parked] {
        let later = retrying(Duration::from_hours(1));
        assert!(world.finish(id, 1, later, session).await);
    }
    world.let_time_pass(&[parked, lost]).await;
    world.wake(&[parked, lost]).await;
    // As a worker or a sweeper leaves it that does not look at the most attempts again.
    world.sql("update jobs set max_attempts = attempt").await;
    world.let_time_pass(&[waiting, parked, lost]).await;
    let failed = |id, was: &str| (id, was.to_owned(), "failed".to_owned());
    assert_eq!(
        world.wake(&[waiting, parked, lost]).await,
        [
            failed(waiting, "retrying"),
            failed(parked, "pending"),
            failed(lost, "pending"),
        ]
    );
    for (id, code) in [
        (waiting, "DOWNSTREAM"),
        (parked, "DOWNSTREAM"),
        (lost, "LEASE_EXPIRED"),
    ] {
        let row = world.row(id).await;
        assert_eq!((row.state(), row.attempt), (JobState::Failed, 1), "{row:?}");
        let letter = world.letter(id).await;
        assert_eq!(letter, Some(("open".to_owned(), code.to_owned(), 1)));
        let ledger = world.ledger(id).await.expect("a row");
        assert_eq!((ledger.0, ledger.1.as_str()), (row.run, "failed"));
    }
    let told =
        "select count(*) from dead_letters where error_message like '%most attempts were lowered%'";
    assert_eq!(world.count(told).await, 3);
    v4_holds(&world, "a wake of what had no attempt left").await;
}
