//! The payload of `import_csv`: what the caller wishes, checked for its form. What of it
//! fits the file is decided in [`super::plan`].

use serde::{Deserialize, Serialize};
use tenure_core::domain::ids::{FileId, check_text};
use tenure_core::error::{Code, clean_text};

use super::decode::Declared;
use super::reader::MAX_COLUMNS;
use super::types::{ColumnType, Converter, Wrong};
use crate::handler::JobError;

/// The most columns with a `pattern`: each takes memory.
const MAX_PATTERNS: usize = 32;

/// The most values that stand for an empty field.
const MAX_NULLS: usize = 16;

/// The payload of `import_csv`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    /// The uploaded file.
    pub(crate) file_id: FileId,
    /// The data set that the rows go to; absent: one with the file's name.
    #[serde(default)]
    pub(crate) dataset: Option<String>,
    /// What becomes of the rows that are in the data set already.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// A table that the rows go to instead of a data set.
    #[serde(default)]
    pub(crate) target: Option<Target>,
    /// Judge every row and report, and store none.
    #[serde(default)]
    pub(crate) validate_only: bool,
    /// The encoding: `auto` (UTF-8, or what a byte order mark says), or a name of the
    /// WHATWG Encoding Standard.
    #[serde(default)]
    pub(crate) encoding: Option<String>,
    /// What stands between fields.
    #[serde(default)]
    pub(crate) delimiter: Delimiter,
    /// What stands around fields.
    #[serde(default)]
    pub(crate) quote: Quote,
    /// Whether the first record has the names of the columns. Without, `columns` are the
    /// fields in their order, or they are named `column_1`, `column_2`, ….
    #[serde(default = "yes")]
    pub(crate) header: bool,
    /// The columns to import; absent: all of the file's, as text.
    #[serde(default)]
    pub(crate) columns: Option<Vec<Column>>,
    /// Values that stand for an empty field, such as `NA`, in columns that say nothing else.
    #[serde(default)]
    pub(crate) null_values: Vec<String>,
    /// The import fails when more rows than this are rejected. 0: at the first one.
    #[serde(default)]
    pub(crate) max_rejected_rows: Option<u64>,
    /// The import fails when more than this part of all rows is rejected, in percent.
    #[serde(default)]
    pub(crate) max_rejected_percent: Option<f64>,
    /// An address that is told of the success, or of the failure for good, by a job of its own.
    #[serde(default)]
    pub(crate) webhook: Option<String>,
}

fn yes() -> bool {
    true
}

/// What an import does to the rows that earlier imports brought into its data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// They stay.
    #[default]
    Append,
    /// They are replaced, all at once, when this import ends with success.
    Replace,
}

/// A table that rows are written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    /// Its name with its schema, such as `crm.contacts`.
    pub(crate) table: String,
    /// What happens to a row whose key is in the table already.
    #[serde(default)]
    pub(crate) mode: TargetMode,
    /// The columns of the table that make the key of an upsert.
    #[serde(default)]
    pub(crate) key: Vec<String>,
    /// Which column of the import goes to which of the table; absent: to that of its name.
    #[serde(default)]
    pub(crate) columns: std::collections::BTreeMap<String, String>,
}

/// How rows go into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetMode {
    /// As new rows; one whose key is there is rejected.
    #[default]
    Insert,
    /// A row whose key is there is changed.
    Upsert,
}

/// What stands between fields: one ASCII character, or the wish to find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Delimiter {
    /// Found from the first records, among `,` `;` tab and `|`.
    #[default]
    Auto,
    /// This one.
    Is(u8),
}

impl TryFrom<String> for Delimiter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(match text.as_str() {
            "auto" => Self::Auto,
            "comma" => Self::Is(b','),
            "semicolon" => Self::Is(b';'),
            "tab" => Self::Is(b'\t'),
            "pipe" => Self::Is(b'|'),
            _ => match text.as_bytes() {
                [byte]
                    if *byte == b'\t'
                        || (byte.is_ascii_graphic() && !byte.is_ascii_alphanumeric())
                            && !b"\"'.-+_".contains(byte) =>
                {
                    Self::Is(*byte)
                }
                _ => {
                    return Err(format!(
                        "delimiter: {:?} cannot separate fields; use `auto`, `,`, `;`, `tab`, `|` or another punctuation mark",
                        clean_text(&text, 20)
                    ));
                }
            },
        })
    }
}

