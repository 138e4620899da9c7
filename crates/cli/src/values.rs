//! Reads what users write: durations, times, labels and payloads.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, SecondsFormat, Utc};
use prost_types::Timestamp;
use serde_json::value::RawValue;

use crate::errors::Failure;

/// No service takes a payload near this size; more is a wrong file.
const MAX_PAYLOAD_BYTES: u64 = 4 << 20;

/// A filter's value. An empty one is a variable that was never set, and must not mean
/// everything.
pub(crate) fn given(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty; leave the option out where it does not matter".to_owned());
    }
    Ok(text.to_owned())
}

/// A moment, as a time or counted from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// At this time.
    At(DateTime<Utc>),
    /// This long from now.
    In(Duration),
}

impl When {
    /// The moment, seen from `now`.
    pub(crate) fn from(self, now: DateTime<Utc>) -> Result<Timestamp, Failure> {
        let time = match self {
            Self::At(time) => Some(time),
            Self::In(wait) => chrono::TimeDelta::from_std(wait)
                .ok()
                .and_then(|wait| now.checked_add_signed(wait)),
        };
        let time = time.ok_or_else(|| Failure::usage("the time is too far away"))?;
        Ok(Timestamp {
            seconds: time.timestamp(),
            nanos: time.timestamp_subsec_nanos() as i32,
        })
    }
}

/// Reads `2030-01-31T08:00:00Z` or `+10m`.
pub(crate) fn parse_when(text: &str) -> Result<When, String> {
    if let Some(wait) = text.strip_prefix('+') {
        return parse_duration(wait).map(When::In);
    }
    DateTime::parse_from_rfc3339(text)
        .map(|time| When::At(time.with_timezone(&Utc)))
        .map_err(|error| {
            format!("{error}; write 2030-01-31T08:00:00Z, or +10m for a time from now")
        })
}

/// A moment in the past, as a time or counted back from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Past {
    /// At this time.
    At(DateTime<Utc>),
    /// This long ago.
    Ago(Duration),
}

impl Past {
    /// The moment, seen from `now`.
    pub(crate) fn from(self, now: DateTime<Utc>) -> Result<Timestamp, Failure> {
        let time = match self {
            Self::At(time) => Some(time),
            Self::Ago(past) => chrono::TimeDelta::from_std(past)
                .ok()
                .and_then(|past| now.checked_sub_signed(past)),
        };
        let time = time.ok_or_else(|| Failure::usage("the time is too long ago"))?;
        Ok(Timestamp {
            seconds: time.timestamp(),
            nanos: time.timestamp_subsec_nanos() as i32,
        })
    }
}

/// Reads `2030-01-31T08:00:00Z` or `2h`, which is two hours ago.
pub(crate) fn parse_past(text: &str) -> Result<Past, String> {
    if let Ok(past) = parse_duration(text) {
        return Ok(Past::Ago(past));
    }
    DateTime::parse_from_rfc3339(text)
        .map(|time| Past::At(time.with_timezone(&Utc)))
        .map_err(|error| format!("{error}; write 2030-01-31T08:00:00Z, or 2h for two hours ago"))
}

/// The ids that were given; `-` stands for those on standard input.
pub(crate) fn read_ids(given: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut piped = if given.iter().any(|id| id == "-") {
        let bytes = read_bounded(std::io::stdin().lock(), "standard input")?;
        let text =
            String::from_utf8(bytes).map_err(|_| Failure::usage("standard input is not UTF-8"))?;
        split_ids(&text)
    } else {
        Vec::new()
    };
    let given = given.into_iter().filter(|id| id != "-");
    let mut ids: Vec<String> = given.collect();
    ids.append(&mut piped);
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    if ids.is_empty() {
        return Err(Failure::usage("there is no id on standard input"));
    }
    Ok(ids)
}

fn split_ids(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Reads `500ms`, `30s`, `10m`, `1h30m`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "write a number and a unit: 500ms, 30s, 10m, 1h30m, 7d";
    let mut total = 0_u64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(HELP.to_owned());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(HELP.to_owned()),
        };
        if number.is_empty() {
            return Err(HELP.to_owned());
        }
        total = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit_ms))
            .and_then(|part| total.checked_add(part))
            .filter(|total| i64::try_from(*total).is_ok())
            .ok_or("too long")?;
        rest = tail;
    }
    Ok(Duration::from_millis(total))
}

