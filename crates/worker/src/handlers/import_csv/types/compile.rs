//! From a column's declaration to what judges its fields; so a mistake in it is told
//! before the first row.

use regex::{Regex, RegexBuilder};
use tenure_core::domain::ids::MAX_TEXT_BYTES;

use super::choice::Choice;
use super::number::{Bound, DecimalRule, Exact, FloatRule, IntegerRule, Mark, float, integer};
use super::text::Lengths;
use super::time::DateRule;
use super::zoned::TimestampRule;
use super::{ColumnType, Converter, Kind, Misfit, shown};
use crate::handlers::import_csv::payload::{Bound as PayloadBound, Column, check_nulls};

/// The most bytes that a compiled pattern may take, and its cache.
const PATTERN_BYTES: usize = 1024 * 1024;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 1_000;

/// The most values of an `enum`, and formats.
const MAX_VALUES: usize = 1_000;
const MAX_FORMATS: usize = 20;

/// What is wrong with a column: the option, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// The option in the column, such as `formats[0]`.
    pub(crate) option: String,
    /// What is wrong with it.
    pub(crate) why: String,
}

fn wrong(option: &str, why: impl Into<String>) -> Wrong {
    Wrong {
        option: option.to_owned(),
        why: why.into(),
    }
}

impl Converter {
    /// What the column says. `comma`: a comma may be a decimal mark.
    ///
    /// # Errors
    /// The option that is at fault.
    pub(crate) fn new(column: &Column, comma: bool) -> Result<Self, Wrong> {
        fitting(column)?;
        let trim = column.trim.unwrap_or(column.kind() != ColumnType::Text);
        let mut converter = Self {
            kind: kind(column, mark(column, comma)?, trim)?,
            trim,
            required: column.required,
            pattern: None,
            default: None,
            scale: None,
            nulls: column.null_values.clone().unwrap_or_default(),
        };
        check_nulls(&converter.nulls)
            .map_err(|why| wrong("null_values", why.trim_start_matches(": ")))?;
        if let Some(pattern) = &column.pattern {
            converter.pattern = Some(compiled(pattern)?);
        }
        if let Some(default) = &column.default {
            converter.default = Some(converter.made(default)?);
        }
        Ok(converter)
    }

    /// Refuses numbers that would lose digits where so many places behind the point are
    /// kept.
    ///
    /// # Errors
    /// The default is such a number.
    pub(crate) fn with_scale(mut self, scale: Option<i16>) -> Result<Self, Wrong> {
        self.scale = scale;
        if let Some(json) = &self.default {
            self.check_scale(json)
                .map_err(|misfit| wrong("default", misfit.message))?;
        }
        Ok(self)
    }

    /// The JSON of the default.
    fn made(&self, default: &str) -> Result<String, Wrong> {
        let text = if self.trim { default.trim() } else { default };
        if text.is_empty() && !matches!(self.kind, Kind::Text(_)) {
            return Err(wrong(
                "default",
                "is empty, as the field is that it should stand for",
            ));
        }
        if text.contains('\0') {
            return Err(wrong("default", "holds a NUL"));
        }
        let mut json = String::new();
        self.judge(text, &mut json).map_err(|misfit| {
            wrong(
                "default",
                format!("'{}' {}", shown(default), misfit.message),
            )
        })?;
        Ok(json)
    }
}

/// Refuses options that say nothing about the column's type.
fn fitting(column: &Column) -> Result<(), Wrong> {
    use ColumnType as Is;
    let kind = column.kind();
    let ranged = matches!(
        kind,
        Is::Integer | Is::Decimal | Is::Float | Is::Date | Is::Timestamp
    );
    let spelled = !matches!(kind, Is::Boolean | Is::Enum);
    let dated = matches!(kind, Is::Date | Is::Timestamp);
    let range = "integer, decimal, float, date and timestamp";
    for (option, given, fits, which) in [
        (
            "formats",
            !column.formats.is_empty(),
            dated,
            "date and timestamp",
        ),
        (
            "zone",
            column.zone.is_some(),
            kind == Is::Timestamp,
            "timestamp",
        ),
        (
            "decimal_mark",
            column.decimal_mark.is_some(),
            matches!(kind, Is::Decimal | Is::Float),
            "decimal and float",
        ),
        (
            "values",
            !column.values.is_empty(),
            kind == Is::Enum,
            "enum",
        ),
        (
            "pattern",
            column.pattern.is_some(),
            spelled,
            "all types but boolean and enum",
        ),
        ("min", column.min.is_some(), ranged, range),
        ("max", column.max.is_some(), ranged, range),
        (
            "min_length",
            column.min_length.is_some(),
            kind == Is::Text,
            "text",
        ),
        (
            "max_length",
            column.max_length.is_some(),
            kind == Is::Text,
            "text",
        ),
    ] {
        if given && !fits {
            return Err(wrong(
                option,
                format!("is for {which}; this column is of type {}", kind.name()),
            ));
        }
    }
    if column.unique && column.default.is_some() {
        return Err(wrong(
            "default",
            "would stand in more than one row of a column that is unique",
        ));
    }
    Ok(())
}

/// What stands before a number's fraction.
fn mark(column: &Column, comma: bool) -> Result<Mark, Wrong> {
    match column.decimal_mark.as_deref() {
        Some(".") => Ok(Mark::Dot),
        Some(",") => Ok(Mark::Comma),
        Some(_) => Err(wrong("decimal_mark", "must be \".\" or \",\"")),
        None if comma => Ok(Mark::Guessed),
        None => Ok(Mark::Dot),
    }
}

