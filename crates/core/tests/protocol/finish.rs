//! Finishing (PROTOCOL.md §9).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::DbKind;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::finish::{Goal, NewFollowUp, Unapplied};

use crate::audit::v4_holds;
use crate::world::{World, failed, finish, kind, outage, retrying, success};

/// Every goal, with the job's and the ledger's state after it.
fn goals() -> Vec<(Goal, JobState, &'static str)> {
    vec![
        (success(), JobState::Success, "done"),
        (failed(), JobState::Failed, "failed"),
        (
            retrying(Duration::from_secs(9)),
            JobState::Retrying,
            "retryable",
        ),
        (
            outage(Duration::from_secs(9)),
            JobState::Retrying,
            "retryable",
        ),
        (
            Goal::Pending(Duration::ZERO),
            JobState::Pending,
            "retryable",
        ),
        (
            Goal::Pending(Duration::from_secs(9)),
            JobState::Pending,
            "retryable",
        ),
        (Goal::Cancelled, JobState::Cancelled, "cancelled"),
    ]
}

#[tokio::test]
async fn v4_every_goal_in_one_batch_moves_job_ledger_and_letter() {
    let world = World::new().await;
    let session = SessionId::new();
    let mut items = Vec::new();
    for (goal, _, _) in goals() {
        items.push(finish(world.running(session).await, 1, goal));
    }
    items.sort_by_key(|item| item.job_id);
    let done = world
        .store
        .finish(&items, session)
        .await
        .expect("finishes")
        .revisions;
    assert_eq!(done.len(), items.len());
    for (item, (goal, state, ledger)) in items.iter().zip(goals()) {
        assert_eq!(item.goal, goal, "ids grow with time");
        let row = world.row(item.job_id).await;
        assert_eq!(row.state(), state);
        assert_eq!(done[&item.job_id], row.rev);
        assert_eq!((row.locked_by, row.lease_in), (None, None));
        let got = world.ledger(item.job_id).await.expect("a ledger row");
        assert_eq!((got.0, got.1.as_str()), (1, ledger));
        // V6: run + 1 exactly when it can run again; a hand-back, a snooze and an outage give
        // the attempt back.
        let again = matches!(state, JobState::Retrying | JobState::Pending);
        assert_eq!(row.run, 1 + i32::from(again));
        let returned = matches!(goal, Goal::Pending(_) | Goal::Outage(..));
        assert_eq!(row.attempt, i32::from(!returned));
        let letter = world.letter(item.job_id).await;
        assert_eq!(
            letter,
            (state == JobState::Failed).then(|| ("open".to_owned(), "DOWNSTREAM".to_owned(), 1))
        );
        match goal {
            Goal::Pending(delay) if delay.is_zero() => assert!(row.parked),
            Goal::Pending(_) | Goal::Retrying(..) | Goal::Outage(..) => {
                assert!(
                    !row.parked && row.wake_in.is_some_and(|s| (8.0..=9.0).contains(&s)),
                    "{row:?}"
                );
            }
            _ => assert_eq!(row.wake_in, None),
        }
    }
    v4_holds(&world, "every goal").await;
}

#[tokio::test]
async fn v3_after_a_lost_lease_no_goal_changes_the_job() {
    let world = World::new().await;
    let (old, new) = (SessionId::new(), SessionId::new());
    for (goal, _, _) in goals() {
        let id = world.running(old).await;
        world.let_time_pass(&[id]).await;
        assert_eq!(world.wake(&[id]).await.len(), 1);
        for claimed_again in [false, true] {
            if claimed_again {
                assert_eq!(world.claim(&[(id, 2)], new).await.len(), 1);
            }
            let before = world.row(id).await;
            let ledger = world.ledger(id).await;
            for run in [1, 2] {
                assert!(!world.finish(id, run, goal.clone(), old).await);
            }
            let after = world.row(id).await;
            assert_eq!(
                (after.rev, after.state(), after.run),
                (before.rev, before.state(), before.run)
            );
            assert_eq!(world.ledger(id).await, ledger);
        }
        let verdict = world
            .store
            .reread_unfinished(&[finish(id, 1, goal.clone())], old)
            .await
            .expect("reads");
        assert_eq!(verdict, [Unapplied::Lost], "{goal:?}");
    }
    v4_holds(&world, "zombies").await;
}

#[tokio::test]
async fn v2_an_expired_lease_that_nobody_took_back_may_still_finish() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    world.let_time_pass(&[id]).await;
    assert!(world.finish(id, 1, success(), session).await);
    assert_eq!(world.state(id).await, JobState::Success);
    // And the sweeper that comes later finds nothing.
    assert_eq!(world.wake(&[id]).await, []);
    v4_holds(&world, "a late finish").await;
}

#[tokio::test]
async fn v8_the_same_finish_again_changes_nothing_and_is_known_as_applied() {
    let world = World::new().await;
    let session = SessionId::new();
    for (goal, _, _) in goals() {
        let id = world.running(session).await;
        assert!(world.finish(id, 1, goal.clone(), session).await);
        let before = world.row(id).await;
        assert!(!world.finish(id, 1, goal.clone(), session).await);
        assert_eq!(world.row(id).await.rev, before.rev);
        let verdict = world
            .store
            .reread_unfinished(&[finish(id, 1, goal.clone())], session)
            .await
            .expect("reads");
        assert_eq!(verdict, [Unapplied::Applied], "{goal:?}");
    }
    v4_holds(&world, "repeats").await;
}

