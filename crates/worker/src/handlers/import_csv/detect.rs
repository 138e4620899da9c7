//! What stands between fields and around them, where it is not declared: found from the
//! first records.

use tenure_core::error::Code;

use super::payload::{Delimiter, Payload, Quote, key, shown};
use super::reader::{Reader, Record};
use crate::handler::JobError;

/// Records that are tried to find the delimiter, the header included.
const PROBE: usize = 10;

/// Records that are tried to find the quote.
const QUOTE_PROBE: usize = 100;

/// The beginning of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample<'s> {
    /// The text.
    pub(crate) text: &'s [u8],
    /// Whether it is all of it.
    pub(crate) whole: bool,
}

impl<'s> Sample<'s> {
    /// The first record.
    pub(crate) fn first<'r>(self, reader: &'r mut Reader) -> Option<Record<'r>>
    where
        's: 'r,
    {
        let mut text = self.text;
        // Asked twice, since a borrowed answer cannot be returned from one branch only.
        if reader.next(&mut text).is_some() {
            Some(reader.current())
        } else if self.whole {
            reader.finish()
        } else {
            None
        }
    }
}

/// What was declared or found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// What stands between fields.
    pub(crate) delimiter: u8,
    /// What stands around them; never [`Quote::Auto`].
    pub(crate) quote: Quote,
}

/// A first line that says what stands between fields, as spreadsheets write and read it:
/// `sep=;`. It is no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Separator {
    /// What it says.
    pub(crate) delimiter: u8,
    /// The bytes that it takes, with its line end.
    pub(crate) bytes: usize,
}

impl Separator {
    /// Finds it at the beginning of a text.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        const WORD: &[u8] = b"sep=";
        let line = text.split(|b| matches!(b, b'\r' | b'\n')).next()?;
        let bare = line
            .strip_prefix(b"\"")
            .and_then(|rest| rest.strip_suffix(b"\""))
            .unwrap_or(line);
        let (word, mark) = bare.split_at_checked(WORD.len())?;
        let mark = std::str::from_utf8(mark).ok()?;
        let single = mark.len() == 1 && word.eq_ignore_ascii_case(WORD);
        let Ok(Delimiter::Is(delimiter)) = Delimiter::try_from(mark.to_owned()) else {
            return None;
        };
        let end = match &text[line.len()..] {
            [b'\r', b'\n', ..] => 2,
            [_, ..] => 1,
            [] => 0,
        };
        single.then_some(Self {
            delimiter,
            bytes: line.len() + end,
        })
    }
}

/// Finds what is not `declared`.
///
/// # Errors
/// Permanent `CSV_NO_DELIMITER`.
pub(crate) fn detect(
    payload: &Payload,
    declared: Delimiter,
    sample: Sample<'_>,
    warnings: &mut Vec<String>,
) -> Result<Found, JobError> {
    let with = |quote: Quote| {
        let delimiter = match declared {
            Delimiter::Is(delimiter) => delimiter,
            Delimiter::Auto => delimiter(payload, sample, quote.byte())?,
        };
        Ok(Found { delimiter, quote })
    };
    match payload.quote {
        quote @ (Quote::Double | Quote::Single | Quote::None) => with(quote),
        Quote::Auto => {
            let double = with(Quote::Double);
            if let Ok(found) = double
                && any_begins_with_quote(sample, found)
            {
                return double;
            }
            if let Ok(single) = with(Quote::Single)
                && let Some(column) = enclosed(sample, single, payload.header)
            {
                warnings.push(format!(
                    "each value in column {} stands in single quotes, so ' was taken for the quote; \
                     if it belongs to the values, give `quote` as \" or none",
                    column + 1
                ));
                return Ok(single);
            }
            double
        }
    }
}

