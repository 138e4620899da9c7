//! Data sets: whose rows are seen, from when on, and page by page.

use serde_json::Value;
use tenure_core::domain::ids::{JobId, UserId};
use tenure_core::storage::Store;
use tenure_core::storage::datasets::{Dataset, PageSize, find, list, rows};
use tenure_core::storage::imports::{Completed, Sink, WriteError, complete, write_batch};
use tenure_core::test_util::TestDb;

use crate::import_world::{batch, begin, imported, into, position, running};

fn user(name: &str) -> UserId {
    UserId::from_stored(name.into())
}

/// Name, rows and imports of all data sets of a user.
async fn all(store: &Store, user: &UserId) -> Vec<(String, i64, i32)> {
    let mut after = None;
    let mut told = Vec::new();
    loop {
        let page = list(store, user, after, 2).await.expect("a page");
        assert!(page.datasets.len() <= 2);
        told.extend(page.datasets.into_iter().map(
            |Dataset {
                 name,
                 rows,
                 imports,
                 ..
             }| (name, rows, imports),
        ));
        after = page.next;
        if after.is_none() {
            return told;
        }
    }
}

/// Import and line of all rows of a data set of ada's, read in pages of this size.
async fn places(
    store: &Store,
    name: &str,
    import: Option<JobId>,
    size: PageSize,
) -> Vec<(JobId, i64)> {
    let id = find(store, &user("ada"), name).await.expect("read");
    let id = id.expect("a data set");
    let mut told = Vec::new();
    let mut after = None;
    loop {
        let page = rows(store, id, import, after, size).await.expect("a page");
        assert!(page.rows.len() <= size.rows);
        let bytes: usize = page.rows.iter().map(|row| row.data.len()).sum();
        assert!(bytes <= size.bytes || page.rows.len() == 1, "{bytes} bytes");
        told.extend(page.rows.into_iter().map(|row| (row.job_id, row.line)));
        after = page.next;
        if after.is_none() {
            return told;
        }
    }
}

const LARGE: PageSize = PageSize {
    rows: 1_000,
    bytes: 1 << 20,
};

#[tokio::test]
async fn rows_are_seen_when_their_import_has_ended() {
    let db = TestDb::create().await;
    let store = &db.store;
    let ada = user("ada");
    let fence = running(store).await;
    begin(store, fence, Some("set")).await.expect("begun");
    let one = batch(
        fence.job_id,
        position(0, 0, 0),
        &[(2, "{}")],
        vec![],
        vec![],
    );
    write_batch(store, fence, one, into(Sink::Rows))
        .await
        .expect("written");
    assert_eq!(all(store, &ada).await, []);
    assert_eq!(find(store, &ada, "set").await.expect("read"), None);

    // Another import of the same set has ended: its rows are seen, and no others.
    let other = imported(store, "set", 3, false).await;
    assert_eq!(all(store, &ada).await, [("set".into(), 3, 1)]);
    let seen = places(store, "set", None, LARGE).await;
    assert_eq!(seen, [2, 3, 4].map(|line| (other.job_id, line)));

    assert_eq!(
        complete(store, fence, 1, false).await.expect("ended"),
        Completed::Now
    );
    assert_eq!(
        complete(store, fence, 1, false).await.expect("ended"),
        Completed::Before
    );
    assert_eq!(all(store, &ada).await, [("set".into(), 4, 2)]);
    assert_eq!(places(store, "set", None, LARGE).await.len(), 4);
    assert_eq!(
        places(store, "set", Some(fence.job_id), LARGE).await,
        [(fence.job_id, 2)]
    );
    assert_eq!(places(store, "set", Some(JobId::new()), LARGE).await, []);
    assert_eq!(all(store, &user("bob")).await, []);
    assert_eq!(find(store, &user("bob"), "set").await.expect("read"), None);
}

