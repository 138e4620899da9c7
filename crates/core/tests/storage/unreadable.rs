//! Letters of messages that could not be read.

use std::collections::BTreeSet;

use tenure_core::domain::ids::DeadLetterId;
use tenure_core::storage::dead_letters::{DeadLetterStatus, MAX_UNREADABLE_BYTES, Unreadable};
use tenure_core::test_util::TestDb;

#[tokio::test]
async fn the_same_unreadable_message_is_one_letter() {
    let db = TestDb::create().await;
    let body = b"\x00\xffnot an envelope";
    let store = |queue: &'static str, why: Unreadable, reason: &'static str| {
        let store = db.store.clone();
        async move {
            store
                .store_unreadable(queue, body, None, why, reason)
                .await
                .expect("stored")
        }
    };
    let first = store("default", Unreadable::Unparseable, "no JSON\0").await;
    assert_eq!(first.failures, 1);
    sqlx::query("update dead_letters set status = 'ignored'")
        .execute(db.store.pool())
        .await
        .expect("updates");
    let again = store("default", Unreadable::Orphan, "no such job").await;
    assert_eq!((again.id, again.failures), (first.id, 2));
    let elsewhere = store("imports", Unreadable::Unparseable, "no JSON").await;
    assert_ne!(elsewhere.id, first.id);

    let letter = db
        .store
        .get_dead_letter(first.id.uuid())
        .await
        .expect("found");
    assert_eq!(letter.status, DeadLetterStatus::Open);
    assert_eq!(letter.error.code, "ORPHAN_MESSAGE");
    assert_eq!(letter.payload.as_deref(), Some(&body[..]));
    assert_eq!(
        (letter.job_id, letter.user_id, letter.job_type),
        (None, None, None)
    );
    assert!(!letter.replayable && !letter.error.temporary);
    assert!(letter.last_failed_at >= letter.first_failed_at);
}

#[tokio::test]
async fn ten_copies_at_once_are_one_letter() {
    let db = TestDb::create().await;
    let copies = (0..10).map(|_| {
        db.store
            .store_unreadable("default", b"x", None, Unreadable::Unparseable, "x")
    });
    let stored = futures::future::try_join_all(copies).await.expect("stored");
    let ids: BTreeSet<DeadLetterId> = stored.iter().map(|letter| letter.id).collect();
    assert_eq!(ids.len(), 1);
    let mut failures: Vec<i32> = stored.iter().map(|letter| letter.failures).collect();
    failures.sort_unstable();
    assert_eq!(failures, (1..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_huge_message_is_cut_and_says_so() {
    let db = TestDb::create().await;
    let body = vec![b'x'; MAX_UNREADABLE_BYTES + 5];
    let stored = db
        .store
        .store_unreadable("default", &body, None, Unreadable::Unparseable, "no JSON")
        .await
        .expect("stored");
    let letter = db
        .store
        .get_dead_letter(stored.id.uuid())
        .await
        .expect("found");
    assert_eq!(
        letter.payload.map(|payload| payload.len()),
        Some(MAX_UNREADABLE_BYTES)
    );
    assert!(
        letter.error.message.contains("1048576 of 1048581"),
        "{}",
        letter.error.message
    );
    // Two that differ behind the cut are two messages.
    let mut other = body;
    other[MAX_UNREADABLE_BYTES] = b'y';
    let second = db
        .store
        .store_unreadable("default", &other, None, Unreadable::Unparseable, "no JSON")
        .await
        .expect("stored");
    assert_ne!(second.id, stored.id);
}

#[tokio::test]
async fn what_the_message_had_beside_its_body_is_kept() {
    let db = TestDb::create().await;
    let put = |properties: Option<serde_json::Value>| {
        let store = db.store.clone();
        async move {
            let kept = store.store_unreadable(
                "default",
                b"x",
                properties.as_ref(),
                Unreadable::Unparseable,
                "no JSON",
            );
            kept.await.expect("stored").id.uuid()
        }
    };
    let properties =
        serde_json::json!({"content_type": "text/plain", "headers": {"from": "a\"b", "n": 7}});
    let id = put(Some(properties.clone())).await;
    let kept = || async {
        let letter = db.store.get_dead_letter(id).await.expect("found");
        let text = letter.message_properties.expect("kept");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    assert_eq!(kept().await, properties);
    assert_eq!(put(None).await, id);
    assert_eq!(kept().await, properties, "nothing newer is known");
    let newer = serde_json::json!({"message_id": "2"});
    assert_eq!(put(Some(newer.clone())).await, id);
    assert_eq!(kept().await, newer);
}
