//! The door for JSON that callers send: what gets in can be read everywhere later.
//!
//! A payload is kept as the bytes that were sent, so that no number loses a digit.
//! Checked here: one JSON object, UTF-8, no repeated keys, no NUL, no lone surrogates,
//! numbers within the range of a double, at most 128 levels deep.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use sha2::{Digest, Sha256};

/// A digest of what a JSON document means.
///
/// Equal for documents that differ only in blanks, in the order of keys, or in the
/// spelling of a number. Numbers beyond 64-bit integers are compared as doubles.
pub type Meaning = [u8; 32];

/// Checks a payload and digests its meaning.
///
/// # Errors
/// A sentence that says what is wrong, and where.
pub fn check_object(bytes: &[u8]) -> Result<Meaning, String> {
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    if first.is_some_and(|b| *b != b'{') {
        // Told before the parser speaks, since this is the common mistake.
        return if std::str::from_utf8(bytes).is_ok()
            && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
        {
            Err("must be a JSON object, not another kind of value".to_owned())
        } else {
            Err("is not valid JSON: must be one JSON object in UTF-8".to_owned())
        };
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let meaning = Value
        .deserialize(&mut deserializer)
        .and_then(|meaning| deserializer.end().map(|()| meaning))
        .map_err(|error| format!("is not valid JSON: {error}"))?;
    Ok(meaning)
}

/// Digests one value, depth first.
struct Value;

impl<'de> DeserializeSeed<'de> for Value {
    type Value = Meaning;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Meaning, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn digest(kind: u8, content: &[u8]) -> Meaning {
    let mut hash = Sha256::new();
    hash.update([kind]);
    hash.update(content);
    hash.finalize().into()
}

fn no_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') {
        Err(E::custom(
            "a string holds the character NUL (\\u0000), which cannot be stored",
        ))
    } else {
        Ok(())
    }
}

impl<'de> Visitor<'de> for Value {
    type Value = Meaning;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Meaning, E> {
        Ok(digest(b'b', &[u8::from(v)]))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Meaning, E> {
        Ok(digest(b'i', v.to_string().as_bytes()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Meaning, E> {
        Ok(digest(b'i', v.to_string().as_bytes()))
    }

    fn visit_f64<E>(self, v: f64) -> Result<Meaning, E> {
        // Integers that a double holds exactly are the same number as their short spelling.
        if v.fract() == 0.0 && v.abs() < 9_007_199_254_740_992.0 {
            return Ok(digest(b'i', (v as i64).to_string().as_bytes()));
        }
        Ok(digest(b'f', &v.to_bits().to_be_bytes()))
    }

    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Meaning, E> {
        no_nul(v)?;
        Ok(digest(b's', v.as_bytes()))
    }

    fn visit_unit<E>(self) -> Result<Meaning, E> {
        Ok(digest(b'n', &[]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Meaning, A::Error> {
        let mut hash = Sha256::new();
        hash.update(b"a");
        while let Some(item) = seq.next_element_seed(Value)? {
            hash.update(item);
        }
        Ok(hash.finalize().into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Meaning, A::Error> {
        let mut members = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            no_nul(&key)?;
            let value = map.next_value_seed(Value)?;
            if members.contains_key(&key) {
                let shown: String = key.chars().take(40).collect();
                return Err(A::Error::custom(format!(
                    "the key {shown:?} stands there twice"
                )));
            }
            members.insert(key, value);
        }
        let mut hash = Sha256::new();
        hash.update(b"o");
        for (key, value) in members {
            hash.update((key.len() as u64).to_be_bytes());
            hash.update(key);
            hash.update(value);
        }
        Ok(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meaning_not_spelling() {
        let one = check_object(br#"{"a":1e2,"b":1.0,"c":1.10}"#);
        let two = check_object(b" { \"c\":1.1, \"b\":1, \"a\":100 }\n");
        assert!(one.is_ok());
        assert_eq!(one, two);
        assert_ne!(check_object(br#"{"a":"1"}"#), check_object(br#"{"a":1}"#));
        assert_ne!(
            check_object(br#"{"a":[1,2]}"#),
            check_object(br#"{"a":[2,1]}"#)
        );
        assert_ne!(
            check_object(br#"{"a":9007199254740993}"#),
            check_object(br#"{"a":9007199254740992}"#)
        );
        assert_eq!(check_object(br#"{"a":-0}"#), check_object(br#"{"a":0}"#));
    }

    #[test]
    fn refusals_say_why() {
        let cases: [(&[u8], &str); 12] = [
            (b"", "valid JSON"),
            (b"[1]", "object"),
            (b"null", "object"),
            (b"\"{}\"", "object"),
            (b"{} x", "trailing"),
            (b"{}{}", "trailing"),
            (br#"{"a":1,"a":2}"#, "twice"),
            (br#"{"a":"\u0000"}"#, "NUL"),
            (br#"{"\u0000":1}"#, "NUL"),
            (br#"{"a":"\ud800"}"#, "surrogate"),
            (br#"{"a":1e400}"#, "range"),
            (b"{\"a\":\"\xff\"}", "valid JSON"),
        ];
        for (input, word) in cases {
            let error = check_object(input).expect_err("refused");
            assert!(
                error.contains(word) || (word == "surrogate" && error.contains("hex escape")),
                "{}: {error}",
                String::from_utf8_lossy(input)
            );
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(check_object(deep.as_bytes()).is_err());
        assert!(check_object("[".repeat(100_000).as_bytes()).is_err());
        let fine = format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100));
        assert!(check_object(fine.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = check_object(&bytes);
        }
    }
}
