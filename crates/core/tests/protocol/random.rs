//! Random operations, one after the other and all at once: the invariants hold after
//! each, and what changed is what the state machine's table says.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::{Facts, JobState, transition};

use crate::audit::v4_holds;
use crate::steps::{Actor, Before, Step};
use crate::world::{POISON_LIMIT, Row, World};

/// V6 and V12 for one job, whatever was done to it.
fn only_forward(before: &Row, after: &Row, what: &str) {
    let (was, is) = (before.state(), after.state());
    let replayed = was == JobState::Failed && after.life > before.life;
    assert!(
        !was.is_final() || was == is || replayed,
        "after {what}: {before:?} -> {after:?}"
    );
    assert!(after.run >= before.run && after.rev >= before.rev);
    assert!(
        was == is || after.rev > before.rev,
        "after {what}: a watcher would miss {after:?}"
    );
    assert!((0..=after.max_attempts).contains(&after.attempt));
}

/// What the table says of the events, and that nothing else moved.
fn follows_the_table(before: &Before, after: &BTreeMap<JobId, Row>, step: &Step) {
    for (id, was) in before {
        let now = &after[id];
        only_forward(was, now, &step.what);
        let event = step.events.iter().find(|(job, _)| job == id).map(|e| e.1);
        let (state, run, attempt, lost) = match event {
            None => (was.state(), 0, 0, 0),
            Some(event) => {
                let facts = Facts {
                    attempt: was.attempt,
                    max_attempts: was.max_attempts,
                    lost: was.lost,
                    poison_limit: POISON_LIMIT,
                    cancel_requested: was.cancel_requested,
                };
                let t = transition(was.state(), event, &facts)
                    .unwrap_or_else(|| panic!("{}: {event:?} did something to {was:?}", step.what));
                (t.to, t.run, t.attempt, t.lost)
            }
        };
        assert_eq!(
            (now.state(), now.run, now.attempt, now.lost),
            (state, was.run + run, was.attempt + attempt, was.lost + lost),
            "after {}: {event:?} of {was:?}",
            step.what
        );
    }
}

async fn one_after_the_other(seed: u64) {
    let world = World::new().await;
    let mut actor = Actor::new(seed, [SessionId::new(), SessionId::new()]);
    let mut claimed = HashSet::new();
    let mut states = HashSet::new();
    let mut before = world.all().await;
    for number in 0..400 {
        let step = actor.step(&world, &before).await;
        let what = format!("seed {seed}, step {number}: {}", step.what);
        let after = world.all().await;
        for run in &step.claimed {
            assert!(
                claimed.insert(*run),
                "V2, after {what}: {run:?} was claimed twice"
            );
        }
        follows_the_table(&before, &after, &step);
        v4_holds(&world, &what).await;
        states.extend(after.values().map(Row::state));
        before = after;
    }
    // Otherwise the run has shown little.
    let reached = JobState::ALL.iter().filter(|s| states.contains(s)).count();
    assert_eq!(
        reached, 6,
        "all but the state that is passed through: {states:?}"
    );
}

#[tokio::test]
async fn v2_v4_v6_v12_random_operations_follow_the_table_seed_1() {
    one_after_the_other(1).await;
}

#[tokio::test]
async fn v2_v4_v6_v12_random_operations_follow_the_table_seed_2() {
    one_after_the_other(20_261_130).await;
}

#[tokio::test]
async fn v2_v4_v6_v12_random_operations_follow_the_table_fresh_seed() {
    // A new one each time; it is in the message of every failed check.
    one_after_the_other(rand::random()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v2_v4_random_operations_at_once_agree_at_every_commit() {
    let world = Arc::new(World::new().await);
    let sessions = [SessionId::new(), SessionId::new()];
    let claimed = Arc::new(Mutex::new(HashSet::new()));
    let seed: u64 = rand::random();
    let actors = (0..5).map(|number| {
        let (world, claimed) = (world.clone(), claimed.clone());
        tokio::spawn(async move {
            let mut actor = Actor::new(seed.wrapping_add(number), sessions);
            for _ in 0..120 {
                let before = world.all().await;
                let step = actor.step(&world, &before).await;
                for run in step.claimed {
                    assert!(claimed.lock().insert(run), "V2: {run:?} was claimed twice");
                }
            }
        })
    });
    let over = Arc::new(AtomicBool::new(false));
    let auditor = {
        let (world, over) = (world.clone(), over.clone());
        tokio::spawn(async move {
            let mut last = world.all().await;
            let mut audits = 0;
            while !over.load(Ordering::Acquire) {
                v4_holds(&world, "operations at once").await;
                let now = world.all().await;
                for (id, was) in &last {
                    only_forward(was, &now[id], "operations at once");
                }
                last = now;
                audits += 1;
            }
            audits
        })
    };
    for actor in futures::future::join_all(actors.collect::<Vec<_>>()).await {
        actor.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    over.store(true, Ordering::Release);
    let audits: usize = auditor
        .await
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(audits > 0);
    v4_holds(&world, "the last operation").await;
    assert!(!claimed.lock().is_empty());
}
