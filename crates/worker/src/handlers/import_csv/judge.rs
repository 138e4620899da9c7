//! The verdict over a record: a row's JSON, or why it is rejected.

use sha2::{Digest, Sha256};
use tenure_core::error::{Code, clean_text};
use tenure_core::storage::imports::{Reject, UniqueValue};

use super::payload::{Column, counted};
use super::plan::Plan;
use super::reader::{Flaw, MAX_FIELD, MAX_RECORD, Record};
use super::types::{ColumnType, Converter, REQUIRED_MISSING, Value, plain_digits, push_string};
use crate::handler::JobError;

/// How much of a value is kept beside the row, in characters.
pub(crate) const VALUE_CHARS: usize = 200;

/// A row that is accepted, unless one of its values stands in another row.
#[derive(Debug)]
pub(crate) struct Row<'r> {
    /// What is stored.
    pub(crate) json: &'r str,
    /// Its values of `unique` columns.
    pub(crate) unique: Vec<UniqueValue>,
}

/// Judges the records of a file.
#[derive(Debug)]
pub(crate) struct Judge {
    header: Vec<String>,
    columns: Vec<Judged>,
    /// Their places, in the order in which PostgreSQL keeps the keys of a jsonb object
    /// (the shorter first, then by bytes): given so, it need not sort those of each row.
    key_order: Vec<usize>,
    /// The values of the record as JSON, one after the other, and where each ends.
    values: String,
    ends: Vec<usize>,
    json: String,
}

#[derive(Debug)]
struct Judged {
    field: usize,
    place: i16,
    column: Column,
    converter: Converter,
    /// Its name and a colon, as they stand in the row's JSON.
    key: String,
}

impl Judge {
    /// By the rules of a plan.
    ///
    /// # Errors
    /// Permanent `CSV_SCHEMA_INVALID`: see [`Plan::converters`].
    pub(crate) fn new(plan: &Plan) -> Result<Self, JobError> {
        let converters = plan.converters()?.into_iter();
        let columns = plan.columns.iter().zip(converters).enumerate();
        let judged = |(place, ((field, column), converter)): (usize, (&(usize, Column), _))| {
            let mut key = String::new();
            push_string(&column.name, &mut key);
            key.push(':');
            Judged {
                field: *field,
                place: place as i16,
                column: column.clone(),
                converter,
                key,
            }
        };
        let columns: Vec<Judged> = columns.map(judged).collect();
        let mut key_order: Vec<usize> = (0..columns.len()).collect();
        key_order.sort_by_key(|place| {
            let name = &columns[*place].column.name;
            (name.len(), name.as_bytes())
        });
        Ok(Self {
            header: plan.header.clone(),
            columns,
            key_order,
            values: String::new(),
            ends: Vec::new(),
            json: String::new(),
        })
    }

    /// The row, or why it is rejected; the outer error is the file's.
    pub(crate) fn row(
        &mut self,
        record: &Record<'_>,
    ) -> Result<Result<Row<'_>, Box<Reject>>, JobError> {
        if let Err(reject) = self.form(record) {
            return Ok(Err(reject));
        }
        let fields = record.text().map_err(|_| {
            // Checked before the first row: so the content was exchanged since.
            JobError::permanent(
                Code::CsvEncoding.as_str(),
                format!(
                    "line {}: the text is not UTF-8, and was before; upload the file again",
                    record.line
                ),
            )
        })?;
        let nul = record.has_nul();
        for buffer in [&mut self.json, &mut self.values] {
            buffer.clear();
            buffer.shrink_to(64 * 1024);
        }
        self.ends.clear();
        let mut unique = Vec::new();
        let mut fields = fields.enumerate();
        for judged in &self.columns {
            let field = fields.find(|(index, _)| *index == judged.field);
            let field = field.map(|(_, field)| field).unwrap_or_default();
            if nul && field.contains('\0') {
                let message = "the value holds a NUL byte, which cannot be stored".to_owned();
                return Ok(judged.refused(record, field, "NUL_BYTE", message));
            }
            let start = self.values.len();
            match judged.converter.convert(field, &mut self.values) {
                Ok(Value::Present) if judged.column.unique => {
                    unique.push(judged.unique(field, &self.values[start..]));
                }
                Ok(_) => {}
                Err(misfit) => {
                    let message = if misfit.reason == REQUIRED_MISSING {
                        misfit.message.into_owned()
                    } else {
                        format!("'{}' {}", clean_text(field.trim(), 60), misfit.message)
                    };
                    return Ok(judged.refused(record, field, misfit.reason, message));
                }
            }
            self.ends.push(self.values.len());
        }
        // The values alone may be too much, which need not be copied for that.
        if self.values.len() <= MAX_RECORD {
            self.assemble();
        }
        if self.values.len().max(self.json.len()) > MAX_RECORD {
            return Ok(refused(
                record,
                "",
                "FIELD_TOO_LONG",
                format!("the row takes more than {MAX_RECORD} bytes"),
            ));
        }
        Ok(Ok(Row {
            json: &self.json,
            unique,
        }))
    }

    /// Makes the row's JSON of its values.
    fn assemble(&mut self) {
        self.json.push('{');
        for place in &self.key_order {
            if self.json.len() > 1 {
                self.json.push(',');
            }
            let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.json.push_str(&self.columns[*place].key);
            self.json.push_str(&self.values[start..self.ends[*place]]);
        }
        self.json.push('}');
    }

    /// Checks what can be said without the values.
    fn form(&self, record: &Record<'_>) -> Result<(), Box<Reject>> {
        let name = |field: usize| self.header.get(field).map_or("", String::as_str);
        let width = self.header.len();
        match record.flaw {
            Some(Flaw::TooLong(field)) => refused(
                record,
                name(field),
                "FIELD_TOO_LONG",
                format!("a field may take {MAX_FIELD} bytes and a row {MAX_RECORD}"),
            ),
            Some(Flaw::TextAfterQuote(field)) => refused(
                record,
                name(field),
                "BAD_QUOTES",
                "the value goes on behind its closing quote; a quote within quotes is doubled".to_owned(),
            ),
            Some(Flaw::UnclosedQuote(field)) => refused(
                record,
                name(field),
                "UNCLOSED_QUOTE",
                "the quote is never closed; everything behind it, to the end of the file, was taken for its value"
                    .to_owned(),
            ),
            None if record.fields < width => refused(
                record,
                name(record.fields),
                "TOO_FEW_FIELDS",
                form_text(record.fields, width),
            ),
            None if record.fields > width => refused(
                record,
                "",
                "TOO_MANY_FIELDS",
                format!(
                    "{}; a value with the delimiter in it stands in quotes",
                    form_text(record.fields, width)
                ),
            ),
            None => Ok(()),
        }
    }
}

