//! Renewing (PROTOCOL.md §8).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::storage::renew::{Renewal, Renewed};
use tenure_core::test_util::wait_until;

use crate::audit::v4_holds;
use crate::world::{LEASE, World};

const BOUND: Duration = Duration::from_secs(30);

fn renewal(job_id: JobId, run: i32) -> Renewal {
    Renewal {
        job_id,
        run,
        progress: None,
    }
}

async fn renew(
    world: &World,
    items: &[Renewal],
    session: SessionId,
    lease: Duration,
) -> Vec<Renewed> {
    let mut renewed = world
        .store
        .renew(items, session, lease)
        .await
        .expect("renews");
    renewed.sort_by_key(|r| r.job_id);
    renewed
}

#[tokio::test]
async fn v2_only_a_valid_lease_of_ones_own_is_renewed() {
    let world = World::new().await;
    let (mine, theirs) = (SessionId::new(), SessionId::new());
    let (own, expired, other) = (
        world.running(mine).await,
        world.running(mine).await,
        world.running(theirs).await,
    );
    world.let_time_pass(&[expired]).await;
    let items = [renewal(own, 1), renewal(expired, 1), renewal(other, 1)];
    let before = world.row(own).await;
    let renewed = renew(&world, &items, mine, LEASE * 2).await;
    assert_eq!(renewed.iter().map(|r| r.job_id).collect::<Vec<_>>(), [own]);
    let after = world.row(own).await;
    assert!(
        after.lease_in > before.lease_in.map(|s| s + 500.0),
        "{after:?}"
    );
    // A renewal alone is nothing that a watcher has to see, and no wake-up is moved.
    assert_eq!(after.rev, before.rev);
    assert!(after.wake_in <= before.wake_in);
    // Not with another run's number either.
    assert_eq!(renew(&world, &[renewal(own, 2)], mine, LEASE).await, []);
    let still = world
        .store
        .still_mine(&[(own, 1), (expired, 1), (other, 1)], mine)
        .await
        .expect("reads");
    assert_eq!(still, [own]);
    v4_holds(&world, "renewals").await;
}

#[tokio::test]
async fn a_renewed_lease_that_wakes_early_is_left_running() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    // The wake-up of the first lease comes; the lease has been renewed since.
    world
        .sql(format!(
            "update jobs set wake_at = now() - interval '1 s' where job_id = '{id}'"
        ))
        .await;
    assert_eq!(
        world.wake(&[id]).await,
        [(id, "running".to_owned(), "running".to_owned())]
    );
    let row = world.row(id).await;
    assert_eq!((row.run, row.lost), (1, 0));
    let (wake, lease) = (row.wake_in.expect("waits"), row.lease_in.expect("a lease"));
    assert!((wake - lease).abs() < 0.001, "{row:?}");
    assert_eq!(
        renew(&world, &[renewal(id, 1)], session, LEASE).await.len(),
        1
    );
}

#[tokio::test]
async fn progress_and_cancel_requests_ride_along() {
    let world = World::new().await;
    let session = SessionId::new();
    let (quiet, busy) = (world.running(session).await, world.running(session).await);
    world.store.cancel(quiet, "enough").await.expect("cancels");
    let items = [
        renewal(quiet, 1),
        Renewal {
            progress: Some((30, 100, "a third\0".to_owned())),
            ..renewal(busy, 1)
        },
    ];
    let renewed = renew(&world, &items, session, LEASE).await;
    let asked: Vec<_> = renewed
        .iter()
        .map(|r| (r.job_id, r.cancel_requested))
        .collect();
    assert_eq!(asked, [(quiet, true), (busy, false)]);
    let job = world
        .store
        .get_job(busy, false)
        .await
        .expect("reads")
        .expect("there");
    assert_eq!((job.progress_done, job.progress_total), (30, 100));
    assert!(
        job.progress_message
            .is_some_and(|m| m.starts_with("a third"))
    );
    assert_eq!(job.revision, 3, "submitted, claimed, progress");
}

