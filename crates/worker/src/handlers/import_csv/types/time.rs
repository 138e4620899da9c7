//! Dates, and the formats of dates and timestamps.

use std::fmt::Write as _;

use chrono::format::{Item, Numeric, Pad, Parsed, StrftimeItems, parse};
use chrono::{DateTime, Datelike, FixedOffset, NaiveDate, NaiveTime};

use super::number::Bound;
use super::{Misfit, misfit, shown, told, within};

const BAD_DATE: Misfit = misfit("BAD_DATE", "is not a date such as 2024-05-31 or 2024/05/31");

/// A format in the notation of `strftime`.
#[derive(Debug)]
pub(super) struct Format {
    spelled: String,
    items: Vec<Item<'static>>,
    /// Whether it tells the year, which must be written with four digits.
    has_year: bool,
    /// Whether numbers stand without anything between them, so that a missing zero would
    /// shift the digits.
    touches: bool,
}

impl Format {
    /// Reads a format.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn new(spelled: &str) -> Result<Self, String> {
        let items = match StrftimeItems::new(spelled).parse_to_owned() {
            Ok(items) if !items.is_empty() => items,
            _ => {
                return Err(format!(
                    "'{}' is not a format; write it with %Y %m %d %H %M %S and the like",
                    shown(spelled)
                ));
            }
        };
        let numeric = |item: &Item<'_>| match item {
            Item::Numeric(number, pad) => Some((number.clone(), *pad)),
            _ => None,
        };
        let numbers: Vec<Option<(Numeric, Pad)>> = items.iter().map(numeric).collect();
        let has = |wanted: [Numeric; 2]| {
            numbers
                .iter()
                .flatten()
                .any(|(number, _)| wanted.contains(number))
        };
        if has([Numeric::YearMod100, Numeric::IsoYearMod100]) {
            return Err(format!(
                "'{}' tells a year by two digits, which leaves its century open; use %Y and years of four digits",
                shown(spelled)
            ));
        }
        let runs = |pair: &&[Option<(Numeric, Pad)>]| pair.iter().all(Option::is_some);
        if numbers
            .windows(2)
            .filter(runs)
            .any(|pair| matches!(pair[0], Some((_, Pad::None))))
        {
            return Err(format!(
                "'{}' has numbers that touch, and such need their leading zeros; leave the '-' out",
                shown(spelled)
            ));
        }
        Ok(Self {
            spelled: spelled.to_owned(),
            has_year: has([Numeric::Year, Numeric::IsoYear]),
            touches: numbers.windows(2).any(|pair| runs(&pair)),
            items,
        })
    }

    /// Whether the text says so without a digit missing: `24` is no year, and `2024115` is
    /// no date in `%Y%m%d`, though it can be read as one.
    pub(super) fn says(&self, text: &str, moment: DateTime<FixedOffset>) -> bool {
        let year = moment.year();
        if self.has_year && year < 1_000 && !text.contains(&format!("{year:04}")) {
            return false;
        }
        if !self.touches {
            return true;
        }
        let mut written = String::new();
        write!(written, "{}", moment.format_with_items(self.items.iter())).is_ok()
            && written.eq_ignore_ascii_case(text)
    }

    /// What the format finds in a text; `None`: the text is not in it.
    pub(super) fn parse(&self, text: &str) -> Option<Parsed> {
        let mut parsed = Parsed::new();
        parse(&mut parsed, text, self.items.iter())
            .ok()
            .map(|()| parsed)
    }

    /// What the format finds in its own writing of a moment; `None`: it cannot write it.
    pub(super) fn tried(&self) -> Option<(DateTime<FixedOffset>, Parsed)> {
        let moment = DateTime::parse_from_rfc3339("2013-02-24T16:05:07+05:30").ok()?;
        let mut text = String::new();
        write!(text, "{}", moment.format_with_items(self.items.iter())).ok()?;
        Some((moment, self.parse(&text)?))
    }

    /// Whether it is about nothing but a date.
    fn is_of_date(&self) -> bool {
        let date = NaiveDate::from_ymd_opt(2013, 2, 24).unwrap_or_default();
        let mut text = String::new();
        write!(text, "{}", date.format_with_items(self.items.iter())).is_ok()
    }
}

/// The formats, for a message.
pub(super) fn spelled(formats: &[Format]) -> String {
    let list: Vec<String> = formats
        .iter()
        .map(|format| format!("'{}'", shown(&format.spelled)))
        .collect();
    list.join(" or ")
}

/// A column of dates.
#[derive(Debug, Default)]
pub(super) struct DateRule {
    formats: Vec<Format>,
    pub(super) min: Bound<NaiveDate>,
    pub(super) max: Bound<NaiveDate>,
}

impl DateRule {
    /// A column with these formats; none: the usual ones.
    ///
    /// # Errors
    /// The format that is at fault, from 0, and a sentence.
    pub(super) fn new(formats: &[String]) -> Result<Self, (usize, String)> {
        let mut rule = Self::default();
        for (index, spelled) in formats.iter().enumerate() {
            let format = Format::new(spelled).map_err(|why| (index, why))?;
            let whole = format
                .tried()
                .is_some_and(|(moment, parsed)| parsed.to_naive_date() == Ok(moment.date_naive()));
            if !whole || !format.is_of_date() {
                return Err((
                    index,
                    format!(
                        "'{}' must tell year, month and day, and no time; such as %d.%m.%Y",
                        shown(spelled)
                    ),
                ));
            }
            rule.formats.push(format);
        }
        Ok(rule)
    }

    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        let date = self.read(text)?;
        within(&date, self.min.as_ref(), self.max.as_ref())?;
        if self.formats.is_empty() {
            // Its digits stand in the text as they are stored.
            for part in ["\"", &text[..4], "-", &text[5..7], "-", &text[8..], "\""] {
                out.push_str(part);
            }
        } else {
            let _ = write!(out, "\"{date}\"");
        }
        Ok(())
    }

    /// Reads a date.
    pub(super) fn read(&self, text: &str) -> Result<NaiveDate, Misfit> {
        if self.formats.is_empty() {
            return plain(text).ok_or(BAD_DATE);
        }
        self.formats
            .iter()
            .filter_map(|format| {
                let date = format.parse(text)?.to_naive_date().ok()?;
                let moment = date.and_time(NaiveTime::MIN).and_utc().fixed_offset();
                format.says(text, moment).then_some(date)
            })
            .find(|date| (1..=9_999).contains(&date.year()))
            .ok_or_else(|| {
                told(
                    "BAD_DATE",
                    format!("is not a date in the format {}", spelled(&self.formats)),
                )
            })
    }
}

/// 2024-05-31 or 2024/05/31.
fn plain(text: &str) -> Option<NaiveDate> {
    let bytes = text.as_bytes();
    let mark = *bytes.get(4).filter(|mark| b"-/".contains(mark))?;
    if bytes.len() != 10 || bytes[7] != mark {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        bytes[range].iter().try_fold(0, |n, b| {
            b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0'))
        })
    };
    let year = number(0..4)?;
    // PostgreSQL has no year 0.
    NaiveDate::from_ymd_opt(year as i32, number(5..7)?, number(8..10)?).filter(|_| year > 0)
}
