//! Keys (PROTOCOL.md §5): one key, one job, at any interleaving.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::Code;
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::{KeyBinding, NewJob};
use tenure_core::domain::state::JobState;
use tenure_core::storage::batch_writer::{SubmitWriter, WriterSettings};
use tenure_core::telemetry::metrics::Metrics;

use crate::audit::v4_holds;
use crate::world::{World, failed, job, keyed, success};

/// Another gateway on the same database.
fn gateway(world: &World) -> SubmitWriter {
    SubmitWriter::start(
        world.store.clone(),
        WriterSettings {
            writers: 2,
            batch_max: 100,
            queue_max: 10_000,
            deadline: Duration::from_secs(30),
        },
        Arc::new(|_| {}),
        Arc::new(Metrics::default()),
    )
}

#[tokio::test]
async fn v7_one_key_from_many_gateways_at_once_makes_one_job() {
    let world = World::new().await;
    let gateways: Vec<SubmitWriter> = (0..4).map(|_| gateway(&world)).collect();
    for round in 0..10 {
        let calls = (0..64).map(|n| {
            let writer = gateways[n % 4].clone();
            tokio::spawn(async move {
                let job = keyed("ada", &format!("key-{round}"), 1);
                writer
                    .submit(vec![(job, false)])
                    .await
                    .remove(0)
                    .expect("accepted")
            })
        });
        let answers: Vec<_> = futures::future::join_all(calls)
            .await
            .into_iter()
            .map(|answer| answer.expect("no panic"))
            .collect();
        let ids: BTreeSet<JobId> = answers.iter().map(|a| a.job_id).collect();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(answers.iter().filter(|a| !a.duplicate).count(), 1);
        assert_eq!(world.count("select count(*) from jobs").await, round + 1);
    }
    assert_eq!(world.count("select count(*) from job_dedupe").await, 10);
}

#[tokio::test]
async fn v7_batches_with_many_keys_in_any_order_do_not_deadlock() {
    let world = World::new().await;
    let gateways: Vec<SubmitWriter> = (0..4).map(|_| gateway(&world)).collect();
    let calls = (0..16).map(|n: usize| {
        let writer = gateways[n % 4].clone();
        tokio::spawn(async move {
            // The same 50 keys, each call in an order of its own.
            let jobs = (0..50)
                .map(|k| {
                    (
                        keyed("ada", &format!("k{}", (k * 7 + n * 13) % 50), 1),
                        false,
                    )
                })
                .collect();
            writer.submit(jobs).await
        })
    });
    let mut ids = BTreeSet::new();
    let mut fresh = 0;
    for answers in futures::future::join_all(calls).await {
        for answer in answers.expect("no panic") {
            let answer = answer.expect("accepted");
            fresh += usize::from(!answer.duplicate);
            ids.insert(answer.job_id);
        }
    }
    assert_eq!((ids.len(), fresh), (50, 50));
    assert_eq!(world.count("select count(*) from jobs").await, 50);
    v4_holds(&world, "many keys").await;
}

#[tokio::test]
async fn v7_another_content_under_the_key_is_a_conflict_that_names_the_job() {
    let world = World::new().await;
    let first = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("accepted");
    let error = world
        .submit_one(keyed("ada", "k", 2))
        .await
        .expect_err("a conflict");
    assert_eq!(error.code(), Code::DedupeConflict);
    assert!(
        error.message().contains(&first.job_id.to_string()),
        "{error}"
    );
    // In one batch as well: the first decides.
    let jobs = vec![
        (keyed("bob", "k", 1), false),
        (keyed("bob", "k", 2), false),
        (keyed("bob", "k", 1), false),
    ];
    let answers = world.writer.submit(jobs).await;
    let leader = answers[0].as_ref().expect("accepted");
    assert_eq!(
        answers[1].as_ref().expect_err("a conflict").code(),
        Code::DedupeConflict
    );
    let repeat = answers[2].as_ref().expect("a duplicate");
    assert_eq!((repeat.job_id, repeat.duplicate), (leader.job_id, true));
    // Another user's key is another key, and so is another type's.
    assert_ne!(leader.job_id, first.job_id);
    let mut other = keyed("ada", "k", 3);
    other.job_type = "sleep".to_owned();
    assert!(!world.submit_one(other).await.expect("accepted").duplicate);
    assert_eq!(world.count("select count(*) from jobs").await, 3);
}

