//! Bulk replays: each letter once, whoever makes the steps and whenever they die.

use std::time::Duration;

use futures::future::join_all;
use tenure_core::Code;
use tenure_core::storage::dead_letters::{
    BulkChange, BulkReplay, BulkState, BulkTick, DeadLetterFilter, NewBulkReplay, Outcome,
    Unreadable, Verb,
};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::letters_world::{count, decision, failed_jobs, sql};

fn asked(rate: i32) -> NewBulkReplay {
    NewBulkReplay {
        filter: DeadLetterFilter::default(),
        rate,
        decision: decision("the receiver is back"),
        request_id: None,
    }
}

/// Makes steps, whatever the pace, until none is left.
async fn run_all(db: &TestDb) -> usize {
    let mut steps = 0;
    loop {
        sql(
            db,
            "update bulk_replays set next_at = now() where state = 'running'",
        )
        .await;
        match db.store.bulk_replay_tick().await.expect("a step") {
            BulkTick::Idle => return steps,
            BulkTick::Step { .. } => steps += 1,
        }
    }
}

async fn get(db: &TestDb, id: Uuid) -> BulkReplay {
    db.store.get_bulk_replay(id).await.expect("found")
}

async fn outcomes(db: &TestDb, id: Uuid, only: Option<Outcome>) -> Vec<(Uuid, Outcome)> {
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let (page, next) = db
            .store
            .bulk_replay_outcomes(id, only, after, 7)
            .await
            .expect("a page");
        all.extend(page.into_iter().map(|o| (o.result.id, o.result.outcome)));
        match next {
            Some(next) => after = next,
            None => return all,
        }
    }
}

#[tokio::test]
async fn v4_each_letter_that_matched_at_the_start_is_taken_once() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 45, "x ").await;
    db.store
        .decide_dead_letters(Verb::Ignore, &letters[..5], &decision("x"))
        .await
        .expect("ignored");
    let begun = db.store.start_bulk_replay(&asked(50)).await.expect("begun");
    assert_eq!((begun.state, begun.matching), (BulkState::Running, 40));
    // One that fails after the start, and one that fails again in the middle.
    sql(
        &db,
        &format!(
            "update dead_letters set last_failed_at = clock_timestamp() where id = '{}'",
            letters[44]
        ),
    )
    .await;
    let BulkTick::Step {
        examined, next_in, ..
    } = db.store.bulk_replay_tick().await.expect("a step")
    else {
        panic!("it was due");
    };
    assert_eq!(examined, 10, "a fifth of a second");
    assert!(next_in.is_some_and(|time| time <= Duration::from_millis(200)));
    assert_eq!(
        db.store.bulk_replay_tick().await.expect("no step"),
        BulkTick::Idle,
        "it is paced"
    );
    sql(
        &db,
        &format!(
            "update jobs set status = 'failed', finished_at = now(), wake_at = null, parked = false where job_id = '{0}'; \
             update processed_events set status = 'failed' where event_id = '{0}'; \
             update dead_letters set status = 'open', failures = 2, last_failed_at = clock_timestamp() where id = '{0}'",
            letters[5]
        ),
    )
    .await;
    run_all(&db).await;
    let done = get(&db, begun.id).await;
    assert_eq!(done.state, BulkState::Done);
    assert_eq!((done.counts.examined, done.counts.replayed), (39, 39));
    assert!(done.ended_at.is_some() && done.progress_at.is_some());
    let taken = outcomes(&db, begun.id, None).await;
    let expected: Vec<_> = letters[5..44]
        .iter()
        .map(|id| (*id, Outcome::Done))
        .collect();
    assert_eq!(taken, expected);
    assert_eq!(
        count(&db, "select count(*) from jobs where life > 2").await,
        0
    );
    assert_eq!(count(&db, "select count(*) from replays").await, 39);
    assert_eq!(
        count(&db, "select count(*) from dead_letter_actions where action = 'replay' and bulk_replay_id is not null and actor = 'olga'").await,
        39
    );
}

#[tokio::test]
async fn what_cannot_be_replayed_is_told_and_the_rest_goes_on() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 12, "x ").await;
    db.store
        .store_unreadable("default", b"x", Unreadable::Unparseable, "x")
        .await
        .expect("stored");
    // The ledger of one is damaged, one job is pruned, two have a key that another job has.
    sql(
        &db,
        &format!(
            "update processed_events set status = 'done' where event_id = '{}'; delete from jobs where job_id = '{}'; \
             update jobs set dedupe_key = 'k' where job_id in ('{}', '{}'); \
             insert into job_dedupe (user_id, scope, key, job_id, fingerprint, bound_until) \
             values ('ada', 'noop', 'k', tenure_uuid7(), '\\x', now() + interval '1 day')",
            letters[0], letters[1], letters[2], letters[3]
        ),
    )
    .await;
    let begun = db
        .store
        .start_bulk_replay(&asked(1000))
        .await
        .expect("begun");
    run_all(&db).await;
    let counts = get(&db, begun.id).await.counts;
    assert_eq!(
        (
            counts.examined,
            counts.replayed,
            counts.changed,
            counts.not_replayable,
            counts.key_taken
        ),
        (13, 8, 1, 2, 2)
    );
    let changed = outcomes(&db, begun.id, Some(Outcome::Changed)).await;
    assert_eq!(changed, [(letters[0], Outcome::Changed)]);
    assert_eq!(
        outcomes(&db, begun.id, Some(Outcome::KeyTaken)).await.len(),
        2
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_steps_by_many_processes_take_each_letter_once() {
    let db = TestDb::create().await;
    failed_jobs(&db, 600, "x ").await;
    let mut begun = Vec::new();
    // Two operations with one filter: each letter is one's, and no step fails.
    for _ in 0..2 {
        begun.push(
            db.store
                .start_bulk_replay(&asked(5000))
                .await
                .expect("begun")
                .id,
        );
    }
    let over = || async {
        count(
            &db,
            "select count(*) from bulk_replays where state = 'done'",
        )
        .await
            == 2
    };
    let processes = (0..4).map(|_| async {
        let mut steps = 0;
        for _ in 0..500 {
            match db.store.bulk_replay_tick().await.expect("a step") {
                BulkTick::Step { .. } => steps += 1,
                BulkTick::Idle if over().await => break,
                BulkTick::Idle => tokio::task::yield_now().await,
            }
        }
        steps
    });
    let steps: Vec<i32> = join_all(processes).await;
    assert!(over().await, "{steps:?} steps");
    let mut replayed = 0;
    for id in begun {
        let bulk = get(&db, id).await;
        let counts = bulk.counts;
        replayed += counts.replayed;
        assert_eq!(
            counts.examined,
            counts.replayed + counts.already_done,
            "{counts:?}"
        );
    }
    assert_eq!(replayed, 600);
    assert_eq!(
        count(&db, "select count(*) from jobs where life = 2 and run = 2").await,
        600
    );
}

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
