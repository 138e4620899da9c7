//! What handlers write: batches of imports, notifications, files. Each once, and
//! nothing after the lease is lost.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::domain::ids::{FileId, JobId, SessionId, UserId};
use tenure_core::domain::lease::Fence;
use tenure_core::storage::Store;
use tenure_core::storage::files::{self, FileKind, NewFile};
use tenure_core::storage::imports::{
    Batch, Destination, Position, Reject, Sink, WriteError, complete, load_checkpoint,
    reject_groups, reject_samples, rejects_after, write_batch,
};
use tenure_core::storage::notifications::{self, Notified};
use tenure_core::test_util::TestDb;

use crate::import_world::{
    Begun, batch, begin, candidate, counts, into, lines, position, reject, rejected, running,
};

/// What COPY could misread.
fn awkward() -> Value {
    json!({"a\\b\"": "tab\t nl\n cr\r \\N \\. \\\\ 'q' é 😀 \u{1}", "": null})
}

/// The first batch: two rows and a reject.
fn first(job_id: JobId) -> Arc<Batch> {
    let awkward = awkward().to_string();
    let rows = [(2, awkward.as_str()), (3, r#"{"n":10.50,"big":1e308}"#)];
    batch(job_id, position(0, 0, 0), &rows, vec![reject(4)], vec![])
}

#[tokio::test]
async fn a_batch_is_written_once_however_often_it_is_sent() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let job_id = import.job_id();
    let none = load_checkpoint(store, JobId::new()).await.expect("none");
    assert!(none.is_none());
    let twice = begin(store, fence, None).await;
    assert!(matches!(twice, Err(WriteError::Moved)));

    let to = import.to.clone();
    let write = |batch: &Arc<Batch>| write_batch(store, fence, batch.clone(), to.clone());
    let first = first(job_id);
    let after = position(1, 2, 1);
    assert_eq!(write(&first).await.expect("written"), after);
    assert_eq!(write(&first).await.expect("known to be written"), after);
    // What a batch says of the counts is not believed: the stored ones go on.
    let guess = Position {
        rows_accepted: 77,
        rows_rejected: 5,
        ..after
    };
    let rows = [(5, "{}"), (6, "{}")];
    let second = batch(job_id, guess, &rows, vec![reject(7)], vec![]);
    let both = tokio::join!(write(&second), write(&second));
    let after = Position {
        line_no: second.to.line_no,
        ..position(2, 4, 2)
    };
    assert_eq!(both.0.expect("written"), after);
    assert_eq!(both.1.expect("written"), after);
    assert_eq!(counts(store, job_id).await, (4, 2));
    let late = write(&first).await;
    assert!(matches!(late, Err(WriteError::Moved)), "{late:?}");

    let checkpoint = load_checkpoint(store, job_id).await.expect("read");
    let checkpoint = checkpoint.expect("there");
    assert_eq!(checkpoint.position, after);
    assert_eq!(checkpoint.plan["delimiter"], ",");
    let rejects = reject_samples(store, job_id, 1).await.expect("read");
    // All but their records.
    let expected: Vec<Reject> = first
        .rejects
        .iter()
        .map(|reject| Reject {
            original: None,
            ..reject.clone()
        })
        .collect();
    assert_eq!(rejects, expected);
    let rejects = rejects_after(store, job_id, 4, 9).await.expect("read");
    assert_eq!(rejects, second.rejects);
    let groups = reject_groups(store, job_id, 9).await.expect("read");
    assert_eq!(groups.len(), 1);
    assert_eq!(
        (groups[0].column.as_str(), groups[0].rejects),
        ("amount", 2)
    );
    let (stored, exact): (Value, String) = sqlx::query_as(
        "select (select data from import_rows where job_id = $1 and line_no = 2), \
         (select data::text from import_rows where job_id = $1 and line_no = 3)",
    )
    .bind(job_id.uuid())
    .fetch_one(store.pool())
    .await
    .expect("rows");
    assert_eq!(stored, awkward());
    assert_eq!(
        exact,
        format!(r#"{{"n": 10.50, "big": 1{}}}"#, "0".repeat(308))
    );
}

#[tokio::test]
async fn nothing_is_written_without_the_lease() {
    let db = TestDb::create().await;
    let store = &db.store;
    let fence = running(store).await;
    let job_id = fence.job_id;
    let user = UserId::from_stored("ada".into());
    let stale = [
        Fence { run: 2, ..fence },
        Fence {
            session: SessionId::new(),
            ..fence
        },
        Fence {
            job_id: JobId::new(),
            ..fence
        },
    ];
    for fence in stale {
        let started = begin(store, fence, Some("set")).await;
        assert!(matches!(started, Err(WriteError::LeaseLost)), "{started:?}");
    }
    begin(store, fence, Some("set")).await.expect("started");
    let to = into(Sink::Rows);
    let first = first(job_id);
    for stale in &stale[..2] {
        let written = write_batch(store, *stale, first.clone(), to.clone()).await;
        assert!(matches!(written, Err(WriteError::LeaseLost)), "{written:?}");
        let told = notifications::insert(store, *stale, &user, "t", "k", &json!({})).await;
        assert_eq!(told.expect("an answer"), Notified::LeaseLost);
        let ended = complete(store, *stale, 0, false).await;
        assert!(matches!(ended, Err(WriteError::LeaseLost)), "{ended:?}");
    }
    // Taken back: the run is over.
    sqlx::query(
        "update jobs set status = 'pending', run = run + 1, locked_by = null, locked_at = null, lease_until = null \
         where job_id = $1",
    )
    .bind(job_id.uuid())
    .execute(store.pool())
    .await
    .expect("taken back");
    let written = write_batch(store, fence, first, to).await;
    assert!(matches!(written, Err(WriteError::LeaseLost)), "{written:?}");
    assert_eq!(counts(store, job_id).await, (0, 0));
    let checkpoint = load_checkpoint(store, job_id).await.expect("read");
    assert_eq!(checkpoint.expect("there").position, position(0, 0, 0));
}

/// What counts against a job: losses in a row, and starts.
async fn spent(store: &Store, fence: Fence) -> (i16, i32) {
    sqlx::query_as("select lost, attempt from jobs where job_id = $1")
        .bind(fence.job_id.uuid())
        .fetch_one(store.pool())
        .await
        .expect("a job")
}

#[tokio::test]
async fn v6_an_import_that_moves_on_is_not_lost_in_a_row() {
    let db = TestDb::create().await;
    let store = &db.store;
    for (lost, attempt, left) in [(1, 2, 1), (2, 2, 1), (1, 1, 1), (0, 2, 2)] {
        let fence = running(store).await;
        begin(store, fence, None).await.expect("begun");
        sqlx::query("update jobs set lost = $2, attempt = $3 where job_id = $1")
            .bind(fence.job_id.uuid())
            .bind(lost)
            .bind(attempt)
            .execute(store.pool())
            .await
            .expect("lost");
        let first = batch(
            fence.job_id,
            position(0, 0, 0),
            &[(2, "{}")],
            vec![],
            vec![],
        );
        write_batch(store, fence, first, into(Sink::Rows))
            .await
            .expect("written");
        assert_eq!(spent(store, fence).await, (0, left), "{lost} {attempt}");
        // Once: the batches after it give nothing back.
        let second = batch(
            fence.job_id,
            position(1, 1, 0),
            &[(3, "{}")],
            vec![],
            vec![],
        );
        write_batch(store, fence, second, into(Sink::Rows))
            .await
            .expect("written");
        assert_eq!(spent(store, fence).await, (0, left), "{lost} {attempt}");
        // Another session's batch changes nothing of the job.
        sqlx::query("update jobs set lost = 1 where job_id = $1")
            .bind(fence.job_id.uuid())
            .execute(store.pool())
            .await
            .expect("lost");
        let stranger = Fence {
            session: SessionId::new(),
            ..fence
        };
        let third = batch(
            fence.job_id,
            position(2, 2, 0),
            &[(4, "{}")],
            vec![],
            vec![],
        );
        let refused = write_batch(store, stranger, third, into(Sink::Rows)).await;
        assert!(matches!(refused, Err(WriteError::LeaseLost)), "{refused:?}");
        assert_eq!(spent(store, fence).await, (1, left));
    }
}

#[tokio::test]
async fn a_dry_run_stores_rejects_and_values_and_no_row() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let rows = [(2, "{}"), (3, "{}")];
    let candidates = vec![candidate(2, &["a"]), candidate(3, &["a"])];
    let only = batch(
        fence.job_id,
        position(0, 0, 0),
        &rows,
        vec![reject(4)],
        candidates,
    );
    let at = write_batch(store, fence, only, into(Sink::Nothing)).await;
    let at = at.expect("judged");
    assert_eq!((at.rows_accepted, at.rows_rejected), (1, 2));
    assert_eq!(counts(store, fence.job_id).await, (0, 2));
    let sets: i64 = sqlx::query_scalar(
        "select (select count(*) from imports) + (select count(*) from datasets)",
    )
    .fetch_one(store.pool())
    .await
    .expect("a count");
    assert_eq!(sets, 0);
}

#[tokio::test]
async fn a_unique_value_stands_in_one_row_whatever_batch_it_is_in() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let job_id = import.job_id();
    let to = import.to.clone();
    let first = batch(
        job_id,
        position(0, 0, 0),
        &[(2, "{}"), (3, "{}"), (4, "{}"), (5, "{}"), (6, "{}")],
        vec![],
        vec![
            candidate(2, &["a", "x"]),
            candidate(3, &["b", "x"]),
            candidate(4, &["b", ""]),
            candidate(5, &["", ""]),
            candidate(6, &["", ""]),
        ],
    );
    let at = write_batch(store, fence, first.clone(), to.clone()).await;
    let at = at.expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (4, 1));
    let again = write_batch(store, fence, first, to.clone()).await;
    assert_eq!(again.expect("known to be written"), at);
    // The same text in another column is another value.
    let second = batch(
        job_id,
        at,
        &[(7, "{}"), (8, "{}"), (9, "{}")],
        vec![],
        vec![
            candidate(7, &["x", "a"]),
            candidate(8, &["c", "a"]),
            candidate(9, &["a", "z"]),
        ],
    );
    let at = write_batch(store, fence, second, to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (5, 3));
    assert_eq!(lines(store, job_id).await, [2, 4, 5, 6, 7]);
    let rejects = rejects_after(store, job_id, 0, 9).await.expect("read");
    let told: Vec<_> = rejects
        .iter()
        .map(|r| {
            (
                r.line,
                r.column.as_str(),
                r.value.as_deref(),
                r.original.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (3, "c1", Some("x"), Some("b,x")),
            (8, "c1", Some("a"), Some("c,a")),
            (9, "c0", Some("a"), Some("a,z")),
        ]
    );
    assert!(rejects.iter().all(|r| r.reason == "DUPLICATE_VALUE"));
    assert!(
        rejects[2].message.contains("line 2"),
        "{}",
        rejects[2].message
    );
}