#[tokio::test]
async fn v8_an_id_twice_in_one_batch_finishes_once() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    let items = [finish(id, 1, failed()), finish(id, 1, failed())];
    let done = world
        .store
        .finish(&items, session)
        .await
        .expect("finishes")
        .revisions;
    assert_eq!(done.len(), 1);
    assert_eq!(world.letter(id).await.map(|l| l.2), Some(1));
    v4_holds(&world, "a doubled id").await;
}

#[tokio::test]
async fn a_requested_cancel_is_not_forgotten_by_any_goal() {
    let world = World::new().await;
    let session = SessionId::new();
    for (goal, state, _) in goals() {
        let id = world.running(session).await;
        let asked = world.store.cancel(id, "enough").await.expect("cancels");
        assert_eq!(asked, Cancelled::Requested);
        let beaten = !matches!(state, JobState::Success | JobState::Cancelled);
        let item = finish(id, 1, goal.clone());
        let matched = world.finish(id, 1, goal, session).await;
        assert_eq!(matched, !beaten, "{state}: success alone goes before it");
        if beaten {
            let verdict = world
                .store
                .reread_unfinished(&[item], session)
                .await
                .expect("reads");
            assert_eq!(verdict, [Unapplied::CancelRequested]);
            assert_eq!(world.state(id).await, JobState::Running);
            assert!(world.finish(id, 1, Goal::Cancelled, session).await);
            assert_eq!(world.state(id).await, JobState::Cancelled);
            let ledger = world.ledger(id).await.expect("a ledger row");
            assert_eq!((ledger.0, ledger.1.as_str()), (1, "cancelled"));
        } else {
            assert_eq!(world.state(id).await, state);
        }
    }
    v4_holds(&world, "cancels").await;
}

#[tokio::test]
async fn v4_a_finish_is_vetoed_where_the_ledger_disagrees() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    world
        .sql(format!(
            "update processed_events set run = 9 where event_id = '{id}'"
        ))
        .await;
    let error = world
        .store
        .finish(&[finish(id, 1, success())], session)
        .await
        .expect_err("a veto");
    assert_eq!(kind(&error), DbKind::Invariant, "{error}");
    assert_eq!(world.state(id).await, JobState::Running);
}

fn follow_up(job_type: &str) -> NewFollowUp {
    NewFollowUp {
        job_id: JobId::new(),
        job_type: job_type.to_owned(),
        payload: b"{\"from\":\"parent\"}".to_vec(),
    }
}

#[tokio::test]
async fn v8_follow_ups_exist_exactly_if_the_job_succeeded() {
    let world = World::new().await;
    let session = SessionId::new();
    let parent = world.running(session).await;
    let (first, second) = (follow_up("notify"), follow_up("noop"));
    let goal = Goal::Success {
        result: Some(b"{\"rows\":3}".to_vec()),
        follow_ups: vec![first.clone(), second.clone()],
    };
    // Of another session, or of another run: neither success nor follow-ups.
    assert!(
        !world
            .finish(parent, 1, goal.clone(), SessionId::new())
            .await
    );
    assert!(!world.finish(parent, 2, goal.clone(), session).await);
    assert_eq!(world.count("select count(*) from jobs").await, 1);
    assert!(world.finish(parent, 1, goal.clone(), session).await);
    for follow in [&first, &second] {
        let row = world.row(follow.job_id).await;
        assert!(row.parked && row.state() == JobState::Pending, "{row:?}");
    }
    let owner = format!(
        "select count(*) from jobs where job_id in ('{}', '{}') and user_id = 'ada' and submitted_by = 'job:{parent}'",
        first.job_id, second.job_id
    );
    assert_eq!(world.count(&owner).await, 2);
    // A repeat makes no more.
    assert!(!world.finish(parent, 1, goal, session).await);
    assert_eq!(world.count("select count(*) from jobs").await, 3);
    v4_holds(&world, "follow-ups").await;
}

#[tokio::test]
async fn v8_a_follow_up_that_cannot_be_made_fails_the_whole_finish() {
    let world = World::new().await;
    let session = SessionId::new();
    let (parent, beside) = (world.running(session).await, world.running(session).await);
    let goal = Goal::Success {
        result: None,
        follow_ups: vec![follow_up("notify"), follow_up("no_such_type")],
    };
    let items = [finish(parent, 1, goal), finish(beside, 1, success())];
    let error = world
        .store
        .finish(&items, session)
        .await
        .expect_err("refused");
    assert_eq!(kind(&error), DbKind::Invariant, "{error}");
    for id in [parent, beside] {
        assert_eq!(world.state(id).await, JobState::Running);
    }
    assert_eq!(world.count("select count(*) from jobs").await, 2);
}

#[tokio::test]
async fn a_long_or_dirty_error_can_always_be_written_down() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    let mut error = crate::world::run_error(tenure_core::error::Class::Permanent);
    error.code = "X".repeat(1000);
    error.message = format!("bad \0 bytes \u{1b}[31m {}", "😀".repeat(100_000));
    assert!(world.finish(id, 1, Goal::Failed(error), session).await);
    let long =
        format!("select char_length(last_error_message)::bigint from jobs where job_id = '{id}'");
    let kept = world.count(&long).await;
    assert!((1000..=2000).contains(&kept), "{kept}");
    v4_holds(&world, "a dirty error").await;
}
