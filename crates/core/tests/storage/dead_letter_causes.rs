//! Causes: what makes messages alike, and counts that follow the letters whoever wrote them.

use std::collections::BTreeMap;

use tenure_core::storage::dead_letters::{
    Cause, CauseFilter, CauseOrder, FOLD_BATCH, MAX_CAUSES, Verb,
};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::letters_world::{count, decision, failed_jobs, sql};

pub(crate) async fn fold_all(db: &TestDb, max_causes: i64) {
    loop {
        let folded = db.store.fold_causes(FOLD_BATCH, max_causes).await;
        if folded.expect("a fold").expect("nobody else folds").notes == 0 {
            break;
        }
    }
}

pub(crate) async fn causes(db: &TestDb) -> Vec<Cause> {
    let filter = CauseFilter {
        include_closed: true,
        ..CauseFilter::default()
    };
    let listed = db
        .store
        .list_causes(&filter, CauseOrder::Open, None, 1000)
        .await;
    listed.expect("a list").0
}

/// The counts of all causes are those of the letters.
pub(crate) async fn counts_agree(db: &TestDb, after: &str) {
    let told: BTreeMap<Uuid, [i64; 4]> = causes(db)
        .await
        .into_iter()
        .map(|c| (c.id, [c.open, c.ignored, c.replayed, c.resolved]))
        .collect();
    let rows: Vec<(Uuid, String, i64)> =
        sqlx::query_as("select cause_id, status, count(*) from dead_letters group by 1, 2")
            .fetch_all(db.store.pool())
            .await
            .expect("reads");
    let mut counted: BTreeMap<Uuid, [i64; 4]> = told.keys().map(|id| (*id, [0; 4])).collect();
    for (cause, status, number) in rows {
        let place = ["open", "ignored", "replayed", "resolved"]
            .iter()
            .position(|known| *known == status)
            .expect("a status");
        counted.entry(cause).or_default()[place] += number;
    }
    assert_eq!(told, counted, "after {after}");
}

#[tokio::test]
async fn messages_are_alike_but_for_what_differs_from_job_to_job() {
    let db = TestDb::create().await;
    let cause = async |message: &str| -> Uuid {
        sqlx::query_scalar("select tenure_cause('q', 't', 'C', $1)")
            .bind(message)
            .fetch_one(db.store.pool())
            .await
            .expect("a cause")
    };
    for (left, right) in [
        ("row 12 of 500 is bad", "row 7 of 1,234.5 is bad"),
        (
            "no file 01890a5d-ac96-774b-bcce-b302099a8057",
            "no file 0189FFFF-ac96-774b-bcce-b302099a8057",
        ),
        (
            "digest 9f86d081884c7d65 differs",
            "digest 0xdeadbeef00 differs",
        ),
        ("column \"a b\" is missing", "column \"c\" is missing"),
        ("user 'ada' is unknown", "user 'bob' is unknown"),
        ("key `x` is bad", "key `` is bad"),
        ("two\n  lines", "two lines "),
    ] {
        assert_eq!(
            cause(left).await,
            cause(right).await,
            "{left:?} and {right:?}"
        );
    }
    for (left, right) in [
        ("it didn't answer, and won't", "it didn't answer, but won't"),
        ("", "x"),
        ("receiver answered no", "receiver answered yes"),
    ] {
        assert_ne!(
            cause(left).await,
            cause(right).await,
            "{left:?} and {right:?}"
        );
    }
    // Half a megabyte is no more work than its beginning.
    let long = "ä'\"0".repeat(100_000);
    assert_eq!(cause(&long).await, cause(&(long.clone() + "end")).await);
    let parts: i64 = count(
        &db,
        "select count(distinct c) from (values (tenure_cause('a', 'b', 'C', 'm')), (tenure_cause('a', null, 'C', 'm')), \
         (tenure_cause('ab', '', 'C', 'm')), (tenure_cause('a', 'b', 'D', 'm')), (tenure_other_cause('a', 'b', 'C'))) v (c)",
    )
    .await;
    assert_eq!(parts, 5);
}

#[tokio::test]
async fn counts_follow_the_letters_whoever_wrote_them() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 30, "row ").await;
    counts_agree(&db, "failures that know of no causes").await;
    let seen = causes(&db).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].open, seen[0].error.code.as_str()),
        (30, "DOWNSTREAM")
    );
    assert_eq!(
        seen[0].sample.uuid(),
        letters[29],
        "the one that failed last"
    );
    assert_eq!(seen[0].error.message, "row 30");

    let decided = [
        (Verb::Ignore, &letters[..10]),
        (Verb::Resolve, &letters[5..15]),
    ];
    for (verb, ids) in decided {
        db.store
            .decide_dead_letters(verb, ids, &decision("x"))
            .await
            .expect("decided");
        counts_agree(&db, "decisions").await;
    }
    db.store
        .replay_dead_letters(&letters[20..], &decision("x"))
        .await
        .expect("replayed");
    counts_agree(&db, "replays").await;
    // As the previous release fails a job again: with another message, so another cause.
    sql(
        &db,
        &format!(
            "update dead_letters set status = 'open', failures = failures + 1, error_message = 'timed out', \
             last_failed_at = now() where id = '{}'",
            letters[20]
        ),
    )
    .await;
    counts_agree(&db, "another failure").await;
    let seen = causes(&db).await;
    assert_eq!(seen.len(), 2);
    let timed_out = seen
        .iter()
        .find(|cause| cause.error.message == "timed out")
        .expect("it");
    assert_eq!((timed_out.open, timed_out.sample.uuid()), (1, letters[20]));
    assert!(timed_out.first_failed_at > seen[0].first_failed_at.min(seen[1].first_failed_at));
    let letter = db.store.get_dead_letter(letters[20]).await.expect("found");
    assert_eq!(letter.cause_id, timed_out.id);
}