#[tokio::test]
async fn a_batch_beyond_the_limit_of_rejects_stores_no_row() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let job_id = import.job_id();
    let to = Arc::new(Destination {
        sink: Sink::Rows,
        max_rejected_rows: Some(1),
    });
    let rows = [(2, "{}"), (3, "{}")];
    let first = batch(job_id, position(0, 0, 0), &rows, vec![reject(4)], vec![]);
    let at = write_batch(store, fence, first, to.clone()).await;
    let at = at.expect("written");
    assert!(!to.is_exceeded(at.rows_rejected));
    let candidates = vec![candidate(5, &["a"]), candidate(6, &["a"])];
    let rows = [(5, "{}"), (6, "{}")];
    let second = batch(job_id, at, &rows, vec![], candidates);
    let at = write_batch(store, fence, second, to.clone()).await;
    let at = at.expect("written");
    assert!(to.is_exceeded(at.rows_rejected));
    assert_eq!((at.rows_accepted, at.rows_rejected), (2, 2));
    assert_eq!(lines(store, job_id).await, [2, 3]);
    assert_eq!(rejected(store, job_id).await.len(), 2);
}

#[tokio::test]
async fn a_user_is_notified_once_per_template_and_key() {
    let db = TestDb::create().await;
    let store = &db.store;
    let (one, other) = (running(store).await, running(store).await);
    let (ada, bob) = (
        UserId::from_stored("ada".into()),
        UserId::from_stored("bob".into()),
    );
    for (fence, user, template, key, expected) in [
        (one, &ada, "t", "k", Notified::Created),
        (one, &ada, "t", "k", Notified::AlreadyThere),
        (other, &ada, "t", "k", Notified::AlreadyThere),
        (other, &ada, "t", "K", Notified::Created),
        (other, &ada, "u", "k", Notified::Created),
        (other, &bob, "t", "k", Notified::Created),
    ] {
        let told = notifications::insert(store, fence, user, template, key, &json!({"n": 1})).await;
        assert_eq!(told.expect("an answer"), expected);
    }
    let rows: i64 = sqlx::query_scalar("select count(*) from notifications")
        .fetch_one(store.pool())
        .await
        .expect("a count");
    assert_eq!(rows, 4);
}

