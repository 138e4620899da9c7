//! Turns bytes of the file into batches of rows and rejects, by the plan.

use bytes::{Buf, Bytes};
use tenure_core::domain::ids::JobId;
use tenure_core::error::{Code, clean_text};
use tenure_core::storage::imports::{Batch, Position, Reject, RowBatch};

use super::payload::Column;
use super::plan::Plan;
use super::reader::{Flaw, MAX_FIELD, MAX_RECORD, Reader, Record};
use super::types::{Value, push_string};
use crate::handler::JobError;

/// The most rows of a batch, rejects included.
pub(crate) const BATCH_ROWS: usize = 2_000;

/// A batch is closed when it holds this many bytes.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// How much of a bad value is kept, in characters.
const VALUE_CHARS: usize = 200;

/// Reads records and fills batches.
#[derive(Debug)]
pub(crate) struct Batcher {
    reader: Reader,
    rules: Rules,
    job_id: JobId,
    from: Position,
    now: Position,
    rows: RowBatch,
    rejects: Vec<Reject>,
    reject_bytes: usize,
}

impl Batcher {
    /// Goes on at a position.
    pub(crate) fn new(job_id: JobId, plan: &Plan, at: Position) -> Self {
        let delimiter = u8::try_from(plan.delimiter).unwrap_or(b',');
        Self {
            reader: Reader::new(delimiter, at.byte_offset as u64, at.line_no as u64),
            rules: Rules::new(plan),
            job_id,
            from: at,
            now: at,
            rows: RowBatch::new(job_id),
            rejects: Vec::new(),
            reject_bytes: 0,
        }
    }

    /// Reads on in `chunk` until a batch is full or the chunk is used up.
    ///
    /// # Errors
    /// Permanent `CSV_ENCODING` where the content is not what was checked before.
    pub(crate) fn feed(&mut self, chunk: &mut Bytes) -> Result<Option<Batch>, JobError> {
        loop {
            let mut input = &chunk[..];
            let before = input.len();
            let found = match self.reader.next(&mut input) {
                Some(record) => {
                    let row = self.rules.row(&record)?;
                    add(
                        &mut self.rows,
                        &mut self.rejects,
                        &mut self.reject_bytes,
                        &mut self.now,
                        &record,
                        row,
                    );
                    true
                }
                None => false,
            };
            let used = before - input.len();
            chunk.advance(used);
            if !found {
                return Ok(None);
            }
            if self.full() {
                return Ok(Some(self.close()));
            }
        }
    }

    /// The last batch, which brings the position to the end of the file; `None`: it
    /// is there already.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub(crate) fn finish(&mut self) -> Result<Option<Batch>, JobError> {
        if let Some(record) = self.reader.finish() {
            let row = self.rules.row(&record)?;
            add(
                &mut self.rows,
                &mut self.rejects,
                &mut self.reject_bytes,
                &mut self.now,
                &record,
                row,
            );
        }
        let moved = self.reader.offset() as i64 > self.from.byte_offset;
        Ok(moved.then(|| self.close()))
    }

    fn full(&self) -> bool {
        self.rows.len() + self.rejects.len() >= BATCH_ROWS
            || self.rows.bytes() + self.reject_bytes >= BATCH_BYTES
    }

    fn close(&mut self) -> Batch {
        self.now.byte_offset = self.reader.offset() as i64;
        self.now.line_no = self.reader.line() as i64;
        self.now.batch_no = self.from.batch_no + 1;
        let from = std::mem::replace(&mut self.from, self.now);
        self.reject_bytes = 0;
        Batch {
            from,
            to: self.now,
            rows: std::mem::replace(&mut self.rows, RowBatch::new(self.job_id)),
            rejects: std::mem::take(&mut self.rejects),
            candidates: Vec::new(),
        }
    }
}

fn add(
    rows: &mut RowBatch,
    rejects: &mut Vec<Reject>,
    reject_bytes: &mut usize,
    now: &mut Position,
    record: &Record<'_>,
    row: Result<&str, Reject>,
) {
    match row {
        Ok(json) => {
            rows.push(record.line as i64, json);
            now.rows_accepted += 1;
        }
        Err(reject) => {
            *reject_bytes += reject.column.len() + reject.message.len() + 4 * VALUE_CHARS;
            rejects.push(reject);
            now.rows_rejected += 1;
        }
    }
}

/// The verdict over a record.
#[derive(Debug)]
struct Rules {
    header: Vec<String>,
    columns: Vec<Rule>,
    decimal_comma: bool,
    json: String,
}

