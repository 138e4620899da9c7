//! Lines: order and concurrency by key (PROTOCOL.md §12, invariant V11).

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::NewJob;
use tenure_core::domain::line::Line;
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::dead_letters::{Decision, Outcome};
use tenure_core::storage::finish::Goal;
use tenure_core::storage::lines::{LineKey, Turned};

use crate::world::{World, failed, finish, job, retrying, success};

const HOUR: Duration = Duration::from_hours(1);

/// A job of ada's in the line of this key.
pub(crate) fn ordered(key: &str, blocks: bool) -> NewJob {
    NewJob {
        line: Some(Line::Ordered {
            key: key.to_owned(),
            blocks,
        }),
        ..job("ada")
    }
}

fn limited(key: &str, most: i32) -> NewJob {
    NewJob {
        line: Some(Line::Limited {
            key: key.to_owned(),
            most,
        }),
        ..job("ada")
    }
}

fn line(stored_key: &str) -> BTreeSet<LineKey> {
    BTreeSet::from([LineKey {
        queue: "default".to_owned(),
        key: stored_key.to_owned(),
    }])
}

/// Jobs that are not held, by id.
async fn free(world: &World) -> Vec<JobId> {
    let all = world.all().await;
    all.into_values()
        .filter(|row| !row.held && !row.state().is_final())
        .map(|row| row.id())
        .collect()
}

/// Starts a run.
async fn start(world: &World, id: JobId, session: SessionId) -> i32 {
    let run = world.row(id).await.run;
    assert_eq!(world.claim(&[(id, run)], session).await.len(), 1);
    run
}

/// Ends a run, and gives turns in the lines that it says.
async fn end(world: &World, id: JobId, goal: Goal, session: SessionId) -> Vec<Turned> {
    let run = world.row(id).await.run;
    let done = world.store.finish(&[finish(id, run, goal)], session).await;
    let done = done.expect("a finish");
    assert!(done.revisions.contains_key(&id));
    world.store.give_turns(&done.lines).await.expect("turns")
}

async fn replay(world: &World, id: JobId) {
    let decision = Decision {
        actor: "op".to_owned(),
        reason: "mended".to_owned(),
    };
    let letters = [id.uuid()];
    let results = world.store.replay_dead_letters(&letters, &decision).await;
    let results = results.expect("an answer");
    assert_eq!(results[0].outcome, Outcome::Done);
}

fn ids(turned: &[Turned]) -> Vec<JobId> {
    turned.iter().map(|it| it.job_id).collect()
}

#[tokio::test]
async fn v11_the_next_of_a_line_starts_after_the_one_before_has_ended() {
    let world = World::new().await;
    let session = SessionId::new();
    let first = world.submit(vec![ordered("k", false)], false).await[0];
    let more = world
        .submit(vec![ordered("k", false), ordered("k", false)], false)
        .await;
    let other = world.submit(vec![ordered("l", false)], false).await[0];
    let mut begun = vec![first, other];
    begun.sort_unstable();
    assert_eq!(free(&world).await, begun);
    assert_eq!(
        *world.published.lock(),
        [first, other],
        "only those are sent"
    );
    // A message of one that is held does nothing.
    assert!(world.claim(&[(more[0], 1)], session).await.is_empty());

    start(&world, first, session).await;
    // A retry holds the line, and so does being put off.
    assert!(end(&world, first, retrying(HOUR), session).await.is_empty());
    world.let_time_pass(&[first]).await;
    world.wake(&[first]).await;
    start(&world, first, session).await;
    assert!(
        end(&world, first, Goal::Pending(HOUR), session)
            .await
            .is_empty()
    );
    world.let_time_pass(&[first]).await;
    world.wake(&[first]).await;
    start(&world, first, session).await;
    let next = end(&world, first, success(), session).await;
    assert_eq!(ids(&next), [more[0]]);
    assert!(next[0].due);
    assert!(world.row(more[0]).await.parked);
    assert!(world.row(more[1]).await.held);

    // A failure lets them pass, where it was not told otherwise.
    start(&world, more[0], session).await;
    assert_eq!(
        ids(&end(&world, more[0], failed(), session).await),
        [more[1]]
    );
    // Replayed, it goes to the end.
    let late = world.submit(vec![ordered("k", false)], false).await[0];
    replay(&world, more[0]).await;
    assert!(world.row(more[0]).await.held);
    start(&world, more[1], session).await;
    assert_eq!(ids(&end(&world, more[1], success(), session).await), [late]);
    start(&world, late, session).await;
    assert_eq!(ids(&end(&world, late, success(), session).await), [more[0]]);
}