impl Judged {
    fn refused<T>(
        &self,
        record: &Record<'_>,
        field: &str,
        reason: &str,
        message: String,
    ) -> Result<T, Box<Reject>> {
        let value = (!field.is_empty()).then(|| clean_text(field, VALUE_CHARS));
        refused(record, &self.column.name, reason, message).map_err(|mut reject: Box<Reject>| {
            reject.value = value;
            reject
        })
    }

    fn unique(&self, field: &str, json: &str) -> UniqueValue {
        // 10.5 and 10.50 are one number, though they are stored as they were written.
        let plain = match self.column.kind() {
            ColumnType::Decimal => plain_digits(json),
            _ => None,
        };
        let digest: [u8; 32] = Sha256::digest(plain.as_deref().unwrap_or(json)).into();
        let mut beginning = [0; 16];
        beginning.copy_from_slice(&digest[..16]);
        UniqueValue {
            column_no: self.place,
            column: self.column.name.clone(),
            digest: beginning,
            shown: clean_text(field, VALUE_CHARS),
        }
    }
}

fn form_text(fields: usize, columns: usize) -> String {
    let are = if columns == 1 { "is" } else { "are" };
    format!(
        "the row has {}, and there {are} {}",
        counted(fields, "field"),
        counted(columns, "column")
    )
}

fn refused<T>(
    record: &Record<'_>,
    column: &str,
    reason: &str,
    message: String,
) -> Result<T, Box<Reject>> {
    Err(Box::new(Reject {
        line: record.line as i64,
        column: column.to_owned(),
        reason: reason.to_owned(),
        message,
        value: None,
        original: Some(record.original()),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::storage::imports::Position;

    use crate::handlers::import_csv::decode::tests::check;
    use crate::handlers::import_csv::files_test::{batches, payload, wishes};
    use crate::handlers::import_csv::plan::plan;

    #[test]
    fn keys_stand_in_the_order_in_which_postgresql_keeps_them() {
        // By their bytes as they are, and not as JSON escapes them: a quote is one.
        let text = "zz,\u{e9},b,\"a\"\"\",ab,\\,a\n1,2,3,4,5,6,7\n";
        let payload = payload(json!({"quote": "double"}));
        let checked = check(text.as_bytes(), wishes(&payload)).expect("a text");
        let planned = plan(&payload, &checked, chrono::Utc::now()).expect("a plan");
        let start = Position {
            byte_offset: planned.offset as i64,
            line_no: planned.line as i64,
            ..Position::default()
        };
        let batches = batches(&planned.plan, text.as_bytes(), wishes(&payload), start);
        let batches = batches.expect("a batch");
        let rows: Vec<_> = batches.iter().flat_map(|batch| batch.rows.iter()).collect();
        assert_eq!(
            rows,
            [(
                2,
                "{\"\\\\\":\"6\",\"a\":\"7\",\"b\":\"3\",\"a\\\"\":\"4\",\"ab\":\"5\",\"zz\":\"1\",\"\u{e9}\":\"2\"}"
            )]
        );
    }
}
