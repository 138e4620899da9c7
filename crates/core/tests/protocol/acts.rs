//! What operators do to single jobs: guarded by the state, written down, and told.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::NewJob;
use tenure_core::domain::state::JobState;
use tenure_core::storage::claim::Unmatched;
use tenure_core::storage::finish::Unapplied;
use tenure_core::storage::job_actions::{Acted, Action, Actor};

use crate::audit::v4_holds;
use crate::world::{World, failed, finish, job, retrying, success};

const HOUR: Duration = Duration::from_hours(1);

pub(crate) fn olga() -> Actor {
    Actor {
        name: "olga".to_owned(),
        reason: Some("the disk is back".to_owned()),
    }
}

pub(crate) async fn act(world: &World, id: JobId, action: Action) -> Acted {
    let acted = world.store.act_on_job(id, action, &olga()).await;
    acted.expect("an answer")
}

fn later(by: Duration) -> DateTime<Utc> {
    // As the database keeps it.
    let at = Utc::now() + by;
    DateTime::from_timestamp_micros(at.timestamp_micros()).expect("a time")
}

/// A job that waits for its second run.
pub(crate) async fn retry(world: &World, session: SessionId) -> JobId {
    let id = world.running(session).await;
    assert!(world.finish(id, 1, retrying(HOUR), session).await);
    id
}

async fn scheduled(world: &World) -> JobId {
    let new = NewJob {
        run_at: Some(later(HOUR)),
        ..job("ada")
    };
    world.submit(vec![new], false).await[0]
}

/// Seconds until it may start.
async fn due_in(world: &World, id: JobId) -> i64 {
    let sql =
        format!("select extract(epoch from run_at - now())::int8 from jobs where job_id = '{id}'");
    world.count(&sql).await
}

async fn notes(world: &World, id: JobId) -> Vec<(String, String, Option<String>)> {
    sqlx::query_as("select action, actor, reason from job_actions where job_id = $1 order by at")
        .bind(id.uuid())
        .fetch_all(world.store.pool())
        .await
        .expect("reads")
}

#[tokio::test]
async fn v4_v6_made_due_a_waiting_job_is_parked_and_runs_as_if_its_time_had_come() {
    let world = World::new().await;
    let session = SessionId::new();
    for (id, state, run) in [
        (retry(&world, session).await, JobState::Retrying, 2),
        (scheduled(&world).await, JobState::Pending, 1),
    ] {
        let before = world.row(id).await;
        assert_eq!((before.state(), before.parked), (state, false));
        assert_eq!(act(&world, id, Action::RetryNow).await, Acted::Done);
        let row = world.row(id).await;
        assert_eq!(
            (row.state(), row.parked, row.run),
            (JobState::Pending, true, run)
        );
        assert_eq!((row.attempt, row.rev), (before.attempt, before.rev + 1));
        assert!(
            row.wake_in
                .is_some_and(|s| (80_000.0..90_000.0).contains(&s))
        );
        assert!(due_in(&world, id).await <= 0);
        // Again it is nothing new, in the row and in the record.
        assert_eq!(act(&world, id, Action::RetryNow).await, Acted::Already);
        assert_eq!(world.row(id).await.rev, row.rev);
        let note = ("retry_now".to_owned(), "olga".to_owned(), olga().reason);
        assert_eq!(notes(&world, id).await, [note]);
        v4_holds(&world, "an act").await;
        assert_eq!(world.claim(&[(id, run)], session).await.len(), 1);
    }
    v4_holds(&world, "the claims").await;
}

#[tokio::test]
async fn what_runs_or_has_ended_is_refused_with_its_state() {
    let world = World::new().await;
    let session = SessionId::new();
    let running = world.running(session).await;
    let ended = world.running(session).await;
    assert!(world.finish(ended, 1, success(), session).await);
    let broken = world.running(session).await;
    assert!(world.finish(broken, 1, failed(), session).await);
    let cancelled = world.sent().await;
    world.store.cancel(cancelled, "no").await.expect("cancels");
    for (id, state) in [
        (running, JobState::Running),
        (ended, JobState::Success),
        (broken, JobState::Failed),
        (cancelled, JobState::Cancelled),
    ] {
        let before = world.row(id).await.still();
        for action in [
            Action::RetryNow,
            Action::Reschedule(later(HOUR)),
            Action::SetMaxAttempts(9),
        ] {
            let allowed = state == JobState::Running && action == Action::SetMaxAttempts(9);
            if !allowed {
                assert_eq!(act(&world, id, action).await, Acted::Conflict(state));
            }
        }
        assert_eq!(world.row(id).await.still(), before);
        assert!(notes(&world, id).await.is_empty());
    }
    let nobody = act(&world, JobId::new(), Action::RetryNow).await;
    assert_eq!(nobody, Acted::Missing);
}

#[tokio::test]
async fn a_message_that_is_under_way_finds_that_its_job_was_put_off() {
    let world = World::new().await;
    let session = SessionId::new();
    for parked in [false, true] {
        let id = world.submit(vec![job("ada")], parked).await[0];
        let at = later(HOUR);
        assert_eq!(act(&world, id, Action::Reschedule(at)).await, Acted::Done);
        assert_eq!(
            act(&world, id, Action::Reschedule(at)).await,
            Acted::Already
        );
        let row = world.row(id).await;
        assert_eq!((row.state(), row.parked), (JobState::Pending, false));
        assert!(row.wake_in.is_some_and(|s| (3500.0..3700.0).contains(&s)));
        assert!(world.claim(&[(id, 1)], session).await.is_empty());
        let told = world.store.reread_unclaimed(&[(id, 1)], session).await;
        assert_eq!(told.expect("reads"), [(id, Unmatched::Stale)]);
        // A worker without a slot does not bring it into the backlog.
        assert_eq!(
            world
                .store
                .defer(&[(id, 1)], Duration::ZERO)
                .await
                .expect("defers"),
            0
        );
        assert_eq!(world.row(id).await.still(), row.still());
        // When its time has come, it is sent and runs.
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        assert!(world.row(id).await.parked);
        assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
    }
}

