//! Claiming (PROTOCOL.md §7).

use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::state::JobState;
use tenure_core::storage::DbKind;
use tenure_core::storage::claim::Unmatched;

use crate::audit::v4_holds;
use crate::world::{LEASE, World, job, kind, retrying};

#[tokio::test]
async fn v2_of_two_claims_at_once_one_wins_each_run() {
    let world = World::new().await;
    let ids = world
        .submit((0..200).map(|_| job("ada")).collect(), false)
        .await;
    let mut runs: Vec<_> = ids.iter().map(|id| (*id, 1)).collect();
    runs.sort_unstable();
    let sessions = [SessionId::new(), SessionId::new(), SessionId::new()];
    // Each has all runs, in batches that overlap in different ways.
    let claims = sessions.iter().zip([200, 70, 33]).map(|(session, size)| {
        let (store, runs, session) = (world.store.clone(), runs.clone(), *session);
        tokio::spawn(async move {
            let mut won = Vec::new();
            for batch in runs.chunks(size) {
                loop {
                    match store.claim(batch, session, LEASE).await {
                        Ok(claimed) => {
                            won.extend(claimed.iter().map(|c| c.job_id));
                            break;
                        }
                        Err(error) => assert_eq!(kind(&error), DbKind::Retry, "{error}"),
                    }
                }
            }
            (session, won)
        })
    });
    let mut winners = std::collections::BTreeMap::new();
    for claim in futures::future::join_all(claims).await {
        let (session, won) = claim.expect("no panic");
        for id in won {
            assert_eq!(winners.insert(id, session), None, "{id} was claimed twice");
        }
    }
    assert_eq!(winners.len(), ids.len());
    for (id, row) in world.all().await {
        assert_eq!(row.state(), JobState::Running);
        assert_eq!(row.attempt, 1);
        assert_eq!(row.locked_by, Some(winners[&id].uuid()));
    }
    v4_holds(&world, "claims at once").await;
}

#[tokio::test]
async fn v2_an_id_twice_in_one_batch_starts_once() {
    let world = World::new().await;
    let id = world.sent().await;
    let session = SessionId::new();
    let claimed = world.claim(&[(id, 1), (id, 1)], session).await;
    assert_eq!(claimed.len(), 1);
    // Old and new run of one job in one batch: only the row's own run counts.
    let other = world.sent().await;
    let claimed = world.claim(&[(other, 1), (other, 2)], session).await;
    assert_eq!(claimed.iter().map(|c| c.run).collect::<Vec<_>>(), [1]);
    assert_eq!(world.row(other).await.attempt, 1);
    v4_holds(&world, "a doubled id").await;
}

#[tokio::test]
async fn a_claim_gives_the_handler_what_was_submitted() {
    let world = World::new().await;
    let submitted = {
        let mut job = job("ada");
        job.payload = b"{\"n\":7}".to_vec();
        job.labels.insert("team".to_owned(), "blue".to_owned());
        job.trace_parent = Some("00-1-2-01".to_owned());
        job.timeout = Duration::from_millis(1500);
        job
    };
    let id = world.submit(vec![submitted.clone()], false).await[0];
    let claimed = world.claim(&[(id, 1)], SessionId::new()).await;
    let [got] = &claimed[..] else {
        panic!("{claimed:?}")
    };
    assert_eq!(got.payload, submitted.payload);
    assert_eq!(got.labels, submitted.labels);
    assert_eq!(got.trace_parent, submitted.trace_parent);
    assert_eq!(got.timeout, submitted.timeout);
    assert_eq!((got.attempt, got.max_attempts, got.lost), (1, 5, 0));
    assert!(got.locked_at >= got.ready_at);
}

#[tokio::test]
async fn v2_a_message_of_an_old_run_starts_nothing() {
    let world = World::new().await;
    let session = SessionId::new();
    let id = world.running(session).await;
    assert!(
        world
            .finish(id, 1, retrying(Duration::from_mins(1)), session)
            .await
    );
    // The old message, and the new one before its time.
    assert!(world.claim(&[(id, 1)], session).await.is_empty());
    assert!(world.claim(&[(id, 2)], session).await.is_empty());
    world.let_time_pass(&[id]).await;
    assert!(
        world.claim(&[(id, 2)], session).await.is_empty(),
        "the sweeper comes first"
    );
    world.wake(&[id]).await;
    assert!(world.claim(&[(id, 1)], session).await.is_empty());
    assert_eq!(world.claim(&[(id, 2)], session).await.len(), 1);
    assert_eq!(
        world.ledger(id).await,
        Some((2, "running".to_owned(), None))
    );
    v4_holds(&world, "the second run").await;
}

#[tokio::test]
async fn v4_the_ledger_vetoes_a_claim() {
    let world = World::new().await;
    let session = SessionId::new();
    let (done, innocent) = (world.sent().await, world.sent().await);
    world
        .sql(format!(
            "insert into processed_events (event_id, run, status) values ('{done}', 1, 'done')"
        ))
        .await;
    // As when the job's row came back from a backup and the ledger did not: nothing of
    // the batch is claimed.
    let mut runs = [(done, 1), (innocent, 1)];
    runs.sort_unstable();
    let error = world
        .store
        .claim(&runs, session, LEASE)
        .await
        .expect_err("a veto");
    assert_eq!(kind(&error), DbKind::Data, "{error}");
    assert_eq!(world.state(done).await, JobState::Pending);
    assert_eq!(world.row(done).await.attempt, 0);
    assert_eq!(world.state(innocent).await, JobState::Pending);
    assert_eq!(world.ledger(done).await, Some((1, "done".to_owned(), None)));
    // One by one, the innocent one runs.
    assert_eq!(world.claim(&[(innocent, 1)], session).await.len(), 1);
}

