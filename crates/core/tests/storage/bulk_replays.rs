//! Bulk replays: each letter once, whoever makes the steps and whenever they die.

use std::time::Duration;

use futures::future::join_all;
use tenure_core::storage::dead_letters::{
    BulkReplay, BulkState, BulkTick, DeadLetterFilter, NewBulkReplay, Outcome, Unreadable, Verb,
};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::letters_world::{count, decision, failed_jobs, sql};

pub(crate) fn asked(rate: i32) -> NewBulkReplay {
    NewBulkReplay {
        filter: DeadLetterFilter::default(),
        rate,
        decision: decision("the receiver is back"),
        request_id: None,
    }
}

/// Makes steps, whatever the pace, until none is left.
pub(crate) async fn run_all(db: &TestDb) -> usize {
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

pub(crate) async fn get(db: &TestDb, id: Uuid) -> BulkReplay {
    db.store.get_bulk_replay(id).await.expect("found")
}

pub(crate) async fn outcomes(db: &TestDb, id: Uuid, only: Option<Outcome>) -> Vec<(Uuid, Outcome)> {
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
    let paced = "select count(*) from bulk_replays where next_at >= started_at + interval '200 ms'";
    assert_eq!(count(&db, paced).await, 1, "it is paced");
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
        .store_unreadable("default", b"x", None, Unreadable::Unparseable, "x")
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
async fn the_rate_is_kept_whoever_makes_the_steps() {
    let db = TestDb::create().await;
    failed_jobs(&db, 300, "x ").await;
    let begun = db
        .store
        .start_bulk_replay(&asked(100))
        .await
        .expect("begun");
    let process = || async {
        while get(&db, begun.id).await.state == BulkState::Running {
            if db.store.bulk_replay_tick().await.expect("a step") == BulkTick::Idle {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::join!(process(), process());
    assert_eq!(get(&db, begun.id).await.counts.replayed, 300);
    // Steps of 20, five a second; one that came late may be followed at once.
    let most = count(
        &db,
        "select max(n) from (select count(*) over (order by at range between current row and interval '1 second' following) \
         as n from replays) w",
    )
    .await;
    assert!(most <= 140, "{most} in a second");
}
