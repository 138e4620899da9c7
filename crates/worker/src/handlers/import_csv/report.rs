//! The report of an import: made from nothing but what the database holds, so that
//! making it again gives the same bytes.

use bytes::Bytes;
use chrono::SecondsFormat;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_core::domain::ids::{FileId, JobId};
use tenure_core::storage::imports::{Checkpoint, Reject};
use uuid::{Builder, Uuid};

use super::payload::Payload;
use super::plan::Plan;

/// The rejects in a report.
pub(crate) const REPORT_REJECTS: usize = 1_000;

/// The rejects in a job's result.
const RESULT_REJECTS: usize = 10;

/// The bytes that names of columns may take in a job's result, of 64 KiB in all.
const RESULT_NAMES: usize = 16 * 1024;

/// The report's file: always the same for one event, so that a repeated finish
/// leaves one report.
pub(crate) fn file_id(event_id: Uuid) -> FileId {
    let mut hash = Sha256::new();
    hash.update(b"tenure import report ");
    hash.update(event_id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    FileId(Builder::from_custom_bytes(bytes).into_uuid())
}

/// What an import has come to.
#[derive(Debug)]
pub(crate) struct Finished<'f> {
    /// The job.
    pub(crate) job_id: JobId,
    /// The size of the file in bytes.
    pub(crate) bytes: i64,
    /// What was asked.
    pub(crate) payload: &'f Payload,
    /// What was decided.
    pub(crate) plan: &'f Plan,
    /// What was written, and when last.
    pub(crate) checkpoint: &'f Checkpoint,
    /// The first rejects, up to [`REPORT_REJECTS`].
    pub(crate) rejects: &'f [Reject],
}

impl Finished<'_> {
    /// The report's content.
    pub(crate) fn report(&self) -> Bytes {
        let position = &self.checkpoint.position;
        let columns: Vec<&super::payload::Column> =
            self.plan.columns.iter().map(|(_, column)| column).collect();
        let rejects: Vec<Value> = self
            .rejects
            .iter()
            .map(|reject| entry(reject, true))
            .collect();
        let left_out = position.rows_rejected - rejects.len() as i64;
        let took = self.checkpoint.updated_at - self.plan.started_at;
        let note = (left_out > 0).then(|| {
            format!(
                "{left_out} more rejected rows are not listed; the first {} are",
                rejects.len()
            )
        });
        let report = json!({
            "report": "import_csv/1",
            "job_id": self.job_id.to_string(),
            "file_id": self.payload.file_id.to_string(),
            "dataset": self.payload.dataset,
            "bytes": self.bytes,
            "delimiter": self.plan.delimiter,
            "columns": columns,
            "warnings": self.plan.warnings,
            "rows_accepted": position.rows_accepted,
            "rows_rejected": position.rows_rejected,
            "batches": position.batch_no,
            "started_at": self.plan.started_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            "finished_at": self.checkpoint.updated_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            "duration_ms": took.num_milliseconds().max(0),
            "rejects": rejects,
            "rejects_note": note,
        });
        let mut text = format!("{report:#}");
        text.push('\n');
        Bytes::from(text)
    }

    /// The job's result.
    pub(crate) fn result(&self, report: FileId) -> Value {
        let position = &self.checkpoint.position;
        let mut room = RESULT_NAMES;
        let columns: Vec<&str> = self
            .plan
            .columns
            .iter()
            .map(|(_, column)| column.name.as_str())
            .take_while(|name| {
                // Escapes can double a name, or more.
                room = room.saturating_sub(6 * name.len() + 3);
                room > 0
            })
            .collect();
        let mut warnings = self.plan.warnings.clone();
        if columns.len() < self.plan.columns.len() {
            warnings.push(format!(
                "{} of {} columns are named here; the report has all",
                columns.len(),
                self.plan.columns.len()
            ));
        }
        let samples: Vec<Value> = self
            .rejects
            .iter()
            .take(RESULT_REJECTS)
            .map(|reject| entry(reject, false))
            .collect();
        json!({
            "rows_accepted": position.rows_accepted,
            "rows_rejected": position.rows_rejected,
            "bytes": self.bytes,
            "delimiter": self.plan.delimiter,
            "columns": columns,
            "report_file_id": report.to_string(),
            "reject_samples": samples,
            "warnings": warnings,
        })
    }

    /// The payload of the notification that follows.
    pub(crate) fn notification(&self, report: FileId) -> Value {
        let position = &self.checkpoint.position;
        json!({
            "template": "import_finished",
            "key": self.job_id.to_string(),
            "data": {
                "job_id": self.job_id.to_string(),
                "file_id": self.payload.file_id.to_string(),
                "dataset": self.payload.dataset,
                "rows_accepted": position.rows_accepted,
                "rows_rejected": position.rows_rejected,
                "report_file_id": report.to_string(),
            },
        })
    }
}

fn entry(reject: &Reject, with_value: bool) -> Value {
    let mut entry = json!({
        "line": reject.line,
        "column": reject.column,
        "reason": reject.reason,
        "message": reject.message,
    });
    if with_value {
        entry["value"] = json!(reject.value);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_has_one_report() {
        let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
        assert_eq!(file_id(one), file_id(one));
        assert_ne!(file_id(one), file_id(other));
        assert_ne!(file_id(one).uuid(), one);
        assert_eq!(
            file_id(one).to_string().parse::<FileId>().ok(),
            Some(file_id(one))
        );
    }
}
