//! The notes that counts are made of: each is counted once, whoever left it and whatever
//! happens in between.

use tenure_core::storage::dead_letters::{FOLD_BATCH, MAX_CAUSES, Verb};
use tenure_core::test_util::TestDb;

use crate::dead_letter_causes::{causes, counts_agree, fold_all};
use crate::letters_world::{count, decision, failed_jobs, sql};

const NOTES: &str = "select count(*) from dead_letter_counts";

/// Writes letters as a release that leaves no notes does.
async fn without_notes(db: &TestDb, statement: &str) {
    let all = format!(
        "begin; alter table dead_letters disable trigger user; {statement}; \
         alter table dead_letters enable trigger user; commit"
    );
    sql(db, &all).await;
}

#[tokio::test]
async fn counting_writes_no_letter() {
    let db = TestDb::create().await;
    failed_jobs(&db, 50, "row ").await;
    let versions = async || -> String {
        sqlx::query_scalar("select string_agg(ctid::text, ' ' order by id) from dead_letters")
            .fetch_one(db.store.pool())
            .await
            .expect("reads")
    };
    let before = versions().await;
    assert_eq!(count(&db, NOTES).await, 50);
    fold_all(&db, MAX_CAUSES).await;
    assert_eq!(versions().await, before);
    assert_eq!(count(&db, NOTES).await, 0);
    counts_agree(&db, "a fold").await;
}

#[tokio::test]
async fn letters_that_were_left_without_notes_are_counted_once() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 40, "row ").await;
    fold_all(&db, MAX_CAUSES).await;
    // Of forty that are counted, some whose status has changed since and some that have failed
    // again with another message; and some that are new.
    without_notes(
        &db,
        "update dead_letters set status = 'ignored' where split_part(error_message, ' ', 2)::int <= 10; \
         update dead_letters set failures = 2, error_message = 'timed out', last_failed_at = now() \
         where split_part(error_message, ' ', 2)::int > 30; \
         insert into dead_letters (id, message_key, queue_name, payload, error_code, error_class, attempts, replayable) \
         select i, i::text, 'default', '{}', 'INVALID_MESSAGE', 'permanent', 1, false \
         from (select tenure_uuid7() as i from generate_series(1, 7)) s",
    )
    .await;
    assert_eq!(count(&db, NOTES).await, 0);
    // Some of each are changed by this release before it has counted them.
    let some = [letters[3], letters[12], letters[35]];
    db.store
        .decide_dead_letters(Verb::Resolve, &some, &decision("x"))
        .await
        .expect("decided");
    sql(
        &db,
        "update dead_letters set status = 'resolved' where id = (select id from dead_letters where job_id is null limit 1)",
    )
    .await;
    fold_all(&db, MAX_CAUSES).await;
    counts_agree(&db, "letters of the release before").await;
    let seen = causes(&db).await;
    let sum = |each: fn(&tenure_core::storage::dead_letters::Cause) -> i64| {
        seen.iter().map(each).sum::<i64>()
    };
    assert_eq!(seen.len(), 3);
    assert_eq!(
        [sum(|c| c.open), sum(|c| c.ignored), sum(|c| c.resolved)],
        [34, 9, 4]
    );
    fold_all(&db, MAX_CAUSES).await;
    counts_agree(&db, "another look").await;
}

#[tokio::test]
async fn a_fold_waits_for_no_letter_and_forgets_none() {
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 6, "x").await;
    sql(
        &db,
        "update dead_letters set error_message = repeat(chr(96 + right(error_message, 1)::int), 3)",
    )
    .await;
    let mut other = db.store.pool().begin().await.expect("a transaction");
    sqlx::query("select 1 from dead_letters where id = any($1) for update")
        .bind(&letters[4..])
        .execute(&mut *other)
        .await
        .expect("locks");
    // Two causes at most: of the other four letters, two cannot be moved to the others now.
    let folded = db.store.fold_causes(FOLD_BATCH, 2).await;
    let folded = folded.expect("a fold").expect("nobody else folds");
    assert!(folded.notes > 0);
    let left = count(
        &db,
        "select count(distinct letter_id) from dead_letter_counts",
    )
    .await;
    assert_eq!(left, 2);
    let open = "select sum(open)::bigint from dead_letter_causes";
    assert_eq!(count(&db, open).await, 4);
    other.rollback().await.expect("lets go");
    fold_all(&db, 2).await;
    counts_agree(&db, "the lock").await;
    assert_eq!(count(&db, NOTES).await, 0);
    assert_eq!(causes(&db).await.len(), 3);
}

#[tokio::test]
async fn a_letter_that_goes_before_it_is_counted_leaves_no_count() {
    let db = TestDb::create().await;
    failed_jobs(&db, 5, "row ").await;
    let old = "update dead_letters set status = 'resolved', status_changed_at = now() - interval '1 year', \
               id = overlay(id::text placing '01890000' from 1 for 8)::uuid; delete from jobs";
    sql(&db, old).await;
    let keep = std::time::Duration::from_hours(24);
    let step = db.store.prune_letters(None, keep, 3).await.expect("a step");
    assert_eq!(step.removed, 3);
    fold_all(&db, MAX_CAUSES).await;
    db.store
        .prune_letters(step.next, keep, 10)
        .await
        .expect("a step");
    fold_all(&db, MAX_CAUSES).await;
    let seen = causes(&db).await;
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].open, seen[0].resolved), (0, 0));
}
