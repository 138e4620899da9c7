//! What an import decides once, before its first row: how the file is read, and which
//! field of a record is which column.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tenure_core::error::Code;

use super::decode::{Checked, Compression, HEAD};
use super::detect::{Found, Sample, Separator, detect};
use super::payload::{Column, Delimiter, Payload, Quote, counted, key, rule_message, shown};
use super::reader::{Flaw, MAX_COLUMNS, Reader, Record};
use super::types::Converter;
use crate::handler::JobError;

/// Told of a file whose numbers may have a decimal comma.
pub(crate) const DECIMAL_COMMA: &str = "the delimiter is ';', so a comma in a number is its decimal mark, and one like 1.234 is rejected; declare the column's `decimal_mark` to say otherwise";

/// The longest name of a column, in bytes.
const MAX_NAME: usize = 255;

/// The most bytes of all names and defaults: each row is stored with them.
const MAX_REPEATED: usize = 64 * 1024;

/// The decisions, as they are kept with the checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// What stands between fields.
    pub(crate) delimiter: char,
    /// What stands around fields.
    #[serde(default = "double")]
    pub(crate) quote: Quote,
    /// How the file is packed.
    #[serde(default)]
    pub(crate) compression: Compression,
    /// The name of the file's encoding.
    #[serde(default)]
    pub(crate) encoding: String,
    /// The length of the file's text in UTF-8, without a byte order mark. Offsets are
    /// offsets in that text.
    #[serde(default)]
    pub(crate) text_bytes: u64,
    /// The names in the header, in order; without a header, those of the columns.
    pub(crate) header: Vec<String>,
    /// The columns to import, in the header's order, and the field each is in.
    pub(crate) columns: Vec<(usize, Column)>,
    /// Whether a comma may be the decimal mark.
    pub(crate) decimal_comma: bool,
    /// The places behind the point that the table's column of each of `columns` keeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) scales: Vec<Option<i16>>,
    /// What the reader of the report should know.
    pub(crate) warnings: Vec<String>,
    /// When the import began.
    pub(crate) started_at: DateTime<Utc>,
}

fn double() -> Quote {
    Quote::Double
}

impl Plan {
    /// Where the text ends, as positions count.
    pub(crate) fn end(&self) -> i64 {
        self.text_bytes as i64
    }

    /// The columns, as they judge fields.
    ///
    /// # Errors
    /// Permanent `CSV_SCHEMA_INVALID`: the columns were checked when the plan was made,
    /// so this is a worker of another version.
    pub(crate) fn converters(&self) -> Result<Vec<Converter>, JobError> {
        let made = converters(&self.columns, None, self.decimal_comma)?.into_iter();
        made.enumerate()
            .map(|(place, converter)| {
                let scale = self.scales.get(place).copied().flatten();
                converter
                    .with_scale(scale)
                    .map_err(|wrong| refuse(Code::CsvSchemaInvalid, rule_message(place, &wrong)))
            })
            .collect()
    }
}

/// A plan, and where the rows begin.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan.
    pub(crate) plan: Plan,
    /// The offset of the first row in the text.
    pub(crate) offset: u64,
    /// The physical line of the first row.
    pub(crate) line: u64,
}

fn refuse(code: Code, message: impl Into<String>) -> JobError {
    JobError::permanent(code.as_str(), message)
}

