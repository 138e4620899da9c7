//! A cancel against everything else that can happen to a job: before it, after it, and at
//! the same time. One outcome, told to both sides; a request is never forgotten.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::finish::{Goal, Unapplied};
use tenure_core::storage::renew::Renewal;

use crate::audit::v4_holds;
use crate::world::{LEASE, POISON_LIMIT, World, failed, finish, outage, retrying, success};

/// What can happen beside a cancel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Other {
    Claim,
    Defer,
    Succeed,
    Fail,
    Retry,
    Outage,
    Snooze,
    HandBack,
    CancelSeen,
    Renew,
    TakeBack,
    Poison,
    CutOff,
    Due,
    Expire,
    Cancel,
}

const OTHERS: [Other; 16] = [
    Other::Claim,
    Other::Defer,
    Other::Succeed,
    Other::Fail,
    Other::Retry,
    Other::Outage,
    Other::Snooze,
    Other::HandBack,
    Other::CancelSeen,
    Other::Renew,
    Other::TakeBack,
    Other::Poison,
    Other::CutOff,
    Other::Due,
    Other::Expire,
    Other::Cancel,
];

impl Other {
    /// Whether the job runs when it happens.
    fn of_a_run(self) -> bool {
        !matches!(
            self,
            Self::Claim | Self::Defer | Self::Due | Self::Expire | Self::Cancel
        )
    }

    fn goal(self) -> Option<Goal> {
        let delay = Duration::from_mins(5);
        Some(match self {
            Self::Succeed => success(),
            Self::Fail => failed(),
            Self::Retry => retrying(delay),
            Self::Outage => outage(delay),
            Self::Snooze => Goal::Pending(delay),
            Self::HandBack => Goal::Pending(Duration::ZERO),
            Self::CancelSeen => Goal::Cancelled,
            _ => return None,
        })
    }

    /// A job to which it can happen.
    async fn prepare(self, world: &World, session: SessionId) -> JobId {
        let id = if self.of_a_run() {
            world.running(session).await
        } else {
            world.sent().await
        };
        match self {
            Self::Poison => {
                let limit = POISON_LIMIT - 1;
                let sql = format!("update jobs set lost = {limit} where job_id = '{id}'");
                world.sql(sql).await;
            }
            Self::CutOff => world.let_it_have_restarted(&[id]).await,
            Self::Due => {
                assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
                let goal = retrying(Duration::from_mins(5));
                assert!(world.finish(id, 1, goal, session).await);
            }
            Self::Expire => {
                world
                    .sql(format!(
                        "update jobs set expires_at = now() - interval '1 s' where job_id = '{id}'"
                    ))
                    .await;
            }
            _ => {}
        }
        if matches!(
            self,
            Self::TakeBack | Self::Poison | Self::CutOff | Self::Due | Self::Expire
        ) {
            world.let_time_pass(&[id]).await;
        }
        id
    }

    /// Lets it happen; whether it took effect, as far as its own side is told.
    async fn happen(self, world: &World, id: JobId, session: SessionId) -> bool {
        if let Some(goal) = self.goal() {
            return world.finish(id, 1, goal, session).await;
        }
        let store = &world.store;
        match self {
            Self::Claim => !world.claim(&[(id, 1)], session).await.is_empty(),
            Self::Defer => {
                let delay = Duration::from_secs(5);
                store.defer(&[(id, 1)], delay).await.expect("defers") > 0
            }
            Self::Renew => {
                let items = [Renewal {
                    job_id: id,
                    run: 1,
                    progress: Some((1, 2, "half".to_owned())),
                }];
                let renewed = store.renew(&items, session, LEASE).await;
                !renewed.expect("renews").is_empty()
            }
            Self::Cancel => {
                let answer = store.cancel(id, "the other").await.expect("cancels");
                answer == Cancelled::Now
            }
            _ => {
                let woken = store.wake(&[id], true, POISON_LIMIT).await.expect("wakes");
                // A row that somebody holds is passed by, and found again.
                !woken.is_empty()
            }
        }
    }
}

async fn cancel(world: &World, id: JobId) -> Cancelled {
    world.store.cancel(id, "this one").await.expect("cancels")
}

/// The worker's side of a finish that was refused: it is told why, and ends the job so.
async fn worker_goes_on(world: &World, id: JobId, goal: Goal, session: SessionId) {
    let item = finish(id, 1, goal);
    let verdict = world
        .store
        .reread_unfinished(std::slice::from_ref(&item), session)
        .await
        .expect("reads");
    assert_eq!(verdict, [Unapplied::CancelRequested], "{item:?}");
    assert!(world.finish(id, 1, Goal::Cancelled, session).await);
}

