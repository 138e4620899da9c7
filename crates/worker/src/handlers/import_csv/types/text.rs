//! Text: how long it may be, and its JSON.

use std::fmt::Write as _;

use super::super::payload::counted;
use super::{Misfit, told};

/// The least and the greatest number of characters.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lengths {
    pub(super) min: usize,
    pub(super) max: Option<usize>,
}

impl Lengths {
    /// Checks a text.
    pub(super) fn check(self, text: &str) -> Result<(), Misfit> {
        // A character takes one to four bytes, so most texts need not be counted.
        if text.len() < self.min.saturating_mul(4) {
            let count = text.chars().count();
            if count < self.min {
                return Err(told(
                    "TOO_SHORT",
                    format!(
                        "has {}; at least {} needed",
                        counted(count, "character"),
                        many(self.min)
                    ),
                ));
            }
        }
        if let Some(max) = self.max
            && text.len() > max
        {
            let count = text.chars().count();
            if count > max {
                return Err(told(
                    "TOO_LONG",
                    format!(
                        "has {}; at most {} allowed",
                        counted(count, "character"),
                        many(max)
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// A number with its verb.
fn many(count: usize) -> String {
    format!("{count} {}", if count == 1 { "is" } else { "are" })
}

/// Appends a JSON string.
pub(crate) fn push_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    // Whole stretches at once: most fields need no escape.
    while let Some(at) = rest
        .bytes()
        .position(|b| b < 0x20 || b == b'"' || b == b'\\')
    {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        let byte = from.as_bytes()[0];
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = &from[1..];
    }
    out.push_str(rest);
    out.push('"');
}