/// What stands around a field that holds delimiters or line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Quote {
    /// Found from the first records: `"`, or `'` where only that one stands around fields.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// `"`.
    #[serde(rename = "\"", alias = "double")]
    Double,
    /// `'`.
    #[serde(rename = "'", alias = "single")]
    Single,
    /// Nothing: each quote is a character like any other.
    #[serde(rename = "none")]
    None,
}

impl Quote {
    /// The byte that stands around fields; `None`: nothing does.
    pub(crate) const fn byte(self) -> Option<u8> {
        match self {
            Self::Auto | Self::Double => Some(b'"'),
            Self::Single => Some(b'\''),
            Self::None => None,
        }
    }
}

/// A column as it is declared.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    /// Its name in what is stored.
    pub(crate) name: String,
    /// Its name in the header, where it is another one. Matched regardless of case and of
    /// blanks around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// What it holds; absent: text, or what the table's column holds.
    #[serde(rename = "type", default, serialize_with = "settled")]
    pub(crate) kind: Option<ColumnType>,
    /// Whether each row must have a value.
    #[serde(default)]
    pub(crate) required: bool,
    /// Whether a value may stand in one row of the file only.
    #[serde(default)]
    pub(crate) unique: bool,
    /// Whether blanks around a value are dropped; absent: not for text, always otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trim: Option<bool>,
    /// What an empty field stands for, written as in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<String>,
    /// Values that stand for an empty field; absent: those of the payload, `[]`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) null_values: Option<Vec<String>>,
    /// The formats of a date or timestamp that are tried in order, such as `%d.%m.%Y`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) formats: Vec<String>,
    /// The time zone of timestamps that name none, such as `Europe/Berlin`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
    /// What stands before the fraction of a decimal or float, `.` or `,`; absent: a dot, or
    /// where the delimiter is `;` either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decimal_mark: Option<String>,
    /// The values that are allowed (required for `enum`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<String>,
    /// A regular expression that the whole value must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pattern: Option<String>,
    /// The least value, a number or a text written as in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<Bound>,
    /// The greatest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Bound>,
    /// The least number of characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_length: Option<usize>,
    /// The greatest number of characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_length: Option<usize>,
}

/// A least or greatest value as it was written, digit by digit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Bound(String);

impl Bound {
    /// What was written.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Raw: a number must not go through a binary float on its way.
        let raw = Box::<serde_json::value::RawValue>::deserialize(from)?;
        let raw = raw.get();
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw)
                .map(Self)
                .map_err(serde::de::Error::custom),
            Some(b'-' | b'0'..=b'9') => Ok(Self(raw.to_owned())),
            _ => Err(serde::de::Error::custom(
                "min, max: must be a number or a text",
            )),
        }
    }
}

/// What was left open is text once it is written down.
#[allow(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it so"
)]
fn settled<S: serde::Serializer>(kind: &Option<ColumnType>, to: S) -> Result<S::Ok, S::Error> {
    kind.unwrap_or_default().serialize(to)
}

impl Column {
    /// What it holds.
    pub(crate) fn kind(&self) -> ColumnType {
        self.kind.unwrap_or_default()
    }

    /// Whether a comma may be its decimal mark without having been declared.
    pub(crate) fn guesses_mark(&self) -> bool {
        self.decimal_mark.is_none()
            && matches!(self.kind(), ColumnType::Decimal | ColumnType::Float)
    }

    /// The name that the header is searched for.
    pub(crate) fn source(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }
}

/// Two names are one column's if their keys are equal.
pub(crate) fn key(name: &str) -> String {
    name.trim().to_lowercase()
}

/// A number of things.
pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// A name for a message: printable and short.
pub(crate) fn shown(name: &str) -> String {
    clean_text(name, 60).replace(['\n', '\t'], " ")
}

