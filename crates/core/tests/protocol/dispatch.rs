//! Dispatching the backlog (PROTOCOL.md §13).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Lane;
use tenure_core::storage::dispatch::{Dispatched, DueLane, Tick, Ticked};
use tenure_core::storage::dispatch_known::KnownUsers;
use tenure_core::storage::sent::Sent;

use crate::audit::v4_holds;
use crate::world::{World, job};

fn lanes() -> Vec<(String, Lane)> {
    vec![("default".to_owned(), Lane::Normal)]
}

async fn begin(world: &World) -> (Tick, Vec<DueLane>) {
    world
        .store
        .begin_tick(&lanes(), &KnownUsers::default())
        .await
        .expect("a tick")
}

/// One tick that leaves the lane due at once.
async fn tick(world: &World, room: usize) -> Vec<Dispatched> {
    let (mut tick, due) = begin(world).await;
    let [lane] = &due[..] else {
        panic!("one lane is due: {due:?}")
    };
    let picked = tick
        .pick(lane, room, &mut KnownUsers::default())
        .await
        .expect("picks");
    tick.commit(&[ticked(picked.cursor_user, Duration::ZERO)])
        .await
        .expect("commits");
    picked.jobs
}

fn ticked(cursor_user: String, pause: Duration) -> Ticked {
    Ticked {
        queue: "default".to_owned(),
        lane: Lane::Normal,
        cursor_user,
        pause,
        msgs: 1,
        direct: false,
        grow: false,
        window_msgs: 128,
        busy: true,
    }
}

async fn park(world: &World, users: &[(&str, usize)]) -> Vec<JobId> {
    let jobs = users
        .iter()
        .flat_map(|(user, count)| (0..*count).map(|_| job(user)))
        .collect();
    world.submit(jobs, true).await
}

fn by_user(picked: &[Dispatched]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for job in picked {
        *counts.entry(job.user_id.as_str()).or_insert(0) += 1;
    }
    counts
}

#[tokio::test]
async fn a_user_with_a_million_does_not_hold_up_the_others() {
    let world = World::new().await;
    park(&world, &[("big", 300), ("a", 5), ("m", 5), ("z", 5)]).await;
    let picked = tick(&world, 40).await;
    assert_eq!(picked.len(), 40, "the room is filled");
    let counts = by_user(&picked);
    for user in ["a", "m", "z"] {
        assert_eq!(counts.get(user), Some(&5), "{counts:?}");
    }
    v4_holds(&world, "a fair tick").await;
}

#[tokio::test]
async fn all_dispatchers_know_of_a_backlog_that_one_has_seen() {
    let world = World::new().await;
    park(&world, &[("ann", 1)]).await;
    let look = || async {
        let (tick, due) = begin(&world).await;
        drop(tick);
        (due[0].backlog, due[0].was_busy)
    };
    assert_eq!(look().await, (true, false), "a new one");
    assert_eq!(tick(&world, 40).await.len(), 1);
    assert_eq!(look().await, (false, true));
    for at in ["- interval '3 s'", "+ interval '1 hour'"] {
        world
            .sql(format!("update lanes set busy_at = now() {at}"))
            .await;
        assert_eq!(look().await, (false, false), "{at}");
    }
}

/// The users and numbers of jobs that a dispatcher takes who remembers what it has sent.
async fn tick_knowing(world: &World, room: usize, known: &mut KnownUsers) -> Vec<JobId> {
    let (mut tick, due) = begin(world).await;
    let picked = tick.pick(&due[0], room, known).await.expect("picks");
    let ticked = ticked(picked.cursor_user, Duration::ZERO);
    tick.commit(&[ticked]).await.expect("commits");
    picked.jobs.iter().map(Dispatched::job_id).collect()
}

