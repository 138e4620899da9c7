//! Running imports, and the batches that they write.

use std::sync::Arc;

use serde_json::json;
use tenure_core::domain::ids::{FileId, JobId, SessionId};
use tenure_core::domain::lease::Fence;
use tenure_core::storage::Store;
use tenure_core::storage::imports::{
    Batch, Beginning, Candidate, Completed, Destination, Position, Reject, RowBatch, Sink,
    UniqueValue, WriteError, complete, start, write_batch,
};
use tenure_core::test_util::TestDb;

/// A running job of ada's, and what fences its writes.
pub(crate) async fn running(store: &Store) -> Fence {
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

/// An import that has begun, in a database of its own.
pub(crate) struct Begun {
    pub(crate) db: TestDb,
    pub(crate) fence: Fence,
    /// Its rows, without a limit of rejects.
    pub(crate) to: Arc<Destination>,
}

impl Begun {
    pub(crate) async fn new() -> Self {
        let db = TestDb::create().await;
        let fence = running(&db.store).await;
        begin(&db.store, fence, None).await.expect("started");
        Self {
            db,
            fence,
            to: into(Sink::Rows),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.db.store
    }

    pub(crate) fn job_id(&self) -> JobId {
        self.fence.job_id
    }
}

/// Ends a job in a final state.
pub(crate) async fn end_job(store: &Store, job_id: JobId, status: &str) {
    sqlx::query(
        "update jobs set status = $2, locked_by = null, locked_at = null, lease_until = null, wake_at = null, \
         finished_at = now() where job_id = $1",
    )
    .bind(job_id.uuid())
    .bind(status)
    .execute(store.pool())
    .await
    .expect("ended");
}

/// Begins an import whose rows stand behind [`position`] `(0, 0, 0)`.
pub(crate) async fn begin(
    store: &Store,
    fence: Fence,
    dataset: Option<&str>,
) -> Result<(), WriteError> {
    let begin = Beginning {
        byte_offset: 10,
        line_no: 2,
        plan: &json!({"delimiter": ",", "columns": [[0, {"name": "n"}]]}),
        file_id: FileId::new(),
        dataset,
    };
    start(store, fence, &begin).await
}

/// The place after some batches.
pub(crate) fn position(batch_no: i32, accepted: i64, rejected: i64) -> Position {
    Position {
        byte_offset: 10 + 100 * i64::from(batch_no),
        line_no: 2 + accepted + rejected,
        batch_no,
        rows_accepted: accepted,
        rows_rejected: rejected,
    }
}

/// A rejected row.
pub(crate) fn reject(line: i64) -> Reject {
    Reject {
        line,
        column: "amount".into(),
        reason: "BAD_DECIMAL".into(),
        message: "'x' is not a number".into(),
        value: Some("x\t\"\\".into()),
        original: Some("a,\"x\t\"\"\\\"".into()),
    }
}

/// A row that has a value in each of the first columns; an empty one is none.
pub(crate) fn candidate(line: i64, values: &[&str]) -> Candidate {
    let value = |(place, text): (usize, &&str)| {
        let mut digest = [0; 16];
        digest[..text.len()].copy_from_slice(text.as_bytes());
        UniqueValue {
            column_no: place as i16,
            column: format!("c{place}"),
            digest,
            shown: (*text).to_owned(),
        }
    };
    Candidate {
        line,
        original: values.join(","),
        values: values
            .iter()
            .enumerate()
            .filter(|(_, text)| !text.is_empty())
            .map(value)
            .collect(),
    }
}

/// A batch of the import's next part, behind `from`.
pub(crate) fn batch(
    job_id: JobId,
    from: Position,
    rows: &[(i64, &str)],
    rejects: Vec<Reject>,
    candidates: Vec<Candidate>,
) -> Arc<Batch> {
    let mut stored = RowBatch::new(job_id);
    for (line, json) in rows {
        stored.push(*line, json);
    }
    let to = position(
        from.batch_no + 1,
        from.rows_accepted + rows.len() as i64,
        from.rows_rejected + rejects.len() as i64,
    );
    Arc::new(Batch {
        from,
        to,
        rows: stored,
        rejects,
        candidates,
    })
}

/// A destination without a limit.
pub(crate) fn into(sink: Sink) -> Arc<Destination> {
    Arc::new(Destination {
        sink,
        max_rejected_rows: None,
    })
}

/// How many rows and rejects of a job are stored.
pub(crate) async fn counts(store: &Store, job_id: JobId) -> (i64, i64) {
    sqlx::query_as(
        "select (select count(*) from import_rows where job_id = $1), \
         (select count(*) from import_rejects where job_id = $1)",
    )
    .bind(job_id.uuid())
    .fetch_one(store.pool())
    .await
    .expect("counts")
}

/// The lines of the rows of a job that are stored.
pub(crate) async fn lines(store: &Store, job_id: JobId) -> Vec<i64> {
    sqlx::query_scalar("select line_no from import_rows where job_id = $1 order by 1")
        .bind(job_id.uuid())
        .fetch_all(store.pool())
        .await
        .expect("lines")
}

/// Line, column and reason of the rejects of a job.
pub(crate) async fn rejected(store: &Store, job_id: JobId) -> Vec<(i64, String, String)> {
    sqlx::query_as(
        "select line_no, column_name, reason from import_rejects where job_id = $1 order by 1",
    )
    .bind(job_id.uuid())
    .fetch_all(store.pool())
    .await
    .expect("rejects")
}

/// An import into a data set that has ended, with rows on the lines from 2 on.
pub(crate) async fn imported(store: &Store, dataset: &str, rows: i64, replace: bool) -> Fence {
    let fence = running(store).await;
    begin(store, fence, Some(dataset)).await.expect("begun");
    let lines: Vec<(i64, String)> = (2..2 + rows)
        .map(|line| (line, format!("{{\"n\":{line}.50}}")))
        .collect();
    let rows: Vec<(i64, &str)> = lines.iter().map(|(l, j)| (*l, j.as_str())).collect();
    let all = batch(fence.job_id, position(0, 0, 0), &rows, vec![], vec![]);
    let at = write_batch(store, fence, all, into(Sink::Rows))
        .await
        .expect("written");
    let done = complete(store, fence, at.rows_accepted, replace).await;
    assert_eq!(done.expect("ended"), Completed::Now);
    fence
}