#[tokio::test]
async fn v7_a_request_id_makes_a_repeat_the_same_job() {
    let world = World::new().await;
    let with_request = |key: Option<&str>, content: u8| NewJob {
        request_id: Some("r-1".to_owned()),
        dedupe: key.map(|key| KeyBinding {
            key: key.to_owned(),
            period: None,
            after_end: Duration::ZERO,
        }),
        fingerprint: [content; 32],
        ..job("ada")
    };
    let first = world
        .submit_one(with_request(None, 1))
        .await
        .expect("accepted");
    let again = world
        .submit_one(with_request(None, 1))
        .await
        .expect("accepted");
    assert_eq!((again.job_id, again.duplicate), (first.job_id, true));
    let error = world
        .submit_one(with_request(None, 2))
        .await
        .expect_err("a conflict");
    assert_eq!(error.code(), Code::RequestIdConflict);
    // Who is refused for the request id does not keep the dedupe key.
    let error = world
        .submit_one(with_request(Some("k"), 2))
        .await
        .expect_err("a conflict");
    assert_eq!(error.code(), Code::RequestIdConflict);
    assert!(
        !world
            .submit_one(keyed("ada", "k", 9))
            .await
            .expect("accepted")
            .duplicate
    );
}

/// Lets the bound time of all keys pass.
async fn unbind(world: &World) {
    world
        .sql("update job_dedupe set bound_until = now() - interval '1 s' where bound_until < 'infinity'")
        .await;
}

#[tokio::test]
async fn v7_a_key_is_reused_only_when_its_job_has_ended() {
    let world = World::new().await;
    let session = SessionId::new();
    let first = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("accepted")
        .job_id;
    unbind(&world).await;
    for _ in 0..2 {
        let again = world
            .submit_one(keyed("ada", "k", 1))
            .await
            .expect("answered");
        assert_eq!(
            (again.job_id, again.duplicate),
            (first, true),
            "it has not ended"
        );
    }
    assert_eq!(world.claim(&[(first, 1)], session).await.len(), 1);
    assert!(world.finish(first, 1, success(), session).await);
    let second = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("accepted");
    assert!(!second.duplicate && second.job_id != first);
    // And it is bound anew.
    let third = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("answered");
    assert_eq!((third.job_id, third.duplicate), (second.job_id, true));
}

#[tokio::test]
async fn v7_a_key_whose_job_is_gone_is_not_taken_for_free() {
    let world = World::new().await;
    let first = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("accepted")
        .job_id;
    unbind(&world).await;
    world
        .sql(format!("delete from jobs where job_id = '{first}'"))
        .await;
    let again = world
        .submit_one(keyed("ada", "k", 1))
        .await
        .expect("answered");
    assert_eq!((again.job_id, again.duplicate), (first, true));
    assert_eq!(
        again.state,
        JobState::Cancelled,
        "it had ended when it was pruned, and the ledger knows no run of it"
    );
    assert_eq!(world.count("select count(*) from jobs").await, 0);
}

#[tokio::test]
async fn v7_a_key_is_held_for_its_time_after_the_end() {
    let world = World::new().await;
    let session = SessionId::new();
    let after_end = || NewJob {
        dedupe: Some(KeyBinding {
            key: "k".to_owned(),
            period: Some(Duration::from_mins(10)),
            after_end: Duration::from_hours(1),
        }),
        ..job("ada")
    };
    let first = world
        .submit_one(after_end())
        .await
        .expect("accepted")
        .job_id;
    assert_eq!(world.claim(&[(first, 1)], session).await.len(), 1);
    assert!(world.finish(first, 1, success(), session).await);
    unbind(&world).await;
    let again = world.submit_one(after_end()).await.expect("answered");
    assert_eq!((again.job_id, again.state), (first, JobState::Success));
    world
        .sql("update jobs set finished_at = now() - interval '2 hours'")
        .await;
    assert!(
        !world
            .submit_one(after_end())
            .await
            .expect("accepted")
            .duplicate
    );
}

#[tokio::test]
async fn v7_of_two_who_reuse_an_ended_key_at_once_one_wins() {
    let world = World::new().await;
    let session = SessionId::new();
    let gateways: Vec<SubmitWriter> = (0..4).map(|_| gateway(&world)).collect();
    for round in 0..8 {
        let calls = (0..16).map(|n| {
            let writer = gateways[n % 4].clone();
            tokio::spawn(async move {
                writer
                    .submit(vec![(keyed("ada", "k", 1), false)])
                    .await
                    .remove(0)
            })
        });
        let mut ids = BTreeSet::new();
        for answer in futures::future::join_all(calls).await {
            ids.insert(answer.expect("no panic").expect("accepted").job_id);
        }
        assert_eq!(ids.len(), 1);
        assert_eq!(world.count("select count(*) from jobs").await, round + 1);
        for id in ids {
            assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
            assert!(world.finish(id, 1, success(), session).await);
        }
        unbind(&world).await;
    }
    v4_holds(&world, "reuse").await;
}