/// What must be true when both are over, whatever the order was.
async fn one_story(
    world: &World,
    other: Other,
    id: JobId,
    session: SessionId,
    answer: Cancelled,
    happened: bool,
) {
    let what = format!("{other:?} ({happened}) and a cancel ({answer:?})");
    if !happened && let Some(goal) = other.goal() {
        assert!(
            goal != Goal::Cancelled,
            "{what}: nothing is in the way of a cancel that was seen"
        );
        worker_goes_on(world, id, goal, session).await;
    }
    let row = world.row(id).await;
    let state = row.state();
    match answer {
        Cancelled::Now => assert_eq!(state, JobState::Cancelled, "{what}"),
        Cancelled::Requested => {
            assert!(row.cancel_requested, "{what}");
            let right = match other {
                Other::Succeed => state == JobState::Success && happened,
                // Nobody has ended the run yet.
                Other::Claim | Other::Renew => state == JobState::Running,
                // The wake passed the row by while the cancel held it: it comes again.
                Other::TakeBack | Other::Poison | Other::CutOff if !happened => {
                    state == JobState::Running
                }
                _ => state == JobState::Cancelled,
            };
            assert!(right, "{what}: {row:?}");
        }
        Cancelled::NotWaiting => {
            let ended = match other {
                Other::Succeed => JobState::Success,
                Other::Fail | Other::Poison | Other::Expire => JobState::Failed,
                Other::CancelSeen | Other::Cancel => JobState::Cancelled,
                _ => panic!("{what}: the job had not ended"),
            };
            assert!(happened && state == ended, "{what}: {row:?}");
        }
    }
    // Whatever comes later: a job that was asked to end does not run again.
    if row.cancel_requested && !state.is_final() {
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        assert_eq!(world.state(id).await, JobState::Cancelled, "{what}");
    }
    let letter = world.letter(id).await.is_some();
    let failed = world.state(id).await == JobState::Failed;
    assert_eq!(letter, failed, "{what}");
    let run = world.row(id).await.run;
    if answer != Cancelled::NotWaiting {
        assert!(
            world.claim(&[(id, run)], session).await.is_empty(),
            "{what}"
        );
    }
    v4_holds(world, &what).await;
}

#[tokio::test]
async fn v4_v12_a_cancel_before_or_after_anything_else_leaves_one_story() {
    let world = World::new().await;
    let session = SessionId::new();
    for other in OTHERS {
        let id = other.prepare(&world, session).await;
        let answer = cancel(&world, id).await;
        let happened = other.happen(&world, id, session).await;
        if answer == Cancelled::Now {
            assert!(!happened, "{other:?} after the job had ended");
        }
        one_story(&world, other, id, session, answer, happened).await;

        let id = other.prepare(&world, session).await;
        let happened = other.happen(&world, id, session).await;
        assert!(happened, "{other:?}");
        let answer = cancel(&world, id).await;
        one_story(&world, other, id, session, answer, happened).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_v12_a_cancel_at_the_same_time_as_anything_else_leaves_one_story() {
    let world = World::new().await;
    let session = SessionId::new();
    let seed: u64 = rand::random();
    let mut random = StdRng::seed_from_u64(seed);
    let mut answers = std::collections::HashMap::new();
    for round in 0..12 {
        for other in OTHERS {
            let id = other.prepare(&world, session).await;
            // Either side may come first by a little.
            let ahead = Duration::from_micros(random.random_range(0..1500));
            let first = random.random_bool(0.5);
            let pause = |waits: bool| async move {
                if waits {
                    tokio::time::sleep(ahead).await;
                }
            };
            let (answer, happened) = tokio::join!(
                async {
                    pause(first).await;
                    cancel(&world, id).await
                },
                async {
                    pause(!first).await;
                    other.happen(&world, id, session).await
                },
            );
            println!("seed {seed}, round {round}: {other:?} {happened}, {answer:?}");
            one_story(&world, other, id, session, answer, happened).await;
            answers
                .entry(other as usize)
                .or_insert_with(std::collections::HashSet::new)
                .insert(answer as usize);
        }
    }
    let both = answers.values().filter(|seen| seen.len() > 1).count();
    assert!(both > 0, "seed {seed}: no race went both ways");
}
