//! Sizes as people write them: `4 MiB`, `512KiB`, `1 GiB`, or a count of bytes.
use serde::{Deserializer, Serializer, de};

const UNITS: [(&str, u64); 5] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

const HINT: &str = "write a count of bytes, or a number with KiB, MiB, GiB or TiB";

/// Reads a size in bytes; the error says what a right one looks like.
pub fn parse(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{}` is not a size: {HINT}", text.escape_debug());
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let scale = if unit.is_empty() {
        1
    } else {
        UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, scale)| *scale)
            .ok_or_else(wrong)?
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(scale))
        .ok_or_else(wrong)
}

/// Writes a size in the largest unit that holds it exactly.
pub fn format(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, scale)| bytes != 0 && bytes.is_multiple_of(*scale))
        .map_or_else(
            || "0 B".to_owned(),
            |(name, scale)| format!("{} {name}", bytes / scale),
        )
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = u64;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a size: {HINT}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
        u64::try_from(bytes).map_err(|_| E::custom(HINT))
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }
}

/// Writes a size for people, rounded to a tenth of its unit: `1.4 GiB`.
pub fn rounded(bytes: u64) -> String {
    match UNITS.iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) if *scale > 1 => {
            // 128 bits, so that no size overflows.
            let tenths = u128::from(bytes) * 10 / u128::from(*scale);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        _ => format!("{bytes} B"),
    }
}

/// For `#[serde(with = "size")]`.
pub fn serialize<T, S>(bytes: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + TryInto<u64>,
    S: Serializer,
{
    let bytes = (*bytes)
        .try_into()
        .map_err(|_| serde::ser::Error::custom("the size does not fit 64 bits"))?;
    serializer.serialize_str(&format(bytes))
}

/// For `#[serde(with = "size")]`.
pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<u64>,
    D: Deserializer<'de>,
{
    let bytes = deserializer.deserialize_any(Visitor)?;
    T::try_from(bytes).map_err(|_| de::Error::custom("the size is too large for this machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people_are_rounded() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (10 << 30, "10.0 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(rounded(bytes), text);
        }
    }

    #[test]
    fn reads_what_it_writes() {
        for (text, bytes) in [
            ("4 MiB", 4 << 20),
            ("1 GiB", 1 << 30),
            ("1025 B", 1025),
            ("0 B", 0),
        ] {
            assert_eq!(parse(text), Ok(bytes));
            assert_eq!(format(bytes), text);
        }
        assert_eq!(parse("512kib"), Ok(512 << 10));
        assert_eq!(parse("77"), Ok(77));
    }

    #[test]
    fn refuses_nonsense() {
        for text in ["", "MiB", "4 MB", "-1", "1.5 GiB", "99999999999 TiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
