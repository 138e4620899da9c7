//! Telling of imports that have failed for good. The failing transaction has left a note,
//! by a trigger; here the note becomes jobs, in one transaction, so that each failure is
//! told once.

use sqlx::types::Json;
use uuid::Uuid;

use crate::domain::ids::{FileId, JobId};
use crate::error::Result;
use crate::storage::{Store, db_error};

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] =
    &[("failed_imports_due", DUE), ("failed_imports_told", TOLD)];

const DUE: &str = "\
select n.note_id, n.job_id, n.failures, n.error_code, coalesce(n.error_message, '') as error_message,
    d.user_id, d.payload, c.rows_accepted, c.rows_rejected,
    (select s.name from imports i join datasets s on s.dataset_id = i.dataset_id where i.job_id = n.job_id) as dataset,
    (select jsonb_object_agg(case when f.kind = 'rejects' then 'rejects' when f.content_type like 'text/html%' then 'html'
        else 'report' end, f.file_id) from files f where f.job_id = n.job_id and f.kind in ('report', 'rejects')) as files
from failed_imports n
left join dead_letters d on d.job_id = n.job_id
left join import_checkpoints c on c.job_id = n.job_id
order by n.note_id limit $1
for update of n skip locked";

/// As follow-ups are made by a finish: never refused, and counted.
const TOLD: &str = "\
with gone as (delete from failed_imports where note_id = any($1) returning 1),
i as materialized (
    select i.*, d.user_id, d.trace_parent
    from unnest($2::uuid[], $3::text[], $4::bytea[], $5::uuid[]) i (job_id, job_type, payload, parent)
    join dead_letters d on d.job_id = i.parent
),
j as (
    insert into jobs (job_id, user_id, queue, lane, job_type, payload, parked, wake_at, max_attempts, timeout_ms,
        submitted_by, trace_parent)
    select i.job_id, i.user_id, t.queue, t.lane, t.name, i.payload, true, now() + interval '1 day', t.max_attempts,
        t.timeout_ms, 'job:' || i.parent::text, i.trace_parent
    from i join job_types t on t.name = i.job_type
    returning user_id
),
cr as (
    insert into user_load as l (user_id, job_limit, credit)
    select user_id, 0, -count(*)::int from j group by user_id order by user_id
    on conflict (user_id) do update set credit = greatest(l.credit + excluded.credit, 0)
)
select (select count(*) from gone), (select count(*) from j)";

/// An import that has failed for good.
#[derive(Debug, Clone)]
pub struct FailedImport {
    /// Its job.
    pub job_id: JobId,
    /// How often it has failed for good.
    pub failures: i32,
    /// The error's code.
    pub code: String,
    /// The error's message.
    pub message: String,
    /// The payload, as it was submitted.
    pub payload: Vec<u8>,
    /// Rows that were accepted and rejected before it failed; `None`: it had read none.
    pub rows: Option<(i64, i64)>,
    /// The data set that its rows were for, where it has come so far.
    pub dataset: Option<String>,
    /// The files that it has left.
    pub files: ImportFiles,
}

/// The files that an import leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default)]
pub struct ImportFiles {
    /// The report for programs.
    pub report: Option<FileId>,
    /// The report for people.
    pub html: Option<FileId>,
    /// The rejected rows.
    pub rejects: Option<FileId>,
}

/// A job that tells of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewsJob {
    /// The job type's name.
    pub job_type: &'static str,
    /// Its payload, as JSON.
    pub payload: Vec<u8>,
}

#[derive(sqlx::FromRow)]
struct Row {
    note_id: i64,
    job_id: Uuid,
    failures: i32,
    error_code: String,
    error_message: String,
    /// Null: the letter is gone, and nobody can be told.
    user_id: Option<String>,
    payload: Option<Vec<u8>>,
    rows_accepted: Option<i64>,
    rows_rejected: Option<i64>,
    dataset: Option<String>,
    files: Option<Json<ImportFiles>>,
}

impl Row {
    fn failed(self) -> Option<FailedImport> {
        self.user_id?;
        Some(FailedImport {
            job_id: JobId(self.job_id),
            failures: self.failures,
            code: self.error_code,
            message: self.error_message,
            payload: self.payload.unwrap_or_default(),
            rows: self.rows_accepted.zip(self.rows_rejected),
            dataset: self.dataset,
            files: self.files.map(|files| files.0).unwrap_or_default(),
        })
    }
}

/// Makes the jobs that tell of up to `limit` failed imports, as `news` has them; answers how
/// many notes were looked at. Where a job type is not in the catalogue, nobody is told by it.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin; nothing has changed then.
pub async fn tell_failed(
    store: &Store,
    limit: i64,
    news: impl Fn(&FailedImport) -> Vec<NewsJob> + Send,
) -> Result<i64> {
    let mut tx = store.pool().begin().await.map_err(db_error)?;
    let rows: Vec<Row> = sqlx::query_as(DUE)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await
        .map_err(db_error)?;
    if rows.is_empty() {
        tx.rollback().await.map_err(db_error)?;
        return Ok(0);
    }
    let notes: Vec<i64> = rows.iter().map(|row| row.note_id).collect();
    let (mut ids, mut types, mut payloads, mut parents) = (vec![], vec![], vec![], vec![]);
    for failed in rows.into_iter().filter_map(Row::failed) {
        for job in news(&failed) {
            ids.push(JobId::new().uuid());
            types.push(job.job_type);
            payloads.push(job.payload);
            parents.push(failed.job_id.uuid());
        }
    }
    let (told, _): (i64, i64) = sqlx::query_as(TOLD)
        .bind(&notes)
        .bind(&ids)
        .bind(&types)
        .bind(&payloads)
        .bind(&parents)
        .fetch_one(&mut *tx)
        .await
        .map_err(db_error)?;
    tx.commit().await.map_err(db_error)?;
    Ok(told)
}
