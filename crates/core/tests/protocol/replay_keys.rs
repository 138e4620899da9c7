//! Replays and dedupe keys (PROTOCOL.md §15): a key belongs to one job that may still run.

use tenure_core::domain::ids::JobId;
use tenure_core::domain::state::JobState;
use tenure_core::storage::dead_letters::Outcome;

use crate::audit::v4_holds;
use crate::replay::{decision, replay, run_to};
use crate::world::{World, failed, keyed, success};

/// Submits a keyed job and lets it fail for good.
async fn dead(world: &World, key: &str, content: u8) -> JobId {
    let submitted = world.submit_one(keyed("ada", key, content)).await;
    let id = submitted.expect("accepted").job_id;
    run_to(world, id, failed()).await;
    id
}

/// Lets the time pass for which a key is bound in any case.
async fn unbind(world: &World, key: &str) {
    world
        .sql(format!(
            "update job_dedupe set bound_until = now() - interval '1 s', after_end = null where key = '{key}'"
        ))
        .await;
}

#[tokio::test]
async fn v7_a_key_that_a_fresh_submit_has_taken_bars_the_replay() {
    let world = World::new().await;
    let old = dead(&world, "k", 1).await;
    // While the key is bound, the submit is told of the job that failed.
    let told = world.submit_one(keyed("ada", "k", 1)).await.expect("told");
    assert_eq!((told.job_id, told.duplicate), (old, true));
    assert_eq!(told.state, JobState::Failed);
    unbind(&world, "k").await;
    let fresh = world.submit_one(keyed("ada", "k", 1)).await.expect("new");
    assert!(!fresh.duplicate && fresh.job_id != old);

    let barred = replay(&world, old).await;
    assert_eq!(barred.outcome, Outcome::KeyTaken);
    assert!(
        barred.message.contains(&fresh.job_id.to_string()),
        "{barred:?}"
    );
    assert_eq!(world.row(old).await.life, 1);
    // It is done by the other job: there is nothing left to replay.
    run_to(&world, fresh.job_id, success()).await;
    let done = replay(&world, old).await;
    assert_eq!(done.outcome, Outcome::AlreadyDone);
    assert!(done.message.contains("has succeeded"), "{done:?}");
    assert_eq!(world.letter(old).await.expect("a letter").0, "open");
    v4_holds(&world, "keys").await;
}

#[tokio::test]
async fn v7_a_replayed_job_has_its_key_again() {
    let world = World::new().await;
    let old = dead(&world, "k", 1).await;
    for way in ["expired", "free", "left by another"] {
        match way {
            "expired" => unbind(&world, "k").await,
            "free" => world.sql("delete from job_dedupe").await,
            _ => {
                unbind(&world, "k").await;
                let other = world.submit_one(keyed("ada", "k", 2)).await.expect("new");
                run_to(&world, other.job_id, failed()).await;
                unbind(&world, "k").await;
            }
        }
        assert_eq!(replay(&world, old).await.outcome, Outcome::Done, "{way}");
        let told = world.submit_one(keyed("ada", "k", 1)).await;
        match told {
            // As long as the key was never let go, what it was bound with is known.
            Ok(told) => assert_eq!((told.job_id, told.duplicate), (old, true), "{way}"),
            Err(error) => {
                assert_ne!(way, "expired");
                assert_eq!(error.code(), tenure_core::Code::DedupeConflict, "{way}");
                assert!(error.message().contains(&old.to_string()), "{way}: {error}");
            }
        }
        assert_eq!(
            world
                .count("select count(*) from job_dedupe where bound_until > now()")
                .await,
            1
        );
        run_to(&world, old, failed()).await;
        v4_holds(&world, way).await;
    }
}

#[tokio::test]
async fn v7_of_two_letters_with_one_key_one_is_replayed() {
    let world = World::new().await;
    let first = dead(&world, "k", 1).await;
    unbind(&world, "k").await;
    let second = dead(&world, "k", 1).await;
    let ids = [first.uuid(), second.uuid()];
    // Whether the second still has the key, or nobody has it.
    let results = world
        .store
        .replay_dead_letters(&ids, &decision())
        .await
        .expect("a replay");
    let outcomes: Vec<_> = results.iter().map(|result| result.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::KeyTaken, Outcome::Done],
        "who has it goes first"
    );
    run_to(&world, second, failed()).await;
    world.sql("delete from job_dedupe").await;
    let results = world
        .store
        .replay_dead_letters(&ids, &decision())
        .await
        .expect("a replay");
    let outcomes: Vec<_> = results.iter().map(|result| result.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::Done, Outcome::KeyTaken],
        "else the oldest"
    );
    v4_holds(&world, "one key").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v7_a_replay_and_a_fresh_submit_at_once_make_one_job_of_the_key() {
    let world = World::new().await;
    let mut replayed = 0;
    for round in 0..20 {
        let key = format!("k{round}");
        let old = dead(&world, &key, 1).await;
        unbind(&world, &key).await;
        let (result, fresh) =
            tokio::join!(replay(&world, old), world.submit_one(keyed("ada", &key, 1)));
        let fresh = fresh.expect("an answer");
        if result.outcome == Outcome::Done {
            replayed += 1;
            assert_eq!((fresh.job_id, fresh.duplicate), (old, true), "{result:?}");
        } else {
            assert_eq!(result.outcome, Outcome::KeyTaken, "{result:?}");
            assert!(!fresh.duplicate);
        }
        let live =
            format!("select count(*) from jobs where dedupe_key = '{key}' and finished_at is null");
        assert_eq!(world.count(&live).await, 1, "round {round}");
    }
    println!("{replayed} of 20 replays were first");
    v4_holds(&world, "races for keys").await;
}