#[tokio::test]
async fn what_is_too_various_counts_as_other_messages() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 20, "x").await;
    // Twenty messages that no rule makes alike, and the one that they had first.
    for (n, letter) in letters.iter().enumerate() {
        let word = char::from(b'a' + n as u8).to_string().repeat(3);
        sql(
            &db,
            &format!("update dead_letters set error_message = '{word}' where id = '{letter}'"),
        )
        .await;
    }
    fold_all(&db, 8).await;
    let seen = causes(&db).await;
    assert_eq!(seen.len(), 9);
    let other = seen
        .iter()
        .find(|cause| cause.error.message == "other messages")
        .expect("it");
    assert_eq!(other.open, 13);
    // They come and go under it.
    let ids: Vec<Uuid> = letters[10..].to_vec();
    db.store
        .decide_dead_letters(Verb::Ignore, &ids, &decision("x"))
        .await
        .expect("decided");
    fold_all(&db, 8).await;
    counts_agree(&db, "decisions about others").await;
    // Another code has causes of its own.
    sql(
        &db,
        "update dead_letters set error_code = 'PANIC', failures = failures + 1, status = 'open'",
    )
    .await;
    fold_all(&db, 8).await;
    counts_agree(&db, "another code").await;
    assert_eq!(causes(&db).await.len(), 18);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folds_at_once_count_each_letter_once() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 3_000, "x ").await;
    let folds = (0..4).map(|_| async {
        for _ in 0..8 {
            db.store.fold_causes(500, MAX_CAUSES).await.expect("a fold");
        }
    });
    let changes = async {
        for part in letters.chunks(250) {
            db.store
                .decide_dead_letters(Verb::Ignore, part, &decision("x"))
                .await
                .expect("decided");
        }
    };
    tokio::join!(futures::future::join_all(folds), changes);
    fold_all(&db, MAX_CAUSES).await;
    counts_agree(&db, "folds at once").await;
    assert_eq!(causes(&db).await[0].ignored, 3_000);
}

#[tokio::test]
async fn causes_are_listed_in_their_orders_page_by_page() {
    let db = TestDb::create().await;
    failed_jobs(&db, 40, "x").await;
    sql(
        &db,
        "update dead_letters set error_message = repeat(chr(97 + right(error_message, 1)::int), 3), \
         error_code = case when right(error_message, 1)::int < 5 then 'LOW' else 'HIGH' end",
    )
    .await;
    sql(
        &db,
        "update dead_letters set status = 'ignored' where error_message = 'aaa'",
    )
    .await;
    for order in [
        CauseOrder::Open,
        CauseOrder::LatestFirst,
        CauseOrder::NewestFirst,
    ] {
        let (mut after, mut ids) = (None, Vec::new());
        loop {
            let (page, next) = db
                .store
                .list_causes(&CauseFilter::default(), order, after, 4)
                .await
                .expect("a page");
            assert!(page.len() <= 4);
            ids.extend(page.iter().map(|cause| cause.id));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(
            ids.len(),
            9,
            "{order:?}: without the one that has no open letter"
        );
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 9);
    }
    let filter = CauseFilter {
        error_code: Some("LOW".to_owned()),
        include_closed: true,
        ..CauseFilter::default()
    };
    let (low, next) = db
        .store
        .list_causes(&filter, CauseOrder::Open, None, 5)
        .await
        .expect("a page");
    assert_eq!((low.len(), next), (5, None));
}

#[tokio::test]
async fn a_replayed_letter_whose_job_a_previous_release_ended_is_settled() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 7, "x").await;
    db.store
        .replay_dead_letters(&letters, &decision("x"))
        .await
        .expect("replayed");
    let ended = format!(
        "update jobs set status = 'success', finished_at = now(), wake_at = null, parked = false where job_id in ('{}', '{}')",
        letters[1], letters[5]
    );
    sql(&db, &ended).await;
    let (mut after, mut resolved, mut looks) = (None, 0, 0);
    loop {
        let settled = db
            .store
            .settle_dead_letters(after, 3)
            .await
            .expect("settles");
        resolved += settled.resolved;
        looks += 1;
        after = settled.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((resolved, looks), (2, 3));
    let story = db
        .store
        .dead_letter_story(letters[5])
        .await
        .expect("a story");
    assert_eq!(story.letter.status.as_str(), "resolved");
    assert_eq!(story.actions.last().expect("an action").action, "succeeded");
    assert_eq!(
        count(
            &db,
            "select count(*) from dead_letters where status = 'replayed'"
        )
        .await,
        5
    );
}
