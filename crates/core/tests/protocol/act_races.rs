//! An operator's act at the same time as what the system does: one outcome, told to both.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::finish::Goal;
use tenure_core::storage::job_actions::{Acted, Action};

use crate::acts::{act, retry};
use crate::audit::v4_holds;
use crate::world::{POISON_LIMIT, World, retrying, success};

const ROUNDS: usize = 40;

/// Runs two things at once, either of them ahead by a little.
async fn at_once<A, B>(
    random: &mut StdRng,
    one: impl Future<Output = A>,
    other: impl Future<Output = B>,
) -> (A, B) {
    let ahead = Duration::from_micros(random.random_range(0..1500));
    let first = random.random_bool(0.5);
    tokio::join!(
        async {
            if first {
                tokio::time::sleep(ahead).await;
            }
            one.await
        },
        async {
            if !first {
                tokio::time::sleep(ahead).await;
            }
            other.await
        },
    )
}

fn seeded() -> (u64, StdRng) {
    let seed = rand::random();
    (seed, StdRng::seed_from_u64(seed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v2_v4_made_due_while_it_is_woken_it_is_parked_once_and_claimed_once() {
    let world = World::new().await;
    let (session, other) = (SessionId::new(), SessionId::new());
    let (seed, mut random) = seeded();
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, round {round}");
        let id = retry(&world, session).await;
        world.let_time_pass(&[id]).await;
        let store = &world.store;
        let (acted, woken) = at_once(&mut random, act(&world, id, Action::RetryNow), async {
            store
                .wake(&[id], true, POISON_LIMIT)
                .await
                .expect("wakes")
                .len()
        })
        .await;
        // Whoever came first made it pending; the other found it so, or passed it by.
        let row = world.row(id).await;
        assert_eq!(
            (row.state(), row.run, row.parked),
            (JobState::Pending, 2, true),
            "{what}"
        );
        assert_eq!(
            acted == Acted::Done,
            row.rev == 4 && woken == 0,
            "{what}: {acted:?}, {woken}"
        );
        assert_eq!(row.rev, 4, "{what}: one change");
        // And now both workers claim it while it is made due once more.
        let runs = [(id, 2)];
        let ((mine, theirs), again) = at_once(
            &mut random,
            async { tokio::join!(world.claim(&runs, session), world.claim(&runs, other)) },
            act(&world, id, Action::RetryNow),
        )
        .await;
        assert_eq!(mine.len() + theirs.len(), 1, "{what}");
        assert!(
            matches!(again, Acted::Already | Acted::Conflict(JobState::Running)),
            "{what}: {again:?}"
        );
        v4_holds(&world, &what).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_put_off_while_it_is_claimed_it_runs_or_waits_and_both_know() {
    let world = World::new().await;
    let session = SessionId::new();
    let (seed, mut random) = seeded();
    let mut outcomes = [0; 2];
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, round {round}");
        let id = world.sent().await;
        let at = chrono::Utc::now() + Duration::from_hours(1);
        let runs = [(id, 1)];
        let (acted, claimed) = at_once(
            &mut random,
            act(&world, id, Action::Reschedule(at)),
            world.claim(&runs, session),
        )
        .await;
        let row = world.row(id).await;
        match acted {
            Acted::Done => {
                assert!(claimed.is_empty(), "{what}");
                assert_eq!(
                    (row.state(), row.parked),
                    (JobState::Pending, false),
                    "{what}"
                );
                outcomes[0] += 1;
            }
            Acted::Conflict(JobState::Running) => {
                assert_eq!(claimed.len(), 1, "{what}");
                assert_eq!(row.state(), JobState::Running, "{what}");
                outcomes[1] += 1;
            }
            other => panic!("{what}: {other:?}"),
        }
        v4_holds(&world, &what).await;
    }
    println!("seed {seed}: put off and claimed {outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v6_lowered_while_it_ends_a_job_has_never_more_attempts_than_it_may() {
    let world = World::new().await;
    let session = SessionId::new();
    let (seed, mut random) = seeded();
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, round {round}");
        let id = world.running(session).await;
        let (acted, retried) = at_once(
            &mut random,
            act(&world, id, Action::SetMaxAttempts(1)),
            world.finish(id, 1, retrying(Duration::ZERO), session),
        )
        .await;
        let row = world.row(id).await;
        if retried {
            assert_eq!((acted, row.max_attempts), (Acted::TooFew(2), 5), "{what}");
            assert_eq!(row.state(), JobState::Retrying, "{what}");
        } else {
            assert_eq!((acted, row.max_attempts), (Acted::Done, 1), "{what}");
            assert_eq!(row.state(), JobState::Running, "{what}");
            assert!(world.finish(id, 1, success(), session).await, "{what}");
        }
        v4_holds(&world, &what).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v12_an_act_beside_a_cancel_brings_nothing_back() {
    let world = World::new().await;
    let session = SessionId::new();
    let (seed, mut random) = seeded();
    let put_off = || Action::Reschedule(chrono::Utc::now() + Duration::from_hours(2));
    for round in 0..ROUNDS {
        let what = format!("seed {seed}, round {round}");
        let id: JobId = if round % 2 == 0 {
            retry(&world, session).await
        } else {
            let id = world.running(session).await;
            let snooze = Goal::Pending(Duration::from_hours(1));
            assert!(world.finish(id, 1, snooze, session).await);
            id
        };
        let action = if round % 4 < 2 {
            Action::RetryNow
        } else {
            put_off()
        };
        let (acted, cancelled) = at_once(&mut random, act(&world, id, action), async {
            world.store.cancel(id, "enough").await.expect("cancels")
        })
        .await;
        assert_eq!(cancelled, Cancelled::Now, "{what}");
        assert!(
            matches!(acted, Acted::Done | Acted::Conflict(JobState::Cancelled)),
            "{what}: {acted:?}"
        );
        assert_eq!(world.state(id).await, JobState::Cancelled, "{what}");
        v4_holds(&world, &what).await;
    }
}