/// Makes the plan from the beginning of the text.
///
/// # Errors
/// Permanent, with one of the `CSV_…` codes.
pub(crate) fn plan(
    payload: &Payload,
    checked: &Checked,
    now: DateTime<Utc>,
) -> Result<Planned, JobError> {
    let separator = Separator::of(&checked.head);
    let skipped = separator.map_or(0, |separator| separator.bytes);
    let first_line = if skipped > 0 { 2 } else { 1 };
    let sample = Sample {
        text: &checked.head[skipped..],
        whole: checked.head.len() as u64 == checked.text_bytes,
    };
    if sample.whole && sample.text.trim_ascii().is_empty() {
        return Err(refuse(
            Code::CsvEmpty,
            if payload.header {
                "the file is empty: not even a header line"
            } else {
                "the file is empty: not even one row"
            },
        ));
    }
    let mut warnings = checked.warnings.clone();
    let declared = match (payload.delimiter, separator) {
        (Delimiter::Auto, Some(separator)) => Delimiter::Is(separator.delimiter),
        (declared, _) => declared,
    };
    let Found { delimiter, quote } = detect(payload, declared, sample, &mut warnings)?;
    let start = skipped as u64;
    let mut reader = Reader::new(delimiter, quote.byte(), start, first_line);
    let Some(record) = sample.first(&mut reader) else {
        return Err(refuse(
            Code::CsvNotText,
            format!(
                "line {first_line}: no line ends within the first {HEAD} bytes; this is not a CSV file"
            ),
        ));
    };
    let declared = payload.columns.as_deref();
    let (header, columns) = if payload.header {
        let header = header(&record)?;
        let columns = match declared {
            Some(declared) => choose(declared, &header, &mut warnings)?,
            None => all(&header),
        };
        (header, columns)
    } else {
        numbered(&record, declared)?
    };
    let columns = with_nulls(columns, &payload.null_values);
    let repeated: usize = columns
        .iter()
        .map(|(_, c)| c.name.len() + c.default.as_ref().map_or(0, String::len))
        .sum();
    if repeated > MAX_REPEATED {
        return Err(refuse(
            Code::CsvSchemaInvalid,
            format!(
                "the names and defaults of the columns take {repeated} bytes; at most {MAX_REPEATED}, since each row is \
                 stored with them; declare fewer `columns`, or shorter names with `from`"
            ),
        ));
    }
    let (offset, line) = if payload.header {
        (reader.offset(), reader.line())
    } else {
        (start, first_line)
    };
    let decimals = columns.iter().any(|(_, column)| column.guesses_mark());
    let decimal_comma = delimiter == b';';
    if decimals && decimal_comma {
        warnings.push(DECIMAL_COMMA.to_owned());
    }
    converters(&columns, declared, decimal_comma)?;
    Ok(Planned {
        plan: Plan {
            delimiter: char::from(delimiter),
            quote,
            compression: checked.compression,
            encoding: checked.encoding.clone(),
            text_bytes: checked.text_bytes,
            header,
            columns,
            decimal_comma,
            scales: Vec::new(),
            warnings,
            started_at: now,
        },
        offset,
        line,
    })
}

/// Gives the payload's values for an empty field to columns that say nothing of them.
fn with_nulls(mut columns: Vec<(usize, Column)>, nulls: &[String]) -> Vec<(usize, Column)> {
    if !nulls.is_empty() {
        for (_, column) in &mut columns {
            column.null_values.get_or_insert_with(|| nulls.to_vec());
        }
    }
    columns
}

/// The columns, as they judge fields. What is wrong is told of their places in `declared`.
fn converters(
    columns: &[(usize, Column)],
    declared: Option<&[Column]>,
    comma: bool,
) -> Result<Vec<Converter>, JobError> {
    columns
        .iter()
        .enumerate()
        .map(|(place, (_, column))| {
            Converter::new(column, comma).map_err(|wrong| {
                let declared = declared.unwrap_or_default();
                let index = declared
                    .iter()
                    .position(|other| key(&other.name) == key(&column.name));
                refuse(
                    Code::CsvSchemaInvalid,
                    rule_message(index.unwrap_or(place), &wrong),
                )
            })
        })
        .collect()
}

type Columns = (Vec<String>, Vec<(usize, Column)>);

/// The columns of a file without a header: the fields of its first record, in their order.
fn numbered(record: &Record<'_>, declared: Option<&[Column]>) -> Result<Columns, JobError> {
    let fields = record.fields;
    if fields > MAX_COLUMNS {
        return Err(too_wide(record));
    }
    let line = record.line;
    // A record of the wrong form is rejected later, by itself.
    if let Some(declared) = declared
        && (record.flaw.is_none() && fields != declared.len())
    {
        return Err(refuse(
            Code::CsvSchemaInvalid,
            format!(
                "columns: {} declared, and line {line} of the file has {}; \
                 without a header each field needs its column",
                declared.len(),
                counted(fields, "field")
            ),
        ));
    }
    if declared.is_none() && record.flaw.is_some() {
        return Err(refuse(
            Code::CsvSchemaInvalid,
            format!(
                "line {line}: the quotes of the first row are wrong or a field is too long, so its fields cannot be counted; \
                 declare the `columns`, or mend the file"
            ),
        ));
    }
    let columns = if let Some(declared) = declared {
        declared.iter().map(trimmed).enumerate().collect()
    } else {
        let names: Vec<String> = (1..=fields).map(|n| format!("column_{n}")).collect();
        all(&names)
    };
    let header = columns
        .iter()
        .map(|(_, column): &(usize, Column)| column.name.clone())
        .collect();
    Ok((header, columns))
}

