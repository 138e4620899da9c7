//! What a file is that is not a CSV file, told by its first bytes.

use serde::de::IgnoredAny;
use tenure_core::error::Code;

use crate::handler::JobError;

/// What other kinds of files begin with: what begins like text, and what has no
/// better name elsewhere.
const MAGIC: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "a ZIP archive"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "a gzip file"),
    (
        b"\xd0\xcf\x11\xe0",
        "an old Office document or spreadsheet (.xls)",
    ),
    (b"BZh91AY&SY", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"PAR1\x15", "a Parquet file"),
    (b"ORC\x08", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"%PDF-", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"{\\rtf", "an RTF document"),
];

const MARKUP: &[(&str, &str)] = &[
    ("<!doctype html", "an HTML page"),
    ("<html", "an HTML page"),
    ("<head", "an HTML page"),
    ("<body", "an HTML page"),
    ("<script", "an HTML page"),
    ("<?xml", "an XML document"),
    ("<!doctype", "a document with markup"),
    ("<svg", "an SVG image"),
];

/// The bytes in which a binary file shows itself: each format has a control character
/// there, and a name in a header has none.
const BINARY_WITHIN: usize = 64;

/// Refuses another kind of file by its first bytes.
///
/// # Errors
/// Permanent `CSV_NOT_TEXT`.
pub(super) fn check_bytes(head: &[u8]) -> Result<(), JobError> {
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Err(not_text(what));
    }
    if !head.is_empty() && head.iter().all(|b| *b == 0) {
        return Err(JobError::permanent(
            Code::CsvNotText.as_str(),
            "line 1: the file is not text, it begins with nothing but zero bytes; it was perhaps not written to its end",
        ));
    }
    let binary = head[..head.len().min(BINARY_WITHIN)]
        .iter()
        .any(|b| *b < b' ' && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c));
    // Many formats begin with two letters, as a header may.
    if binary && let Some(kind) = infer::get(head) {
        use infer::MatcherType as Is;
        let what = match kind.matcher_type() {
            Is::Image => "an image",
            Is::Video => "a video",
            Is::Audio => "a sound file",
            Is::Font => "a font",
            Is::Book => "an electronic book",
            Is::Doc => "a document",
            Is::Archive => "an archive",
            Is::App => "a program",
            Is::Text | Is::Custom => return Ok(()),
        };
        return Err(not_text(&format!("{what} (.{})", kind.extension())));
    }
    Ok(())
}

/// Refuses a document with markup, or of JSON, by the beginning of its text.
///
/// # Errors
/// Permanent `CSV_NOT_TEXT`.
pub(super) fn check_text(text: &[u8]) -> Result<(), JobError> {
    let text = text.trim_ascii_start();
    let begins = |word: &str| {
        text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes())
    };
    match MARKUP.iter().find(|(word, _)| begins(word)) {
        Some((_, what)) => Err(not_text(what)),
        None if is_json(text) => Err(not_text("a JSON document")),
        None => Ok(()),
    }
}

/// Whether a text is JSON, or lines of it, as far as it goes. A header in brackets, or a value
/// of JSON in the first column, is not.
fn is_json(text: &[u8]) -> bool {
    if !text.starts_with(b"{") && !text.starts_with(b"[") {
        return false;
    }
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => {
            let rest = text[values.byte_offset()..].trim_ascii_start();
            matches!(rest.first(), None | Some(b'{' | b'['))
        }
        // Cut off where the first block ends.
        Some(Err(error)) => error.is_eof(),
        None => false,
    }
}

/// The error for a file that is something else.
pub(super) fn not_text(what: &str) -> JobError {
    JobError::permanent(
        Code::CsvNotText.as_str(),
        format!("line 1: this is not a CSV file but {what}; export the rows as CSV"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(head: &[u8]) -> Result<(), String> {
        check_bytes(head)
            .and_then(|()| check_text(head))
            .map_err(|error| error.message)
    }

    #[test]
    fn other_files_are_named() {
        for (head, what) in [
            (&b"%PDF-1.7\n"[..], "a PDF document"),
            (b" \n<!DOCTYPE html><html>", "an HTML page"),
            (b"<HTML>", "an HTML page"),
            (b"<?xml version='1.0'?>", "an XML document"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image (.png)"),
            (b"MZ\x90\0\x03\0\0\0\x04\0\0\0\xff\xff", "a program (.exe)"),
            (b"ID3\x03\0\0\0\0\0", "a sound file (.mp3)"),
            (
                b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
                "an old Office document",
            ),
            (b"PAR1\x15\x04", "a Parquet file"),
            (b"{\\rtf1", "an RTF document"),
            (b"\n {\"rows\": [1, 2]}\n", "a JSON document"),
            (b"[{\"a\": 1},\r\n {\"a\":", "a JSON document"),
            (b"{\"a\":1}\n{\"a\":2}\n", "a JSON document"),
            (b"\0\0\0\0", "nothing but zero bytes"),
        ] {
            let message = code(head).expect_err(what);
            assert!(message.contains(what), "{message}");
        }
    }

    #[test]
    fn headers_that_begin_like_a_binary_file_are_text() {
        for head in [
            "BMI,age\n1,2\n",
            "MZ;x\n",
            "ID3,name\n",
            "BC\tb\n",
            "PAR1,b",
            "#!,b\n",
            "a,%PDF,x\n",
            "<5,b\n",
            "[id],[name]\n",
            "{,b\n",
            "[1],[2]\n",
            "{\"a\":1}\t5\n",
            "\"{\",b\n",
            "",
        ] {
            assert_eq!(code(head.as_bytes()), Ok(()), "{head}");
        }
        assert_eq!(code(b"id,name\n1,\0"), Ok(()));
    }
}