#[tokio::test]
async fn who_remembers_a_slow_backlog_finds_newcomers_at_once_and_all_others_in_the_end() {
    let world = World::new().await;
    let parked = park(&world, &[("bob", 6), ("dora", 6)]).await;
    let (mut tick, due) = begin(&world).await;
    let mut known = KnownUsers::default();
    let picked = tick.pick(&due[0], 4, &mut known).await.expect("picks");
    let ticked = ticked(picked.cursor_user, Duration::ZERO);
    tick.commit(&[ticked]).await.expect("commits");
    assert_eq!(picked.jobs.len(), 4);
    known.took(&due[0], &picked.jobs, Some(Duration::from_mins(1)));

    // Before, between and behind those who are known.
    let new = park(&world, &[("ann", 1), ("carl", 1), ("eve", 1)]).await;
    let back = picked.jobs[0].job_id();
    world
        .sql(format!(
            "update jobs set parked = true where job_id = '{back}'"
        ))
        .await;
    let next = tick_knowing(&world, 5, &mut known).await;
    assert_eq!(next.len(), 5, "{next:?}");
    assert!(new.iter().all(|job| next.contains(job)), "{next:?}");
    assert!(!next.contains(&back), "it is not looked for yet");
    // Everything is looked at again where nothing else is left.
    let rest = tick_knowing(&world, 40, &mut known).await;
    assert!(rest.contains(&back), "{rest:?}");
    assert_eq!(next.len() + rest.len(), parked.len() - 4 + new.len() + 1);
    assert!(tick_knowing(&world, 40, &mut known).await.is_empty());
    v4_holds(&world, "all were dispatched").await;
}

#[tokio::test]
async fn it_is_told_what_has_become_of_jobs_that_were_sent() {
    let world = World::new().await;
    let sent = world.sent().await;
    let look = |job: JobId, run: i32| {
        let store = &world.store;
        async move { store.look_at_sent(&[(job, run)]).await.expect("looks")[0] }
    };
    assert_eq!(look(sent, 1).await, Sent::Waits);
    assert_eq!(look(sent, 2).await, Sent::Taken, "another run");
    assert_eq!(look(JobId::new(), 1).await, Sent::Taken, "it is gone");
    let later = "update jobs set run_at = now() + interval '1 hour'";
    world.sql(later).await;
    assert_eq!(look(sent, 1).await, Sent::PutOff);
    let parked = "update jobs set run_at = now(), parked = true";
    world.sql(parked).await;
    assert_eq!(look(sent, 1).await, Sent::Back);
    let held = "update jobs set parked = false, held = true";
    world.sql(held).await;
    assert_eq!(look(sent, 1).await, Sent::PutOff);
}

#[tokio::test]
async fn the_cursor_takes_the_users_in_turn() {
    let world = World::new().await;
    let names: Vec<String> = (0..20).map(|n| format!("user-{n:02}")).collect();
    let users: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 10)).collect();
    park(&world, &users).await;
    // Less room than users: four ticks of five serve each user once.
    let mut served = BTreeMap::new();
    for _ in 0..4 {
        for job in tick(&world, 5).await {
            *served.entry(job.user_id).or_insert(0) += 1;
        }
    }
    assert_eq!(served.len(), 20, "{served:?}");
    assert!(served.values().all(|count| *count == 1), "{served:?}");
}

#[tokio::test]
async fn each_users_oldest_goes_first_and_the_lane_drains() {
    let world = World::new().await;
    let all: BTreeSet<JobId> = park(&world, &[("ada", 30), ("bob", 7)])
        .await
        .into_iter()
        .collect();
    let mut sent: Vec<Dispatched> = Vec::new();
    loop {
        let picked = tick(&world, 6).await;
        if picked.is_empty() {
            break;
        }
        assert!(picked.len() <= 6);
        for user in ["ada", "bob"] {
            let latest = sent
                .iter()
                .filter(|j| j.user_id == user)
                .map(Dispatched::job_id)
                .max();
            let earliest = picked
                .iter()
                .filter(|j| j.user_id == user)
                .map(Dispatched::job_id)
                .min();
            assert!(latest.is_none() || earliest.is_none() || latest < earliest);
        }
        sent.extend(picked);
        assert!(sent.len() <= all.len(), "one was sent twice");
    }
    assert_eq!(
        sent.iter().map(Dispatched::job_id).collect::<BTreeSet<_>>(),
        all
    );
    for row in world.all().await.into_values() {
        assert!(!row.parked && row.sends == 1, "{row:?}");
        assert!(
            row.wake_in.is_some_and(|s| (3.0..=5.0).contains(&s)),
            "{row:?}"
        );
    }
    v4_holds(&world, "a drained lane").await;
}

