//! Pauses of queues (requirement I5): by hand and by the system, each for itself.

use std::time::Duration;

use serde_json::Value;
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::Lane;
use tenure_core::domain::state::JobState;
use tenure_core::domain::wait::Reason;
use tenure_core::storage::claim::Unmatched;
use tenure_core::storage::dispatch_known::KnownUsers;
use tenure_core::storage::queues::QueueStatus;

use crate::world::{World, success};

async fn pause(world: &World, reason: &str, who: &str) -> QueueStatus {
    let paused = world.store.pause_queue("default", reason, who).await;
    paused.expect("pauses").expect("the queue")
}

async fn resume(world: &World) -> QueueStatus {
    let resumed = world.store.resume_queue("default", "olga").await;
    resumed.expect("resumes").expect("the queue")
}

async fn system_pause(world: &World, reason: &str) -> Vec<String> {
    let queues = ["default".to_owned(), "nowhere".to_owned()];
    let paused = world.store.system_pause(&queues, reason).await;
    paused.expect("pauses")
}

/// The acts on queues: act, who, the reason.
async fn noted(world: &World) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as("select action, actor, reason from job_actions order by action_id")
        .fetch_all(world.store.pool())
        .await
        .expect("the record")
}

/// Whether a dispatch takes the lane of the queue for paused.
async fn dispatch_is_paused(world: &World) -> bool {
    let lanes = [("default".to_owned(), Lane::Normal)];
    let (tick, due) = world
        .store
        .begin_tick(&lanes, &KnownUsers::default())
        .await
        .expect("a tick");
    let paused = due[0].paused();
    tick.commit(&[]).await.expect("commits");
    paused
}

/// Nothing starts, and each way to look at it says so.
async fn starts_nothing(world: &World, sent: JobId, message: &str) {
    let session = SessionId::new();
    assert!(dispatch_is_paused(world).await);
    assert!(world.claim(&[(sent, 1)], session).await.is_empty());
    let again = world.store.reread_unclaimed(&[(sent, 1)], session).await;
    assert_eq!(again.expect("reads"), [(sent, Unmatched::Paused)]);
    let job = world.store.get_job(sent, false).await.expect("reads");
    let waits = world.store.waits(&[job.expect("the job")]).await;
    let wait = waits.expect("reads").remove(&sent).expect("V5: a reason");
    assert_eq!(wait.reason, Reason::QueuePaused);
    assert_eq!(wait.message, message);
    let queues = world.store.list_queues().await.expect("lists");
    let queue = queues.iter().find(|q| q.name == "default");
    assert!(queue.expect("the queue").paused());
    let hints = world.store.lane_hints().await.expect("reads");
    assert!(hints.iter().all(|h| h.paused == (h.queue == "default")));
}

#[tokio::test]
async fn a_pause_by_hand_starts_nothing_and_lets_the_rest_go_on() {
    let world = World::new().await;
    let session = SessionId::new();
    let running = world.running(session).await;
    let sent = world.sent().await;
    let queue = pause(&world, "new disks", "olga").await;
    assert!(queue.paused());
    let told = queue.pause.expect("a pause");
    assert_eq!(told.reason, "new disks");
    assert_eq!(told.by.as_deref(), Some("olga"));
    assert!(told.at.is_some() && queue.system_pause.is_none());

    starts_nothing(
        &world,
        sent,
        "its queue \"default\" is paused by olga: new disks",
    )
    .await;
    let deferred = world.store.defer(&[(sent, 1)], Duration::ZERO).await;
    assert_eq!(deferred.expect("defers"), 1);
    assert!(world.row(sent).await.parked);
    // What runs ends, and what is submitted is accepted.
    assert!(world.finish(running, 1, success(), session).await);
    let later = world.sent().await;
    assert_eq!(world.state(later).await, JobState::Pending);

    assert!(!resume(&world).await.paused());
    assert!(!dispatch_is_paused(&world).await);
    assert_eq!(world.claim(&[(later, 1)], session).await.len(), 1);
}

