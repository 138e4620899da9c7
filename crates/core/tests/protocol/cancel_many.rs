//! Cancelling by filter: the rules of the single cancel, a bounded number at a time, all or
//! nothing, and nothing that came later.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId, UserId};
use tenure_core::domain::state::JobState;
use tenure_core::error::Code;
use tenure_core::storage::cancel_many::{CANCEL_LIMIT, CancelledMany, Canceller, Position};
use tenure_core::storage::finish::Goal;
use tenure_core::storage::list::JobFilter;

use crate::audit::v4_holds;
use crate::world::{World, failed, job, retrying, success};

fn olga() -> Canceller {
    Canceller {
        name: "olga".to_owned(),
        own_message: "cancelled by its owner: enough".to_owned(),
        other_message: "cancelled by olga: enough".to_owned(),
        reason: Some("enough".to_owned()),
    }
}

fn of(user: &str) -> JobFilter {
    JobFilter {
        user_id: Some(UserId::from_stored(user.to_owned())),
        ..JobFilter::default()
    }
}

async fn cancel(world: &World, filter: &JobFilter, from: Option<Position>) -> CancelledMany {
    let done = world.store.cancel_many(filter, from, Some(&olga())).await;
    done.expect("an answer")
}

async fn count(world: &World, filter: &JobFilter) -> (i64, i64) {
    let counted = world.store.cancel_many(filter, None, None).await;
    let counted = counted.expect("an answer");
    assert_eq!((counted.already_ended, counted.next), (0, None));
    (counted.cancelled, counted.requested)
}

/// One job in each state and way of waiting, of one user.
async fn mix(world: &World, user: &str, session: SessionId) -> BTreeMap<&'static str, JobId> {
    let mut ids = BTreeMap::new();
    for (what, goal) in [
        ("running", None),
        ("retrying", Some(retrying(Duration::from_hours(1)))),
        ("snoozed", Some(Goal::Pending(Duration::from_hours(1)))),
        ("handed back", Some(Goal::Pending(Duration::ZERO))),
        ("success", Some(success())),
        ("failed", Some(failed())),
    ] {
        let id = world.submit(vec![job(user)], false).await[0];
        assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
        if let Some(goal) = goal {
            assert!(world.finish(id, 1, goal, session).await);
        }
        ids.insert(what, id);
    }
    ids.insert("sent", world.submit(vec![job(user)], false).await[0]);
    ids.insert("parked", world.submit(vec![job(user)], true).await[0]);
    let gone = world.submit(vec![job(user)], true).await[0];
    world.store.cancel(gone, "before").await.expect("cancels");
    ids.insert("cancelled", gone);
    ids
}

#[tokio::test]
async fn v4_v12_each_state_is_cancelled_by_the_rules_of_the_single_cancel() {
    let world = World::new().await;
    let session = SessionId::new();
    let ids = mix(&world, "ada", session).await;
    let others = mix(&world, "bob", session).await;
    let before = world.all().await;
    assert_eq!(count(&world, &of("ada")).await, (5, 1));
    for (id, row) in &before {
        let now = world.row(*id).await.still();
        assert_eq!(now, row.clone().still(), "counting changes nothing");
    }

    let done = cancel(&world, &of("ada"), None).await;
    assert_eq!((done.cancelled, done.requested), (5, 1));
    assert_eq!((done.already_ended, done.next), (0, None));
    for (what, id) in &ids {
        let (row, was) = (world.row(*id).await, &before[id]);
        let (state, changed) = match *what {
            "success" => (JobState::Success, 0),
            "failed" => (JobState::Failed, 0),
            "running" => (JobState::Running, 1),
            "cancelled" => (JobState::Cancelled, 0),
            _ => (JobState::Cancelled, 1),
        };
        assert_eq!((row.state(), row.rev), (state, was.rev + changed), "{what}");
        assert_eq!(
            row.cancel_requested,
            changed == 1 || *what == "cancelled",
            "{what}"
        );
    }
    for id in others.values() {
        assert_eq!(world.row(*id).await.still(), before[id].clone().still());
    }
    v4_holds(&world, "a cancel of many").await;
    // The running one ends so; asked again it is nothing new.
    let again = cancel(&world, &of("ada"), None).await;
    assert_eq!((again.cancelled, again.requested), (0, 1));
    assert!(
        world
            .finish(ids["running"], 1, Goal::Cancelled, session)
            .await
    );
    let message =
        "select count(*) from jobs where last_error_message = 'cancelled by olga: enough'";
    assert_eq!(world.count(message).await, 6);
    let own = "select count(*) from job_actions where action = 'cancel_many' and actor = 'olga' and job_id is null \
         and user_id = 'ada' and reason = 'enough' and before->>'user_id' = 'ada' and after->>'requested' = '1'";
    assert_eq!(world.count(own).await, 2);
    v4_holds(&world, "the end of it").await;
}