/// Calls `look` with the fields of the first records as they stand in the file; whether
/// it found what it looked for.
fn records(
    sample: Sample<'_>,
    found: Found,
    mut look: impl FnMut(&Record<'_>, &[&str]) -> bool,
) -> bool {
    let mut reader = Reader::new(found.delimiter, found.quote.byte(), 0, 1);
    let mut text = sample.text;
    let mut judge = |record: &Record<'_>| {
        let original = record.original();
        look(record, &raw_fields(&original, found))
    };
    for _ in 0..QUOTE_PROBE {
        match reader.next(&mut text) {
            Some(record) => {
                if judge(&record) {
                    return true;
                }
            }
            None => return sample.whole && reader.finish().is_some_and(|record| judge(&record)),
        }
    }
    false
}

/// The fields of a record as they stand in the file.
fn raw_fields(record: &str, found: Found) -> Vec<&str> {
    let quote = found.quote.byte();
    let mut fields = Vec::new();
    let (mut start, mut quoted) = (0, false);
    for (at, byte) in record.bytes().enumerate() {
        if Some(byte) == quote && (quoted || at == start) {
            // A doubled one closes and opens again.
            quoted = !quoted;
        } else if Some(byte) == quote
            && at > start + 1
            && record.as_bytes()[start] == byte
            && record.as_bytes()[at - 1] == byte
        {
            quoted = true;
        } else if byte == found.delimiter && !quoted {
            fields.push(&record[start..at]);
            start = at + 1;
        }
    }
    fields.push(&record[start..]);
    fields
}

fn any_begins_with_quote(sample: Sample<'_>, found: Found) -> bool {
    records(sample, found, |_, fields| {
        fields.iter().any(|field| field.starts_with('"'))
    })
}

/// The first column (from 0) whose values all stand in single quotes; of a file without
/// values, whose name does.
fn enclosed(sample: Sample<'_>, found: Found, header: bool) -> Option<usize> {
    let mut names = Votes::default();
    let mut values = Votes::default();
    let mut number = 0;
    let flawed = records(sample, found, |record, fields| {
        number += 1;
        if header && number == 1 {
            names.count(fields);
        } else {
            values.count(fields);
        }
        record.flaw.is_some()
    });
    if flawed {
        return None;
    }
    if values.0.is_empty() {
        names.unanimous()
    } else {
        values.unanimous()
    }
}

/// Of each column: how many values stand in single quotes, and how many do not.
#[derive(Default)]
struct Votes(Vec<(usize, usize)>);

impl Votes {
    fn count(&mut self, fields: &[&str]) {
        for (column, field) in fields.iter().enumerate().filter(|(_, f)| !f.is_empty()) {
            if self.0.len() <= column {
                self.0.resize(column + 1, (0, 0));
            }
            if field.len() >= 2 && field.starts_with('\'') && field.ends_with('\'') {
                self.0[column].0 += 1;
            } else {
                self.0[column].1 += 1;
            }
        }
    }

    fn unanimous(&self) -> Option<usize> {
        self.0
            .iter()
            .position(|(enclosed, others)| *enclosed > 0 && *others == 0)
    }
}

