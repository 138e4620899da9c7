//! What handlers write: batches of imports, notifications, files. Each once, and
//! nothing after the lease is lost.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::domain::ids::{FileId, JobId, SessionId, UserId};
use tenure_core::domain::lease::Fence;
use tenure_core::storage::Store;
use tenure_core::storage::files::{self, FileKind, NewFile};
use tenure_core::storage::imports::{
    self, Batch, Position, Reject, RowBatch, WriteError, load_checkpoint, reject_samples,
    write_batch,
};
use tenure_core::storage::notifications::{self, Notified};
use tenure_core::test_util::TestDb;

/// A running job, and what fences its writes.
async fn running(store: &Store) -> Fence {
    let fence = Fence {
        job_id: JobId::new(),
        run: 3,
        session: SessionId::new(),
    };
    sqlx::query(
        "insert into jobs (job_id, status, run, attempt, max_attempts, lane, wake_at, locked_by, locked_at, \
         lease_until, timeout_ms, user_id, queue, job_type, payload) values \
         ($1, 'running', $2, 1, 5, 2, now(), $3, now(), now() + interval '1 minute', 60000, 'ada', 'imports', \
         'import_csv', '{}')",
    )
    .bind(fence.job_id.uuid())
    .bind(fence.run)
    .bind(fence.session.uuid())
    .execute(store.pool())
    .await
    .expect("a job");
    fence
}

fn position(batch_no: i32, accepted: i64, rejected: i64) -> Position {
    Position {
        byte_offset: 10 + 100 * i64::from(batch_no),
        line_no: 2 + accepted + rejected,
        batch_no,
        rows_accepted: accepted,
        rows_rejected: rejected,
    }
}

/// A batch of two rows and a reject behind `from`.
fn batch(job_id: JobId, from: Position) -> Arc<Batch> {
    let mut rows = RowBatch::new(job_id);
    rows.push(from.line_no, &awkward().to_string());
    rows.push(from.line_no + 1, r#"{"n":10.50,"big":1e308}"#);
    let reject = Reject {
        line: from.line_no + 2,
        column: "amount".into(),
        reason: "BAD_DECIMAL".into(),
        message: "'x' is not a number".into(),
        value: Some("x\t\"\\".into()),
        original: None,
    };
    Arc::new(Batch {
        from,
        to: position(
            from.batch_no + 1,
            from.rows_accepted + 2,
            from.rows_rejected + 1,
        ),
        rows,
        rejects: vec![reject],
        candidates: Vec::new(),
    })
}

/// What COPY could misread.
fn awkward() -> Value {
    json!({"a\\b\"": "tab\t nl\n cr\r \\N \\. \\\\ 'q' é 😀 \u{1}", "": null})
}

async fn counts(store: &Store, job_id: JobId) -> (i64, i64) {
    sqlx::query_as(
        "select (select count(*) from import_rows where job_id = $1), \
         (select count(*) from import_rejects where job_id = $1)",
    )
    .bind(job_id.uuid())
    .fetch_one(store.pool())
    .await
    .expect("counts")
}

#[tokio::test]
async fn a_batch_is_written_once_however_often_it_is_sent() {
    let db = TestDb::create().await;
    let store = &db.store;
    let fence = running(store).await;
    let job_id = fence.job_id;
    assert!(
        load_checkpoint(store, job_id)
            .await
            .expect("none")
            .is_none()
    );
    let plan = json!({"delimiter": ",", "columns": [[0, {"name": "n"}]]});
    imports::start(store, fence, 10, 2, &plan)
        .await
        .expect("started");
    let twice = imports::start(store, fence, 10, 2, &plan).await;
    assert!(matches!(twice, Err(WriteError::Moved)));

    let start = position(0, 0, 0);
    let first = batch(job_id, start);
    write_batch(store, fence, first.clone())
        .await
        .expect("written");
    write_batch(store, fence, first.clone())
        .await
        .expect("known to be written");
    let second = batch(job_id, first.to);
    let both = tokio::join!(
        write_batch(store, fence, second.clone()),
        write_batch(store, fence, second.clone())
    );
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert_eq!(counts(store, job_id).await, (4, 2));
    let late = write_batch(store, fence, first.clone()).await;
    assert!(matches!(late, Err(WriteError::Moved)), "{late:?}");

    let checkpoint = load_checkpoint(store, job_id)
        .await
        .expect("read")
        .expect("there");
    assert_eq!((checkpoint.position, checkpoint.plan), (second.to, plan));
    let rejects = reject_samples(store, job_id, 1).await.expect("read");
    assert_eq!(rejects, first.rejects);
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
        let started = imports::start(store, fence, 10, 2, &json!({})).await;
        assert!(matches!(started, Err(WriteError::LeaseLost)), "{started:?}");
    }
    imports::start(store, fence, 10, 2, &json!({}))
        .await
        .expect("started");
    let first = batch(job_id, position(0, 0, 0));
    for stale in &stale[..2] {
        let written = write_batch(store, *stale, first.clone()).await;
        assert!(matches!(written, Err(WriteError::LeaseLost)), "{written:?}");
        let told = notifications::insert(store, *stale, &user, "t", "k", &json!({})).await;
        assert_eq!(told.expect("an answer"), Notified::LeaseLost);
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
    let written = write_batch(store, fence, first).await;
    assert!(matches!(written, Err(WriteError::LeaseLost)), "{written:?}");
    assert_eq!(counts(store, job_id).await, (0, 0));
    let checkpoint = load_checkpoint(store, job_id)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(checkpoint.position, position(0, 0, 0));
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
async fn a_file_is_described_once() {
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
    for row in [&first, &second, &read] {
        assert_eq!((row.file.name.as_str(), row.file.size_bytes), ("a.csv", 7));
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
