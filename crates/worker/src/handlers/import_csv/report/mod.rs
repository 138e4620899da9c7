//! The report of an import: made from nothing but what the database holds, so that
//! making it again gives the same bytes. What differs between two runs over the same file
//! is all in `timing`.

mod html;
mod rejects_csv;

use bytes::Bytes;
use chrono::SecondsFormat;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tenure_core::domain::ids::{FileId, JobId};
use tenure_core::storage::imports::{Checkpoint, Reject, RejectGroup};
use uuid::{Builder, Uuid};

use super::payload::{Column, Payload};
use super::plan::Plan;

pub(crate) use rejects_csv::RejectsCsv;

/// The rejects in a report.
pub(crate) const REPORT_REJECTS: usize = 1_000;

/// The groups of rejects in a report.
pub(crate) const REPORT_GROUPS: usize = 100;

/// The rejects in a job's result.
const RESULT_REJECTS: usize = 10;

/// The bytes that names of columns may take in a job's result, of 64 KiB in all.
const RESULT_NAMES: usize = 16 * 1024;

/// The files that an import leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The report for programs.
    Json,
    /// The report for people.
    Html,
    /// The rejected rows.
    Rejects,
}

impl Part {
    /// Its file: always the same for one event, so that a repeated end leaves one.
    pub(crate) fn file_id(self, event_id: Uuid) -> FileId {
        let mut hash = Sha256::new();
        hash.update(match self {
            Self::Json => &b"tenure import report "[..],
            Self::Html => b"tenure import report html ",
            Self::Rejects => b"tenure import rejects ",
        });
        hash.update(event_id.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        FileId(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Its name for people.
    pub(crate) fn name(self, job_id: JobId) -> String {
        match self {
            Self::Json => format!("import-{job_id}.json"),
            Self::Html => format!("import-{job_id}.html"),
            Self::Rejects => format!("import-{job_id}-rejects.csv"),
        }
    }

    /// Its media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Html => "text/html; charset=utf-8",
            Self::Rejects => "text/csv; charset=utf-8",
        }
    }
}

/// Where the rows of an import go, for people.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Home<'h> {
    /// To a data set.
    Dataset(&'h str),
    /// To a table.
    Table(&'h str),
}

/// What an import has come to.
#[derive(Debug)]
pub(crate) struct Finished<'f> {
    /// The job.
    pub(crate) job_id: JobId,
    /// The size of the file in bytes.
    pub(crate) bytes: i64,
    /// The name of the file.
    pub(crate) file_name: &'f str,
    /// Where the rows went.
    pub(crate) home: Home<'f>,
    /// What was asked.
    pub(crate) payload: &'f Payload,
    /// What was decided.
    pub(crate) plan: &'f Plan,
    /// What was written, and when last.
    pub(crate) checkpoint: &'f Checkpoint,
    /// The first rejects, up to [`REPORT_REJECTS`].
    pub(crate) rejects: &'f [Reject],
    /// How many there are by reason and column, up to [`REPORT_GROUPS`].
    pub(crate) groups: &'f [RejectGroup],
    /// Why the import fails; `None`: it does not.
    pub(crate) failure: Option<&'f str>,
    /// The event whose files these are.
    pub(crate) event_id: Uuid,
}

impl Finished<'_> {
    fn rows(&self) -> i64 {
        let position = &self.checkpoint.position;
        position.rows_accepted + position.rows_rejected
    }

    fn duration_ms(&self) -> i64 {
        let took = self.checkpoint.updated_at - self.plan.started_at;
        took.num_milliseconds().max(0)
    }

    fn rows_per_second(&self) -> i64 {
        self.rows().saturating_mul(1000) / self.duration_ms().max(1)
    }

    fn rejects_file_id(&self) -> Option<FileId> {
        let any = self.checkpoint.position.rows_rejected > 0;
        any.then(|| Part::Rejects.file_id(self.event_id))
    }