#[tokio::test]
async fn v1_a_repeated_write_of_the_same_ids_makes_nothing_twice() {
    let world = World::new().await;
    // A commit whose answer was lost: the same rows come again, with and without keys.
    let jobs = [job("ada"), keyed("ada", "k", 1)];
    let rows = || jobs.iter().map(|job| (job.clone(), false)).collect();
    let first = world.writer.submit(rows()).await;
    let second = world.writer.submit(rows()).await;
    for (a, b) in first.iter().zip(&second) {
        let (a, b) = (a.as_ref().expect("accepted"), b.as_ref().expect("accepted"));
        assert_eq!(a.job_id, b.job_id);
        assert!(!b.duplicate, "it is its own");
    }
    assert_eq!(world.count("select count(*) from jobs").await, 2);
}

#[tokio::test]
async fn v10_one_bad_row_of_a_batch_fails_alone() {
    let world = World::new().await;
    let mut jobs: Vec<NewJob> = (0..9).map(|_| job("ada")).collect();
    // What no check of the gateway lets through; the database refuses it.
    jobs[4].max_attempts = -1;
    let answers = world
        .writer
        .submit(jobs.into_iter().map(|job| (job, false)).collect())
        .await;
    let refused: Vec<usize> = (0..9).filter(|n| answers[*n].is_err()).collect();
    assert_eq!(refused, [4]);
    assert_eq!(world.count("select count(*) from jobs").await, 8);
    assert_eq!(world.published.lock().len(), 8);
}

#[tokio::test]
async fn v1_sixty_four_calls_released_together_share_few_commits() {
    let world = World::new().await;
    // The writers' connections are made before the count begins.
    world.sent().await;
    let sizes_before = world.published.lock().len();
    let calls = (0..64).map(|_| {
        let writer = world.writer.clone();
        async move { writer.submit(vec![(job("ada"), false)]).await.remove(0) }
    });
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(world.published.lock().len(), sizes_before + 64);
    // xmin is the transaction that inserted the row.
    let transactions = world
        .count("select count(distinct xmin::text)::bigint from jobs")
        .await;
    assert!(transactions <= 1 + 8, "{transactions} transactions");
}

#[tokio::test]
async fn a_key_whose_job_retention_has_removed_tells_how_it_ended() {
    let world = World::new().await;
    let session = SessionId::new();
    let for_ever = |key: &str| NewJob {
        dedupe: Some(KeyBinding {
            key: key.to_owned(),
            period: None,
            after_end: Duration::ZERO,
        }),
        request_id: Some(format!("request-{key}")),
        ..job("ada")
    };
    let mut first = Vec::new();
    for key in ["done", "broken", "stopped"] {
        let accepted = world.submit_one(for_ever(key)).await.expect("accepted");
        first.push((key, accepted.job_id));
    }
    for (id, goal) in [(first[0].1, success()), (first[1].1, failed())] {
        assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
        assert!(world.finish(id, 1, goal, session).await);
    }
    world.store.cancel(first[2].1, "x").await.expect("cancels");
    world
        .sql("update dead_letters set status = 'resolved', status_changed_at = now() - interval '1 s'")
        .await;
    let pruned = world.store.prune_jobs(None, Duration::ZERO, 100).await;
    assert_eq!(pruned.expect("a step").removed, 3);
    assert_eq!(world.count("select count(*) from jobs").await, 0);
    let states = [JobState::Success, JobState::Failed, JobState::Cancelled];
    for ((key, id), state) in first.iter().zip(states) {
        // By the key, and by the request id, of which the ledger knows the end.
        for again in [
            NewJob {
                request_id: None,
                ..for_ever(key)
            },
            NewJob {
                dedupe: None,
                ..for_ever(key)
            },
        ] {
            let told = world.submit_one(again).await.expect("told");
            assert_eq!(
                (told.job_id, told.duplicate, told.state),
                (*id, true, state),
                "{key}"
            );
        }
    }
    // A request id whose day is over is free, though no job tells so any more.
    world
        .sql("update job_dedupe set bound_until = now() - interval '1 s' where scope = ''")
        .await;
    let again = NewJob {
        dedupe: None,
        ..for_ever("broken")
    };
    let fresh = world.submit_one(again).await.expect("accepted");
    assert!(
        !fresh.duplicate && fresh.state == JobState::Pending,
        "{fresh:?}"
    );
}
