//! What the ends of runs count: attempts, losses in a row, snoozes, outages (PROTOCOL.md §3,
//! §10, §11).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::finish::Goal;

use crate::audit::v4_holds;
use crate::world::{POISON_LIMIT, World, failed, job, outage, retrying, success};

/// A job that has lost so many leases in a row and waits for its next run.
async fn lost(world: &World, times: i16) -> JobId {
    let id = world.sent().await;
    for _ in 0..times {
        lose(world, id).await;
    }
    id
}

/// One run that ends with its worker; the state after it.
async fn lose(world: &World, id: JobId) -> JobState {
    let run = world.row(id).await.run;
    let claimed = world.claim(&[(id, run)], SessionId::new()).await;
    assert_eq!(claimed.len(), 1);
    world.let_time_pass(&[id]).await;
    assert_eq!(world.wake(&[id]).await.len(), 1);
    world.state(id).await
}

/// One run that a handler or a worker ends so; (state, attempt, lost) after it.
async fn end(world: &World, id: JobId, goal: Goal) -> (JobState, i32, i16) {
    let session = SessionId::new();
    let run = world.row(id).await.run;
    assert_eq!(world.claim(&[(id, run)], session).await.len(), 1);
    assert!(world.finish(id, run, goal, session).await);
    let row = world.row(id).await;
    (row.state(), row.attempt, row.lost)
}

#[tokio::test]
async fn v6_the_second_loss_in_a_row_spends_no_attempt_and_the_third_is_poison() {
    let world = World::new().await;
    // Two attempts are enough: the second loss cannot be the end of an innocent.
    let id = {
        let mut job = job("ada");
        job.max_attempts = 2;
        world.submit(vec![job], false).await[0]
    };
    let mut seen = Vec::new();
    for _ in 0..POISON_LIMIT {
        let state = lose(&world, id).await;
        let row = world.row(id).await;
        seen.push((state, row.attempt, row.lost, row.run));
        v4_holds(&world, "a loss").await;
    }
    assert_eq!(
        seen,
        [
            (JobState::Pending, 1, 1, 2),
            (JobState::Pending, 1, 2, 3),
            (JobState::Failed, 2, 3, 3),
        ]
    );
    let letter = world.letter(id).await.map(|l| (l.0, l.1));
    assert_eq!(letter, Some(("open".to_owned(), "POISON".to_owned())));
    let attempts = format!("select attempts::bigint from dead_letters where job_id = '{id}'");
    assert_eq!(world.count(&attempts).await, 2);
}

#[tokio::test]
async fn v6_an_innocent_that_was_lost_twice_finishes_in_its_second_attempt() {
    let world = World::new().await;
    let id = lost(&world, 2).await;
    assert_eq!(
        end(&world, id, success()).await,
        (JobState::Success, 2, 0),
        "one of two losses has counted"
    );
    v4_holds(&world, "a success").await;
}

#[tokio::test]
async fn losses_count_in_a_row_and_a_handlers_end_clears_them() {
    let world = World::new().await;
    let delay = Duration::from_secs(5);
    for (goal, expected) in [
        (success(), (JobState::Success, 2, 0)),
        (retrying(delay), (JobState::Retrying, 2, 0)),
        (outage(delay), (JobState::Retrying, 1, 0)),
        (failed(), (JobState::Failed, 2, 0)),
        // A snooze.
        (Goal::Pending(delay), (JobState::Pending, 1, 0)),
        // A hand-back: the worker stopped it, and it may have been about to kill it.
        (Goal::Pending(Duration::ZERO), (JobState::Pending, 1, 2)),
    ] {
        let id = lost(&world, 2).await;
        let what = format!("{goal:?}");
        assert_eq!(end(&world, id, goal).await, expected, "{what}");
    }
    // After it the counting begins anew: two more losses are not the third and fourth.
    let id = lost(&world, 2).await;
    end(&world, id, retrying(Duration::ZERO)).await;
    world.let_time_pass(&[id]).await;
    world.wake(&[id]).await;
    assert_eq!(lose(&world, id).await, JobState::Pending);
    assert_eq!(lose(&world, id).await, JobState::Pending);
    assert_eq!(world.row(id).await.lost, 2);
    v4_holds(&world, "ends of runs").await;
}

#[tokio::test]
async fn the_last_attempt_lost_for_the_first_time_fails() {
    let world = World::new().await;
    let id = {
        let mut job = job("ada");
        job.max_attempts = 1;
        world.submit(vec![job], false).await[0]
    };
    assert_eq!(lose(&world, id).await, JobState::Failed);
    let code = world.letter(id).await.map(|l| l.1);
    assert_eq!(code.as_deref(), Some("LEASE_EXPIRED"));
    v4_holds(&world, "the last attempt").await;
}

