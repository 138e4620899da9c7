//! An original message for people.

use std::fmt::Write as _;

use crate::output::block;
use crate::view::DeadLetter;

/// The bytes of a line.
const WIDTH: usize = 16;
/// So many bytes of a message that is no JSON are shown; `-o json` has all of them.
const SHOWN_BYTES: usize = 2048;

/// The message under its own head line; nothing where there is none.
pub(super) fn payload_text(letter: &DeadLetter) -> String {
    match (&letter.payload, &letter.payload_hex) {
        (Some(json), _) => {
            let json = json.get();
            format!("\npayload, {} bytes of JSON:\n{}", json.len(), block(json))
        }
        (None, Some(hex)) => {
            let bytes = hex::decode(hex).unwrap_or_default();
            format!(
                "\npayload, {} bytes that are no JSON:\n{}",
                bytes.len(),
                dump(&bytes)
            )
        }
        (None, None) => String::new(),
    }
}

/// Offset, bytes and the letters that they stand for, as far as they are printable ASCII.
fn dump(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let mut text = String::new();
    for (at, line) in shown.chunks(WIDTH).enumerate() {
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let letters: String = line
            .iter()
            .map(|&byte| match byte {
                b' '..=b'~' => char::from(byte),
                _ => '.',
            })
            .collect();
        let _ = writeln!(
            text,
            "  {:08x}  {:<47}  |{letters}|",
            at * WIDTH,
            digits.join(" ")
        );
    }
    let left = bytes.len() - shown.len();
    if left > 0 {
        let _ = writeln!(text, "  … and {left} more bytes; -o json has all of them");
    }
    text
}

#[cfg(test)]
mod tests {
    use tenure_proto::v1;

    use super::*;

    fn shown(payload: &[u8]) -> String {
        payload_text(&DeadLetter::from(v1::DeadLetter {
            payload: payload.to_vec().into(),
            ..v1::DeadLetter::default()
        }))
    }

    #[test]
    fn json_is_shown_as_it_is() {
        assert_eq!(
            shown(b"{\"a\":\n 1.0}"),
            "\npayload, 11 bytes of JSON:\n  {\"a\":\n   1.0}\n"
        );
        assert_eq!(shown(b""), "");
    }

    #[test]
    fn other_bytes_are_shown_as_far_as_a_terminal_is_safe() {
        assert_eq!(
            shown(b"hello \x1b[2J\xff\x00world"),
            "\npayload, 17 bytes that are no JSON:\n\
             \u{20} 00000000  68 65 6c 6c 6f 20 1b 5b 32 4a ff 00 77 6f 72 6c  |hello .[2J..worl|\n\
             \u{20} 00000010  64                                               |d|\n"
        );
        let long = shown(&[b'x'; 3000]);
        assert!(long.contains("3000 bytes"), "{long}");
        assert!(long.contains("… and 952 more bytes"), "{long}");
    }
}
