//! Which encoding a file is in: what the payload says and what a byte order mark says.
//! Nothing is guessed. A guess is only ever made to suggest what could be declared.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{UTF_16BE, UTF_16LE, WINDOWS_1252};
use tenure_core::error::{Code, clean_text};

use crate::handler::JobError;

/// An encoding that text is read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// UTF-8.
    Utf8,
    /// ISO-8859-1 as it is, with control characters at 0x80 to 0x9f. (The standard of
    /// the web takes that name for windows-1252.)
    Latin1,
    /// Another one.
    Other(&'static encoding_rs::Encoding),
}

impl Encoding {
    /// Its name in lower case, as it can be declared.
    pub(super) fn name(self) -> String {
        match self {
            Self::Utf8 => "utf-8".to_owned(),
            Self::Latin1 => "iso-8859-1".to_owned(),
            Self::Other(encoding) => encoding.name().to_ascii_lowercase(),
        }
    }
}

/// What the payload says about the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Declared {
    /// UTF-8, or UTF-16 where a byte order mark says so.
    #[default]
    Auto,
    /// UTF-16, in the order that the byte order mark says.
    Utf16,
    /// This one.
    Is(Known),
}

/// An encoding that was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known(Encoding);

impl Declared {
    /// Reads the `encoding` of a payload.
    ///
    /// # Errors
    /// A sentence that names some encodings.
    pub(crate) fn parse(label: Option<&str>) -> Result<Self, String> {
        let name = label.unwrap_or("auto").trim().to_ascii_lowercase();
        let encoding = match name.as_str() {
            "auto" => return Ok(Self::Auto),
            "utf-16" | "utf16" => return Ok(Self::Utf16),
            "utf16le" => Encoding::Other(UTF_16LE),
            "utf16be" => Encoding::Other(UTF_16BE),
            "latin-1" | "latin1" | "iso-8859-1" | "iso8859-1" | "iso88591" | "iso_8859-1"
            | "l1" | "iso-ir-100" | "cp819" | "ibm819" | "csisolatin1" => Encoding::Latin1,
            // A part of UTF-8, and not of windows-1252 as on the web.
            "ascii" | "us-ascii" | "ansi_x3.4-1968" => Encoding::Utf8,
            "x-user-defined" => return Err(unknown(&name)),
            name => match encoding_rs::Encoding::for_label_no_replacement(name.as_bytes()) {
                Some(encoding) if encoding == encoding_rs::UTF_8 => Encoding::Utf8,
                Some(encoding) => Encoding::Other(encoding),
                None => return Err(unknown(name)),
            },
        };
        Ok(Self::Is(Known(encoding)))
    }

    /// The encoding of a file with this beginning.
    ///
    /// # Errors
    /// Permanent `CSV_ENCODING`: the mark contradicts what was declared, one is missing,
    /// or what nothing was declared for is not UTF-8.
    pub(super) fn decide(self, head: &[u8]) -> Result<Encoding, JobError> {
        if head.starts_with(b"\xff\xfe\0\0") || head.starts_with(b"\0\0\xfe\xff") {
            return Err(wrong("line 1: the text is UTF-32; save the file as UTF-8"));
        }
        let mark = if head.starts_with(b"\xef\xbb\xbf") {
            Some(Encoding::Utf8)
        } else if head.starts_with(b"\xff\xfe") {
            Some(Encoding::Other(UTF_16LE))
        } else if head.starts_with(b"\xfe\xff") {
            Some(Encoding::Other(UTF_16BE))
        } else {
            None
        };
        match (self, mark) {
            (Self::Auto, None) => match utf16_order(head) {
                Some(order) => Err(wrong(&format!(
                    "line 1: the text looks like UTF-16 without a byte order mark; \
                     give its `encoding` (`{}`), or save the file as UTF-8",
                    Encoding::Other(order).name()
                ))),
                // Each byte of it is one of UTF-8 too.
                None if head.windows(3).any(|b| matches!(b, b"\x1b$B" | b"\x1b$@")) => Err(wrong(
                    "line 1: the text looks like Japanese in ISO-2022-JP; give its \
                         `encoding` (`iso-2022-jp`; `utf-8` if it is that), or save it as UTF-8",
                )),
                None => Ok(Encoding::Utf8),
            },
            (Self::Auto, Some(mark)) | (Self::Utf16, Some(mark @ Encoding::Other(_))) => Ok(mark),
            (Self::Utf16, None) => Err(wrong(&format!(
                "line 1: there is no byte order mark; give the `encoding` as {}",
                match utf16_order(head) {
                    Some(order) => format!("`{}`", Encoding::Other(order).name()),
                    None => "`utf-16le` or `utf-16be`".to_owned(),
                }
            ))),
            (Self::Is(Known(encoding)), None) => Ok(encoding),
            (Self::Is(Known(encoding)), Some(mark)) if encoding == mark => Ok(encoding),
            (_, Some(mark)) => Err(wrong(&format!(
                "line 1: the file begins with the byte order mark of {}, so it is not {}; \
                 leave `encoding` out, or give the right one",
                mark.name(),
                match self {
                    Self::Is(Known(encoding)) => encoding.name(),
                    _ => "utf-16".to_owned(),
                }
            ))),
        }
    }
}

