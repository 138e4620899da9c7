//! What a bulk replay would take: counted up to a cap, changing nothing.

use uuid::Uuid;

use super::list::Scan;
use super::{DeadLetter, DeadLetterFilter, DeadLetterRow, Order, columns, last_error};
use crate::domain::job::LastError;
use crate::error::Result;
use crate::storage::{Store, db_error};

const CAUSES: &str = "select cause_id, job_type, error_code, error_class, error_message, matching, not_replayable from ( \
     select distinct on (cause_id) cause_id, coalesce(job_type, '') as job_type, error_code, error_class, error_message, \
     count(*) over w as matching, sum(barred) over w as not_replayable from ( \
     select d.id, coalesce(d.cause_id, tenure_cause(queue_name, d.job_type, error_code, error_message)) as cause_id, \
     d.job_type, error_code, error_class, error_message, (not d.replayable or j.job_id is null)::int as barred \
     from dead_letters d left join jobs j on j.job_id = d.job_id and j.status = 'failed' where d.id = any($1)) l \
     window w as (partition by cause_id) order by cause_id, id) c order by matching desc, cause_id";
const SAMPLES: &str = concat!(
    "select ",
    columns!(),
    ", null::bytea as payload from dead_letters d where id = any($1) order by last_failed_at, id"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("bulk_preview_causes", CAUSES),
    ("bulk_preview_samples", SAMPLES),
];

/// What is counted at most.
pub const PREVIEW_CAP: u32 = 10_000;

/// The letters that a count looks at, at most.
const EXAMINED: i64 = 200_000;

/// The causes that are told.
const CAUSES_TOLD: usize = 20;

/// The letters that are shown.
const SAMPLES_SHOWN: usize = 5;

/// How many letters of a cause match.
#[derive(Clone, Debug)]
pub struct CauseCount {
    /// The cause.
    pub id: Uuid,
    /// The job type; empty for messages that could not be read.
    pub job_type: String,
    /// The error of one of the letters.
    pub error: LastError,
    /// How many.
    pub matching: i64,
}

/// What a bulk replay would take now.
#[derive(Clone, Debug)]
pub struct BulkPreview {
    /// Letters that match, as far as they were counted.
    pub matching: i64,
    /// A count that equals it means "at least".
    pub cap: i64,
    /// Of these, letters that cannot be replayed.
    pub not_replayable: i64,
    /// The causes among them, most letters first.
    pub causes: Vec<CauseCount>,
    /// Some of the letters, the oldest failures.
    pub samples: Vec<DeadLetter>,
}

type CauseRow = (Uuid, String, String, String, Option<String>, i64, i64);

impl Store {
    /// What a bulk replay with this filter would take now.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn preview_bulk_replay(&self, filter: &DeadLetterFilter) -> Result<BulkPreview> {
        self.freshen_causes().await?;
        let (ids, cap) = self.matching(filter).await?;
        let rows: Vec<CauseRow> = sqlx::query_as(CAUSES)
            .bind(&ids)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let samples: Vec<DeadLetterRow> = sqlx::query_as(SAMPLES)
            .bind(&ids[..ids.len().min(SAMPLES_SHOWN)])
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        Ok(BulkPreview {
            matching: ids.len() as i64,
            cap,
            not_replayable: rows.iter().map(|row| row.6).sum(),
            causes: rows
                .into_iter()
                .take(CAUSES_TOLD)
                .map(
                    |(id, job_type, code, class, message, matching, _)| CauseCount {
                        id,
                        job_type,
                        error: last_error(code, &class, message),
                        matching,
                    },
                )
                .collect(),
            samples: samples
                .into_iter()
                .map(DeadLetterRow::into_letter)
                .collect::<Result<_>>()?,
        })
    }

    /// The open letters that match, the oldest first, and the number that means "at least".
    pub(super) async fn matching(&self, filter: &DeadLetterFilter) -> Result<(Vec<Uuid>, i64)> {
        let scan = Scan {
            filter: &filter.open(),
            order: Order::OldestFirst,
            after: None,
            limit: PREVIEW_CAP,
            examined: EXAMINED,
        };
        let mut connection = self.pool().acquire().await.map_err(db_error)?;
        let (keys, next) = scan.keys(&mut connection).await.map_err(db_error)?;
        let cap = if next.is_some() {
            keys.len() as i64
        } else {
            i64::from(PREVIEW_CAP)
        };
        Ok((keys.iter().map(|key| key.id.uuid()).collect(), cap))
    }
}