#[tokio::test]
async fn v1_a_job_that_is_sent_again_waits_longer_for_it() {
    let world = World::new().await;
    let id = park(&world, &[("ada", 1)]).await[0];
    let mut waits = Vec::new();
    for _ in 0..5 {
        assert_eq!(tick(&world, 1).await.len(), 1);
        waits.push(world.row(id).await.wake_in.expect("waits").ceil() as i64);
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
    }
    assert_eq!(waits, [5, 15, 45, 60, 60]);
}

#[tokio::test]
async fn one_dispatcher_at_a_time_has_a_lane() {
    let world = World::new().await;
    park(&world, &[("ada", 10)]).await;
    let (mut first, due) = begin(&world).await;
    assert_eq!(due.len(), 1);
    let (second, none) = begin(&world).await;
    assert_eq!(none.len(), 0, "its row is locked");
    drop(second);
    let picked = first
        .pick(&due[0], 4, &mut KnownUsers::default())
        .await
        .expect("picks");
    assert_eq!((picked.jobs.len(), picked.exhausted), (4, false));
    first
        .commit(&[ticked(picked.cursor_user, Duration::from_secs(30))])
        .await
        .expect("commits");
    let (_third, none) = begin(&world).await;
    assert_eq!(none.len(), 0, "its tick is not due");
    assert_eq!(
        world.count("select count(*) from jobs where parked").await,
        6
    );
}

#[tokio::test]
async fn v1_a_tick_that_dies_sends_nothing() {
    let world = World::new().await;
    let id = park(&world, &[("ada", 1)]).await[0];
    {
        let (mut tick, due) = begin(&world).await;
        let picked = tick
            .pick(&due[0], 10, &mut KnownUsers::default())
            .await
            .expect("picks");
        assert_eq!(picked.jobs.len(), 1);
    }
    // The rollback of the dropped transaction may still be under way.
    let again = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let (mut tick, due) = begin(&world).await;
            if let [lane] = &due[..] {
                let picked = tick
                    .pick(lane, 10, &mut KnownUsers::default())
                    .await
                    .expect("picks");
                tick.commit(&[ticked(picked.cursor_user, Duration::ZERO)])
                    .await
                    .expect("commits");
                return picked.jobs;
            }
            tokio::task::yield_now().await;
        }
    });
    let picked = again.await.expect("the lane is free again");
    assert_eq!(
        picked.iter().map(Dispatched::job_id).collect::<Vec<_>>(),
        [id]
    );
}

#[tokio::test]
async fn what_is_not_due_or_not_parked_is_not_sent() {
    let world = World::new().await;
    let mut later = job("ada");
    later.run_at = Some(chrono::Utc::now() + Duration::from_mins(10));
    world.submit(vec![later], true).await;
    world.sent().await;
    assert_eq!(tick(&world, 10).await.len(), 0);
    let (_tick, due) = begin(&world).await;
    assert!(due.iter().all(|lane| !lane.backlog));
}