#[tokio::test]
async fn the_import_that_ends_last_replaces_the_others() {
    let db = TestDb::create().await;
    let store = &db.store;
    let ada = user("ada");
    let first = imported(store, "set", 3, false).await;
    imported(store, "other", 1, false).await;
    let second = imported(store, "set", 2, true).await;
    assert_eq!(
        all(store, &ada).await,
        [("other".into(), 1, 1), ("set".into(), 2, 1)]
    );
    let seen = places(store, "set", None, LARGE).await;
    assert_eq!(seen, [2, 3].map(|line| (second.job_id, line)));
    // A late repetition does not bring the first one back.
    assert_eq!(
        complete(store, first, 3, true).await.expect("ended"),
        Completed::Before
    );
    assert_eq!(places(store, "set", None, LARGE).await, seen);

    // Of several at once one stays.
    let mut fences = Vec::new();
    for _ in 0..4 {
        let fence = running(store).await;
        begin(store, fence, Some("set")).await.expect("begun");
        fences.push(fence);
    }
    let ends = fences.iter().map(|fence| complete(store, *fence, 7, true));
    for end in futures::future::join_all(ends).await {
        assert_eq!(end.expect("ended"), Completed::Now);
    }
    assert_eq!(all(store, &ada).await[1], ("set".into(), 7, 1));
    let states: Vec<(String, i64)> = sqlx::query_as(
        "select status, count(*) from imports where rows_stored > 1 group by 1 order by 1",
    )
    .fetch_all(store.pool())
    .await
    .expect("states");
    assert_eq!(states, [("done".into(), 1), ("superseded".into(), 5)]);
}

#[tokio::test]
async fn an_import_that_is_to_be_cancelled_is_never_seen() {
    let db = TestDb::create().await;
    let store = &db.store;
    let fence = running(store).await;
    begin(store, fence, Some("set")).await.expect("begun");
    sqlx::query("update jobs set cancel_requested_at = now()")
        .execute(store.pool())
        .await
        .expect("asked for");
    let ended = complete(store, fence, 0, false).await;
    assert!(matches!(ended, Err(WriteError::Cancelled)), "{ended:?}");
    assert_eq!(all(store, &user("ada")).await, []);
    // One that has no data set cannot join one.
    let fence = running(store).await;
    begin(store, fence, None).await.expect("begun");
    let ended = complete(store, fence, 0, false).await;
    assert!(matches!(ended, Err(WriteError::Moved)), "{ended:?}");
}

#[tokio::test]
async fn pages_of_data_sets_are_in_the_order_of_bytes() {
    let db = TestDb::create().await;
    let store = &db.store;
    for name in ["b", "a", "B", "ä", "a b"] {
        imported(store, name, 0, false).await;
    }
    let names: Vec<String> = all(store, &user("ada"))
        .await
        .into_iter()
        .map(|s| s.0)
        .collect();
    assert_eq!(names, ["B", "a", "a b", "b", "ä"]);
}

#[tokio::test]
async fn pages_of_rows_miss_nothing_whatever_their_size() {
    let db = TestDb::create().await;
    let store = &db.store;
    let fill = async |name: &str, counts: &[i64]| {
        let mut wanted = Vec::new();
        for count in counts {
            let fence = imported(store, name, *count, false).await;
            wanted.extend((2..2 + count).map(|line| (fence.job_id, line)));
        }
        wanted
    };
    let wanted = fill("set", &[0, 7, 600, 0, 1, 300]).await;
    for (rows, bytes) in [(300, 1 << 20), (1_000, 1 << 20), (1_000, 5_000)] {
        let size = PageSize { rows, bytes };
        assert_eq!(places(store, "set", None, size).await, wanted, "{size:?}");
    }
    let wanted = fill("small", &[0, 7, 0, 1, 0]).await;
    for (rows, bytes) in [(1, 1 << 20), (7, 1 << 20), (8, 1 << 20), (50, 1), (50, 30)] {
        let size = PageSize { rows, bytes };
        assert_eq!(places(store, "small", None, size).await, wanted, "{size:?}");
    }
    let id = find(store, &user("ada"), "set")
        .await
        .expect("read")
        .expect("there");
    let page = rows(store, id, None, None, LARGE).await.expect("a page");
    let data: Value = serde_json::from_str(&page.rows[0].data).expect("JSON");
    assert_eq!(data["n"].to_string(), "2.5");
    assert_eq!(page.rows[0].data, r#"{"n": 2.50}"#);
}