#[tokio::test]
async fn a_file_that_is_made_again_keeps_its_name_and_tells_its_new_content() {
    let db = TestDb::create().await;
    let store = &db.store;
    let file = NewFile {
        file_id: FileId::new(),
        user_id: UserId::from_stored("ada".into()),
        name: "a.csv".into(),
        content_type: "text/csv".into(),
        size_bytes: 7,
        sha256: [9; 32],
        kind: FileKind::Report,
        job_id: Some(JobId::new()),
        expires_at: None,
    };
    assert!(
        files::get(store, file.file_id)
            .await
            .expect("read")
            .is_none()
    );
    let first = files::insert(store, &file).await.expect("stored");
    let other = NewFile {
        name: "b.csv".into(),
        size_bytes: 8,
        ..file.clone()
    };
    let second = files::insert(store, &other).await.expect("stored");
    let read = files::get(store, file.file_id)
        .await
        .expect("read")
        .expect("there");
    for (row, size) in [(&first, 7), (&second, 8), (&read, 8)] {
        assert_eq!(
            (row.file.name.as_str(), row.file.size_bytes),
            ("a.csv", size)
        );
        assert_eq!((row.file.sha256, row.file.job_id), ([9; 32], file.job_id));
        assert_eq!(row.created_at, first.created_at);
    }
    let expired = NewFile {
        file_id: FileId::new(),
        expires_at: Some(first.created_at - chrono::TimeDelta::seconds(1)),
        ..file
    };
    files::insert(store, &expired).await.expect("stored");
    assert!(
        files::get(store, expired.file_id)
            .await
            .expect("read")
            .is_none()
    );
}

#[tokio::test]
async fn groups_of_rejects_explain_as_read_from_their_index() {
    let db = TestDb::create().await;
    for sql in [
        "insert into import_rejects (job_id, line_no, column_name, reason, message, original)
         select md5((g % 20)::text)::uuid, g, 'n', 'BAD', 'bad', repeat(md5(g::text), 20)
         from generate_series(1, 5000) g",
        "vacuum analyze import_rejects",
    ] {
        sqlx::raw_sql(sql)
            .execute(db.store.pool())
            .await
            .expect(sql);
    }
    let plan: Vec<String> = sqlx::query_scalar(
        "explain select reason, column_name, count(*) from import_rejects
         where job_id = md5('1')::uuid group by reason, column_name",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("a plan");
    let plan = plan.join("\n");
    assert!(
        plan.contains("Index Only Scan using import_rejects_groups"),
        "{plan}"
    );
}