#[tokio::test]
async fn a_retry_moves_and_a_time_that_has_passed_is_now() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = retry(&world, session).await;
    let at = later(2 * HOUR);
    assert_eq!(act(&world, id, Action::Reschedule(at)).await, Acted::Done);
    let row = world.row(id).await;
    assert_eq!(
        (row.state(), row.run, row.parked),
        (JobState::Retrying, 2, false)
    );
    assert!(row.wake_in.is_some_and(|s| (7100.0..7300.0).contains(&s)));
    assert!((7100..7300).contains(&due_in(&world, id).await));
    let past = Utc::now() - TimeDelta::days(1);
    assert_eq!(act(&world, id, Action::Reschedule(past)).await, Acted::Done);
    let row = world.row(id).await;
    assert_eq!((row.state(), row.parked), (JobState::Pending, true));
    let since = due_in(&world, id).await;
    assert!(
        (-60..=0).contains(&since),
        "due for {since} s: now, not then"
    );
    v4_holds(&world, "rescheduling").await;
}

#[tokio::test]
async fn a_start_behind_the_expiry_is_refused_while_the_expiry_counts() {
    let world = World::new().await;
    let session = SessionId::new();
    let new = || NewJob {
        expires_at: Some(later(HOUR)),
        ..job("ada")
    };
    let fresh = world.submit(vec![new()], false).await[0];
    let before = world.row(fresh).await;
    let too_late = Action::Reschedule(later(2 * HOUR));
    assert!(matches!(
        act(&world, fresh, too_late).await,
        Acted::Expires(_)
    ));
    assert_eq!(world.row(fresh).await.still(), before.still());
    // Earlier than that: the sweeper looks at it when it starts, not when it expires.
    let half = Action::Reschedule(later(HOUR / 2));
    assert_eq!(act(&world, fresh, half).await, Acted::Done);
    let wake_in = world.row(fresh).await.wake_in.expect("waits");
    assert!((1700.0..1900.0).contains(&wake_in), "{wake_in}");
    // It has started: nothing expires any more.
    let started = world.submit(vec![new()], false).await[0];
    assert_eq!(world.claim(&[(started, 1)], session).await.len(), 1);
    let hand_back = tenure_core::storage::finish::Goal::Pending(Duration::ZERO);
    assert!(world.finish(started, 1, hand_back, session).await);
    assert_eq!(act(&world, started, too_late).await, Acted::Done);
    let wake_in = world.row(started).await.wake_in.expect("waits");
    assert!((7100.0..7300.0).contains(&wake_in), "{wake_in}");
    v4_holds(&world, "expiries").await;
}

#[tokio::test]
async fn a_held_job_stays_in_its_line() {
    let world = World::new().await;
    let id = scheduled(&world).await;
    world
        .sql(format!(
            "update jobs set held = true, ordering_key = 'o:k', order_seq = 2 where job_id = '{id}'"
        ))
        .await;
    assert_eq!(act(&world, id, Action::RetryNow).await, Acted::Done);
    let row = world.row(id).await;
    assert!(row.held && !row.parked);
    assert!(row.wake_in.is_some_and(|s| s <= 300.0));
}

#[tokio::test]
async fn v6_the_most_attempts_never_fall_below_what_is_spent_or_to_come() {
    let world = World::new().await;
    let session = SessionId::new();
    let waiting = retry(&world, session).await;
    let set = |most| Action::SetMaxAttempts(most);
    assert_eq!(act(&world, waiting, set(1)).await, Acted::TooFew(2));
    assert_eq!(act(&world, waiting, set(2)).await, Acted::Done);
    assert_eq!(act(&world, waiting, set(2)).await, Acted::Already);
    assert_eq!(world.row(waiting).await.max_attempts, 2);
    assert_eq!(notes(&world, waiting).await.len(), 1);

    // While it runs, the run that is there may be made its last.
    let running = world.running(session).await;
    assert_eq!(act(&world, running, set(1)).await, Acted::Done);
    let item = finish(running, 1, retrying(HOUR));
    let done = world
        .store
        .finish(std::slice::from_ref(&item), session)
        .await;
    assert!(
        done.expect("a finish").revisions.is_empty(),
        "a retry without an attempt"
    );
    let verdict = world
        .store
        .reread_unfinished(std::slice::from_ref(&item), session)
        .await;
    assert_eq!(verdict.expect("reads"), [Unapplied::Spent]);
    assert!(world.finish(running, 1, failed(), session).await);

    // Or it gets more.
    let last = world
        .submit(
            vec![NewJob {
                max_attempts: 1,
                ..job("ada")
            }],
            false,
        )
        .await[0];
    assert_eq!(world.claim(&[(last, 1)], session).await.len(), 1);
    assert_eq!(act(&world, last, set(3)).await, Acted::Done);
    assert!(world.finish(last, 1, retrying(HOUR), session).await);
    assert_eq!(world.state(last).await, JobState::Retrying);
    v4_holds(&world, "changed attempts").await;
}
