//! What content looks like, from its first bytes. It is told and never decides anything:
//! a guess must not stand in anybody's way.

/// The bytes that are looked at.
const HEAD_BYTES: usize = 4096;
/// What separates the fields of a table.
const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// The first bytes of content, as they come in.
#[derive(Debug, Default)]
pub(super) struct Head(Vec<u8>);

impl Head {
    /// Takes the next piece of the content.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        let room = HEAD_BYTES - self.0.len();
        self.0.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// The media type; `None`: it could be anything.
    pub(super) fn detect(&self) -> Option<&'static str> {
        detect(&self.0, self.0.len() == HEAD_BYTES)
    }
}

/// `cut`: there may be more.
fn detect(head: &[u8], cut: bool) -> Option<&'static str> {
    match head {
        [] => return None,
        [0xff, 0xfe, ..] => return Some("text/plain; charset=utf-16le"),
        [0xfe, 0xff, ..] => return Some("text/plain; charset=utf-16be"),
        _ => {}
    }
    let signed = infer::get(head);
    let Some(text) = text_of(head, cut) else {
        return signed.map(|kind| kind.mime_type());
    };
    // Letters at the beginning of a text are the signature of many a binary format; what
    // is text to its end is one of those that are written as text.
    if let Some(kind) = signed
        && (kind.matcher_type() == infer::MatcherType::Text
            || matches!(
                kind.mime_type(),
                "application/pdf" | "application/rtf" | "application/postscript"
            ))
    {
        return Some(kind.mime_type());
    }
    Some(if is_json(&text) {
        "application/json"
    } else if is_table(&text) {
        "text/csv"
    } else {
        "text/plain"
    })
}

/// The head as text, where it is text: UTF-8, or one byte for each letter.
fn text_of(head: &[u8], cut: bool) -> Option<String> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let control = |b: u8| b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c);
    if head.iter().any(|b| control(*b) || *b == 0x7f) {
        return None;
    }
    match std::str::from_utf8(head) {
        Ok(text) => Some(text.to_owned()),
        // The last letter may be cut in the middle.
        Err(error) if cut && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()])
                .ok()
                .map(str::to_owned)
        }
        Err(_) => {
            let high = head.iter().filter(|b| !b.is_ascii()).count();
            // Where every third byte is no ASCII, it is hardly a text of words.
            (high * 3 < head.len()).then(|| head.iter().map(|b| char::from(*b)).collect())
        }
    }
}

fn is_json(text: &str) -> bool {
    let mut begin = text.trim_start().chars().filter(|c| !c.is_whitespace());
    match (begin.next(), begin.next()) {
        (Some('{'), Some('"' | '}')) | (Some('['), Some('{' | '[' | '"' | ']')) => true,
        (Some('['), Some(c)) => c.is_ascii_digit(),
        _ => false,
    }
}

/// Whether the first lines have one separator equally often, and at least once.
fn is_table(text: &str) -> bool {
    let lines: Vec<&str> = text
        .split(['\n', '\r'])
        .filter(|line| !line.is_empty())
        .take(3)
        .collect();
    // The last of several may be cut, or no row at all.
    let sure = &lines[..lines.len().clamp(1, 2).min(lines.len())];
    let count = |line: &str, separator: char| {
        let mut quoted = false;
        line.chars()
            .filter(|c| {
                quoted ^= *c == '"';
                !quoted && *c == separator
            })
            .count()
    };
    SEPARATORS.iter().any(|separator| {
        let mut counts = sure.iter().map(|line| count(line, *separator));
        counts
            .next()
            .is_some_and(|first| first > 0 && counts.all(|other| other == first))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: &[u8]) -> Option<&'static str> {
        let mut head = Head::default();
        for piece in content.chunks(7) {
            head.feed(piece);
        }
        head.detect()
    }

    #[test]
    fn content_is_named_by_what_it_looks_like() {
        for (content, wanted) in [
            (&b""[..], None),
            (b"id,name\n1,Ann\n", Some("text/csv")),
            (b"\xef\xbb\xbfid;name\r\n1;\"a;b\"\r\n", Some("text/csv")),
            (b"MZ,BM\n1,2\n", Some("text/csv")),
            (b"id\tname\n1\tJos\xe9\n", Some("text/csv")),
            (b"Dear all,\nwe meet at noon.\n", Some("text/plain")),
            (b"{\"a\": 1}", Some("application/json")),
            (b"[\n 1, 2]", Some("application/json")),
            (b"\xff\xfei\0d\0", Some("text/plain; charset=utf-16le")),
            (b"\xfe\xff\0i\0d", Some("text/plain; charset=utf-16be")),
            (b"PK\x03\x04\x14\0\0\0", Some("application/zip")),
            (b"\x1f\x8b\x08\0\0\0\0\0", Some("application/gzip")),
            (b"%PDF-1.7\n1 0 obj\n", Some("application/pdf")),
            (b"<!DOCTYPE html><html>", Some("text/html")),
            (b"\x00\x01\x02\x03", None),
            (b"i\0d\0,\0", None),
        ] {
            assert_eq!(of(content), wanted, "{content:?}");
        }
    }

    #[test]
    fn a_letter_that_the_head_cuts_is_no_fault() {
        for shift in 0..4 {
            let content = format!("{}{}", "x".repeat(shift), "ü,漢\n".repeat(2000));
            assert!(of(content.as_bytes()).is_some(), "{shift}");
        }
    }
}
