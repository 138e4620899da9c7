//! Moments.

use std::fmt::Write as _;

use chrono::format::Parsed;
use chrono::{
    DateTime, Datelike, FixedOffset, MappedLocalTime, NaiveDateTime, SecondsFormat, TimeZone, Utc,
};
use chrono_tz::Tz;

use super::number::Bound;
use super::time::{Format, spelled};
use super::{Misfit, misfit, shown, told, within};

const BAD_TIMESTAMP: Misfit = misfit(
    "BAD_TIMESTAMP",
    "is not a moment with its zone such as 2024-05-31T12:00:00Z",
);
const BAD_LOCAL: Misfit = misfit(
    "BAD_TIMESTAMP",
    "is not a moment such as 2024-05-31T12:00:00 or 2024-05-31T12:00:00Z",
);

/// The formats that are taken where the column has a zone and no formats.
const LOCAL: [&str; 4] = [
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d %H:%M",
];

/// A column of timestamps.
#[derive(Debug)]
pub(super) struct TimestampRule {
    /// Declared formats; none: RFC 3339, and `local` without a zone.
    formats: Vec<Format>,
    local: Vec<Format>,
    zone: Option<Tz>,
    pub(super) min: Bound<DateTime<Utc>>,
    pub(super) max: Bound<DateTime<Utc>>,
}

/// What is wrong with a rule: the option, and a sentence.
type Wrong = (String, String);

impl TimestampRule {
    /// A column with these formats (none: the usual ones) and this zone.
    pub(super) fn new(formats: &[String], zone: Option<&str>) -> Result<Self, Wrong> {
        let zone = match zone {
            Some(name) => Some(name.parse::<Tz>().map_err(|_| {
                (
                    "zone".to_owned(),
                    format!(
                        "'{}' is no time zone; use a name such as Europe/Berlin or UTC",
                        shown(name)
                    ),
                )
            })?),
            None => None,
        };
        let formats = formats
            .iter()
            .enumerate()
            .map(|(index, spelled)| {
                format(spelled, zone.is_some()).map_err(|why| (format!("formats[{index}]"), why))
            })
            .collect::<Result<Vec<Format>, Wrong>>()?;
        let local = LOCAL.map(Format::new).into_iter().flatten().collect();
        Ok(Self {
            formats,
            local,
            zone,
            min: None,
            max: None,
        })
    }

    pub(super) fn convert(&self, text: &str, out: &mut String) -> Result<(), Misfit> {
        let usual = self.formats.is_empty() && is_stored_form(text);
        if usual && self.min.is_none() && self.max.is_none() {
            out.push('"');
            out.push_str(text);
            out.push('"');
            return Ok(());
        }
        let moment = self.read(text)?;
        within(&moment, self.min.as_ref(), self.max.as_ref())?;
        let _ = write!(
            out,
            "\"{}\"",
            moment.to_rfc3339_opts(SecondsFormat::AutoSi, true)
        );
        Ok(())
    }

    /// Reads a moment.
    pub(super) fn read(&self, text: &str) -> Result<DateTime<Utc>, Misfit> {
        let moment = if self.formats.is_empty() {
            match DateTime::parse_from_rfc3339(text) {
                Ok(moment) => Some(Ok(moment.to_utc())),
                Err(_) => match self.zone {
                    Some(_) => self.first(&self.local, text),
                    None => None,
                },
            }
        } else {
            self.first(&self.formats, text)
        };
        match moment {
            // The zone may carry it out of the years that PostgreSQL and RFC 3339 share.
            Some(Ok(moment)) if (1..=9_999).contains(&moment.year()) => Ok(moment),
            Some(Err(misfit)) => Err(misfit),
            _ if !self.formats.is_empty() => Err(told(
                "BAD_TIMESTAMP",
                format!("is not a moment in the format {}", spelled(&self.formats)),
            )),
            _ if self.zone.is_some() => Err(BAD_LOCAL),
            _ => Err(BAD_TIMESTAMP),
        }
    }

