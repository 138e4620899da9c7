//! Replays (PROTOCOL.md §15): another life of the job, and what its end makes of the letter.

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::dead_letters::{
    DeadLetterStatus, Decision, LetterResult, Outcome, Unreadable, Verb,
};
use tenure_core::storage::finish::Goal;
use uuid::Uuid;

use crate::audit::v4_holds;
use crate::world::{World, failed, job, retrying, success};

pub(crate) fn decision() -> Decision {
    Decision {
        actor: "olga".to_owned(),
        reason: "the receiver is back".to_owned(),
    }
}

/// Replays one letter.
pub(crate) async fn replay(world: &World, id: JobId) -> LetterResult {
    let results = world
        .store
        .replay_dead_letters(&[id.uuid()], &decision())
        .await;
    results.expect("a replay").remove(0)
}

/// A fresh job that has failed for good.
pub(crate) async fn dead(world: &World) -> JobId {
    let session = SessionId::new();
    let id = world.running(session).await;
    assert!(world.finish(id, 1, failed(), session).await);
    id
}

/// Runs the present run of a job to this end.
pub(crate) async fn run_to(world: &World, id: JobId, goal: Goal) {
    let session = SessionId::new();
    let run = world.row(id).await.run;
    assert_eq!(world.claim(&[(id, run)], session).await.len(), 1);
    assert!(world.finish(id, run, goal, session).await);
}

/// What was done about a letter: (action, who, before, after), the oldest first.
async fn story(
    world: &World,
    id: JobId,
) -> Vec<(String, Option<String>, &'static str, &'static str)> {
    let story = world
        .store
        .dead_letter_story(id.uuid())
        .await
        .expect("a story");
    story
        .actions
        .into_iter()
        .map(|a| (a.action, a.actor, a.before.as_str(), a.after.as_str()))
        .collect()
}

#[tokio::test]
async fn v4_v6_v12_fail_replay_fail_replay_success() {
    let world = World::new().await;
    let id = dead(&world).await;
    let mut replays = Vec::new();
    for life in 2..=3 {
        let before = world.row(id).await;
        let done = replay(&world, id).await;
        assert_eq!(done.outcome, Outcome::Done, "{done:?}");
        assert_eq!(done.status, Some(DeadLetterStatus::Replayed));
        replays.push(done.replay_id.expect("a replay"));
        let after = world.row(id).await;
        assert_eq!(after.state(), JobState::Pending);
        assert_eq!((after.run, after.life), (before.run + 1, life));
        assert_eq!((after.attempt, after.lost, after.parked), (0, 0, true));
        assert!(after.rev > before.rev, "a watcher sees it");
        v4_holds(&world, "a replay").await;
        // A message of the run that failed does nothing.
        assert!(
            world
                .claim(&[(id, before.run)], SessionId::new())
                .await
                .is_empty()
        );
        if life == 2 {
            run_to(&world, id, failed()).await;
            assert_eq!(
                world.letter(id).await,
                Some(("open".into(), "DOWNSTREAM".into(), 2))
            );
            v4_holds(&world, "the second failure").await;
        }
    }
    assert_ne!(replays[0], replays[1]);
    run_to(&world, id, success()).await;
    assert_eq!(world.state(id).await, JobState::Success);
    assert_eq!(world.letter(id).await.expect("a letter").0, "resolved");
    v4_holds(&world, "the success").await;
    let olga = || Some("olga".to_owned());
    assert_eq!(
        story(&world, id).await,
        [
            ("replay".to_owned(), olga(), "open", "replayed"),
            ("failed_again".to_owned(), None, "replayed", "open"),
            ("replay".to_owned(), olga(), "open", "replayed"),
            ("succeeded".to_owned(), None, "replayed", "resolved"),
        ]
    );
    // It has succeeded: nothing brings it back.
    let again = replay(&world, id).await;
    assert_eq!(again.outcome, Outcome::AlreadyDone);
    let opened = world
        .store
        .decide_dead_letters(Verb::Reopen, &[id.uuid()], &decision())
        .await
        .expect("decided");
    assert_eq!(opened[0].outcome, Outcome::Changed, "{:?}", opened[0]);
    v4_holds(&world, "what came too late").await;
    let story = world
        .store
        .dead_letter_story(id.uuid())
        .await
        .expect("a story");
    assert_eq!(story.letter.attempts, 2, "starts of all lives that failed");
    assert_eq!(story.letter.replay_id, Some(replays[1]));
    let replayed: Vec<_> = story
        .timeline
        .iter()
        .filter(|event| event.from == Some(JobState::Failed) && event.to == JobState::Pending)
        .collect();
    assert_eq!(replayed.len(), 2, "{:?}", story.timeline);
}

#[tokio::test]
async fn v6_each_life_has_all_its_attempts_and_the_letter_counts_them_all() {
    let world = World::new().await;
    let mut fresh = job("ada");
    fresh.max_attempts = 2;
    let id = world.submit(vec![fresh], false).await[0];
    for life in 1..=2 {
        run_to(&world, id, retrying(Duration::ZERO)).await;
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        run_to(&world, id, failed()).await;
        let letter = world
            .store
            .get_dead_letter(id.uuid())
            .await
            .expect("a letter");
        assert_eq!((letter.attempts, letter.failures), (2 * life, life));
        if life == 1 {
            assert_eq!(replay(&world, id).await.outcome, Outcome::Done);
        }
    }
    v4_holds(&world, "two lives").await;
}