#[tokio::test]
async fn a_tick_that_takes_all_knows_it_and_one_that_leaves_some_does_not() {
    let world = World::new().await;
    park(&world, &[("ada", 3), ("bob", 1), ("eve", 2)]).await;
    for (room, jobs, exhausted) in [(5, 5, false), (5, 1, true), (5, 0, true)] {
        let (mut tick, due) = begin(&world).await;
        let picked = tick
            .pick(&due[0], room, &mut KnownUsers::default())
            .await
            .expect("picks");
        assert_eq!((picked.jobs.len(), picked.exhausted), (jobs, exhausted));
        tick.commit(&[ticked(picked.cursor_user, Duration::ZERO)])
            .await
            .expect("commits");
    }
    // What somebody else has locked is left, and not forgotten.
    let id = park(&world, &[("ada", 1)]).await[0];
    let mut other = world.store.pool().begin().await.expect("a transaction");
    sqlx::query("select 1 from jobs where job_id = $1 for update")
        .bind(id.uuid())
        .execute(&mut *other)
        .await
        .expect("locks");
    let (mut tick, due) = begin(&world).await;
    let picked = tick
        .pick(&due[0], 5, &mut KnownUsers::default())
        .await
        .expect("picks");
    assert_eq!((picked.jobs.len(), picked.exhausted), (0, false));
}

/// A thousand users with a backlog of their own; every other one weighs 3.
async fn thousand_users(world: &World) {
    world
        .sql(
            "insert into user_limits (user_id, weight) \
             select 'user-' || lpad(n::text, 4, '0'), 3 from generate_series(1, 1000, 2) n; \
             insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, parked, wake_at) \
             select tenure_uuid7(), 'user-' || lpad(n::text, 4, '0'), 'default', 2, 'noop', '{}', 5, 60000, true, now() + interval '1 day' \
             from generate_series(1, 1000) n cross join lateral generate_series(1, case n % 2 when 1 then 48 else 16 end)",
        )
        .await;
}

#[tokio::test]
async fn a_thousand_users_share_by_their_weights() {
    let world = World::new().await;
    thousand_users(&world).await;
    // Rooms of all sizes: a small one must not favour small weights, nor a large one
    // those whose turn it happens to be.
    let rooms = [3, 700, 40, 4000, 1, 1500, 250, 2, 2600, 900];
    let mut served: BTreeMap<String, f64> = BTreeMap::new();
    let mut total = 0;
    while total < 24_000 {
        for room in rooms {
            for job in tick(&world, room).await {
                *served.entry(job.user_id).or_insert(0.0) += 1.0;
                total += 1;
            }
        }
    }
    assert_eq!(served.len(), 1000);
    // Of 2,000 shares each user has one or three.
    let share = f64::from(total) / 2000.0;
    for (user, count) in &served {
        let number: u32 = user["user-".len()..].parse().expect("a number");
        let fair = share * if number % 2 == 1 { 3.0 } else { 1.0 };
        assert!(
            (count - fair).abs() <= fair * 0.1,
            "{user} has {count} of {fair}"
        );
    }
}

#[tokio::test]
async fn a_few_jobs_beside_a_thousand_users_go_with_the_next_round() {
    let world = World::new().await;
    thousand_users(&world).await;
    // In the middle of a round, with a cursor that has just passed the newcomer's place.
    tick(&world, 1200).await;
    let own: BTreeSet<JobId> = park(&world, &[("a-newcomer", 2)])
        .await
        .into_iter()
        .collect();
    let mut before = 0;
    let mut started = 0;
    while started < own.len() {
        for job in tick(&world, 500).await {
            if own.contains(&job.job_id()) {
                started += 1;
            } else if started < own.len() {
                before += 1;
            }
        }
        assert!(before <= 2 * 2000, "a round each is what they wait for");
    }
}

#[tokio::test]
async fn a_tick_sends_users_in_turn_and_not_one_after_the_other() {
    let world = World::new().await;
    park(&world, &[("big", 300)]).await;
    park(&world, &[("small", 10)]).await;
    let picked = tick(&world, 200).await;
    let last = picked.iter().rposition(|job| job.user_id == "small");
    assert_eq!(picked.len(), 200);
    assert_eq!(last, Some(19), "ten of each alternate");
}