impl Payload {
    /// Reads and checks a payload.
    ///
    /// # Errors
    /// Permanent: `PAYLOAD_INVALID`, `CSV_SCHEMA_INVALID`.
    pub(crate) fn parse(payload: &[u8]) -> Result<Self, JobError> {
        let payload: Self = crate::handler::parse_payload(payload)?;
        if let Some(dataset) = &payload.dataset {
            check_text(dataset).map_err(|why| JobError::payload(format!("dataset: {why}")))?;
            if payload.target.is_some() {
                return Err(JobError::payload(
                    "target: rows go to a table or to a dataset, not to both",
                ));
            }
        }
        if payload.target.is_some() && payload.mode == Mode::Replace {
            return Err(JobError::payload(
                "mode: `replace` is for data sets; a table's rows are changed by a `target` of the mode `upsert`",
            ));
        }
        if let Some(percent) = payload.max_rejected_percent
            && !(0.0..=100.0).contains(&percent)
        {
            return Err(JobError::payload("max_rejected_percent: must be 0 to 100"));
        }
        payload.declared_encoding()?;
        check_nulls(&payload.null_values)
            .map_err(|why| JobError::payload(format!("null_values{why}")))?;
        if let Some(columns) = &payload.columns {
            check_columns(columns)
                .and_then(|()| payload.check_rules(columns))
                .map_err(|why| JobError::permanent(Code::CsvSchemaInvalid.as_str(), why))?;
        }
        Ok(payload)
    }

    /// What is said about the encoding.
    ///
    /// # Errors
    /// Permanent `PAYLOAD_INVALID`.
    pub(crate) fn declared_encoding(&self) -> Result<Declared, JobError> {
        Declared::parse(self.encoding.as_deref()).map_err(JobError::payload)
    }

    /// Checks the rules of columns, as far as the file is not needed for it.
    fn check_rules(&self, columns: &[Column]) -> Result<(), String> {
        let patterns = columns.iter().filter(|column| column.pattern.is_some());
        if patterns.count() > MAX_PATTERNS {
            return Err(format!(
                "columns: at most {MAX_PATTERNS} can have a `pattern`"
            ));
        }
        for (index, column) in columns.iter().enumerate() {
            if !self.header && column.from.is_some() {
                return Err(format!(
                    "columns[{index}].from: there is no header to search; the columns are the fields in their order"
                ));
            }
            let judged = match self.delimiter {
                Delimiter::Is(delimiter) => Converter::new(column, delimiter == b';'),
                // A comma may yet turn out to be a decimal mark.
                Delimiter::Auto => Converter::new(column, false)
                    .or_else(|wrong| Converter::new(column, true).map_err(|_| wrong)),
            };
            judged.map_err(|wrong| rule_message(index, &wrong))?;
        }
        Ok(())
    }
}

/// Checks values that stand for an empty field; an error begins with the place.
pub(crate) fn check_nulls(values: &[String]) -> Result<(), String> {
    if values.len() > MAX_NULLS {
        return Err(format!(": at most {MAX_NULLS} can be given"));
    }
    for (index, value) in values.iter().enumerate() {
        check_text(value).map_err(|why| format!("[{index}]: {why}"))?;
        if value.trim() != value {
            return Err(format!(
                "[{index}]: has blanks around it, which are ignored in the file"
            ));
        }
    }
    Ok(())
}

/// What is wrong with a rule of the column at this place.
pub(crate) fn rule_message(index: usize, wrong: &Wrong) -> String {
    format!("columns[{index}].{}: {}", wrong.option, wrong.why)
}

fn check_columns(columns: &[Column]) -> Result<(), String> {
    if columns.is_empty() {
        return Err("columns: must name at least one column; leave it out to import all".into());
    }
    if columns.len() > MAX_COLUMNS {
        return Err(format!("columns: at most {MAX_COLUMNS} can be imported"));
    }
    let mut names = std::collections::HashMap::new();
    let mut sources = std::collections::HashMap::new();
    for (index, column) in columns.iter().enumerate() {
        for (field, name, seen) in [
            ("name", column.name.as_str(), &mut names),
            ("from", column.source(), &mut sources),
        ] {
            check_text(name.trim()).map_err(|why| format!("columns[{index}].{field}: {why}"))?;
            if let Some(first) = seen.insert(key(name), index) {
                return Err(format!(
                    "columns[{index}].{field}: '{}' is the same name as that of columns[{first}]",
                    shown(name)
                ));
            }
        }
    }
    Ok(())
}