fn unknown(name: &str) -> String {
    format!(
        "encoding: '{}' is not known; use `auto`, `utf-8`, `utf-16`, `utf-16le`, `utf-16be`, \
         `iso-8859-1`, `windows-1252`, `iso-8859-15`, `windows-1250`, `windows-1251`, \
         `shift_jis`, `gb18030` or another name of the WHATWG Encoding Standard",
        clean_text(name, 40).replace(['\n', '\t'], " ")
    )
}

/// The error for text in another encoding.
pub(super) fn wrong(message: &str) -> JobError {
    JobError::permanent(Code::CsvEncoding.as_str(), message)
}

/// The order of bytes, where text without a mark looks like UTF-16: a NUL in the first
/// line, or so many of them at one side of the pairs that it can be nothing else.
fn utf16_order(head: &[u8]) -> Option<&'static encoding_rs::Encoding> {
    let head = &head[..head.len().min(4_096)];
    let pairs = head.len() / 2;
    let (mut first, mut second) = (0, 0);
    for pair in head.chunks_exact(2) {
        first += usize::from(pair[0] == 0 && pair[1] != 0);
        second += usize::from(pair[1] == 0 && pair[0] != 0);
    }
    let line = head.split(|b| matches!(b, b'\n' | b'\r')).next()?;
    if line.contains(&0) || (first.max(second) * 10 > pairs * 3) {
        Some(if first > second { UTF_16BE } else { UTF_16LE })
    } else {
        None
    }
}

/// What to do about text that is not UTF-8, with an encoding that it could be in.
pub(super) fn advice(sample: &[u8]) -> String {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, true);
    let guess = detector.guess(None, Utf8Detection::Deny);
    // The end of the sample may cut a character in two.
    let whole = &sample[..sample.len().saturating_sub(4)];
    let fits = fits(guess, whole);
    let name = if fits {
        guess
    } else {
        // Not a guess, but the one that is meant most often.
        WINDOWS_1252
    }
    .name()
    .to_ascii_lowercase();
    if fits {
        format!("give its `encoding` (it could be `{name}`), or save the file as UTF-8")
    } else {
        format!("give its `encoding` (such as `{name}`), or save the file as UTF-8")
    }
}

fn fits(encoding: &'static encoding_rs::Encoding, sample: &[u8]) -> bool {
    if encoding == WINDOWS_1252 && undefined(sample).is_some() {
        return false;
    }
    let (_, malformed) = encoding.decode_without_bom_handling(sample);
    !malformed
}

