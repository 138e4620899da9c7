//! The column types: from the text of a field to the JSON that is stored.
//!
//! Numbers keep their digits: nothing here goes through a binary float.

use std::fmt::Write as _;

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// The most digits of a decimal, and the largest power of ten either way: the range
/// of a double, so that every reader of JSON can take the number in.
const MAX_DIGITS: usize = 1_000;
const MAX_POWER: i64 = 308;

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
    /// A calendar date: 2024-05-31 or 2024/05/31.
    Date,
    /// A moment with its zone (RFC 3339), stored in UTC.
    Timestamp,
    /// true, false, yes, no, 1 or 0.
    Boolean,
}

/// Why a field does not fit its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The stable reason of the reject.
    pub(crate) reason: &'static str,
    /// What would be right.
    pub(crate) message: &'static str,
}

const fn misfit(reason: &'static str, message: &'static str) -> Misfit {
    Misfit { reason, message }
}

const BAD_INTEGER: Misfit = misfit("BAD_INTEGER", "is not a whole number such as 42 or -7");
const INTEGER_RANGE: Misfit = misfit(
    "NUMBER_OUT_OF_RANGE",
    "does not fit 64 bits (-9223372036854775808 to 9223372036854775807)",
);
const BAD_DECIMAL: Misfit = misfit(
    "BAD_DECIMAL",
    "is not a number such as 10.50 or 1.5e3 (no thousands separators)",
);
const DECIMAL_RANGE: Misfit = misfit(
    "NUMBER_OUT_OF_RANGE",
    "is outside 1e-308 to 1e308 or has more than 1000 digits",
);
const BAD_DATE: Misfit = misfit("BAD_DATE", "is not a date such as 2024-05-31 or 2024/05/31");
const BAD_TIMESTAMP: Misfit = misfit(
    "BAD_TIMESTAMP",
    "is not a moment with its zone such as 2024-05-31T12:00:00Z",
);
const BAD_BOOLEAN: Misfit = misfit("BAD_BOOLEAN", "is not true, false, yes, no, 1 or 0");

impl ColumnType {
    /// Appends the field's JSON to `out`. An empty field is null; blanks around a
    /// value are ignored, except in text. On an error `out` is as it was.
    pub(crate) fn convert(
        self,
        field: &str,
        decimal_comma: bool,
        out: &mut String,
    ) -> Result<Value, Misfit> {
        let text = if self == Self::Text {
            field
        } else {
            field.trim()
        };
        if text.is_empty() {
            out.push_str("null");
            return Ok(Value::Null);
        }
        match self {
            Self::Text => push_string(text, out),
            Self::Integer => integer(text, out)?,
            Self::Decimal => decimal(text, decimal_comma, out)?,
            Self::Date => date(text, out)?,
            Self::Timestamp => timestamp(text, out)?,
            Self::Boolean => out.push_str(if boolean(text)? { "true" } else { "false" }),
        }
        Ok(Value::Present)
    }
}

/// Whether a field held a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// It was empty.
    Null,
    /// It held one.
    Present,
}

/// Appends a JSON string.
pub(crate) fn push_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    // Whole stretches at once: most fields need no escape.
    while let Some(at) = rest
        .bytes()
        .position(|b| b < 0x20 || b == b'"' || b == b'\\')
    {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        let byte = from.as_bytes()[0];
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = &from[1..];
    }
    out.push_str(rest);
    out.push('"');
}

fn integer(text: &str, out: &mut String) -> Result<(), Misfit> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BAD_INTEGER);
    }
    let number: i64 = text.parse().map_err(|_| INTEGER_RANGE)?;
    let _ = write!(out, "{number}");
    Ok(())
}

