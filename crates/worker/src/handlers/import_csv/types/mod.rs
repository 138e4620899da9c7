//! The column types and their rules: from the text of a field to the JSON that is stored.
//!
//! Numbers keep their digits: only `float` goes through a binary one.

mod choice;
mod compile;
mod number;
#[cfg(test)]
mod tests;
mod text;
mod time;
mod zoned;

use std::borrow::Cow;

use regex::Regex;
use serde::{Deserialize, Serialize};
use tenure_core::error::clean_text;

use self::choice::Choice;
use self::number::{DecimalRule, FloatRule, IntegerRule, fits_scale};
use self::text::Lengths;
use self::time::DateRule;
use self::zoned::TimestampRule;

pub(crate) use self::compile::Wrong;
pub(crate) use self::number::plain_digits;
pub(crate) use self::text::push_string;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ColumnType {
    /// Any text, kept as it is.
    #[default]
    Text,
    /// A whole number that fits 64 bits.
    Integer,
    /// An exact decimal number, also in exponent form.
    Decimal,
    /// A binary floating-point number of 64 bits, finite.
    Float,
    /// A calendar date: 2024-05-31 or 2024/05/31, or in the column's formats.
    Date,
    /// A moment with its zone (RFC 3339, or in the column's formats), stored in UTC.
    Timestamp,
    /// true, false, yes, no, 1 or 0.
    Boolean,
    /// One of the column's values.
    Enum,
}

impl ColumnType {
    /// Its name in a payload.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Integer => "integer",
            Self::Decimal => "decimal",
            Self::Float => "float",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Boolean => "boolean",
            Self::Enum => "enum",
        }
    }
}

/// Why a field does not fit its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The stable reason of the reject.
    pub(crate) reason: &'static str,
    /// What is wrong or would be right; goes on behind the value.
    pub(crate) message: Cow<'static, str>,
}

const fn misfit(reason: &'static str, message: &'static str) -> Misfit {
    Misfit {
        reason,
        message: Cow::Borrowed(message),
    }
}

fn told(reason: &'static str, message: String) -> Misfit {
    Misfit {
        reason,
        message: Cow::Owned(message),
    }
}

/// The longest value that a pattern is matched against, in bytes: the time that it takes
/// grows with it.
const MAX_MATCHED: usize = 64 * 1024;

/// The column needs a value and has none.
pub(crate) const REQUIRED_MISSING: &str = "REQUIRED_MISSING";

const BAD_BOOLEAN: Misfit = misfit("BAD_BOOLEAN", "is not true, false, yes, no, 1 or 0");

/// Whether a field held a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// It was empty.
    Null,
    /// It was empty, and the column's default stands for it.
    Default,
    /// It held one.
    Present,
}

/// What a column makes of its fields.
#[derive(Debug)]
pub(crate) struct Converter {
    kind: Kind,
    trim: bool,
    required: bool,
    pattern: Option<Regex>,
    /// The JSON of the default.
    default: Option<String>,
    /// The places behind the point that the table keeps; `None`: all.
    scale: Option<i16>,
    /// Values that stand for an empty field.
    nulls: Vec<String>,
}

#[derive(Debug)]
enum Kind {
    Text(Lengths),
    Integer(IntegerRule),
    Decimal(DecimalRule),
    Float(FloatRule),
    Date(DateRule),
    Timestamp(Box<TimestampRule>),
    Boolean,
    Enum(Choice),
}

impl Converter {
    /// Appends the field's JSON to `out`. On an error what was appended is of no use.
    ///
    /// # Errors
    /// Why the row is rejected.
    pub(crate) fn convert(&self, field: &str, out: &mut String) -> Result<Value, Misfit> {
        let text = if self.trim { field.trim() } else { field };
        if text.is_empty() || self.stands_for_none(text) {
            return if let Some(json) = &self.default {
                out.push_str(json);
                Ok(Value::Default)
            } else if self.required {
                Err(misfit(REQUIRED_MISSING, "a value is required"))
            } else {
                out.push_str("null");
                Ok(Value::Null)
            };
        }
        self.judge(text, out)?;
        Ok(Value::Present)
    }

    /// Whatever the type, blanks around such a value are ignored.
    fn stands_for_none(&self, text: &str) -> bool {
        !self.nulls.is_empty() && self.nulls.iter().any(|null| null == text.trim())
    }

    fn judge(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        if self.pattern.is_some() && text.len() > MAX_MATCHED {
            return Err(told(
                "TOO_LONG",
                format!(
                    "takes {} bytes; a value in a column with a pattern may take {MAX_MATCHED}",
                    text.len()
                ),
            ));
        }
        let start = out.len();
        match &self.kind {
            Kind::Text(lengths) => {
                lengths.check(text)?;
                push_string(text, out);
            }
            Kind::Integer(rule) => rule.convert(text, out)?,
            Kind::Decimal(rule) => rule.convert(text, out)?,
            Kind::Float(rule) => rule.convert(text, out)?,
            Kind::Date(rule) => rule.convert(text, out)?,
            Kind::Timestamp(rule) => rule.convert(text, out)?,
            Kind::Boolean => out.push_str(if boolean(text)? { "true" } else { "false" }),
            Kind::Enum(choice) => choice.convert(text, out)?,
        }
        self.check_scale(&out[start..])?;
        match &self.pattern {
            Some(pattern) if !pattern.is_match(text) => Err(told(
                "PATTERN_MISMATCH",
                format!(
                    "does not match the column's pattern {}",
                    shown(compile::declared(pattern))
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Checks the JSON of a number against the table's places behind the point.
    fn check_scale(&self, json: &str) -> Result<(), Misfit> {
        match self.scale {
            Some(scale) if !fits_scale(json, scale) => Err(told(
                "TABLE_REFUSED",
                format!("has more digits than the table's column keeps ({scale} behind the point)"),
            )),
            _ => Ok(()),
        }
    }
}

/// A piece of what the user wrote, for a message.
fn shown(text: &str) -> String {
    clean_text(text, 60).replace(['\n', '\t'], " ")
}

/// Checks a value against the least and greatest, which are shown as they were written.
fn within<T: PartialOrd>(
    value: &T,
    min: Option<&(T, String)>,
    max: Option<&(T, String)>,
) -> Result<(), Misfit> {
    if let Some((least, spelled)) = min
        && value < least
    {
        return Err(told(
            "OUT_OF_RANGE",
            format!("is less than {spelled}, the least that is allowed"),
        ));
    }
    if let Some((most, spelled)) = max
        && value > most
    {
        return Err(told(
            "OUT_OF_RANGE",
            format!("is more than {spelled}, the most that is allowed"),
        ));
    }
    Ok(())
}

fn boolean(text: &str) -> Result<bool, Misfit> {
    let is = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["true", "yes", "1"]) {
        Ok(true)
    } else if is(["false", "no", "0"]) {
        Ok(false)
    } else {
        Err(BAD_BOOLEAN)
    }
}