fn kind(column: &Column, mark: Mark, trim: bool) -> Result<Kind, Wrong> {
    let bound_mark = mark.of_bounds();
    Ok(match column.kind() {
        ColumnType::Text => {
            let lengths = Lengths {
                min: column.min_length.unwrap_or(0),
                max: column.max_length,
            };
            if lengths.max.is_some_and(|max| max < lengths.min) {
                return Err(wrong("min_length", "is more than max_length"));
            }
            Kind::Text(lengths)
        }
        ColumnType::Integer => {
            let (min, max) = bounds(column, integer)?;
            Kind::Integer(IntegerRule { min, max })
        }
        ColumnType::Decimal => {
            let (min, max) = bounds(column, |text| Exact::parse(text, bound_mark))?;
            Kind::Decimal(DecimalRule { mark, min, max })
        }
        ColumnType::Float => {
            let (min, max) = bounds(column, |text| float(text, bound_mark))?;
            Kind::Float(FloatRule { mark, min, max })
        }
        ColumnType::Date => {
            let formats = few("formats", &column.formats, MAX_FORMATS)?;
            let mut rule = DateRule::new(formats)
                .map_err(|(index, why)| wrong(&format!("formats[{index}]"), why))?;
            (rule.min, rule.max) = bounds(column, |text| rule.read(text))?;
            Kind::Date(rule)
        }
        ColumnType::Timestamp => {
            let formats = few("formats", &column.formats, MAX_FORMATS)?;
            let mut rule = TimestampRule::new(formats, column.zone.as_deref())
                .map_err(|(option, why)| wrong(&option, why))?;
            (rule.min, rule.max) = bounds(column, |text| rule.read(text))?;
            Kind::Timestamp(Box::new(rule))
        }
        ColumnType::Boolean => Kind::Boolean,
        ColumnType::Enum => Kind::Enum(choice(column, trim)?),
    })
}

fn few<'c>(option: &str, list: &'c [String], most: usize) -> Result<&'c [String], Wrong> {
    if list.len() > most {
        return Err(wrong(option, format!("at most {most} can be given")));
    }
    Ok(list)
}

fn choice(column: &Column, trim: bool) -> Result<Choice, Wrong> {
    let values = few("values", &column.values, MAX_VALUES)?;
    if values.is_empty() {
        return Err(wrong("values", "must list the values of an enum"));
    }
    let mut seen = std::collections::HashSet::new();
    for (index, value) in values.iter().enumerate() {
        let why = if value.is_empty() {
            "is empty; an empty field is null unless the column is required"
        } else if trim && value.trim() != value {
            "has blanks around it, which are dropped from the file's values; add \"trim\": false"
        } else if value.len() > MAX_TEXT_BYTES {
            "is longer than 255 bytes"
        } else if value.contains('\0') {
            "holds a NUL"
        } else if !seen.insert(value) {
            "is listed twice"
        } else {
            continue;
        };
        return Err(wrong(&format!("values[{index}]"), why));
    }
    Ok(Choice::new(values))
}

/// The least and the greatest value.
fn bounds<T: PartialOrd>(
    column: &Column,
    read: impl Fn(&str) -> Result<T, Misfit>,
) -> Result<(Bound<T>, Bound<T>), Wrong> {
    let bound = |option: &str, spelled: Option<&str>| -> Result<Bound<T>, Wrong> {
        let Some(spelled) = spelled.map(str::trim) else {
            return Ok(None);
        };
        let value = read(spelled)
            .map_err(|misfit| wrong(option, format!("'{}' {}", shown(spelled), misfit.message)))?;
        Ok(Some((value, shown(spelled))))
    };
    let min = bound("min", column.min.as_ref().map(PayloadBound::text))?;
    let max = bound("max", column.max.as_ref().map(PayloadBound::text))?;
    if let (Some((least, _)), Some((most, _))) = (&min, &max)
        && least > most
    {
        return Err(wrong("min", "is more than max"));
    }
    Ok((min, max))
}

/// A pattern for the whole of a value.
fn compiled(pattern: &str) -> Result<regex::Regex, Wrong> {
    if pattern.len() > MAX_PATTERN {
        return Err(wrong(
            "pattern",
            format!("is longer than {MAX_PATTERN} bytes"),
        ));
    }
    let build = |text: &str| {
        RegexBuilder::new(text)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES)
            .build()
            .map_err(|error| {
                let why = match error {
                    regex::Error::CompiledTooBig(_) => {
                        "it takes too much memory; use smaller repetitions, or [0-9] for \\d"
                            .to_owned()
                    }
                    // The last line says what; those before draw where.
                    error => error
                        .to_string()
                        .lines()
                        .last()
                        .unwrap_or_default()
                        .trim_start_matches("error: ")
                        .to_owned(),
                };
                wrong(
                    "pattern",
                    format!("'{}' cannot be used: {why}", shown(pattern)),
                )
            })
    };
    // Alone first: a bracket too many must not end the group around it.
    build(pattern)?;
    build(&format!("{WHOLE_START}{pattern}{WHOLE_END}"))
}

/// What is put around a declared pattern, so that it must match the whole value.
const WHOLE_START: &str = "\\A(?:";
const WHOLE_END: &str = ")\\z";

/// A compiled pattern as the schema declared it.
pub(super) fn declared(pattern: &Regex) -> &str {
    let whole = pattern.as_str();
    whole
        .strip_prefix(WHOLE_START)
        .and_then(|rest| rest.strip_suffix(WHOLE_END))
        .unwrap_or(whole)
}