#[tokio::test]
async fn v6_a_lease_that_a_restart_of_the_database_cut_off_spends_nothing() {
    let world = World::new().await;
    let last = {
        let mut job = job("ada");
        job.max_attempts = 1;
        world.submit(vec![job], false).await[0]
    };
    let suspect = lost(&world, 2).await;
    let asked = world.sent().await;
    for id in [last, suspect, asked] {
        let run = world.row(id).await.run;
        assert_eq!(world.claim(&[(id, run)], SessionId::new()).await.len(), 1);
    }
    world.store.cancel(asked, "enough").await.expect("cancels");
    let ids = [last, suspect, asked];
    world.let_it_have_restarted(&ids).await;
    world.let_time_pass(&ids).await;
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    let woken = world
        .store
        .wake(&sorted, true, POISON_LIMIT)
        .await
        .expect("wakes");
    assert!(
        woken
            .iter()
            .all(|row| row.is_take_back() && row.is_cut_off())
    );
    let refunds: Vec<_> = woken
        .iter()
        .filter_map(tenure_core::storage::wake::Woken::refund)
        .collect();
    assert_eq!(refunds, ["database_restart", "database_restart"]);
    for (id, attempt, lost) in [(last, 0, 0), (suspect, 1, 2)] {
        let row = world.row(id).await;
        assert_eq!(row.state(), JobState::Pending);
        assert_eq!((row.attempt, row.lost), (attempt, lost), "{row:?}");
        assert_eq!(row.last_error_code.as_deref(), Some("LEASE_EXPIRED"));
    }
    let row = world.row(asked).await;
    assert_eq!((row.state(), row.lost), (JobState::Cancelled, 0));
    v4_holds(&world, "a restart").await;
}

#[tokio::test]
async fn v6_an_outage_of_our_own_spends_no_attempt_and_is_dated() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.sent().await;
    let since = async |run: i32| {
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        let claimed = world.claim(&[(id, run)], session).await.pop();
        let claimed = claimed.expect("claimed");
        assert_eq!(claimed.attempt, 1, "run {run}");
        claimed.outage_since
    };
    assert_eq!(since(1).await, None);
    let mut first = None;
    for run in 1..=9 {
        assert!(world.finish(id, run, outage(Duration::ZERO), session).await);
        let seen = since(run + 1).await;
        assert!(seen.is_some());
        assert_eq!(seen, *first.get_or_insert(seen), "the first one is dated");
    }
    // Attempts that count keep the date, so that patience ends once.
    assert!(
        world
            .finish(id, 10, retrying(Duration::ZERO), session)
            .await
    );
    world.let_time_pass(&[id]).await;
    world.wake(&[id]).await;
    let claimed = world.claim(&[(id, 11)], session).await;
    assert_eq!(
        (claimed[0].attempt, Some(claimed[0].outage_since)),
        (2, first)
    );
    // A snooze is an end without an outage.
    let goal = Goal::Pending(Duration::from_secs(1));
    assert!(world.finish(id, 11, goal, session).await);
    world.let_time_pass(&[id]).await;
    let claimed = world.claim(&[(id, 12)], session).await;
    assert_eq!((claimed[0].outage_since, claimed[0].snoozes), (None, 1));
    v4_holds(&world, "outages").await;
}

#[tokio::test]
async fn v6_snoozes_spend_no_attempt_and_are_counted_and_hand_backs_are_not() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.sent().await;
    for run in 1..=6 {
        let claimed = world.claim(&[(id, run)], session).await;
        assert_eq!(claimed.len(), 1, "run {run}");
        assert_eq!((claimed[0].attempt, claimed[0].snoozes), (1, run / 2));
        let delay = Duration::from_millis(u64::from(run % 2 == 1));
        assert!(world.finish(id, run, Goal::Pending(delay), session).await);
        world.let_time_pass(&[id]).await;
    }
    v4_holds(&world, "snoozes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v12_a_finish_and_a_take_back_at_the_same_time_leave_one_story() {
    let world = World::new().await;
    let session = SessionId::new();
    let mut finished = 0;
    for round in 0..60 {
        let id = world.running(session).await;
        let ids = [id];
        world.let_time_pass(&ids).await;
        let (done, woken) = tokio::join!(world.finish(id, 1, success(), session), world.wake(&ids));
        // The sweeper may have passed the row by while the finish held it.
        assert!(!done || woken.is_empty(), "round {round}: both");
        finished += i32::from(done);
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        let row = world.row(id).await;
        let expected = if done {
            (JobState::Success, 1, 0)
        } else {
            (JobState::Pending, 2, 1)
        };
        assert_eq!((row.state(), row.run, row.lost), expected, "round {round}");
    }
    println!("{finished} of 60 finished");
    v4_holds(&world, "races").await;
}
