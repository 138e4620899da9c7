//! Identifiers as types, so that a file's id cannot be passed for a job's.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The longest user id, key, request id or reason, in bytes of UTF-8.
pub const MAX_TEXT_BYTES: usize = 255;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id that sorts by its time of creation (UUIDv7).
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            /// Takes the hyphenated form only, so that one id has one spelling.
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                let id = Uuid::try_parse(text)?;
                if text.len() == 36 {
                    Ok(Self(id))
                } else {
                    // Another valid spelling: refused with the parser's own error type.
                    Uuid::try_parse("").map(Self)
                }
            }
        }
    };
}

uuid_id! {
    /// A job. Its `event_id` is the same value under its own name (PROTOCOL.md §1).
    JobId
}
uuid_id! {
    /// A stored file.
    FileId
}
uuid_id! {
    /// A dead letter.
    DeadLetterId
}
uuid_id! {
    /// One start of a worker process: what `locked_by` holds (PROTOCOL.md §7).
    SessionId
}

/// A user: the subject of the caller's token, or whom a service acts for.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UserId(String);

impl UserId {
    /// Checks a user id: 1 to 255 bytes, no control characters, something that can be seen.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        check_text(text).map(|()| Self(text.to_owned()))
    }

    /// Wraps an id that was checked before it was stored.
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks an id or key that a caller chose: 1 to 255 bytes of UTF-8, no control
/// characters, something that can be seen. Compared byte by byte ever after.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_text(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err("must not be empty")
    } else if text.len() > MAX_TEXT_BYTES {
        Err("must be at most 255 bytes long")
    } else if text.chars().any(char::is_control) {
        Err("must not contain control characters")
    } else if text.chars().all(is_unseen) {
        Err("must not consist of blanks and invisible characters only")
    } else {
        Ok(())
    }
}

/// Whether nothing is to be seen of a character: blanks, and those that Unicode calls
/// default ignorable (joiners, marks of direction, selectors, fillers).
const fn is_unseen(c: char) -> bool {
    c.is_whitespace()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Checks the name of a queue or job type: 1 to 64 of `a`–`z`, `0`–`9`, `_`, `-`,
/// `.`, beginning with a letter. So a name can stand in a routing key as it is.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check_name(text: &str) -> Result<(), &'static str> {
    let mut bytes = text.bytes();
    let ok = text.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-.".contains(&b));
    if ok {
        Ok(())
    } else {
        Err("must be 1 to 64 of a-z, 0-9, '_', '-' and '.', beginning with a letter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = JobId::new();
        assert_eq!(id.to_string().parse::<JobId>().ok(), Some(id));
        for other in [
            id.0.simple().to_string(),
            format!("{{{id}}}"),
            format!("urn:uuid:{id}"),
            String::new(),
            format!("{id}0"),
            "../../../../etc/passwd".to_owned(),
        ] {
            assert!(other.parse::<JobId>().is_err(), "{other}");
        }
    }

    #[test]
    fn texts_and_names() {
        assert!(check_text(&"a".repeat(255)).is_ok());
        assert!(check_text(&"a".repeat(256)).is_err());
        assert!(check_text(" \t").is_err());
        assert!(check_text("a\0b").is_err());
        assert!(check_text("😀 x").is_ok());
        for unseen in [
            " ",
            "\u{200b}",
            "\u{feff}",
            "\u{2060}\u{200d} ",
            "\u{3000}",
            "\u{2800}",
            "\u{3164}",
            "\u{e0041}",
        ] {
            assert!(check_text(unseen).is_err(), "{unseen:?}");
            assert!(check_text(&format!("{unseen}x")).is_ok(), "{unseen:?}");
        }
        assert!(check_name("import_csv").is_ok());
        for bad in ["", "Import", "1a", "a*", "a#", "a b", "ä"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
