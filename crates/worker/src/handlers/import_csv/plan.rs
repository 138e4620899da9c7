//! What an import decides once, before its first row: the payload's wishes, the
//! delimiter, and which field of a record is which column.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tenure_core::error::Code;

use super::payload::{Column, Delimiter, Payload, key, shown};
use super::reader::{Flaw, MAX_COLUMNS, Reader, Record};
use super::text::BOM;
use super::types::ColumnType;
use crate::handler::JobError;

/// How much of the file the plan is made from; the header must end in it.
pub(crate) const HEAD: usize = 1024 * 1024;

/// The longest name of a column, in bytes.
const MAX_NAME: usize = 255;

/// Records that are tried to find the delimiter, the header included.
const PROBE: usize = 10;

/// The decisions, as they are kept with the checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// What stands between fields.
    pub(crate) delimiter: char,
    /// The names in the header, in order.
    pub(crate) header: Vec<String>,
    /// The columns to import, in the header's order, and the field each is in.
    pub(crate) columns: Vec<(usize, Column)>,
    /// Whether a comma may be the decimal mark.
    pub(crate) decimal_comma: bool,
    /// What the reader of the report should know.
    pub(crate) warnings: Vec<String>,
    /// When the import began.
    pub(crate) started_at: DateTime<Utc>,
}

/// A plan, and where the rows begin.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The plan.
    pub(crate) plan: Plan,
    /// The byte offset of the first row.
    pub(crate) offset: u64,
    /// The physical line of the first row.
    pub(crate) line: u64,
}

fn refuse(code: Code, message: impl Into<String>) -> JobError {
    JobError::permanent(code.as_str(), message)
}

/// Makes the plan from the beginning of the file (`whole`: all of it).
///
/// # Errors
/// Permanent, with one of the `CSV_…` codes.
pub(crate) fn plan(
    payload: &Payload,
    head: &[u8],
    whole: bool,
    now: DateTime<Utc>,
) -> Result<Planned, JobError> {
    let bom = if head.starts_with(BOM) { BOM.len() } else { 0 };
    let text = &head[bom..];
    let declared = payload.columns.as_deref();
    let delimiter = match payload.delimiter {
        Delimiter::Auto => detect(text, whole, declared)?,
        Delimiter::Is(delimiter) => delimiter,
    };
    let mut reader = Reader::new(delimiter, bom as u64, 1);
    let header = match first_record(&mut reader, text, whole) {
        Some(record) => header(&record)?,
        None if whole => {
            return Err(refuse(
                Code::CsvEmpty,
                "the file is empty: not even a header line",
            ));
        }
        None => {
            return Err(refuse(
                Code::CsvNotText,
                format!(
                    "line 1: no header line ends within the first {HEAD} bytes; this is not a CSV file"
                ),
            ));
        }
    };
    let mut warnings = Vec::new();
    let columns = match declared {
        Some(declared) => choose(declared, &header, &mut warnings)?,
        None => all(&header),
    };
    let decimals = columns
        .iter()
        .any(|(_, column)| column.kind == ColumnType::Decimal);
    let decimal_comma = delimiter == b';';
    if decimals && decimal_comma {
        warnings
            .push("the delimiter is ';', so a comma in a decimal is its decimal mark".to_owned());
    }
    Ok(Planned {
        plan: Plan {
            delimiter: char::from(delimiter),
            header,
            columns,
            decimal_comma,
            warnings,
            started_at: now,
        },
        offset: reader.offset(),
        line: reader.line(),
    })
}

fn first_record<'r>(reader: &'r mut Reader, mut text: &[u8], whole: bool) -> Option<Record<'r>> {
    // Asked twice, since a borrowed answer cannot be returned from one branch only.
    let found = reader.next(&mut text).is_some();
    if found {
        Some(reader.current())
    } else if whole {
        reader.finish()
    } else {
        None
    }
}

/// The names in a header record.
fn header(record: &Record<'_>) -> Result<Vec<String>, JobError> {
    if record.fields > MAX_COLUMNS {
        return Err(refuse(
            Code::CsvTooManyColumns,
            format!(
                "the header has {} columns; at most {MAX_COLUMNS} are taken",
                record.fields
            ),
        ));
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
            Some(index) => columns.push((
                *index,
                Column {
                    name: column.name.trim().to_owned(),
                    ..column.clone()
                },
            )),
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
        warnings.push(format!(
            "{} columns of the file are not declared and were ignored: {}",
            ignored.len(),
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

/// Finds the delimiter: the one whose header has most of the declared columns, then
/// the one with which most of the next records have as many fields as the header,
/// then the one with most fields.
fn detect(text: &[u8], whole: bool, declared: Option<&[Column]>) -> Result<u8, JobError> {
    let wanted: Vec<String> = declared
        .unwrap_or_default()
        .iter()
        .map(|c| key(c.source()))
        .collect();
    let mut best: Option<((usize, usize, usize), u8)> = None;
    let mut single = None;
    for delimiter in *b",;\t|" {
        let mut reader = Reader::new(delimiter, 0, 1);
        let Some(record) = first_record(&mut reader, text, whole) else {
            continue;
        };
        let width = record.fields;
        let names: std::collections::HashSet<String> = record
            .text()
            .map(|fields| fields.map(key).collect())
            .unwrap_or_default();
        if width == 1 {
            single = names.into_iter().next();
            continue;
        }
        let found = wanted.iter().filter(|name| names.contains(*name)).count();
        let mut rest = &text[(reader.offset() as usize).min(text.len())..];
        let mut alike = 0;
        for _ in 1..PROBE {
            match reader.next(&mut rest) {
                Some(record) if record.fields == width => alike += 1,
                Some(_) => {}
                None => break,
            }
        }
        let score = (found, alike, width);
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, delimiter));
        }
    }
    match (best, single) {
        (Some((_, delimiter)), _) => Ok(delimiter),
        // One column, and it is one that was asked for.
        (None, Some(name)) if wanted.contains(&name) => Ok(b','),
        (None, Some(name)) => Err(refuse(
            Code::CsvNoDelimiter,
            format!(
                "no comma, semicolon, tab or '|' separates columns in the header '{}'; \
                 for a file of one column give its `delimiter` or declare it in `columns`",
                shown(&name)
            ),
        )),
        // No header at all: said by the caller, with any delimiter.
        (None, None) => Ok(b','),
    }
}