#[tokio::test]
async fn v4_the_ledger_vetoes_a_later_run() {
    let world = World::new().await;
    let session = SessionId::new();
    for (run, status) in [
        (1, "done"),
        (2, "retryable"),
        (5, "retryable"),
        (1, "running"),
    ] {
        let id = world.running(session).await;
        assert!(world.finish(id, 1, retrying(Duration::ZERO), session).await);
        world.let_time_pass(&[id]).await;
        world.wake(&[id]).await;
        world
            .sql(format!(
                "update processed_events set run = {run}, status = '{status}' where event_id = '{id}'"
            ))
            .await;
        let error = world
            .store
            .claim(&[(id, 2)], session, LEASE)
            .await
            .expect_err("a veto");
        assert_eq!(kind(&error), DbKind::Invariant, "{run} {status}: {error}");
        let row = world.row(id).await;
        assert_eq!((row.state(), row.attempt), (JobState::Pending, 1));
        let ledger = world.ledger(id).await.expect("a ledger row");
        assert_eq!((ledger.0, ledger.1.as_str()), (run, status));
    }
}

#[tokio::test]
async fn v5_a_claim_that_matches_nothing_is_told_why() {
    let world = World::new().await;
    let (mine, theirs) = (SessionId::new(), SessionId::new());
    let claimable = world.sent().await;
    let own = world.running(mine).await;
    let other = world.running(theirs).await;
    let ended = world.running(theirs).await;
    assert!(
        world
            .finish(ended, 1, crate::world::success(), theirs)
            .await
    );
    let later = {
        let mut job = job("ada");
        job.run_at = Some(chrono::Utc::now() + Duration::from_mins(10));
        world.submit(vec![job], false).await[0]
    };
    let expired = {
        let mut job = job("ada");
        job.expires_at = Some(chrono::Utc::now() - Duration::from_secs(1));
        world.submit(vec![job], false).await[0]
    };
    let pruned = world.running(theirs).await;
    assert!(
        world
            .finish(pruned, 1, crate::world::success(), theirs)
            .await
    );
    world
        .sql(format!("delete from jobs where job_id = '{pruned}'"))
        .await;
    let orphan = JobId::new();
    let paused = {
        let mut job = job("ada");
        job.queue = "imports".to_owned();
        world.submit(vec![job], false).await[0]
    };
    world
        .sql("update queues set paused = true where name = 'imports'")
        .await;

    let runs = [
        (claimable, 1, Unmatched::Claimable),
        (own, 1, Unmatched::Mine),
        (own, 2, Unmatched::Stale),
        (other, 1, Unmatched::Stale),
        (ended, 1, Unmatched::Stale),
        (later, 1, Unmatched::Stale),
        (expired, 1, Unmatched::Stale),
        (pruned, 1, Unmatched::Pruned),
        (orphan, 1, Unmatched::Orphan),
        (paused, 1, Unmatched::Paused),
    ];
    for (id, run, verdict) in runs {
        if verdict != Unmatched::Claimable {
            assert!(
                world.claim(&[(id, run)], mine).await.is_empty(),
                "{verdict:?}"
            );
        }
        let got = world
            .store
            .reread_unclaimed(&[(id, run)], mine)
            .await
            .expect("reads");
        assert_eq!(got, [(id, verdict)]);
    }
}

#[tokio::test]
async fn v2_only_the_session_itself_adopts_what_it_had_claimed() {
    let world = World::new().await;
    let (mine, theirs) = (SessionId::new(), SessionId::new());
    let id = world.running(mine).await;
    let before = world.row(id).await;
    let adopt = |session, run| {
        let store = world.store.clone();
        async move {
            store
                .adopt(&[(id, run)], session, LEASE)
                .await
                .expect("adopts")
        }
    };
    assert!(adopt(theirs, 1).await.is_empty());
    assert!(adopt(mine, 2).await.is_empty());
    let adopted = adopt(mine, 1).await;
    assert_eq!(adopted.iter().map(|c| c.job_id).collect::<Vec<_>>(), [id]);
    // An adoption is no start.
    let row = world.row(id).await;
    assert_eq!((row.attempt, row.run), (before.attempt, before.run));
    v4_holds(&world, "an adoption").await;
}

#[tokio::test]
async fn v6_a_deferred_run_spends_no_attempt_and_keeps_its_run() {
    let world = World::new().await;
    let (soon, backlog, running) = (
        world.sent().await,
        world.sent().await,
        world.running(SessionId::new()).await,
    );
    let store = &world.store;
    let deferred = store
        .defer(&[(soon, 1), (running, 1)], Duration::from_secs(5))
        .await
        .expect("defers");
    assert_eq!(deferred, 1, "only what is pending");
    let row = world.row(soon).await;
    assert!(
        !row.parked && row.wake_in.is_some_and(|s| (4.0..=5.0).contains(&s)),
        "{row:?}"
    );
    assert_eq!(
        store
            .defer(&[(backlog, 1)], Duration::ZERO)
            .await
            .expect("defers"),
        1
    );
    let row = world.row(backlog).await;
    assert!(
        row.parked && row.wake_in.is_some_and(|s| s > 80_000.0),
        "{row:?}"
    );
    assert_eq!((row.run, row.attempt), (1, 0));
    // An old message defers nothing.
    assert_eq!(
        store
            .defer(&[(backlog, 2)], Duration::ZERO)
            .await
            .expect("defers"),
        0
    );
    v4_holds(&world, "defers").await;
}