#[tokio::test]
async fn v11_a_failure_that_blocks_keeps_the_line_until_its_letter_is_closed() {
    let world = World::new().await;
    let session = SessionId::new();
    let [bad, next, last] = world
        .submit(
            vec![ordered("k", true), ordered("k", true), ordered("k", true)],
            false,
        )
        .await[..]
    else {
        panic!("three jobs");
    };
    start(&world, bad, session).await;
    assert!(end(&world, bad, failed(), session).await.is_empty());
    // Nobody passes: neither who waits nor who comes.
    let late = world.submit(vec![ordered("k", true)], false).await[0];
    assert!(free(&world).await.is_empty());
    world.store.give_turns(&line("o:k")).await.expect("turns");
    assert!(free(&world).await.is_empty());

    // A replay is ahead of all of them.
    replay(&world, bad).await;
    world.store.give_turns(&line("o:k")).await.expect("turns");
    assert_eq!(free(&world).await, [bad]);
    start(&world, bad, session).await;
    assert!(end(&world, bad, failed(), session).await.is_empty());
    assert!(free(&world).await.is_empty());

    // A closed letter lets the line go on.
    assert!(
        world
            .store
            .unblock_lines(10)
            .await
            .expect("asked")
            .is_empty()
    );
    world
        .sql("update dead_letters set status = 'ignored', status_changed_at = now()")
        .await;
    let lines = world.store.unblock_lines(10).await.expect("asked");
    assert_eq!(lines, line("o:k"));
    let turned = world.store.give_turns(&lines).await.expect("turns");
    assert_eq!(ids(&turned), [next]);
    start(&world, next, session).await;
    assert_eq!(ids(&end(&world, next, success(), session).await), [last]);
    assert!(world.row(late).await.held);
}

#[tokio::test]
async fn a_limited_line_has_as_many_turns_as_it_says() {
    let world = World::new().await;
    let session = SessionId::new();
    let jobs: Vec<NewJob> = (0..6).map(|_| limited("c", 2)).collect();
    let jobs = world.submit(jobs, true).await;
    assert_eq!(free(&world).await, jobs[..2]);
    for id in &jobs[..2] {
        start(&world, *id, session).await;
    }
    // A retry gives its place up, and asks for one when it is due.
    assert_eq!(
        ids(&end(&world, jobs[0], retrying(HOUR), session).await),
        [jobs[2]]
    );
    world.let_time_pass(&[jobs[0]]).await;
    world.wake(&[jobs[0]]).await;
    assert!(world.row(jobs[0]).await.held, "both turns are taken");
    world.store.give_turns(&line("c:c")).await.expect("turns");
    assert!(world.row(jobs[0]).await.held, "both turns are taken");
    // It is the first of those that wait.
    assert_eq!(
        ids(&end(&world, jobs[1], success(), session).await),
        [jobs[0]]
    );

    // A lease that runs out keeps the turn for the next run.
    start(&world, jobs[0], session).await;
    world.let_time_pass(&[jobs[0]]).await;
    world.wake(&[jobs[0]]).await;
    let row = world.row(jobs[0]).await;
    assert_eq!(
        (row.state(), row.held, row.parked),
        (JobState::Pending, false, true)
    );
    world.store.give_turns(&line("c:c")).await.expect("turns");
    assert!(world.row(jobs[3]).await.held);

    // A cancel frees one.
    let cancelled = world.store.cancel(jobs[2], "enough").await;
    assert_eq!(cancelled.expect("asked"), Cancelled::Now);
    let noted = world.store.noted_lines(-1000, 10).await.expect("noted");
    assert_eq!(noted, line("c:c"));
    let turned = world.store.give_turns(&noted).await.expect("turns");
    assert_eq!(ids(&turned), [jobs[3]]);
    let noted = world.store.noted_lines(-1000, 10).await.expect("noted");
    assert!(noted.is_empty(), "it was followed up");
}

#[tokio::test]
async fn what_is_due_later_holds_an_ordered_line_and_no_place_of_a_limited_one() {
    let world = World::new().await;
    let later = |job: NewJob| NewJob {
        run_at: Some(chrono::Utc::now() + HOUR),
        ..job
    };
    let first = world.submit(vec![later(ordered("k", false))], false).await[0];
    let second = world.submit(vec![ordered("k", false)], false).await[0];
    assert!(world.row(second).await.held);
    let row = world.row(first).await;
    assert!(!row.held && !row.parked);
    assert!(row.wake_in.is_some_and(|left| left > 3500.0), "{row:?}");

    let first = world.submit(vec![later(limited("c", 1))], false).await[0];
    let second = world.submit(vec![limited("c", 1)], false).await[0];
    assert!(!world.row(first).await.held);
    assert!(!world.row(second).await.held);
    assert_eq!(*world.published.lock(), [second]);
    world.let_time_pass(&[first]).await;
    world.wake(&[first]).await;
    assert!(world.row(first).await.held, "the only turn is taken");
}