fn trimmed(column: &Column) -> Column {
    Column {
        name: column.name.trim().to_owned(),
        ..column.clone()
    }
}

fn too_wide(record: &Record<'_>) -> JobError {
    refuse(
        Code::CsvTooManyColumns,
        format!(
            "line {} has {} columns; at most {MAX_COLUMNS} are taken",
            record.line, record.fields
        ),
    )
}

/// The names in a header record.
fn header(record: &Record<'_>) -> Result<Vec<String>, JobError> {
    if record.fields > MAX_COLUMNS {
        return Err(too_wide(record));
    }
    let line = record.line;
    match record.flaw {
        None => {}
        Some(Flaw::TooLong(field)) => {
            return Err(refuse(
                Code::CsvSchemaInvalid,
                format!(
                    "line {line}: column {} of the header is too long",
                    field + 1
                ),
            ));
        }
        Some(Flaw::TextAfterQuote(field)) => {
            return Err(refuse(
                Code::CsvSchemaInvalid,
                format!(
                    "line {line}: column {} of the header goes on behind its closing quote",
                    field + 1
                ),
            ));
        }
        Some(Flaw::UnclosedQuote(field)) => {
            return Err(refuse(
                Code::CsvSchemaInvalid,
                format!(
                    "line {line}: the quote of column {} of the header is never closed",
                    field + 1
                ),
            ));
        }
    }
    let fields = record.text().map_err(|_| {
        refuse(
            Code::CsvEncoding,
            format!("line {line}: the header is not UTF-8; save the file as UTF-8"),
        )
    })?;
    let names: Vec<String> = fields.map(|name| name.trim().to_owned()).collect();
    let mut keys = std::collections::HashMap::new();
    for (index, name) in names.iter().enumerate() {
        let number = index + 1;
        if name.is_empty() {
            return Err(refuse(
                Code::CsvHeaderEmpty,
                format!("line {line}: column {number} of the header has no name"),
            ));
        }
        if name.len() > MAX_NAME || name.contains('\0') {
            return Err(refuse(
                Code::CsvSchemaInvalid,
                format!(
                    "line {line}: the name of column {number} is longer than {MAX_NAME} bytes or holds a NUL"
                ),
            ));
        }
        if let Some(first) = keys.insert(key(name), number) {
            return Err(refuse(
                Code::CsvHeaderDuplicate,
                format!(
                    "line {line}: columns {first} and {number} are both named '{}'",
                    shown(name)
                ),
            ));
        }
    }
    Ok(names)
}

fn all(header: &[String]) -> Vec<(usize, Column)> {
    let column = |name: &String| Column {
        name: name.clone(),
        ..Column::default()
    };
    header.iter().map(column).enumerate().collect()
}

/// Finds the declared columns in the header.
fn choose(
    declared: &[Column],
    header: &[String],
    warnings: &mut Vec<String>,
) -> Result<Vec<(usize, Column)>, JobError> {
    let places: std::collections::HashMap<String, usize> = header
        .iter()
        .enumerate()
        .map(|(index, name)| (key(name), index))
        .collect();
    let mut columns = Vec::with_capacity(declared.len());
    let mut missing = Vec::new();
    for column in declared {
        match places.get(&key(column.source())) {
            Some(index) => columns.push((*index, trimmed(column))),
            None => missing.push(column.source()),
        }
    }
    if !missing.is_empty() {
        return Err(refuse(
            Code::CsvColumnMissing,
            format!(
                "the file has no column {}; its header is {}",
                list(missing.iter().copied()),
                list(header.iter().map(String::as_str))
            ),
        ));
    }
    columns.sort_by_key(|(index, _)| *index);
    let used: std::collections::HashSet<usize> = columns.iter().map(|(index, _)| *index).collect();
    let ignored: Vec<&str> = header
        .iter()
        .enumerate()
        .filter(|(index, _)| !used.contains(index))
        .map(|(_, name)| name.as_str())
        .collect();
    if !ignored.is_empty() {
        let (are, were) = if ignored.len() == 1 {
            ("is", "was")
        } else {
            ("are", "were")
        };
        warnings.push(format!(
            "{} of the file {are} not declared and {were} ignored: {}",
            counted(ignored.len(), "column"),
            list(ignored.iter().copied())
        ));
    }
    Ok(columns)
}

/// Up to ten names in quotes.
fn list<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let more = names.len().saturating_sub(10);
    let mut text: Vec<String> = names
        .take(10)
        .map(|name| format!("'{}'", shown(name)))
        .collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}
