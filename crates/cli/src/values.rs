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
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
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
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, ms) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(ms)),
                "{text}"
            );
        }
        for text in [
            "",
            "10",
            "s",
            "1.5h",
            "-3s",
            "10 s",
            "1w",
            "99999999999999999999s",
            "9223372036854775807s",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_read() {
        for text in [
            "0ms", "250ms", "59s", "1m", "1m30s", "2h", "2h5m", "3d", "3d4h",
        ] {
            let duration = parse_duration(text).expect(text);
            assert_eq!(human_duration(duration), text);
        }
    }

    #[test]
    fn sizes_have_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_572_863, "1.4 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }

    #[test]
    fn times_are_read_both_ways() {
        let now = DateTime::from_timestamp(1_000, 0).expect("in range");
        let later = parse_when("+10m")
            .expect("reads")
            .from(now)
            .expect("in range");
        assert_eq!(later.seconds, 1_600);
        let then = parse_when("1970-01-01T02:00:00.5+01:00").expect("reads");
        let then = then.from(now).expect("in range");
        assert_eq!((then.seconds, then.nanos), (3_600, 500_000_000));
        assert!(parse_when("tomorrow").is_err());
        assert!(parse_when("10m").is_err());
        assert!(
            parse_when("+99999999999d")
                .expect("reads")
                .from(now)
                .is_err()
        );
    }

    #[test]
    fn the_past_is_read_both_ways() {
        let now = DateTime::from_timestamp(10_000, 0).expect("in range");
        let read = |text: &str| parse_past(text).expect("reads").from(now);
        assert_eq!(read("2h").expect("in range").seconds, 2_800);
        let then = read("1970-01-01T00:00:07Z").expect("in range");
        assert_eq!(then.seconds, 7);
        assert!(read("99999999999d").is_err());
        assert!(parse_past("yesterday").is_err());
    }

    #[test]
    fn ids_are_words_and_come_once() {
        assert_eq!(split_ids(" a\n\nb c\r\n"), ["a", "b", "c"]);
        let ids = read_ids(vec!["a".to_owned(), "b".to_owned(), "a".to_owned()]);
        assert_eq!(ids.expect("ids"), ["a", "b"]);
    }

    #[test]
    fn times_are_told_from_now() {
        let now = DateTime::from_timestamp(100, 0).expect("in range");
        assert_eq!(
            relative("1970-01-01T00:02:40Z", now).as_deref(),
            Some("in 1m")
        );
        assert_eq!(
            relative("1970-01-01T00:00:10Z", now).as_deref(),
            Some("1m30s ago")
        );
        assert_eq!(
            relative("1970-01-01T00:01:40Z", now).as_deref(),
            Some("now")
        );
        assert_eq!(relative("soon", now), None);
    }

    #[test]
    fn labels_are_pairs_and_keys_come_once() {
        assert_eq!(parse_label("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(parse_label("=b").is_err());
        assert!(parse_label("ab").is_err());
        let twice = vec![("a".into(), "1".into()), ("a".into(), "2".into())];
        assert!(labels(twice).is_err());
    }

    #[test]
    fn payloads_keep_their_bytes() {
        let text = r#"{ "n": 12345678901234567890.123456789012345678 }"#;
        assert_eq!(read_payload(text).expect("an object"), text.as_bytes());
        for wrong in ["", "[1]", "7", "{", "{} {}", "{'a':1}"] {
            assert!(read_payload(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn payloads_come_from_files_without_their_mark() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("p.json");
        std::fs::write(&path, b"\xef\xbb\xbf{\"a\":1}").expect("writes");
        let bytes = read_payload(&format!("@{}", path.display())).expect("reads");
        assert_eq!(bytes, b"{\"a\":1}");
        let missing = read_payload("@/nowhere/at/all").expect_err("is not there");
        assert!(
            missing.message.contains("/nowhere/at/all"),
            "{}",
            missing.message
        );
    }

    #[test]
    fn timestamps_are_rfc3339() {
        let time = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(
            rfc3339(&time(0, 0)).as_deref(),
            Some("1970-01-01T00:00:00Z")
        );
        assert_eq!(
            rfc3339(&time(1, 250_000_000)).as_deref(),
            Some("1970-01-01T00:00:01.250Z")
        );
        assert_eq!(rfc3339(&time(i64::MAX, 0)), None);
        assert_eq!(rfc3339(&time(0, -1)), None);
    }
}