#[tokio::test]
async fn v11_no_two_of_a_key_have_their_turn_whoever_races() {
    let world = World::new().await;
    let session = SessionId::new();
    // Submits, ends and cancels of one key at once, many times.
    let mut all = world.submit(vec![ordered("k", false)], false).await;
    for round in 0..30 {
        let running = free(&world).await;
        assert!(running.len() <= 1, "round {round}: {running:?}");
        let end_one = async {
            if let Some(id) = running.first() {
                let run = world.row(*id).await.run;
                if !world.claim(&[(*id, run)], session).await.is_empty() {
                    end(&world, *id, success(), session).await;
                }
            }
        };
        let cancel_one = async {
            if round % 5 == 4 {
                let waiting = all[all.len() - 1];
                world.store.cancel(waiting, "no").await.expect("asked");
            }
        };
        let (one, two, (), ()) = tokio::join!(
            world.submit(vec![ordered("k", false)], false),
            world.submit(vec![ordered("k", false)], true),
            end_one,
            cancel_one,
        );
        all.extend(one);
        all.extend(two);
        // What a killed process has left undone.
        let noted = world.store.noted_lines(-1000, 10).await.expect("noted");
        world.store.give_turns(&noted).await.expect("turns");
    }
    // All of them end, in the order of their places.
    loop {
        let turn = free(&world).await;
        let [id] = turn[..] else {
            assert!(turn.is_empty(), "{turn:?}");
            break;
        };
        start(&world, id, session).await;
        end(&world, id, success(), session).await;
    }
    let left = world
        .count("select count(*) from jobs where finished_at is null")
        .await;
    assert_eq!(left, 0);
    let overlaps = world
        .count(
            "select count(*) from jobs a join jobs b on a.ordering_key = b.ordering_key and a.job_id <> b.job_id \
             and a.started_at < b.started_at and b.started_at < a.finished_at",
        )
        .await;
    assert_eq!(overlaps, 0);
}

#[tokio::test]
async fn v11_what_expires_in_a_line_blocks_nobody_and_comes_back_to_its_place() {
    let world = World::new().await;
    let session = SessionId::new();
    let jobs: Vec<NewJob> = (0..4).map(|_| ordered("k", true)).collect();
    let jobs = world.submit(jobs, false).await;
    start(&world, jobs[0], session).await;
    world
        .sql(format!(
            "update jobs set expires_at = now() - interval '1 s', wake_at = now() - interval '1 s' where job_id = '{}'",
            jobs[2]
        ))
        .await;
    world.wake(&[jobs[2]]).await;
    assert_eq!(world.state(jobs[2]).await, JobState::Failed);
    assert_eq!(
        ids(&end(&world, jobs[0], success(), session).await),
        [jobs[1]]
    );
    start(&world, jobs[1], session).await;
    replay(&world, jobs[2]).await;
    assert_eq!(
        ids(&end(&world, jobs[1], success(), session).await),
        [jobs[2]]
    );
    start(&world, jobs[2], session).await;
    assert_eq!(
        ids(&end(&world, jobs[2], success(), session).await),
        [jobs[3]]
    );
}

#[tokio::test]
async fn a_message_of_a_job_without_a_turn_starts_nothing() {
    let world = World::new().await;
    let session = SessionId::new();
    let later = NewJob {
        run_at: Some(chrono::Utc::now() + HOUR),
        ..limited("c", 1)
    };
    let later = world.submit(vec![later], false).await[0];
    let first = world.submit(vec![limited("c", 1)], false).await[0];
    // Its time has come, and no sweeper has looked yet.
    world.let_time_pass(&[later]).await;
    assert!(world.claim(&[(later, 1)], session).await.is_empty());
    world
        .store
        .defer(&[(later, 1)], Duration::ZERO)
        .await
        .expect("deferred");
    assert!(!world.row(later).await.parked);
    start(&world, first, session).await;
    world.wake(&[later]).await;
    assert_eq!(ids(&end(&world, first, success(), session).await), [later]);
}