#[tokio::test]
async fn a_pause_or_a_resume_once_more_changes_and_notes_nothing() {
    let world = World::new().await;
    let first = pause(&world, "new disks", "olga").await.pause.expect("one");
    let second = pause(&world, "new disks", "olga").await.pause.expect("one");
    assert_eq!(first, second);
    let other = pause(&world, "more new disks", "otto").await;
    let other = other.pause.expect("one");
    assert_eq!(other.by.as_deref(), Some("otto"));
    assert_eq!(other.at, first.at, "it has been paused since then");
    resume(&world).await;
    resume(&world).await;
    let missing = world.store.pause_queue("nowhere", "why", "olga").await;
    assert_eq!(missing.expect("reads"), None);
    let some = |text: &str| Some(text.to_owned());
    let note = |act: &str, who: &str, why| (act.to_owned(), who.to_owned(), why);
    assert_eq!(
        noted(&world).await,
        [
            note("pause_queue", "olga", some("new disks")),
            note("pause_queue", "otto", some("more new disks")),
            note("resume_queue", "olga", None),
        ]
    );
    let before: Value =
        sqlx::query_scalar("select before from job_actions where action = 'resume_queue'")
            .fetch_one(world.store.pool())
            .await
            .expect("the record");
    assert_eq!(before["reason"], "more new disks");
    assert_eq!(before["queue"], "default");
}

#[tokio::test]
async fn a_pause_by_the_system_ends_when_nobody_confirms_it_and_leaves_the_other_alone() {
    let world = World::new().await;
    let sent = world.sent().await;
    assert_eq!(system_pause(&world, "results are late").await, ["default"]);
    assert!(system_pause(&world, "results are late").await.is_empty());
    starts_nothing(
        &world,
        sent,
        "its queue \"default\" is paused by the system: results are late",
    )
    .await;
    pause(&world, "new disks", "olga").await;
    let both =
        "its queue \"default\" is paused by olga: new disks; and by the system: results are late";
    starts_nothing(&world, sent, both).await;
    let resumed = resume(&world).await;
    assert!(resumed.paused() && resumed.pause.is_none());

    let quiet = Duration::from_secs(10);
    let end = || async { world.store.end_system_pauses(quiet).await.expect("ends") };
    assert!(end().await.is_empty(), "it was confirmed a moment ago");
    let age = |seconds: u32| {
        world.sql(format!(
            "update queues set system_paused_at = now() - interval '{seconds} s' where system_paused"
        ))
    };
    age(11).await;
    assert!(system_pause(&world, "still late").await.is_empty());
    assert!(end().await.is_empty(), "it was confirmed once more");
    // The clock was set back: who still needs the pause says so, and it counts.
    let ahead =
        "update queues set system_paused_at = now() + interval '1 hour' where system_paused";
    world.sql(ahead).await;
    assert!(system_pause(&world, "still late").await.is_empty());
    assert!(
        end().await.is_empty(),
        "it was confirmed under the new clock"
    );
    world.sql(ahead).await;
    assert_eq!(end().await, ["default"], "nobody confirms what lies ahead");
    assert_eq!(system_pause(&world, "results are late").await, ["default"]);
    age(11).await;
    assert_eq!(end().await, ["default"]);
    assert!(end().await.is_empty());
    assert!(!dispatch_is_paused(&world).await);
    let mut system: Vec<_> = noted(&world)
        .await
        .into_iter()
        .filter(|(_, actor, _)| actor == "system")
        .map(|(act, _, reason)| (act, reason))
        .collect();
    // Their ids tell no order within a millisecond.
    system.sort();
    let late = (
        "pause_queue".to_owned(),
        Some("results are late".to_owned()),
    );
    let over = ("resume_queue".to_owned(), None);
    assert_eq!(system, [late.clone(), late, over.clone(), over]);
}
