//! What is written while a cancel or an act waits for a row: it is not in the snapshot of
//! the statement that waits, and must not be missed.

use std::time::Duration;

use sqlx::{Postgres, Transaction};
use tenure_core::domain::ids::{JobId, SessionId, UserId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel_many::Canceller;
use tenure_core::storage::job_actions::{Acted, Action};
use tenure_core::storage::list::JobFilter;
use tenure_core::test_util::somebody_waits;

use crate::acts::{act, retry};
use crate::audit::v4_holds;
use crate::world::{World, job, retrying};

/// Locks a job until the transaction ends.
async fn hold(world: &World, id: JobId) -> Transaction<'static, Postgres> {
    let mut held = world.store.pool().begin().await.expect("begins");
    sqlx::query("select 1 from jobs where job_id = $1 for update")
        .bind(id.uuid())
        .execute(&mut *held)
        .await
        .expect("locks");
    held
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_a_first_run_that_ends_while_a_cancel_by_filter_waits_is_in_the_ledger() {
    let world = World::new().await;
    let session = SessionId::new();
    for round in 0..5 {
        let user = format!("user-{round}");
        let first = world.submit(vec![job(&user)], false).await[0];
        let second = world.submit(vec![job(&user)], false).await[0];
        let held = hold(&world, first).await;
        let store = world.store.clone();
        let filter = JobFilter {
            user_id: Some(UserId::from_stored(user)),
            ..JobFilter::default()
        };
        let cancel = tokio::spawn(async move {
            let by = Canceller {
                name: "olga".to_owned(),
                own_message: "enough".to_owned(),
                other_message: "enough".to_owned(),
                reason: None,
            };
            store.cancel_many(&filter, None, Some(&by)).await
        });
        somebody_waits(&world.store).await;
        // The second one runs for the first time, and fails, before its row is come to.
        assert_eq!(world.claim(&[(second, 1)], session).await.len(), 1);
        let later = retrying(Duration::from_hours(1));
        assert!(world.finish(second, 1, later, session).await);
        held.rollback().await.expect("lets go");
        let done = cancel.await.expect("no panic").expect("an answer");
        assert_eq!((done.cancelled, done.requested), (2, 0));
        for id in [first, second] {
            assert_eq!(world.state(id).await, JobState::Cancelled);
        }
        let ledger = world.ledger(second).await.expect("a row");
        assert_eq!(ledger.1, "cancelled");
        v4_holds(&world, "a cancel that waited").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_on_a_job_that_changes_meanwhile_is_done_all_the_same() {
    let world = World::new().await;
    let id = retry(&world, SessionId::new()).await;
    let mut held = hold(&world, id).await;
    let acts = async {
        somebody_waits(&world.store).await;
        // As a take-back and another retry would leave it.
        sqlx::query("update jobs set run = run + 1, rev = rev + 1 where job_id = $1")
            .bind(id.uuid())
            .execute(&mut *held)
            .await
            .expect("changes");
        held.commit().await.expect("commits");
    };
    let (acted, ()) = tokio::join!(act(&world, id, Action::SetMaxAttempts(7)), acts);
    assert_eq!(acted, Acted::Done);
    let row = world.row(id).await;
    assert_eq!((row.run, row.max_attempts), (3, 7));
}