/// The first byte that stands for nothing in windows-1252. (The standard of the web has
/// control characters there.)
pub(super) fn undefined(bytes: &[u8]) -> Option<usize> {
    bytes
        .iter()
        .position(|b| matches!(b, 0x81 | 0x8d | 0x8f | 0x90 | 0x9d))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(label: &str) -> Result<String, String> {
        Declared::parse(Some(label)).map(|declared| match declared {
            Declared::Auto => "auto".into(),
            Declared::Utf16 => "utf-16".into(),
            Declared::Is(Known(encoding)) => encoding.name(),
        })
    }

    #[test]
    fn labels() {
        for (label, name) in [
            ("AUTO", "auto"),
            ("utf8", "utf-8"),
            ("ASCII", "utf-8"),
            ("UTF-16", "utf-16"),
            ("utf-16le", "utf-16le"),
            ("utf-16be", "utf-16be"),
            ("Latin-1", "iso-8859-1"),
            ("ISO-8859-1", "iso-8859-1"),
            ("cp1252", "windows-1252"),
            ("iso-8859-15", "iso-8859-15"),
            ("sjis", "shift_jis"),
            ("gb2312", "gbk"),
        ] {
            assert_eq!(named(label).as_deref(), Ok(name), "{label}");
        }
        for label in ["", "utf-7", "ebcdic", "iso-2022-kr", "x-user-defined"] {
            let message = named(label).expect_err(label);
            assert!(message.contains("`windows-1252`"), "{message}");
        }
    }

    #[test]
    fn marks_and_declarations() {
        let decide = |label: &str, head: &[u8]| {
            let declared = Declared::parse(Some(label)).expect("a label");
            declared
                .decide(head)
                .map(Encoding::name)
                .map_err(|error| error.message)
        };
        for (label, head, name) in [
            ("auto", &b"id"[..], "utf-8"),
            ("auto", b"", "utf-8"),
            ("auto", b"\xef\xbb\xbfid", "utf-8"),
            ("auto", b"\xff\xfei\0", "utf-16le"),
            ("auto", b"\xfe\xff\0i", "utf-16be"),
            ("utf-16", b"\xfe\xff\0i", "utf-16be"),
            ("utf-16le", b"\xff\xfei\0", "utf-16le"),
            ("utf-16be", b"\0i\0d", "utf-16be"),
            ("utf-8", b"\xef\xbb\xbfid", "utf-8"),
            ("utf-8", b"i\0d\n", "utf-8"),
            ("windows-1252", b"\xfc", "windows-1252"),
        ] {
            assert_eq!(decide(label, head).as_deref(), Ok(name), "{label} {head:?}");
        }
        for (label, head, part) in [
            ("auto", &b"i\0d\0,\0"[..], "`utf-16le`"),
            ("auto", b"\0i\0d\0\n", "`utf-16be`"),
            // No NUL in the first line of this one.
            (
                "auto",
                b"\x4e\x2d\x65\x0a\0i\0d\0,\0i\0d\0\n\0i\0d",
                "`utf-16be`",
            ),
            ("auto", b"\xff\xfe\0\0i\0\0\0", "UTF-32"),
            ("auto", b"a,b\n\x1b$B8@\x1b(B,1\n", "`iso-2022-jp`"),
            ("utf-16", b"\0i\0d", "`utf-16be`"),
            ("utf-16", b"\xef\xbb\xbfid", "mark of utf-8"),
            ("utf-16le", b"\xfe\xff\0i", "mark of utf-16be"),
            ("utf-8", b"\xff\xfei\0", "mark of utf-16le"),
            ("latin-1", b"\xef\xbb\xbfid", "not iso-8859-1"),
        ] {
            let message = decide(label, head).expect_err(part);
            assert!(
                message.starts_with("line 1") && message.contains(part),
                "{message}"
            );
        }
    }

    #[test]
    fn a_guess_is_only_advice() {
        let advice = |sample: &[u8]| advice(sample);
        assert!(advice(b"name\nM\xfcller, S\xf8rensen\n").contains("could be `windows-1252`"));
        let (russian, _, _) =
            encoding_rs::WINDOWS_1251.encode("имя,город\nАнна,Москва\nИван,Нижний Новгород\n");
        assert!(advice(&russian).contains("could be `windows-1251`"));
    }
}