/// Checks a decimal and writes it in the spelling of JSON, digit by digit: a sign,
/// leading zeros and a bare point are tidied, trailing zeros are kept.
fn decimal(text: &str, comma: bool, out: &mut String) -> Result<(), Misfit> {
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(power(exponent)?)),
        None => (unsigned, None),
    };
    let point = if comma && !mantissa.contains('.') {
        ','
    } else {
        '.'
    };
    let (whole, fraction) = mantissa.split_once(point).unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(BAD_DECIMAL);
    }
    if !whole
        .bytes()
        .chain(fraction.bytes())
        .all(|b| b.is_ascii_digit())
    {
        return Err(BAD_DECIMAL);
    }
    let whole = whole.trim_start_matches('0');
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(DECIMAL_RANGE);
    }
    // The power of ten of the first digit that is not zero; none: the number is zero.
    let leading = if whole.is_empty() {
        fraction
            .bytes()
            .position(|b| b != b'0')
            .map(|zeros| -(zeros as i64) - 1)
    } else {
        Some(whole.len() as i64 - 1)
    };
    let exponent = match leading {
        Some(leading) => {
            let shift = exponent.unwrap_or(0);
            if leading.saturating_add(shift).abs() > MAX_POWER {
                return Err(DECIMAL_RANGE);
            }
            exponent
        }
        // Zero, whatever its exponent says.
        None => None,
    };
    if negative && leading.is_some() {
        out.push('-');
    }
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    if let Some(exponent) = exponent.filter(|exponent| *exponent != 0) {
        let _ = write!(out, "e{exponent}");
    }
    Ok(())
}

/// An exponent; one that is too large for any number is cut to a bound beyond the
/// range, so that a zero in front of it still counts as zero.
fn power(text: &str) -> Result<i64, Misfit> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(BAD_DECIMAL);
    }
    let bound = 1_000_000;
    let value = digits.parse::<i64>().unwrap_or(bound).min(bound);
    Ok(if text.starts_with('-') { -value } else { value })
}

