//! What operators are told of dead letters, each once.

use std::time::Duration;

use serde_json::json;
use tenure_core::storage::Store;
use tenure_core::storage::alerts::{ALERTS_USER, Alert};
use tenure_core::storage::dead_letters::{FOLD_BATCH, MAX_CAUSES};
use tenure_core::test_util::TestDb;

const MINUTES: Duration = Duration::from_mins(10);

/// Letters of the queue that failed so many minutes ago.
async fn letters(store: &Store, count: i32, queue: &str, message: &str, minutes: i32) {
    sqlx::query(
        "insert into dead_letters (id, message_key, queue_name, payload, error_code, error_class, error_message, \
         attempts, replayable, first_failed_at, last_failed_at) \
         select i, i::text, $2, '{}', 'PANIC', 'temporary', $3, 3, true, t, t from (select gen_random_uuid() as i, \
         now() - make_interval(mins => $4) as t from generate_series(1, $1)) s",
    )
    .bind(count)
    .bind(queue)
    .bind(message)
    .bind(minutes)
    .execute(store.pool())
    .await
    .expect("letters");
    store
        .fold_causes(FOLD_BATCH, MAX_CAUSES)
        .await
        .expect("counts");
}

fn alert(key: &str) -> Alert {
    Alert {
        kind: "new_cause",
        key: key.to_owned(),
        detail: json!({"open": 1}),
        webhook: Some(br#"{"url":"https://ops.example/","event":"e","data":{}}"#.to_vec()),
    }
}

async fn calls(store: &Store) -> i64 {
    sqlx::query_scalar(
        "select count(*) from jobs where user_id = $1 and job_type = 'notify_webhook' and parked",
    )
    .bind(ALERTS_USER)
    .fetch_one(store.pool())
    .await
    .expect("jobs")
}

#[tokio::test]
async fn an_alert_is_raised_once_however_many_raise_it() {
    let db = TestDb::create().await;
    let store = &db.store;
    let (one, two, three) = (alert("a"), alert("a"), alert("a"));
    let raised = tokio::join!(
        store.raise_alert(&one, None),
        store.raise_alert(&two, None),
        store.raise_alert(&three, None)
    );
    let raised = [raised.0, raised.1, raised.2];
    let count = raised
        .iter()
        .filter(|r| *r.as_ref().expect("asked"))
        .count();
    assert_eq!((count, calls(store).await), (1, 1));
    // Never again without a pause, and with one when it has passed.
    let hour = Some(Duration::from_hours(1));
    assert!(!store.raise_alert(&alert("a"), hour).await.expect("asked"));
    sqlx::query("update alerts set raised_at = now() - interval '2 hours'")
        .execute(store.pool())
        .await
        .expect("moved");
    assert!(!store.raise_alert(&alert("a"), None).await.expect("asked"));
    assert!(store.raise_alert(&alert("a"), hour).await.expect("asked"));
    assert!(store.raise_alert(&alert("b"), None).await.expect("asked"));
    assert_eq!(calls(store).await, 3);
    // Without an address nobody is called, and it is raised all the same.
    let silent = Alert {
        webhook: None,
        ..alert("c")
    };
    assert!(store.raise_alert(&silent, None).await.expect("asked"));
    assert_eq!(calls(store).await, 3);
}

#[tokio::test]
async fn new_causes_are_those_of_the_day_that_nobody_was_told_of() {
    let db = TestDb::create().await;
    let store = &db.store;
    letters(store, 3, "default", "disk 7 is full", 5).await;
    letters(store, 1, "imports", "gone", 10).await;
    letters(store, 1, "default", "long ago", 3 * 24 * 60).await;
    let causes = store.new_causes(10).await.expect("causes");
    let told: Vec<_> = causes
        .iter()
        .map(|c| (c.queue.as_str(), c.error.message.as_str(), c.open))
        .collect();
    assert_eq!(
        told,
        [("imports", "gone", 1), ("default", "disk 7 is full", 3)]
    );
    let first = Alert {
        key: causes[0].id.to_string(),
        ..alert("")
    };
    assert!(store.raise_alert(&first, None).await.expect("raised"));
    let left = store.new_causes(10).await.expect("causes");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].id, causes[1].id);
}

