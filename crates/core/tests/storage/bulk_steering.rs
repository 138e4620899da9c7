//! Bulk replays: begun once, steered, and chosen by a filter.

use futures::future::join_all;
use tenure_core::Code;
use tenure_core::storage::dead_letters::{
    BulkChange, BulkState, BulkTick, DeadLetterFilter, NewBulkReplay, Outcome,
};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::bulk_replays::{asked, get, outcomes, run_all};
use crate::letters_world::{decision, failed_jobs, sql};

#[tokio::test]
async fn a_bulk_replay_is_steered_and_that_is_kept() {
    let db = TestDb::create().await;
    failed_jobs(&db, 30, "x ").await;
    let begun = db.store.start_bulk_replay(&asked(5)).await.expect("begun");
    let steer = |change: BulkChange| {
        let store = db.store.clone();
        async move {
            store
                .control_bulk_replay(begun.id, change, &decision("why"))
                .await
        }
    };
    let begun_id = begun.id;
    assert_eq!(
        steer(BulkChange::Pause).await.expect("paused").state,
        BulkState::Paused
    );
    sql(&db, "update bulk_replays set next_at = now()").await;
    assert_eq!(
        db.store.bulk_replay_tick().await.expect("no step"),
        BulkTick::Idle
    );
    assert_eq!(
        steer(BulkChange::SetRate(50)).await.expect("set").state,
        BulkState::Paused
    );
    let resumed = steer(BulkChange::Resume(None)).await.expect("resumed");
    assert_eq!((resumed.state, resumed.rate), (BulkState::Running, 50));
    assert!(matches!(
        db.store.bulk_replay_tick().await.expect("a step"),
        BulkTick::Step { examined: 10, .. }
    ));
    let cancelled = steer(BulkChange::Cancel).await.expect("cancelled");
    assert!(cancelled.state == BulkState::Cancelled && cancelled.ended_at.is_some());
    assert_eq!(run_all(&db).await, 0);
    assert_eq!(
        cancelled.counts.replayed, 10,
        "what was replayed stays replayed"
    );
    steer(BulkChange::Cancel).await.expect("it is so");
    for change in [
        BulkChange::Pause,
        BulkChange::Resume(None),
        BulkChange::SetRate(9),
    ] {
        let refused = steer(change).await.expect_err("ended");
        assert_eq!(refused.code(), Code::BulkReplayEnded);
    }
    let unknown = db
        .store
        .control_bulk_replay(Uuid::now_v7(), BulkChange::Pause, &decision("x"))
        .await;
    assert_eq!(
        unknown.expect_err("unknown").code(),
        Code::BulkReplayNotFound
    );
    let audit: Vec<(String, String, i32, String, String)> = sqlx::query_as(
        "select action, actor, rate, state_before, state_after from bulk_replay_actions where bulk_replay_id = $1 \
         order by at, action_id",
    )
    .bind(begun_id)
    .fetch_all(db.store.pool())
    .await
    .expect("reads");
    let told: Vec<_> = audit
        .iter()
        .map(|(action, _, rate, before, after)| {
            (action.as_str(), *rate, before.as_str(), after.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("start", 5, "", "running"),
            ("pause", 5, "running", "paused"),
            ("set_rate", 50, "paused", "paused"),
            ("resume", 50, "paused", "running"),
            ("cancel", 50, "running", "cancelled"),
        ]
    );
    assert!(audit.iter().all(|(_, actor, ..)| actor == "olga"));
}

#[tokio::test]
async fn one_request_begins_one_bulk_replay() {
    let db = TestDb::create().await;
    failed_jobs(&db, 3, "x ").await;
    let request = NewBulkReplay {
        request_id: Some("r".to_owned()),
        ..asked(5)
    };
    let begun = join_all((0..6).map(|_| db.store.start_bulk_replay(&request))).await;
    let mut ids: Vec<Uuid> = begun.into_iter().map(|b| b.expect("begun").id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let other = NewBulkReplay {
        filter: DeadLetterFilter {
            queue: Some("default".to_owned()),
            ..DeadLetterFilter::default()
        },
        ..request.clone()
    };
    let refused = db
        .store
        .start_bulk_replay(&other)
        .await
        .expect_err("another");
    assert_eq!(refused.code(), Code::RequestIdConflict);
    // Somebody else's request of the same name is another one.
    let mut by_bob = request.clone();
    by_bob.decision.actor = "bob".to_owned();
    let second = db.store.start_bulk_replay(&by_bob).await.expect("begun");
    assert_ne!(second.id, ids[0]);
    let (page, more) = db.store.list_bulk_replays(None, 1).await.expect("a page");
    assert_eq!((page[0].id, more), (second.id, true));
    let (page, more) = db
        .store
        .list_bulk_replays(Some(second.id), 1)
        .await
        .expect("a page");
    assert_eq!((page[0].id, more), (ids[0], false));
}

#[tokio::test]
async fn a_filter_chooses_by_cause_and_text_and_a_preview_tells_the_same() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 20, "row ").await;
    sql(
        &db,
        &format!(
            "update dead_letters set error_message = '100% of_rows' where id in ('{}', '{}'); delete from jobs where job_id = '{}'",
            letters[2], letters[7], letters[7]
        ),
    )
    .await;
    let by_text = DeadLetterFilter {
        text: Some("% OF_".to_owned()),
        ..DeadLetterFilter::default()
    };
    let preview = db
        .store
        .preview_bulk_replay(&by_text)
        .await
        .expect("a preview");
    assert_eq!(
        (
            preview.matching,
            preview.not_replayable,
            preview.causes.len()
        ),
        (2, 1, 1)
    );
    assert_eq!(preview.samples.len(), 2);
    assert!(preview.cap > 2);
    let all = db
        .store
        .preview_bulk_replay(&DeadLetterFilter::default())
        .await
        .expect("a preview");
    assert_eq!(
        (all.matching, all.causes.len(), all.samples.len()),
        (20, 2, 5)
    );
    assert_eq!(all.causes[0].matching, 18);
    let by_cause = NewBulkReplay {
        filter: DeadLetterFilter {
            cause_id: Some(preview.causes[0].id),
            ..DeadLetterFilter::default()
        },
        ..asked(100)
    };
    let begun = db.store.start_bulk_replay(&by_cause).await.expect("begun");
    assert_eq!(begun.matching, 2);
    run_all(&db).await;
    let taken = outcomes(&db, begun.id, None).await;
    assert_eq!(
        taken,
        [
            (letters[2], Outcome::Done),
            (letters[7], Outcome::NotReplayable)
        ]
    );
    assert_eq!(get(&db, begun.id).await.filter, by_cause.filter);
}

