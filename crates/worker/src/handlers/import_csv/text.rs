//! Is it text, and in UTF-8? Checked for the whole file before its first row is
//! stored, so that a file in another encoding leaves nothing behind.

use tenure_core::error::Code;

use crate::handler::JobError;

/// The byte order mark of UTF-8.
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// What other kinds of files begin with.
const MAGIC: &[(&[u8], &str)] = &[
    (
        b"PK\x03\x04",
        "a ZIP archive or a spreadsheet (.xlsx, .ods)",
    ),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet (.xls)"),
    (b"%PDF-", "a PDF document"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
];

const MARKUP: &[&str] = &["<!doctype", "<html", "<?xml", "<head", "<body", "{\\rtf"];

/// Refuses what is not a text file in UTF-8, as far as its beginning tells. `head`
/// is the beginning of the file, or all of it.
///
/// # Errors
/// Permanent: `CSV_EMPTY`, `CSV_NOT_TEXT`, `CSV_ENCODING`.
pub(crate) fn check_head(head: &[u8]) -> Result<(), JobError> {
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(not_text(what));
    }
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return Err(utf16());
    }
    let text = head.strip_prefix(BOM).unwrap_or(head);
    let start = text.iter().position(|b| !b.is_ascii_whitespace());
    let Some(start) = start else {
        return Err(JobError::permanent(
            Code::CsvEmpty.as_str(),
            "the file is empty: not even a header line",
        ));
    };
    let word = &text[start..text.len().min(start + 16)];
    if MARKUP.iter().any(|markup| {
        word.len() >= markup.len() && word[..markup.len()].eq_ignore_ascii_case(markup.as_bytes())
    }) {
        return Err(not_text("a document with markup (HTML, XML or RTF)"));
    }
    let line = text
        .split(|b| matches!(b, b'\n' | b'\r'))
        .next()
        .unwrap_or_default();
    if line.contains(&0) {
        return Err(utf16());
    }
    Ok(())
}

fn not_text(what: &str) -> JobError {
    JobError::permanent(
        Code::CsvNotText.as_str(),
        format!("line 1: this is not a CSV file but {what}; export it as CSV in UTF-8"),
    )
}

fn utf16() -> JobError {
    JobError::permanent(
        Code::CsvEncoding.as_str(),
        "line 1: the text is not UTF-8 (it looks like UTF-16); save the file as UTF-8",
    )
}

/// Checks text in pieces.
#[derive(Debug)]
pub(crate) struct Utf8Check {
    line: u64,
    offset: u64,
    after_cr: bool,
    // A character that a piece broke off.
    begun: [u8; 4],
    begun_len: usize,
}

impl Utf8Check {
    /// At the beginning of a file.
    pub(crate) fn new() -> Self {
        Self {
            line: 1,
            offset: 0,
            after_cr: false,
            begun: [0; 4],
            begun_len: 0,
        }
    }

    /// Checks the next piece.
    ///
    /// # Errors
    /// Permanent `CSV_ENCODING` that names the line and the byte.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) -> Result<(), JobError> {
        while self.begun_len > 0 {
            let Some((first, rest)) = piece.split_first() else {
                return Ok(());
            };
            self.begun[self.begun_len] = *first;
            self.begun_len += 1;
            piece = rest;
            let begun = self.begun;
            match std::str::from_utf8(&begun[..self.begun_len]) {
                Ok(_) => {
                    self.offset += self.begun_len as u64;
                    self.begun_len = 0;
                    self.after_cr = false;
                }
                Err(error) if error.error_len().is_some() => return Err(self.wrong(begun[0])),
                Err(_) => {}
            }
        }
        match std::str::from_utf8(piece) {
            Ok(_) => self.count(piece),
            Err(error) => {
                let (valid, rest) = piece.split_at(error.valid_up_to());
                self.count(valid);
                if error.error_len().is_some() {
                    return Err(self.wrong(rest[0]));
                }
                self.begun[..rest.len()].copy_from_slice(rest);
                self.begun_len = rest.len();
            }
        }
        Ok(())
    }

    /// Checks the end.
    ///
    /// # Errors
    /// As [`Self::feed`], where the file ends within a character.
    pub(crate) fn finish(&self) -> Result<(), JobError> {
        if self.begun_len > 0 {
            Err(self.wrong(self.begun[0]))
        } else {
            Ok(())
        }
    }

    fn count(&mut self, valid: &[u8]) {
        // LF, CRLF and a lone CR end a line, as for the reader.
        for byte in valid {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' => self.line += 1,
                b'\r' => {
                    self.line += 1;
                    self.after_cr = true;
                }
                _ => self.after_cr = false,
            }
        }
        self.offset += valid.len() as u64;
    }

    fn wrong(&self, byte: u8) -> JobError {
        JobError::permanent(
            Code::CsvEncoding.as_str(),
            format!(
                "line {}: byte 0x{byte:02x} (at offset {}) is not UTF-8; save the file as UTF-8",
                self.line, self.offset
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8], piece: usize) -> Result<(), String> {
        let mut check = Utf8Check::new();
        for piece in text.chunks(piece) {
            check.feed(piece).map_err(|error| error.message)?;
        }
        check.finish().map_err(|error| error.message)
    }

    #[test]
    fn characters_may_be_broken_anywhere() {
        let text = "a é ✓ 😀\r\n\r😀é".as_bytes();
        for piece in 1..=text.len() {
            assert_eq!(check(text, piece), Ok(()));
        }
    }

    #[test]
    fn the_line_and_the_byte_are_named_however_it_is_cut() {
        let cases: [(&[u8], &str); 5] = [
            (b"id\r\n1\r2\n\n\x96x", "line 5: byte 0x96 (at offset 9)"),
            (b"\xff", "line 1: byte 0xff (at offset 0)"),
            (b"ab\xc3", "line 1: byte 0xc3 (at offset 2)"),
            (b"\n\xe2\x9cx", "line 2: byte 0xe2 (at offset 1)"),
            (b"\n\xed\xa0\x80", "line 2: byte 0xed (at offset 1)"),
        ];
        for (text, expected) in cases {
            for piece in 1..=text.len() {
                let message = check(text, piece).expect_err("not UTF-8");
                assert!(message.starts_with(expected), "{message}");
            }
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        let code = |head: &[u8]| check_head(head).map_err(|error| error.code);
        for head in ["", "\u{feff}", " \r\n\n"] {
            assert_eq!(code(head.as_bytes()), Err("CSV_EMPTY".into()));
        }
        for head in [
            "%PDF-1.7",
            "PK\x03\x04x",
            "\u{feff} <!DOCTYPE html>",
            "<HTML>",
            "<?xml version",
        ] {
            assert_eq!(code(head.as_bytes()), Err("CSV_NOT_TEXT".into()), "{head}");
        }
        for head in [
            &b"\xff\xfei\0d\0"[..],
            b"\xfe\xff\0i",
            b"\0i\0d",
            b"i\0d\0,\0",
        ] {
            assert_eq!(code(head), Err("CSV_ENCODING".into()));
        }
        assert_eq!(code(b"id,name\n1,\0"), Ok(()));
    }
}
