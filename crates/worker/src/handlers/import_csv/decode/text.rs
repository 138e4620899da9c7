//! From the bytes of a file to text in UTF-8, block by block. What is wrong is told with
//! its line and byte; nothing is ever replaced.

use bytes::Bytes;
use encoding_rs::{DecoderResult, WINDOWS_1252};

use super::encoding::{Encoding, advice, undefined, wrong};
use crate::handler::JobError;

/// How much of a file in another encoding is shown to the detector: what stands before
/// and from the first byte that is not UTF-8.
const SAMPLE: (usize, usize) = (4 * 1024, 60 * 1024);

/// Counts physical lines: LF, CRLF and a lone CR end one.
#[derive(Debug, Clone, Copy)]
struct Lines {
    line: u64,
    after_cr: bool,
}

impl Lines {
    fn count(&mut self, text: &[u8]) {
        let Some(last) = text.last() else { return };
        let mut before = self.after_cr;
        let mut lines = 0_u64;
        for byte in text {
            let cr = *byte == b'\r';
            lines += u64::from(cr || (*byte == b'\n' && !before));
            before = cr;
        }
        self.line += lines;
        self.after_cr = *last == b'\r';
    }

    /// The line behind this text, without going on to it.
    fn behind(mut self, text: &[u8]) -> u64 {
        self.count(text);
        self.line
    }
}

/// Decodes one file.
pub(super) struct Decoder {
    encoding: Encoding,
    other: Option<encoding_rs::Decoder>,
    lines: Lines,
    /// Where the next block begins among the bytes of the file.
    offset: u64,
    /// A character of UTF-8 that a block broke off.
    begun: Vec<u8>,
    first: bool,
    /// The line of the first control character between 0x80 and 0x9f.
    control: Option<(u64, u8)>,
}

impl Decoder {
    /// At the beginning of a file.
    pub(super) fn new(encoding: Encoding) -> Self {
        let other = match encoding {
            Encoding::Other(other) => Some(other.new_decoder_without_bom_handling()),
            _ => None,
        };
        Self {
            encoding,
            other,
            lines: Lines {
                line: 1,
                after_cr: false,
            },
            offset: 0,
            begun: Vec::new(),
            first: true,
            control: None,
        }
    }

    /// What the next block begins with: it has been read already.
    pub(super) fn begun(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }

    /// How many bytes of text a byte of the file may become.
    pub(super) fn growth(&self) -> usize {
        if self.encoding == Encoding::Utf8 {
            1
        } else {
            3
        }
    }

    /// The text of a block, which begins with [`Self::begun`]; of the first one without
    /// the byte order mark.
    ///
    /// # Errors
    /// Permanent `CSV_ENCODING` that names the line and the byte.
    pub(super) fn decode(&mut self, raw: Vec<u8>, last: bool) -> Result<Bytes, JobError> {
        let text = match self.encoding {
            Encoding::Utf8 => self.utf8(raw, last)?,
            Encoding::Latin1 => self.latin1(&raw),
            Encoding::Other(_) => self.other(&raw, last)?,
        };
        self.lines.count(&text);
        let mut text = Bytes::from(text);
        if text.is_empty() {
            return Ok(text);
        }
        if std::mem::take(&mut self.first) && text.starts_with("\u{feff}".as_bytes()) {
            let _ = text.split_to('\u{feff}'.len_utf8());
        }
        Ok(text)
    }

    /// What the reader of the report should know.
    pub(super) fn warning(&self) -> Option<String> {
        let (line, byte) = self.control?;
        Some(format!(
            "line {line}: byte 0x{byte:02x} is a control character in iso-8859-1; \
             a file that comes from Windows has the `encoding` windows-1252"
        ))
    }

    fn utf8(&mut self, mut raw: Vec<u8>, last: bool) -> Result<Vec<u8>, JobError> {
        if let Err(error) = std::str::from_utf8(&raw) {
            let valid = error.valid_up_to();
            if error.error_len().is_some() || last {
                let sample = &raw[valid.saturating_sub(SAMPLE.0)..];
                return Err(wrong(&format!(
                    "line {}: byte 0x{:02x} (at offset {}) is not UTF-8; {}",
                    self.lines.behind(&raw[..valid]),
                    raw[valid],
                    self.offset + valid as u64,
                    advice(&sample[..sample.len().min(SAMPLE.0 + SAMPLE.1)])
                )));
            }
            self.begun = raw.split_off(valid);
        }
        self.offset += raw.len() as u64;
        Ok(raw)
    }

    fn latin1(&mut self, raw: &[u8]) -> Vec<u8> {
        if self.control.is_none()
            && let Some(at) = raw.iter().position(|b| (0x80..0xa0).contains(b))
        {
            self.control = Some((self.lines.behind(&raw[..at]), raw[at]));
        }
        self.offset += raw.len() as u64;
        encoding_rs::mem::decode_latin1(raw)
            .into_owned()
            .into_bytes()
    }