#[derive(Debug)]
struct Rule {
    field: usize,
    column: Column,
    /// What stands before the value in the row's JSON.
    before: String,
}

impl Rules {
    fn new(plan: &Plan) -> Self {
        let rule = |(place, (field, column)): (usize, &(usize, Column))| {
            let mut before = String::from(if place == 0 { "{" } else { "," });
            push_string(&column.name, &mut before);
            before.push(':');
            Rule {
                field: *field,
                column: column.clone(),
                before,
            }
        };
        Self {
            header: plan.header.clone(),
            columns: plan.columns.iter().enumerate().map(rule).collect(),
            decimal_comma: plan.decimal_comma,
            json: String::new(),
        }
    }

    /// The row's JSON, or why it is rejected; the outer error is the file's.
    fn row(&mut self, record: &Record<'_>) -> Result<Result<&str, Reject>, JobError> {
        if let Err(reject) = self.form(record) {
            return Ok(Err(reject));
        }
        let fields = record.text().map_err(|_| {
            // Checked before the first row: so the content was exchanged since.
            JobError::permanent(
                Code::CsvEncoding.as_str(),
                format!(
                    "line {}: the text is not UTF-8; save the file as UTF-8",
                    record.line
                ),
            )
        })?;
        self.json.clear();
        self.json.shrink_to(64 * 1024);
        let mut fields = fields.enumerate();
        for rule in &self.columns {
            let field = fields.find(|(index, _)| *index == rule.field);
            let field = field.map(|(_, field)| field).unwrap_or_default();
            if let Err((reason, message)) = convert(rule, field, self.decimal_comma, &mut self.json)
            {
                return Ok(Err(Reject {
                    line: record.line as i64,
                    column: rule.column.name.clone(),
                    reason: reason.to_owned(),
                    message,
                    value: (!field.is_empty()).then(|| clean_text(field, VALUE_CHARS)),
                    original: None,
                }));
            }
        }
        self.json.push('}');
        if self.json.len() > MAX_RECORD {
            return Ok(Err(reject(
                record,
                "",
                "FIELD_TOO_LONG",
                format!("the row takes more than {MAX_RECORD} bytes"),
            )));
        }
        Ok(Ok(&self.json))
    }

    /// Checks what can be said without the values.
    fn form(&self, record: &Record<'_>) -> Result<(), Reject> {
        let name = |field: usize| self.header.get(field).map_or("", String::as_str);
        let width = self.header.len();
        match record.flaw {
            Some(Flaw::TooLong(field)) => Err(reject(
                record,
                name(field),
                "FIELD_TOO_LONG",
                format!("a field may take {MAX_FIELD} bytes and a row {MAX_RECORD}"),
            )),
            Some(Flaw::TextAfterQuote(field)) => Err(reject(
                record,
                name(field),
                "BAD_QUOTES",
                "the value goes on behind its closing quote; a quote within quotes is doubled".to_owned(),
            )),
            Some(Flaw::UnclosedQuote(field)) => Err(reject(
                record,
                name(field),
                "UNCLOSED_QUOTE",
                "the quote is never closed; everything behind it, to the end of the file, was taken for its value"
                    .to_owned(),
            )),
            None if record.fields < width => Err(reject(
                record,
                name(record.fields),
                "TOO_FEW_FIELDS",
                format!("the row has {} fields, the header {width}", record.fields),
            )),
            None if record.fields > width => Err(reject(
                record,
                "",
                "TOO_MANY_FIELDS",
                format!("the row has {} fields, the header {width}", record.fields),
            )),
            None => Ok(()),
        }
    }
}

fn convert(
    rule: &Rule,
    field: &str,
    comma: bool,
    json: &mut String,
) -> Result<(), (&'static str, String)> {
    if field.as_bytes().contains(&0) {
        return Err(("NUL_BYTE", "the value holds a NUL byte".to_owned()));
    }
    json.push_str(&rule.before);
    match rule.column.kind.convert(field, comma, json) {
        Ok(Value::Null) if rule.column.required => {
            Err(("REQUIRED_MISSING", "a value is required".to_owned()))
        }
        Ok(_) => Ok(()),
        Err(misfit) => Err((
            misfit.reason,
            format!("'{}' {}", clean_text(field.trim(), 60), misfit.message),
        )),
    }
}

fn reject(record: &Record<'_>, column: &str, reason: &str, message: String) -> Reject {
    Reject {
        line: record.line as i64,
        column: column.to_owned(),
        reason: reason.to_owned(),
        message,
        value: None,
        original: None,
    }
}