/// The milliseconds of a duration that [`parse_duration`] made.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Reads `key=value`.
pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

/// Joins labels; a key that comes twice is a mistake.
pub(crate) fn labels(pairs: Vec<(String, String)>) -> Result<HashMap<String, String>, Failure> {
    let mut labels = HashMap::with_capacity(pairs.len());
    for (key, value) in pairs {
        if labels.contains_key(&key) {
            return Err(Failure::usage(format!("the label `{key}` is given twice")));
        }
        labels.insert(key, value);
    }
    Ok(labels)
}

/// Reads a payload: JSON, `@file`, or `-` for standard input. The bytes are
/// kept as they are, so that no digit of a number is lost.
pub(crate) fn read_payload(text: &str) -> Result<Vec<u8>, Failure> {
    let (bytes, source) = if text == "-" {
        let bytes = read_bounded(std::io::stdin().lock(), "standard input")?;
        (bytes, "standard input".to_owned())
    } else if let Some(path) = text.strip_prefix('@') {
        (read_small_file(Path::new(path))?, path.to_owned())
    } else {
        (text.as_bytes().to_vec(), "--payload".to_owned())
    };
    check_object(&bytes).map_err(|problem| {
        Failure::usage(format!("{source}: {problem}"))
            .hint("a payload is a JSON object such as '{\"ms\": 100}'")
    })?;
    Ok(bytes)
}

/// Reads a file that is small by its nature, without its byte order mark.
pub(crate) fn read_small_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = |why: String| Failure::usage(format!("cannot read {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| cannot(error.to_string()))?;
    // A folder can be opened, and not be read.
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(cannot("it is a folder".to_owned()));
    }
    let mut bytes = read_bounded(file, &path.display().to_string())?;
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    Ok(bytes)
}

fn read_bounded(reader: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_PAYLOAD_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > MAX_PAYLOAD_BYTES {
        return Err(Failure::usage(format!(
            "{name} has more than {MAX_PAYLOAD_BYTES} bytes; upload large data with `tenure upload` and name its file id"
        )));
    }
    Ok(bytes)
}

fn check_object(bytes: &[u8]) -> Result<(), String> {
    let raw: &RawValue =
        serde_json::from_slice(bytes).map_err(|error| format!("not JSON: {error}"))?;
    if raw.get().starts_with('{') {
        Ok(())
    } else {
        Err("is JSON, but not an object".to_owned())
    }
}

/// A timestamp as RFC 3339 in UTC; none where it is out of range.
pub(crate) fn rfc3339(time: &Timestamp) -> Option<String> {
    let nanos = u32::try_from(time.nanos).ok()?;
    DateTime::from_timestamp(time.seconds, nanos)
        .map(|time| time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

/// A size for people, rounded down to a tenth of its unit.
pub(crate) fn human_size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, bits)| bytes >> bits > 0) {
        Some((unit, bits)) => {
            // 128 bits, so that no size overflows.
            let tenths = (u128::from(bytes) * 10) >> bits;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// A duration for people: two units at most.
pub(crate) fn human_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let s = duration.as_secs();
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{s}s"),
        60..3600 => pair(s / 60, "m", s % 60, "s"),
        3600..86_400 => pair(s / 3600, "h", s % 3600 / 60, "m"),
        _ => pair(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// How far a time is from now: `in 5m`, `2h ago`.
pub(crate) fn relative(time: &str, now: DateTime<Utc>) -> Option<String> {
    let time = DateTime::parse_from_rfc3339(time).ok()?;
    let away = time.signed_duration_since(now);
    Some(match away.to_std() {
        Ok(ahead) if ahead < Duration::from_secs(1) => "now".to_owned(),
        Ok(ahead) => format!("in {}", human_duration(ahead)),
        Err(_) => format!("{} ago", human_duration((-away).to_std().ok()?)),
    })
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests;