#[tokio::test]
async fn a_locked_row_does_not_keep_the_others_waiting() {
    let world = World::new().await;
    let session = SessionId::new();
    let (locked, free) = (world.running(session).await, world.running(session).await);
    let mut other = world.store.pool().begin().await.expect("a transaction");
    // As a handler's own transaction does before it commits (§9).
    sqlx::query("select 1 from jobs where job_id = $1 for share")
        .bind(locked.uuid())
        .execute(&mut *other)
        .await
        .expect("locks");
    let items = [renewal(locked, 1), renewal(free, 1)];
    let renewed = renew(&world, &items, session, LEASE).await;
    assert_eq!(renewed.iter().map(|r| r.job_id).collect::<Vec<_>>(), [free]);
    // The lease is still good, which the worker asks for before it stops a handler.
    let still = world
        .store
        .still_mine(&[(locked, 1)], session)
        .await
        .expect("reads");
    assert_eq!(still, [locked]);
    other.rollback().await.expect("ends");
    assert_eq!(renew(&world, &items, session, LEASE).await.len(), 2);
}

#[tokio::test]
async fn v2_a_renewal_that_waits_for_its_row_looks_at_it_again() {
    let world = World::new().await;
    let session = SessionId::new();
    let (kept, taken) = (world.running(session).await, world.running(session).await);
    let mut other = world.store.pool().begin().await.expect("a transaction");
    sqlx::query("select 1 from jobs where job_id = $1 for share")
        .bind(kept.uuid())
        .execute(&mut *other)
        .await
        .expect("locks");
    // Taken back by somebody whose commit comes while the renewal waits.
    sqlx::query(
        "update jobs set status = 'pending', run = run + 1, locked_by = null, locked_at = null, \
         lease_until = null where job_id = $1",
    )
    .bind(taken.uuid())
    .execute(&mut *other)
    .await
    .expect("taken back");
    // Each wait is a short one, after which the worker comes again.
    let wait = |id| {
        let store = world.store.clone();
        tokio::spawn(async move {
            loop {
                if let Ok(answer) = store
                    .renew_waiting(&renewal(id, 1), session, LEASE * 2)
                    .await
                {
                    return answer;
                }
            }
        })
    };
    let before = world.row(kept).await;
    let (kept_renewal, taken_renewal) = (wait(kept), wait(taken));
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
         and wait_event_type = 'Lock' and query like '%lease_until%'";
    wait_until("both wait for their rows", BOUND, || async {
        (world.count(waiting).await == 2).then_some(())
    })
    .await;
    other.commit().await.expect("commits");
    let renewed = kept_renewal.await.expect("no panic");
    assert_eq!(renewed.map(|r| (r.job_id, r.run)), Some((kept, 1)));
    let after = world.row(kept).await;
    assert!(after.lease_in > before.lease_in, "{after:?}");
    assert_eq!(taken_renewal.await.expect("no panic"), None);
}

#[tokio::test]
async fn v3_a_lease_cannot_be_taken_back_under_a_handlers_commit() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    world.let_time_pass(&[id]).await;
    let mut handler = world.store.pool().begin().await.expect("a transaction");
    let fence = "select 1 from jobs where job_id = $1 and run = $2 and locked_by = $3 and status = 'running' for share";
    let seen = sqlx::query(fence)
        .bind(id.uuid())
        .bind(1)
        .bind(session.uuid())
        .fetch_all(&mut *handler)
        .await
        .expect("locks");
    assert_eq!(seen.len(), 1);
    // Its lease is over, and the sweeper passes the row by while it is locked.
    assert_eq!(world.wake(&[id]).await, []);
    handler.commit().await.expect("commits");
    assert_eq!(world.wake(&[id]).await.len(), 1);
    let mut zombie = world.store.pool().begin().await.expect("a transaction");
    let seen = sqlx::query(fence)
        .bind(id.uuid())
        .bind(1)
        .bind(session.uuid())
        .fetch_all(&mut *zombie)
        .await
        .expect("reads");
    assert!(
        seen.is_empty(),
        "after the take-back the fence finds nothing"
    );
}