    fn columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.plan.columns.iter().map(|(_, column)| column)
    }

    /// What is the same in report, result and notification.
    fn summary(&self) -> Value {
        let position = &self.checkpoint.position;
        let mut summary = json!({
            "file_id": self.payload.file_id.to_string(),
            "validate_only": self.payload.validate_only,
            "rows_accepted": position.rows_accepted,
            "rows_rejected": position.rows_rejected,
        });
        match self.home {
            Home::Dataset(name) => {
                summary["dataset"] = json!(name);
                summary["mode"] = json!(self.payload.mode);
            }
            Home::Table(name) => {
                summary["table"] = json!(name);
                summary["mode"] = json!(self.payload.target.as_ref().map(|t| t.mode));
            }
        }
        summary
    }

    /// The report's content for programs.
    pub(crate) fn json(&self) -> Bytes {
        let position = &self.checkpoint.position;
        let rejects: Vec<Value> = self
            .rejects
            .iter()
            .map(|reject| entry(reject, true))
            .collect();
        let left_out = position.rows_rejected - rejects.len() as i64;
        let note = (left_out > 0).then(|| {
            format!(
                "{left_out} more rejected rows are not listed; the first {} are",
                rejects.len()
            )
        });
        let groups: Vec<Value> = self
            .groups
            .iter()
            .map(|g| json!({"reason": g.reason, "column": g.column, "rows": g.rejects}))
            .collect();
        let report = joined(
            self.summary(),
            json!({
                "report": "import_csv/2",
                "job_id": self.job_id.to_string(),
                "file_name": self.file_name,
                "failure": self.failure,
                "bytes": self.bytes,
                "encoding": self.plan.encoding,
                "compression": self.plan.compression,
                "delimiter": self.plan.delimiter,
                "quote": self.plan.quote,
                "columns": self.columns().collect::<Vec<_>>(),
                "warnings": self.plan.warnings,
                "rejects_by_reason": groups,
                "rejects": rejects,
                "rejects_note": note,
                "rejects_file_id": self.rejects_file_id().map(|id| id.to_string()),
                "timing": {
                    "started_at": self.plan.started_at.to_rfc3339_opts(SecondsFormat::Millis, true),
                    "finished_at": self.checkpoint.updated_at.to_rfc3339_opts(SecondsFormat::Millis, true),
                    "duration_ms": self.duration_ms(),
                    "rows_per_second": self.rows_per_second(),
                    "batches": position.batch_no,
                },
            }),
        );
        let mut text = format!("{report:#}");
        text.push('\n');
        Bytes::from(text)
    }

    /// The job's result.
    pub(crate) fn result(&self) -> Value {
        let mut room = RESULT_NAMES;
        let columns: Vec<&str> = self
            .columns()
            .map(|column| column.name.as_str())
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
        let result = json!({
            "bytes": self.bytes,
            "delimiter": self.plan.delimiter,
            "columns": columns,
            "duration_ms": self.duration_ms(),
            "rows_per_second": self.rows_per_second(),
            "reject_samples": samples,
            "warnings": warnings,
        });
        joined(joined(self.summary(), self.files()), result)
    }

    /// The ids of the files that there are.
    fn files(&self) -> Value {
        let mut files = json!({
            "report_file_id": Part::Json.file_id(self.event_id).to_string(),
            "report_html_file_id": Part::Html.file_id(self.event_id).to_string(),
        });
        if let Some(rejects) = self.rejects_file_id() {
            files["rejects_file_id"] = json!(rejects.to_string());
        }
        files
    }

    /// What is told of the end of the import.
    fn news(&self) -> Value {
        let job = json!({"job_id": self.job_id.to_string()});
        joined(joined(job, self.summary()), self.files())
    }

    /// The payload of the notification that follows.
    pub(crate) fn notification(&self) -> Value {
        json!({
            "template": "import_finished",
            "key": self.job_id.to_string(),
            "data": self.news(),
        })
    }

    /// The payload of the webhook that follows.
    pub(crate) fn webhook(&self, url: &str) -> Value {
        json!({"url": url, "event": "import.finished", "data": self.news()})
    }
}

/// The keys of both objects.
fn joined(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
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
#[path = "report_tests.rs"]
mod tests;