#[tokio::test]
async fn filters_are_joined_and_what_does_not_match_is_left_alone() {
    let world = World::new().await;
    let session = SessionId::new();
    let ids = mix(&world, "ada", session).await;
    mix(&world, "bob", session).await;
    world
        .sql(format!(
            "update jobs set labels = '{{\"batch\":\"7\",\"x\":\"y\"}}' where job_id in ('{}', '{}')",
            ids["sent"], ids["retrying"]
        ))
        .await;
    let labelled = JobFilter {
        labels: BTreeMap::from([("batch".to_owned(), "7".to_owned())]),
        ..JobFilter::default()
    };
    assert_eq!(count(&world, &labelled).await, (2, 0));
    let retrying = JobFilter {
        states: vec![JobState::Retrying],
        ..JobFilter::default()
    };
    assert_eq!(count(&world, &retrying).await, (2, 0));
    for nothing in [
        JobFilter {
            job_type: Some("sleep".to_owned()),
            ..of("ada")
        },
        JobFilter {
            queue: Some("imports".to_owned()),
            ..JobFilter::default()
        },
        of("eve"),
    ] {
        assert_eq!(count(&world, &nothing).await, (0, 0));
    }
    let both = JobFilter {
        states: vec![JobState::Retrying],
        ..labelled
    };
    let done = cancel(&world, &both, None).await;
    assert_eq!((done.cancelled, done.requested, done.next), (1, 0, None));
    assert_eq!(world.state(ids["retrying"]).await, JobState::Cancelled);
    assert_eq!(world.state(ids["sent"]).await, JobState::Pending);
}