#[tokio::test]
async fn open_letters_their_growth_and_the_oldest_are_known() {
    let db = TestDb::create().await;
    let store = &db.store;
    assert_eq!(store.oldest_letter().await.expect("asked"), None);
    assert_eq!(store.letter_growth(40, MINUTES).await.expect("asked"), 0);
    assert_eq!(store.letter_growth(45, MINUTES).await.expect("asked"), 5);
    // Against the least of the window, and nothing before it.
    sqlx::query(
        "insert into dead_letter_levels values (now() - interval '9 minutes', 10), (now() - interval '11 minutes', 1)",
    )
    .execute(store.pool())
    .await
    .expect("levels");
    assert_eq!(store.letter_growth(45, MINUTES).await.expect("asked"), 35);
    letters(store, 2, "default", "x", 30).await;
    letters(store, 1, "imports", "y", 90).await;
    let mut open = store.open_letters().await.expect("asked");
    open.sort_by(|a, b| a.queue.cmp(&b.queue));
    let open: Vec<_> = open.iter().map(|q| (q.queue.as_str(), q.open)).collect();
    assert_eq!(open, [("default", 2), ("imports", 1)]);
    let oldest = store.oldest_letter().await.expect("asked").expect("one");
    let age = oldest.age.as_secs();
    assert!((5400..5500).contains(&age), "{age}");
    // One that is dealt with is the oldest no more.
    sqlx::query("update dead_letters set status = 'ignored' where queue_name = 'imports'")
        .execute(store.pool())
        .await
        .expect("ignored");
    let oldest = store.oldest_letter().await.expect("asked").expect("one");
    assert!(oldest.age.as_secs() < 1900);
}

#[tokio::test]
async fn what_is_old_and_uncounted_is_known_and_what_is_new_keeps_nobody_waiting() {
    let db = TestDb::create().await;
    let store = &db.store;
    let uncounted = || async { store.letters_uncounted().await.expect("asked") };
    assert!(!uncounted().await);
    letters(store, 3, "default", "x", 60).await;
    assert!(!uncounted().await, "they are counted");
    let again = |sql: &'static str| async move {
        sqlx::query(sql).execute(store.pool()).await.expect(sql);
    };
    again("update dead_letters set failures = 2, last_failed_at = now()").await;
    assert!(!uncounted().await, "of this moment");
    again("update dead_letter_counts set noted_at = now() - interval '1 hour'").await;
    assert!(uncounted().await);
}

#[tokio::test]
async fn letters_of_alerts_are_nothing_to_alert_of() {
    let db = TestDb::create().await;
    let store = &db.store;
    letters(store, 2, "default", "the receiver is away", 90).await;
    let own = "update dead_letters set user_id = $1, job_type = 'notify_webhook', cause_id = null, counted_status = null, \
         counted_failures = null";
    sqlx::query(own)
        .bind(ALERTS_USER)
        .execute(store.pool())
        .await
        .expect("the alerts'");
    sqlx::query("delete from dead_letter_causes")
        .execute(store.pool())
        .await
        .expect("cleared");
    letters(store, 1, "default", "gone", 30).await;
    assert_eq!(store.open_letters_of_alerts().await.expect("asked"), 2);
    let oldest = store.oldest_letter().await.expect("asked").expect("one");
    assert!(oldest.age.as_secs() < 2000, "somebody's: {oldest:?}");
    let causes = store.new_causes(10).await.expect("causes");
    let told: Vec<_> = causes.iter().map(|c| c.error.message.as_str()).collect();
    assert_eq!(told, ["gone"]);
    // Somebody's own webhook that cannot be sent is told of.
    sqlx::query("update dead_letters set user_id = 'ada' where id = (select id from dead_letters where user_id = $1 limit 1)")
        .bind(ALERTS_USER)
        .execute(store.pool())
        .await
        .expect("ada's");
    assert_eq!(store.new_causes(10).await.expect("causes").len(), 2);
}
