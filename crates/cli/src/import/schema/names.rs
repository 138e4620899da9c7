//! What somebody may have meant by a name that is not known.

/// The types of columns.
pub(super) const COLUMN_TYPES: [&str; 8] = [
    "text",
    "integer",
    "decimal",
    "float",
    "boolean",
    "date",
    "timestamp",
    "enum",
];

/// What others call the types.
const OTHER_TYPES: [(&[&str], &str); 8] = [
    (
        &["string", "str", "varchar", "char", "uuid", "json", "jsonb"],
        "text",
    ),
    (
        &[
            "int", "int4", "int8", "bigint", "smallint", "long", "serial",
        ],
        "integer",
    ),
    (&["numeric", "money", "currency"], "decimal"),
    (&["number"], "integer, decimal or float"),
    (&["double", "real", "float8"], "float"),
    (&["bool", "bit"], "boolean"),
    (
        &["datetime", "date-time", "timestamptz", "date_time"],
        "timestamp",
    ),
    (&["category", "choice"], "enum"),
];

/// What others call the keys of a column.
const OTHER_KEYS: [(&[&str], &str); 6] = [
    (&["regex", "regexp"], "pattern"),
    (&["enum", "allowed", "choices"], "values"),
    (&["null", "nulls"], "null_values"),
    (&["timezone", "time_zone", "tz"], "zone"),
    (&["source", "header", "column"], "from"),
    (&["null_value", "na_values"], "null_values"),
];

/// The type that was meant.
pub(super) fn nearest_type(name: &str) -> Option<&'static str> {
    other(name, &OTHER_TYPES).or_else(|| spelled_like(name, &COLUMN_TYPES))
}

/// The one of these keys that was meant.
pub(super) fn nearest<'k>(name: &str, keys: &[&'k str]) -> Option<&'k str> {
    let named = other(name, &OTHER_KEYS);
    keys.iter()
        .copied()
        .find(|key| Some(*key) == named)
        .or_else(|| spelled_like(name, keys))
}

fn other(name: &str, others: &[(&[&str], &'static str)]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    others
        .iter()
        .find(|(names, _)| names.contains(&name.as_str()))
        .map(|(_, meant)| *meant)
}

/// The nearest of these words, where few letters are different.
fn spelled_like<'k>(name: &str, words: &[&'k str]) -> Option<&'k str> {
    let name = name.to_lowercase();
    words
        .iter()
        .map(|word| (distance(&name, word), *word))
        .filter(|(distance, word)| *distance <= word.len().div_ceil(3).min(2))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// How many letters must be put in, taken out or replaced.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (place, known) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found() {
        for (name, meant) in [
            ("String", Some("text")),
            ("int", Some("integer")),
            ("interger", Some("integer")),
            ("Boolean", Some("boolean")),
            ("bool", Some("boolean")),
            ("decimel", Some("decimal")),
            ("datetime", Some("timestamp")),
            ("blob", None),
            ("", None),
        ] {
            assert_eq!(nearest_type(name), meant, "{name}");
        }
        let keys = ["required", "pattern", "values", "min", "max"];
        for (name, meant) in [
            ("requierd", Some("required")),
            ("Required", Some("required")),
            ("regex", Some("pattern")),
            ("enum", Some("values")),
            ("mn", Some("min")),
            ("tz", None),
            ("width", None),
        ] {
            assert_eq!(nearest(name, &keys), meant, "{name}");
        }
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
