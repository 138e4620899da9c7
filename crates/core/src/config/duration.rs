//! Durations as people write them: `500ms`, `10s`, `5m`, `6h`, `1h30m`, `7d`.
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

const UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

const HINT: &str = "write a number with a unit (ms, s, m, h, d), such as `500ms`, `10s` or `5m`";

/// Reads a duration text; the error says what a right one looks like.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{}` is not a duration: {HINT}", text.escape_debug());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let scale = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, scale)| *scale)
            .ok_or_else(wrong)?;
        millis = number
            .checked_mul(scale)
            .and_then(|part| millis.checked_add(part))
            .ok_or_else(wrong)?;
        rest = tail.trim_start();
    }
    Ok(Duration::from_millis(millis))
}

/// Writes a duration in the largest unit that holds it exactly, in whole milliseconds.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    UNITS
        .iter()
        .find(|(_, scale)| millis.is_multiple_of(u128::from(*scale)))
        .map_or_else(
            || format!("{millis}ms"),
            |(name, scale)| format!("{}{name}", millis / u128::from(*scale)),
        )
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a duration: {HINT}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// For `#[serde(with = "duration")]`.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// For `#[serde(with = "duration")]`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Visitor)
}

/// A duration that serde reads and writes as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(pub Duration);

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

impl serde::Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&format(self.0))
    }
}

impl std::str::FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self)
    }
}

/// For `#[serde(with = "duration::optional")]`: a key that may be left out.
pub mod optional {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::HumanDuration;

    /// Writes the text, or nothing.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(HumanDuration).serialize(serializer)
    }

    /// Reads the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<HumanDuration>::deserialize(deserializer)?.map(|d| d.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("90s", 90_000),
            ("5m", 300_000),
            ("6h", 21_600_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(format(Duration::from_millis(millis)), text);
        }
        assert_eq!(parse("1h 30m"), Ok(Duration::from_mins(90)));
        assert_eq!(format(Duration::from_mins(90)), "90m");
    }

    #[test]
    fn refuses_what_has_no_unit_or_no_number() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "1.5s",
            "10 lightyears",
            "99999999999999999999s",
            "9999999999999999d",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("10s"), "{error}");
        }
    }
}