#[tokio::test]
async fn a_request_id_goes_with_its_rate_and_reason_too() {
    let db = TestDb::create().await;
    failed_jobs(&db, 3, "x ").await;
    let request = NewBulkReplay {
        request_id: Some("r".to_owned()),
        ..asked(5)
    };
    let begun = db.store.start_bulk_replay(&request).await.expect("begun");
    let faster = NewBulkReplay {
        rate: 6,
        ..request.clone()
    };
    let mut why = request.clone();
    why.decision.reason = "another".to_owned();
    for other in [faster, why] {
        let refused = db.store.start_bulk_replay(&other).await;
        assert_eq!(
            refused.expect_err("another").code(),
            Code::RequestIdConflict,
            "{other:?}"
        );
    }
    // What was steered since is the same request all the same.
    db.store
        .control_bulk_replay(begun.id, BulkChange::SetRate(9), &decision("why"))
        .await
        .expect("set");
    let again = db.store.start_bulk_replay(&request).await.expect("found");
    assert_eq!((again.id, again.rate), (begun.id, 9));
    let told = db.store.bulk_replay_actions(begun.id).await.expect("read");
    let told: Vec<_> = told
        .iter()
        .map(|it| {
            (
                it.action.as_str(),
                it.actor.as_str(),
                it.reason.as_str(),
                it.rate,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("start", "olga", "the receiver is back", 5),
            ("set_rate", "olga", "why", 9),
        ]
    );
}

#[tokio::test]
async fn a_bulk_replay_of_a_cause_waits_until_its_letters_are_counted() {
    let db = TestDb::create().await;
    let first = failed_jobs(&db, 2, "row ").await;
    let preview = db
        .store
        .preview_bulk_replay(&DeadLetterFilter::default())
        .await
        .expect("a preview");
    let by_cause = NewBulkReplay {
        filter: DeadLetterFilter {
            cause_id: Some(preview.causes[0].id),
            ..DeadLetterFilter::default()
        },
        ..asked(1000)
    };
    let begun = db.store.start_bulk_replay(&by_cause).await.expect("begun");
    // Written before its start, and not counted: by the release before, or in a storm.
    let more = failed_jobs(&db, 30, "row ").await;
    sql(
        &db,
        "update bulk_replays set started_at = clock_timestamp(), next_at = now()",
    )
    .await;
    let waited = db.store.bulk_replay_tick().await.expect("a look");
    assert!(
        matches!(
            waited,
            BulkTick::Step {
                examined: 0,
                next_in: Some(_),
                ..
            }
        ),
        "{waited:?}"
    );
    run_all(&db).await;
    let done = get(&db, begun.id).await;
    assert_eq!(done.state, BulkState::Done);
    assert_eq!(
        done.counts.replayed as usize,
        first.len() + more.len(),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_step_that_fails_puts_off_its_own_bulk_replay_and_no_other() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 4, "x ").await;
    sql(
        &db,
        &format!(
            "update dead_letters set queue_name = 'imports' where id in ('{}', '{}')",
            letters[2], letters[3]
        ),
    )
    .await;
    let of_queue = |queue: &str| NewBulkReplay {
        filter: DeadLetterFilter {
            queue: Some(queue.to_owned()),
            ..DeadLetterFilter::default()
        },
        ..asked(1000)
    };
    let stuck = db.store.start_bulk_replay(&of_queue("default")).await;
    let stuck = stuck.expect("begun").id;
    let free = db.store.start_bulk_replay(&of_queue("imports")).await;
    let free = free.expect("begun").id;
    sql(
        &db,
        &format!("update bulk_replays set next_at = now() - interval '1 minute' where bulk_replay_id = '{stuck}'"),
    )
    .await;
    let mut held = db.store.pool().begin().await.expect("begins");
    sqlx::query("select 1 from jobs where job_id = $1 for update")
        .bind(letters[0])
        .execute(&mut *held)
        .await
        .expect("locks");
    db.store.bulk_replay_tick().await.expect_err("a lock");
    let due: Vec<(Uuid, bool)> = sqlx::query_as(
        "select bulk_replay_id, next_at <= now() from bulk_replays order by bulk_replay_id",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("reads");
    assert_eq!(due, [(stuck, false), (free, true)]);
    held.rollback().await.expect("lets go");
    run_all(&db).await;
    assert_eq!(get(&db, stuck).await.counts.replayed, 2);
}