#[tokio::test]
async fn calls_go_on_where_they_were_and_leave_alone_what_came_later() {
    let world = World::new().await;
    let many = usize::try_from(CANCEL_LIMIT).expect("a number") + 500;
    let mut first = Vec::new();
    for part in [1000, many - 1000] {
        first.extend(
            world
                .submit((0..part).map(|_| job("ada")).collect(), true)
                .await,
        );
    }
    let one = cancel(&world, &of("ada"), None).await;
    assert_eq!((one.cancelled, one.requested), (CANCEL_LIMIT, 0));
    let next = one.next.expect("more");
    // Submitted after the first call, by a gateway whose clock is far behind.
    let mut old = job("ada");
    old.job_id = "00000000-0000-7000-8000-000000000001"
        .parse()
        .expect("an id");
    let late = world.submit(vec![old], true).await[0];
    assert!(late < next.below);
    let two = cancel(&world, &of("ada"), Some(next)).await;
    assert_eq!((two.cancelled, two.next), (500, None));
    assert_eq!(world.state(late).await, JobState::Pending);
    // The same call once more, its answer having been lost: nothing is left to do.
    let again = cancel(&world, &of("ada"), Some(next)).await;
    assert_eq!((again.cancelled, again.requested, again.next), (0, 0, None));
    for id in [first[0], first[many - 1]] {
        assert_eq!(world.state(id).await, JobState::Cancelled);
    }
    v4_holds(&world, "pages of cancels").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_v12_beside_finishes_and_claims_each_job_has_one_outcome_and_the_counts_agree() {
    let world = World::new().await;
    let session = SessionId::new();
    for round in 0..12 {
        let user = format!("user-{round}");
        let jobs = (0..60).map(|_| job(&user)).collect();
        let ids = world.submit(jobs, false).await;
        let mut runs: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
        runs.sort_unstable();
        let (started, waiting) = runs.split_at(30);
        assert_eq!(world.claim(started, session).await.len(), 30);
        let filter = of(&user);
        let (done, finished, claimed) = tokio::join!(
            cancel(&world, &filter, None),
            async {
                let mut finished = Vec::new();
                for (id, run) in started {
                    if world.finish(*id, *run, success(), session).await {
                        finished.push(*id);
                    }
                }
                finished
            },
            async {
                let mut claimed = Vec::new();
                for part in waiting.chunks(5) {
                    // A lock that was not got, or a deadlock, is retried by a worker.
                    let got = world
                        .store
                        .claim(part, session, Duration::from_mins(10))
                        .await;
                    claimed.extend(got.unwrap_or_default().into_iter().map(|c| c.job_id));
                }
                claimed
            },
        );
        assert_eq!(finished.len(), 30, "success goes before a request");
        let all = world.all().await;
        let in_state = |state| ids.iter().filter(|id| all[id].state() == state).count() as i64;
        let what = format!("round {round}: {done:?}, {} claimed", claimed.len());
        assert_eq!(done.cancelled, in_state(JobState::Cancelled), "{what}");
        assert_eq!(
            in_state(JobState::Cancelled) + claimed.len() as i64,
            30,
            "{what}"
        );
        let asked = ids.iter().filter(|id| all[id].cancel_requested).count() as i64;
        assert_eq!(done.cancelled + done.requested, asked, "{what}");
        assert!(done.already_ended <= 30, "{what}");
        v4_holds(&world, &what).await;
    }
}

#[tokio::test]
async fn a_damaged_job_is_told_and_does_not_keep_the_others() {
    let world = World::new().await;
    let session = SessionId::new();
    let ids = mix(&world, "ada", session).await;
    let (damaged, replayed) = (ids["retrying"], ids["sent"]);
    world
        .sql(format!(
            "delete from processed_events where event_id = '{damaged}'; \
             update jobs set life = 2 where job_id = '{replayed}'"
        ))
        .await;
    let waiting = [JobState::Pending, JobState::Retrying];
    let of_ada = JobFilter {
        states: waiting.to_vec(),
        ..of("ada")
    };
    let before = world.store.cancel_many(&of_ada, None, None).await;
    let before = before.expect("counts");
    assert_eq!((before.cancelled, before.failed), (3, 2));
    let done = cancel(&world, &of_ada, None).await;
    assert_eq!(
        (
            done.cancelled,
            done.requested,
            done.already_ended,
            done.failed
        ),
        (3, 0, 0, 2)
    );
    assert_eq!(done.next, None);
    assert_eq!(world.state(damaged).await, JobState::Retrying);
    assert_eq!(world.state(replayed).await, JobState::Pending);
    assert_eq!(world.state(ids["parked"]).await, JobState::Cancelled);
    // By itself it is refused with a code of its own, and stays as it is.
    for (id, state) in [(damaged, JobState::Retrying), (replayed, JobState::Pending)] {
        let refused = world.store.cancel(id, "enough").await;
        let refused = refused.expect_err("it cannot be cancelled");
        assert_eq!(refused.code(), Code::JobDamaged, "{refused}");
        assert_eq!(world.state(id).await, state);
    }
    let told =
        "select count(*) from job_actions where action = 'cancel_many' and after->>'failed' = '2'";
    assert_eq!(world.count(told).await, 1);
}