fn date(text: &str, out: &mut String) -> Result<(), Misfit> {
    let bytes = text.as_bytes();
    let mark = bytes.get(4).copied().filter(|mark| b"-/".contains(mark));
    let shape = bytes.len() == 10
        && mark.is_some()
        && bytes.get(7).copied() == mark
        && [0, 1, 2, 3, 5, 6, 8, 9]
            .iter()
            .all(|at| bytes[*at].is_ascii_digit());
    if !shape {
        return Err(BAD_DATE);
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u32>().map_err(|_| BAD_DATE);
    let (year, month, day) = (part(0..4)?, part(5..7)?, part(8..10)?);
    // PostgreSQL has no year 0.
    let date = NaiveDate::from_ymd_opt(year as i32, month, day)
        .filter(|_| year > 0)
        .ok_or(BAD_DATE)?;
    let _ = write!(out, "\"{date}\"");
    Ok(())
}

fn timestamp(text: &str, out: &mut String) -> Result<(), Misfit> {
    let moment = DateTime::parse_from_rfc3339(text).map_err(|_| BAD_TIMESTAMP)?;
    let moment = moment
        .with_timezone(&Utc)
        .to_rfc3339_opts(SecondsFormat::AutoSi, true);
    if moment.len() < 20 || moment.starts_with(['-', '+']) || moment.starts_with("0000") {
        // The zone carried it out of the years 1 to 9999.
        return Err(BAD_TIMESTAMP);
    }
    let _ = write!(out, "\"{moment}\"");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(kind: ColumnType, text: &str) -> Result<String, &'static str> {
        let mut out = String::new();
        match kind.convert(text, false, &mut out) {
            Ok(_) => Ok(out),
            Err(misfit) => {
                assert_eq!(out, "", "{text}");
                Err(misfit.reason)
            }
        }
    }

    #[test]
    fn text_is_kept() {
        let text = ColumnType::Text;
        assert_eq!(convert(text, ""), Ok("null".into()));
        assert_eq!(convert(text, " a "), Ok("\" a \"".into()));
        for sample in [
            "a\"b\\c",
            "line\r\nend\ttab",
            "\u{1}\u{1f}",
            "Chloé 😀",
            "\u{7f}\u{2028}",
        ] {
            let json = convert(text, sample).expect("text");
            assert!(json.bytes().all(|b| b >= 0x20), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), sample);
        }
    }

    #[test]
    fn integers() {
        let integer = ColumnType::Integer;
        for (text, json) in [
            ("42", "42"),
            (" +7 ", "7"),
            ("-007", "-7"),
            ("-0", "0"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("", "null"),
        ] {
            assert_eq!(convert(integer, text), Ok(json.into()), "{text}");
        }
        for text in ["9223372036854775808", "-9223372036854775809"] {
            assert_eq!(convert(integer, text), Err("NUMBER_OUT_OF_RANGE"), "{text}");
        }
        for text in ["#1", "1.0", "1e3", "1,000", "--1", "+", "٣", "0x1f"] {
            assert_eq!(convert(integer, text), Err("BAD_INTEGER"), "{text}");
        }
    }

    #[test]
    fn decimals_keep_their_digits() {
        let decimal = ColumnType::Decimal;
        let long = format!("0.{}", "1".repeat(1000));
        for (text, json) in [
            ("10.50", "10.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-00.10", "-0.10"),
            ("+1.5E+3", "1.5e3"),
            ("1e308", "1e308"),
            ("-1e308", "-1e308"),
            ("9007199254740993.1", "9007199254740993.1"),
            ("-0", "0"),
            ("0e999999999999999999999", "0"),
            ("1e-308", "1e-308"),
            ("0.1e309", "0.1e309"),
            (long.as_str(), long.as_str()),
        ] {
            assert_eq!(convert(decimal, text), Ok(json.into()), "{text}");
            serde_json::from_str::<serde_json::Value>(json).expect("JSON");
        }
        for text in [
            "1e309",
            "10e308",
            "1e-309",
            "1e99999999999999999999",
            &format!("{long}1"),
        ] {
            assert_eq!(convert(decimal, text), Err("NUMBER_OUT_OF_RANGE"), "{text}");
        }
        for text in [
            "abc", "1,5", "1.2.3", "1e", "e5", ".", "NaN", "inf", "1 000", "1e1.5", "-",
        ] {
            assert_eq!(convert(decimal, text), Err("BAD_DECIMAL"), "{text}");
        }
    }

    #[test]
    fn a_decimal_comma_is_a_mark_and_never_dropped() {
        let convert = |text| {
            let mut out = String::new();
            ColumnType::Decimal
                .convert(text, true, &mut out)
                .map(|_| out)
        };
        assert_eq!(convert("10,50"), Ok("10.50".into()));
        assert_eq!(convert("10.50"), Ok("10.50".into()));
        for text in ["1.234,56", "1,234,567", ","] {
            assert_eq!(convert(text), Err(BAD_DECIMAL), "{text}");
        }
    }

    #[test]
    fn dates_timestamps_booleans() {
        for (text, json) in [
            ("2024-02-29", "\"2024-02-29\""),
            ("2012/01/31", "\"2012-01-31\""),
        ] {
            assert_eq!(convert(ColumnType::Date, text), Ok(json.into()));
        }
        for text in [
            "2023-02-29",
            "0000-01-01",
            "2024-1-1",
            "2024-01/01",
            "31.12.2024",
            "2024-01-0é",
        ] {
            assert_eq!(convert(ColumnType::Date, text), Err("BAD_DATE"), "{text}");
        }
        for (text, json) in [
            ("2013-01-01T10:00:00Z", "\"2013-01-01T10:00:00Z\""),
            (
                "2013-01-01T10:00:00.250+02:00",
                "\"2013-01-01T08:00:00.250Z\"",
            ),
        ] {
            assert_eq!(convert(ColumnType::Timestamp, text), Ok(json.into()));
        }
        for text in [
            "2013-01-01T10:00:00",
            "2013-01-01",
            "now",
            "9999-12-31T23:59:59-05:00",
        ] {
            assert_eq!(
                convert(ColumnType::Timestamp, text),
                Err("BAD_TIMESTAMP"),
                "{text}"
            );
        }
        for (text, json) in [
            ("TRUE", "true"),
            ("No", "false"),
            ("1", "true"),
            ("0", "false"),
            (" ", "null"),
        ] {
            assert_eq!(convert(ColumnType::Boolean, text), Ok(json.into()));
        }
        assert_eq!(convert(ColumnType::Boolean, "maybe"), Err("BAD_BOOLEAN"));
    }
}
