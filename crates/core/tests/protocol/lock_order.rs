//! The order of locks (PROTOCOL.md §4): whoever has locked what comes late waits for nothing
//! that comes before it.

use std::time::Duration;

use sqlx::{Postgres, Transaction};
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::storage::user_limits::UserLimits;

use crate::lines::ordered;
use crate::replay::{dead, replay};
use crate::world::{World, failed, finish, success};

/// Long enough for any answer, and shorter than a submit is tried.
const PROMPT: Duration = Duration::from_secs(10);

/// Locks the row of a job, as a replay or a cancel of others beside it does.
async fn locked(world: &World, id: JobId) -> Transaction<'static, Postgres> {
    let mut tx = world.store.pool().begin().await.expect("begins");
    sqlx::query("select 1 from jobs where job_id = $1 for no key update")
        .bind(id.uuid())
        .execute(&mut *tx)
        .await
        .expect("locks");
    tx
}

#[tokio::test]
async fn v11_who_gives_turns_waits_for_no_job_and_leaves_a_note_of_it() {
    let world = World::new().await;
    let session = SessionId::new();
    let jobs = vec![ordered("k", false), ordered("k", false)];
    let [first, next] = world.submit(jobs, false).await[..] else {
        panic!("two jobs");
    };
    assert_eq!(world.claim(&[(first, 1)], session).await.len(), 1);
    let items = [finish(first, 1, success())];
    let done = world.store.finish(&items, session).await.expect("a finish");

    // A replay has locked the next job, and is going to debit its user. Whoever submits to
    // the line has locked the user, and would wait for the job.
    let mut tx = locked(&world, next).await;
    let submit = world.submit(vec![ordered("k", false)], false);
    let last = tokio::time::timeout(PROMPT, submit).await;
    let last = last.expect("the submit waits for nobody")[0];
    sqlx::query("update user_load set credit = credit where user_id = 'ada'")
        .execute(&mut *tx)
        .await
        .expect("the user is free");
    let turns = tokio::time::timeout(PROMPT, world.store.give_turns(&done.lines)).await;
    assert!(
        turns
            .expect("it waits for nobody")
            .expect("turns")
            .is_empty()
    );
    assert!(world.row(last).await.held, "nobody passes the next one");
    tx.commit().await.expect("commits");

    // Nobody was given the turn, and that is noted.
    let noted = world.store.noted_lines(-1000, 10).await.expect("noted");
    assert_eq!(noted, done.lines);
    let turned = world.store.give_turns(&noted).await.expect("turns");
    let turned: Vec<JobId> = turned.iter().map(|it| it.job_id).collect();
    assert_eq!(turned, [next]);
}

#[tokio::test]
async fn lines_are_unblocked_beside_a_replay_that_takes_its_own_away() {
    let world = World::new().await;
    let session = SessionId::new();
    let mut jobs = Vec::new();
    for key in ["k", "l"] {
        let id = world.submit(vec![ordered(key, true)], false).await[0];
        assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
        assert!(world.finish(id, 1, failed(), session).await);
        jobs.push(id);
    }
    world
        .sql("update dead_letters set status = 'ignored', status_changed_at = now()")
        .await;
    let mut tx = world.store.pool().begin().await.expect("begins");
    sqlx::query("delete from blocked_lines where job_id = $1")
        .bind(jobs[1].uuid())
        .execute(&mut *tx)
        .await
        .expect("deletes");
    let lines = world.store.unblock_lines(10).await.expect("it waits not");
    let keys: Vec<&str> = lines.iter().map(|line| line.key.as_str()).collect();
    assert_eq!(keys, ["o:k"]);
    tx.commit().await.expect("commits");
}

#[tokio::test]
async fn limits_are_set_beside_those_of_a_user_who_is_forgotten() {
    let world = World::new().await;
    for user in ["ada", "bob"] {
        let limits = UserLimits::default();
        let set = world.store.set_user_limits(user, limits, "op").await;
        set.expect("set");
    }
    world
        .sql("update user_limits set updated_at = now() - interval '2 days'")
        .await;
    // Bob's are set anew, and whoever does it is going to forget Ada's.
    let mut tx = world.store.pool().begin().await.expect("begins");
    sqlx::query("update user_limits set weight = 2 where user_id = 'bob'")
        .execute(&mut *tx)
        .await
        .expect("sets");
    let limits = UserLimits {
        weight: Some(3),
        ..UserLimits::default()
    };
    let set = world.store.set_user_limits("ada", limits, "op").await;
    assert_eq!(set.expect("it waits not").limits, limits);
    tx.commit().await.expect("commits");
}

#[tokio::test]
async fn a_replay_in_halves_debits_each_job_once() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(dead(&world).await);
    }
    world
        .sql(format!(
            "update processed_events set status = 'done' where event_id = '{}'",
            ids[3]
        ))
        .await;
    let credit = "select credit::bigint from user_load where user_id = 'ada'";
    world.sql("update user_load set credit = 10").await;
    let letters: Vec<_> = ids.iter().map(|id| id.uuid()).collect();
    let decision = crate::replay::decision();
    let results = world.store.replay_dead_letters(&letters, &decision).await;
    let done = results.expect("a replay");
    let done = done.iter().filter(|result| result.replay_id.is_some());
    assert_eq!(done.count(), 3);
    assert_eq!(world.count(credit).await, 7, "each is counted once");
    replay(&world, ids[0]).await;
    assert_eq!(world.count(credit).await, 7, "what is refused is not");
}
