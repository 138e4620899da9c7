//! Replays at the same time as replays, cancels, wakes and decisions: whatever comes first,
//! a letter has exactly one run for each replay.

use std::collections::BTreeSet;

use futures::future::join_all;
use tenure_core::domain::ids::SessionId;
use tenure_core::domain::state::JobState;
use tenure_core::storage::dead_letters::{Outcome, Verb};
use uuid::Uuid;

use crate::audit::v4_holds;
use crate::replay::{dead, decision, replay};
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v12_many_admins_replay_one_letter_once() {
    let world = World::new().await;
    for _ in 0..10 {
        let id = dead(&world).await;
        let results = join_all((0..6).map(|_| replay(&world, id))).await;
        let done: Vec<_> = results
            .iter()
            .filter(|result| result.outcome == Outcome::Done)
            .collect();
        assert_eq!(done.len(), 1, "{results:?}");
        let others = results.iter().filter(|r| r.outcome == Outcome::AlreadyDone);
        assert_eq!(others.count(), 5, "{results:?}");
        let row = world.row(id).await;
        assert_eq!((row.run, row.life), (2, 2));
    }
    v4_holds(&world, "replays at once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_overlapping_batches_in_any_order_replay_each_letter_once() {
    let world = World::new().await;
    let mut ids: Vec<Uuid> = Vec::new();
    for _ in 0..40 {
        ids.push(dead(&world).await.uuid());
    }
    let reversed: Vec<Uuid> = ids.iter().rev().copied().collect();
    let orders = [&ids[..], &reversed[..], &ids[10..], &reversed[10..]];
    let decision = decision();
    let results = join_all(
        orders
            .iter()
            .map(|order| world.store.replay_dead_letters(order, &decision)),
    )
    .await;
    let mut done = Vec::new();
    for results in results {
        let results = results.expect("a replay");
        done.extend(
            results
                .iter()
                .filter(|result| result.outcome == Outcome::Done)
                .map(|result| result.id),
        );
    }
    assert_eq!(done.len(), 40);
    assert_eq!(done.into_iter().collect::<BTreeSet<_>>().len(), 40);
    v4_holds(&world, "batches at once").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_v12_replays_cancels_wakes_and_decisions_at_once() {
    let world = World::new().await;
    for round in 0..15 {
        let id = dead(&world).await;
        let (ids, jobs) = ([id.uuid()], [id]);
        let decision = decision();
        let claim = async {
            // Whoever claims the new run as soon as it is there, and loses its lease.
            let session = SessionId::new();
            if world.claim(&[(id, 2)], session).await.len() == 1 {
                world.let_time_pass(&[id]).await;
            }
        };
        let (result, cancelled, _, (), ignored) = tokio::join!(
            replay(&world, id),
            world.store.cancel(id, "no"),
            world.wake(&jobs),
            claim,
            world
                .store
                .decide_dead_letters(Verb::Ignore, &ids, &decision),
        );
        cancelled.expect("an answer");
        ignored.expect("an answer");
        // Open or ignored, its job had failed: a replay by hand takes it.
        assert_eq!(result.outcome, Outcome::Done, "round {round}: {result:?}");
        let row = world.row(id).await;
        assert_eq!(row.life, 2);
        assert_ne!(row.state(), JobState::Failed);
        v4_holds(&world, &format!("round {round}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_a_failure_and_a_decision_at_once_leave_one_of_the_two() {
    let world = World::new().await;
    for round in 0..15 {
        let id = dead(&world).await;
        assert_eq!(replay(&world, id).await.outcome, Outcome::Done);
        let session = SessionId::new();
        assert_eq!(world.claim(&[(id, 2)], session).await.len(), 1);
        let ids = [id.uuid()];
        let decision = decision();
        let (finished, decided) = tokio::join!(
            world.finish(id, 2, crate::world::failed(), session),
            world
                .store
                .decide_dead_letters(Verb::Resolve, &ids, &decision),
        );
        assert!(finished);
        let decided = decided.expect("an answer").remove(0);
        let status = world.letter(id).await.expect("a letter").0;
        let expected = match decided.outcome {
            Outcome::Done => "resolved",
            _ => "open",
        };
        assert_eq!(status, expected, "round {round}: {decided:?}");
        v4_holds(&world, &format!("round {round}")).await;
    }
}