/// Finds the delimiter: the one whose header has most of the declared columns (without a
/// header: with which the first record has as many fields), then the one with which most
/// of the next records have as many fields as the first, then the one with most fields.
fn delimiter(payload: &Payload, sample: Sample<'_>, quote: Option<u8>) -> Result<u8, JobError> {
    let declared = payload.columns.as_deref().unwrap_or_default();
    let wanted: Vec<String> = declared.iter().map(|column| key(column.source())).collect();
    let mut best: Option<((usize, usize, usize), u8)> = None;
    let mut single = None;
    for delimiter in *b",;\t|" {
        let mut reader = Reader::new(delimiter, quote, 0, 1);
        let Some(record) = sample.first(&mut reader) else {
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
        let found = if payload.header {
            wanted.iter().filter(|name| names.contains(*name)).count()
        } else {
            usize::from(width == declared.len())
        };
        let mut rest = &sample.text[(reader.offset() as usize).min(sample.text.len())..];
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
        (None, Some(name)) if payload.header && wanted.contains(&name) => Ok(b','),
        (None, Some(_)) if !payload.header && declared.len() == 1 => Ok(b','),
        (None, Some(name)) => Err(JobError::permanent(
            Code::CsvNoDelimiter.as_str(),
            format!(
                "no comma, semicolon, tab or '|' separates columns in the first line '{}'; \
                 for a file of one column give its `delimiter` or declare it in `columns`",
                shown(&name)
            ),
        )),
        // No record at all: said by the caller, with any delimiter.
        (None, None) => Ok(b','),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, more: &str) -> (char, Quote, usize) {
        let payload = format!(
            r#"{{"file_id": "{}"{more}}}"#,
            tenure_core::domain::ids::FileId::new()
        );
        let payload = Payload::parse(payload.as_bytes()).expect("a payload");
        let sample = Sample {
            text: text.as_bytes(),
            whole: true,
        };
        let mut warnings = Vec::new();
        let found =
            detect(&payload, payload.delimiter, sample, &mut warnings).expect("a delimiter");
        (char::from(found.delimiter), found.quote, warnings.len())
    }

    #[test]
    fn a_line_of_a_spreadsheet_says_the_delimiter() {
        for (text, delimiter, bytes) in [
            ("sep=;\na,b\n", b';', 6),
            ("SEP=,\r\na;b\n", b',', 7),
            ("\"sep=|\"\rx", b'|', 8),
            ("sep=\t\n", b'\t', 6),
            ("sep=;", b';', 5),
        ] {
            let found = Separator::of(text.as_bytes());
            assert_eq!(found, Some(Separator { delimiter, bytes }), "{text:?}");
        }
        for text in [
            "",
            "sep=",
            "sep=\n",
            "sep=;;\n",
            "sep=x\n",
            "sep=auto\n",
            "sep=;,b\n",
            " sep=;\n",
            "\nsep=;\n",
            "sep=\u{a7}\n",
        ] {
            assert_eq!(Separator::of(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn quotes() {
        let (double, single) = (Quote::Double, Quote::Single);
        for (text, more, expected) in [
            ("a,b\n1,2\n", "", (',', double, 0)),
            ("a,b\n1,'x, y'\n2,'it''s'\n", "", (',', single, 1)),
            ("'a';'b'\n'1,5';'2'\n", "", (';', single, 1)),
            // Empty values say nothing.
            ("a,b\n1,'x'\n2,\n", "", (',', single, 1)),
            // A value that is not enclosed, in each column.
            ("a,b\n1,'x'\n2,y\n", "", (',', double, 0)),
            ("a,b\n1,'tis\n2,'x'\n", "", (',', double, 0)),
            // A field in double quotes.
            ("a,b\n\"1\",'x'\n", "", (',', double, 0)),
            ("a,b\n1,'x'\n", r#","quote":"\"""#, (',', double, 0)),
            ("a,b\n1,x\n", r#","quote":"'""#, (',', single, 0)),
            (
                "a,b\n\"1\",x\n",
                r#","quote":"none""#,
                (',', Quote::None, 0),
            ),
            ("'a','b'\n", "", (',', single, 1)),
            ("'a','b'\nx,y\n", "", (',', double, 0)),
            ("'a','b'\n", r#","header":false"#, (',', single, 1)),
        ] {
            assert_eq!(found(text, more), expected, "{text} {more}");
        }
    }

    #[test]
    fn fields_as_they_stand() {
        let single = Found {
            delimiter: b',',
            quote: Quote::Single,
        };
        assert_eq!(
            raw_fields("'a,''b',,c'd,'e'", single),
            ["'a,''b'", "", "c'd", "'e'"]
        );
        assert_eq!(raw_fields("''',',x", single), ["''','", "x"]);
    }
}