#[tokio::test]
async fn v4_the_end_of_a_replayed_job_is_its_letters() {
    let world = World::new().await;
    // Cancelled while it waits, while it runs, and by a take-back of its lease.
    for way in ["waiting", "running", "lost"] {
        let id = dead(&world).await;
        assert_eq!(replay(&world, id).await.outcome, Outcome::Done);
        let session = SessionId::new();
        if way != "waiting" {
            assert_eq!(world.claim(&[(id, 2)], session).await.len(), 1);
        }
        let cancelled = world.store.cancel(id, "no more").await.expect("cancels");
        match way {
            "waiting" => assert_eq!(cancelled, Cancelled::Now),
            "running" => assert!(world.finish(id, 2, Goal::Cancelled, session).await),
            _ => {
                world.let_time_pass(&[id]).await;
                world.wake(&[id]).await;
            }
        }
        assert_eq!(world.state(id).await, JobState::Cancelled, "{way}");
        assert_eq!(
            world.letter(id).await.expect("a letter").0,
            "resolved",
            "{way}"
        );
        let story = story(&world, id).await;
        assert_eq!(
            story.last().map(|last| last.0.as_str()),
            Some("cancelled"),
            "{way}"
        );
        assert_eq!(replay(&world, id).await.outcome, Outcome::Changed, "{way}");
        v4_holds(&world, way).await;
    }
    // A lease that is lost for good opens it again.
    let id = dead(&world).await;
    assert_eq!(replay(&world, id).await.outcome, Outcome::Done);
    assert_eq!(world.claim(&[(id, 2)], SessionId::new()).await.len(), 1);
    world
        .sql(format!("update jobs set lost = 2 where job_id = '{id}'"))
        .await;
    world.let_time_pass(&[id]).await;
    world.wake(&[id]).await;
    assert_eq!(
        world.letter(id).await,
        Some(("open".into(), "POISON".into(), 2))
    );
    assert_eq!(
        story(&world, id).await.last().map(|last| last.0.clone()),
        Some("failed_again".to_owned())
    );
    v4_holds(&world, "poison").await;
}

#[tokio::test]
async fn v4_a_job_that_never_started_is_replayed() {
    let world = World::new().await;
    let mut late = job("ada");
    late.expires_at = Some(chrono::Utc::now() + Duration::from_mins(5));
    let id = world.submit(vec![late], true).await[0];
    world
        .sql(format!(
            "update jobs set expires_at = now() - interval '1 s', wake_at = now() - interval '1 s' where job_id = '{id}'"
        ))
        .await;
    world.wake(&[id]).await;
    assert_eq!(world.letter(id).await.expect("a letter").1, "EXPIRED");
    v4_holds(&world, "the expiry").await;
    assert_eq!(replay(&world, id).await.outcome, Outcome::Done);
    v4_holds(&world, "the replay").await;
    // The expiry has passed, and does not end it again.
    world.let_time_pass(&[id]).await;
    world.wake(&[id]).await;
    assert_eq!(world.state(id).await, JobState::Pending);
    run_to(&world, id, success()).await;
    v4_holds(&world, "the end").await;
}

#[tokio::test]
async fn what_cannot_be_replayed_says_why() {
    let world = World::new().await;
    let unreadable = world
        .store
        .store_unreadable("default", b"x", None, Unreadable::Unparseable, "no JSON")
        .await
        .expect("stored");
    let pruned = dead(&world).await;
    world
        .sql(format!("delete from jobs where job_id = '{pruned}'"))
        .await;
    let (open, ignored) = (dead(&world).await, dead(&world).await);
    let put = world
        .store
        .decide_dead_letters(Verb::Ignore, &[ignored.uuid()], &decision())
        .await
        .expect("ignored");
    assert_eq!(put[0].outcome, Outcome::Done);
    let nobody = Uuid::now_v7();
    let ids = [
        unreadable.id.uuid(),
        pruned.uuid(),
        open.uuid(),
        nobody,
        ignored.uuid(),
        open.uuid(),
    ];
    let results = world
        .store
        .replay_dead_letters(&ids, &decision())
        .await
        .expect("a replay");
    let outcomes: Vec<_> = results.iter().map(|result| result.outcome).collect();
    assert_eq!(
        outcomes,
        [
            Outcome::NotReplayable,
            Outcome::NotReplayable,
            Outcome::Done,
            Outcome::NotFound,
            Outcome::Done,
            Outcome::Done,
        ]
    );
    assert_eq!(
        results.iter().map(|result| result.id).collect::<Vec<_>>(),
        ids
    );
    assert_eq!(
        results[2].replay_id, results[5].replay_id,
        "named twice, replayed once"
    );
    assert_eq!(world.row(open).await.life, 2);
    assert!(
        results[0].message.contains("could not be read"),
        "{:?}",
        results[0]
    );
    assert!(results[1].message.contains("not there"), "{:?}", results[1]);
    // A repeat is told so.
    assert_eq!(replay(&world, open).await.outcome, Outcome::AlreadyDone);
}

#[tokio::test]
async fn v4_one_bad_letter_keeps_no_other_from_its_replay() {
    let world = World::new().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(dead(&world).await);
    }
    let bad = ids[3];
    world
        .sql(format!(
            "update processed_events set status = 'done' where event_id = '{bad}'"
        ))
        .await;
    let letters: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
    let results = world
        .store
        .replay_dead_letters(&letters, &decision())
        .await
        .expect("a replay");
    for (id, result) in ids.iter().zip(&results) {
        let (outcome, life) = if *id == bad {
            (Outcome::Changed, 1)
        } else {
            (Outcome::Done, 2)
        };
        assert_eq!((result.outcome, world.row(*id).await.life), (outcome, life));
    }
    world
        .sql(format!(
            "update processed_events set status = 'failed' where event_id = '{bad}'"
        ))
        .await;
    v4_holds(&world, "the bisection").await;
}