    fn other(&mut self, raw: &[u8], last: bool) -> Result<Vec<u8>, JobError> {
        if self.encoding == Encoding::Other(WINDOWS_1252)
            && let Some(at) = undefined(raw)
        {
            return Err(wrong(&format!(
                "line {}: byte 0x{:02x} (at offset {}) stands for nothing in windows-1252; \
                 give the file's right `encoding`, or save the file as UTF-8",
                self.lines.behind(&raw[..at]),
                raw[at],
                self.offset + at as u64
            )));
        }
        let decoder = self.other.as_mut().expect("made with the encoding");
        let room = decoder.max_utf8_buffer_length_without_replacement(raw.len());
        let mut text = String::with_capacity(room.unwrap_or(4 * raw.len() + 16));
        let (result, read) = decoder.decode_to_string_without_replacement(raw, &mut text, last);
        if let DecoderResult::Malformed(bad, behind) = result {
            let end = (self.offset + read as u64).saturating_sub(u64::from(behind));
            let at = end.saturating_sub(u64::from(bad));
            let line = self.lines.behind(text.as_bytes());
            let name = self.encoding.name();
            return Err(wrong(&if last && read == raw.len() && behind == 0 {
                format!(
                    "line {line}: the last bytes (at offset {at}) are not whole in {name}; \
                     the file is cut off, or its `encoding` is another one"
                )
            } else {
                format!(
                    "line {line}: the bytes at offset {at} are not {name}; \
                     give the file's right `encoding`, or save the file as UTF-8"
                )
            }));
        }
        debug_assert_eq!(result, DecoderResult::InputEmpty);
        self.offset += raw.len() as u64;
        Ok(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(encoding: Encoding, raw: &[u8], piece: usize) -> Result<String, String> {
        let mut decoder = Decoder::new(encoding);
        let mut text = Vec::new();
        let pieces: Vec<&[u8]> = raw.chunks(piece).collect();
        for (index, piece) in pieces.iter().enumerate() {
            let mut block = decoder.begun();
            block.extend_from_slice(piece);
            let last = index + 1 == pieces.len();
            text.extend(decoder.decode(block, last).map_err(|e| e.message)?);
        }
        Ok(String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn the_line_and_the_byte_are_named_however_it_is_cut() {
        let other = Encoding::Other;
        let cases: [(Encoding, &[u8], &str); 10] = [
            (
                Encoding::Utf8,
                b"id\r\n1\r2\n\n\x96x",
                "line 5: byte 0x96 (at offset 9)",
            ),
            (Encoding::Utf8, b"\xff", "line 1: byte 0xff (at offset 0)"),
            (Encoding::Utf8, b"ab\xc3", "line 1: byte 0xc3 (at offset 2)"),
            (
                Encoding::Utf8,
                b"\n\xe2\x9cx",
                "line 2: byte 0xe2 (at offset 1)",
            ),
            (
                Encoding::Utf8,
                b"\n\xed\xa0\x80",
                "line 2: byte 0xed (at offset 1)",
            ),
            (
                other(WINDOWS_1252),
                b"a\n\x96\n\x81",
                "line 3: byte 0x81 (at offset 4)",
            ),
            (
                other(encoding_rs::UTF_16LE),
                b"a\0\n\0\0\xd8b\0",
                "line 2: the bytes at offset 4",
            ),
            (
                other(encoding_rs::UTF_16LE),
                b"a\0\n\0b",
                "line 2: the last bytes (at offset 4)",
            ),
            (
                other(encoding_rs::SHIFT_JIS),
                b"a\n\r\n\x82",
                "line 3: the last bytes (at offset 4)",
            ),
            (other(encoding_rs::GBK), b"\n\xff", "line 2: the"),
        ];
        for (encoding, raw, expected) in cases {
            for piece in 1..=raw.len() {
                let message = decode(encoding, raw, piece).expect_err("malformed");
                assert!(
                    message.starts_with(expected),
                    "{message} in pieces of {piece}"
                );
            }
        }
    }

    #[test]
    fn one_mark_is_dropped_and_latin1_is_itself() {
        assert_eq!(
            decode(Encoding::Utf8, "\u{feff}\u{feff}a".as_bytes(), 2),
            Ok("\u{feff}a".into())
        );
        let all: Vec<u8> = (0..=255).collect();
        let text: String = (0..=255_u8).map(char::from).collect();
        for piece in [1, 100, 256] {
            assert_eq!(decode(Encoding::Latin1, &all, piece), Ok(text.clone()));
        }
        let mut decoder = Decoder::new(Encoding::Latin1);
        decoder
            .decode(b"a\nb\xe9\n\x96".to_vec(), true)
            .expect("text");
        let warning = decoder.warning().expect("a warning");
        assert!(warning.starts_with("line 3: byte 0x96"), "{warning}");
    }
}