    /// The moment in the first format that the text is in.
    fn first(&self, formats: &[Format], text: &str) -> Option<Result<DateTime<Utc>, Misfit>> {
        formats
            .iter()
            .filter_map(|format| Some((format, format.parse(text)?)))
            .find_map(|(format, parsed)| {
                if let Some(moment) = zoned(&parsed) {
                    return format.says(text, moment).then(|| Ok(moment.to_utc()));
                }
                let time = local(&parsed)?;
                format
                    .says(text, time.and_utc().fixed_offset())
                    .then(|| self.here(time, text))
            })
    }

    /// The moment of a time in the column's zone.
    fn here(&self, time: NaiveDateTime, text: &str) -> Result<DateTime<Utc>, Misfit> {
        let Some(zone) = self.zone else {
            return Err(BAD_TIMESTAMP);
        };
        match zone.from_local_datetime(&time) {
            MappedLocalTime::Single(moment) => Ok(moment.to_utc()),
            MappedLocalTime::Ambiguous(first, second) => Err(told(
                "BAD_TIMESTAMP",
                format!(
                    "comes twice in {zone}, where the clocks were set back; write it with its offset: {} or {}",
                    first.to_rfc3339(),
                    second.to_rfc3339()
                ),
            )),
            MappedLocalTime::None => Err(told(
                "BAD_TIMESTAMP",
                format!(
                    "never came in {zone}, where the clocks were set forward over it; '{}' must be another time",
                    shown(text)
                ),
            )),
        }
    }
}

/// A format of timestamps that tells all that is needed.
fn format(spelled: &str, has_zone: bool) -> Result<Format, String> {
    let format = Format::new(spelled)?;
    let (whole, with_zone) = match format.tried() {
        Some((moment, parsed)) => match (zoned(&parsed), local(&parsed)) {
            (Some(found), _) => (near(found.naive_utc(), moment.naive_utc()), true),
            (None, Some(found)) => (near(found, moment.naive_local()), false),
            (None, None) => (false, false),
        },
        None => (false, false),
    };
    if !whole {
        Err(format!(
            "'{}' must tell date and time, such as %d.%m.%Y %H:%M",
            shown(spelled)
        ))
    } else if !with_zone && !has_zone {
        Err(format!(
            "'{}' tells no offset; add %z to it, or give the column's `zone`, such as Europe/Berlin",
            shown(spelled)
        ))
    } else {
        Ok(format)
    }
}

/// Equal but for the seconds, which a format need not have.
fn near(found: NaiveDateTime, moment: NaiveDateTime) -> bool {
    (moment - found).num_seconds().abs() < 60
}

fn zoned(parsed: &Parsed) -> Option<DateTime<FixedOffset>> {
    if parsed.offset().is_none() && parsed.timestamp().is_none() {
        return None;
    }
    parsed.to_datetime().ok()
}

fn local(parsed: &Parsed) -> Option<NaiveDateTime> {
    parsed.to_naive_datetime_with_offset(0).ok()
}

/// Whether the text is a moment in UTC to the second, written as it is stored.
fn is_stored_form(text: &str) -> bool {
    let bytes = text.as_bytes();
    let marked = bytes.len() == 20
        && [
            (4, b'-'),
            (7, b'-'),
            (10, b'T'),
            (13, b':'),
            (16, b':'),
            (19, b'Z'),
        ]
        .iter()
        .all(|(at, mark)| bytes[*at] == *mark);
    if !marked {
        return false;
    }
    let number = |at: usize, count: usize| {
        bytes[at..at + count].iter().try_fold(0, |n, b| {
            b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0'))
        })
    };
    let read = || {
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let date = chrono::NaiveDate::from_ymd_opt(year as i32, month, day)?;
        let time = date.and_hms_opt(number(11, 2)?, number(14, 2)?, number(17, 2)?);
        time.filter(|_| year > 0)
    };
    read().is_some()
}
