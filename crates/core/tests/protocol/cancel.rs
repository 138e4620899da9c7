//! Cancelling (PROTOCOL.md §14).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::finish::Goal;

use crate::audit::v4_holds;
use crate::world::{World, failed, retrying, success};

async fn cancel(world: &World, id: JobId) -> Cancelled {
    world
        .store
        .cancel(id, "the user changed his mind")
        .await
        .expect("cancels")
}

#[tokio::test]
async fn v4_what_waits_is_cancelled_at_once_with_its_ledger_row() {
    let world = World::new().await;
    let session = SessionId::new();
    let sent = world.sent().await;
    let parked = world.submit(vec![crate::world::job("ada")], true).await[0];
    let retried = world.running(session).await;
    assert!(
        world
            .finish(retried, 1, retrying(Duration::from_mins(1)), session)
            .await
    );
    for id in [sent, parked, retried] {
        assert_eq!(cancel(&world, id).await, Cancelled::Now);
        let row = world.row(id).await;
        assert_eq!(
            (row.state(), row.parked, row.wake_in),
            (JobState::Cancelled, false, None)
        );
        assert_eq!(row.last_error_code.as_deref(), Some("CANCELLED"));
        // Its message may still come.
        assert!(world.claim(&[(id, row.run)], session).await.is_empty());
        // Again: it has ended.
        assert_eq!(cancel(&world, id).await, Cancelled::NotWaiting);
    }
    assert_eq!(world.ledger(sent).await, None, "it was never claimed");
    assert_eq!(
        world.ledger(retried).await.map(|l| l.1).as_deref(),
        Some("cancelled")
    );
    assert_eq!(cancel(&world, JobId::new()).await, Cancelled::NotWaiting);
    v4_holds(&world, "cancels").await;
}

#[tokio::test]
async fn v12_success_alone_beats_a_request_and_a_final_state_stays() {
    let world = World::new().await;
    let session = SessionId::new();
    let (good, bad) = (world.running(session).await, world.running(session).await);
    for id in [good, bad] {
        assert_eq!(cancel(&world, id).await, Cancelled::Requested);
        let noted = world.row(id).await;
        assert_eq!(cancel(&world, id).await, Cancelled::Requested);
        let again = world.row(id).await;
        assert_eq!(again.rev, noted.rev, "asked again it is nothing new");
        assert_eq!(again.state(), JobState::Running);
    }
    assert!(world.finish(good, 1, success(), session).await);
    assert!(!world.finish(bad, 1, failed(), session).await);
    assert_eq!(world.state(bad).await, JobState::Running);
    assert!(world.finish(bad, 1, Goal::Cancelled, session).await);
    assert_eq!(world.letter(bad).await, None);
    for (id, state) in [(good, JobState::Success), (bad, JobState::Cancelled)] {
        assert_eq!(cancel(&world, id).await, Cancelled::NotWaiting);
        assert_eq!(world.state(id).await, state);
    }
    v4_holds(&world, "finishes").await;
}

#[tokio::test]
async fn v4_cancels_and_claims_at_once_leave_one_story() {
    let world = World::new().await;
    let session = SessionId::new();
    let jobs = (0..100).map(|_| crate::world::job("ada")).collect();
    let mut ids = world.submit(jobs, false).await;
    ids.sort_unstable();
    let cancels = {
        let (store, ids) = (world.store.clone(), ids.clone());
        tokio::spawn(async move {
            let mut answers = Vec::new();
            for id in ids {
                answers.push((id, store.cancel(id, "race").await.expect("cancels")));
            }
            answers
        })
    };
    let mut claimed = Vec::new();
    for batch in ids.chunks(5).rev() {
        let runs: Vec<_> = batch.iter().map(|id| (*id, 1)).collect();
        claimed.extend(world.claim(&runs, session).await.iter().map(|c| c.job_id));
    }
    for (id, answer) in cancels.await.expect("no panic") {
        // Whoever was told "now" never ran; whoever was told "requested" runs.
        let (cancelled, running) = (answer == Cancelled::Now, claimed.contains(&id));
        assert_ne!(cancelled, running, "{id}: {answer:?}");
        let row = world.row(id).await;
        assert_eq!(row.state() == JobState::Cancelled, cancelled);
        assert!(row.cancel_requested);
    }
    v4_holds(&world, "a race").await;
}
