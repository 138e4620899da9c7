//! What goes to standard output and standard error.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::errors::Failure;

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Table,
    /// One JSON document.
    Json,
}

/// Standard output. A reader that goes away (`tenure list | head`) ends the
/// printing without a complaint and leaves the exit code alone.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    reader_gone: bool,
}

impl Output {
    /// Prints in this format.
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            reader_gone: false,
        }
    }

    /// Prints `view` as JSON, or what `text` makes of it for people.
    pub(crate) fn emit<V: Serialize>(
        &mut self,
        view: &V,
        text: impl FnOnce(&V) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.raw(json(view)?.as_bytes()),
            Format::Table => self.raw(text(view).as_bytes()),
        }
    }

    /// Tells a failure beside which the verb has its own answer.
    pub(crate) fn warn(&self, failure: &Failure) {
        say_failure(self.format, failure);
    }

    /// Prints these bytes, whatever the format.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.reader_gone {
            return Ok(());
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.reader_gone = true;
                Ok(())
            }
            Err(error) => Err(Failure::local(format!(
                "cannot write to standard output: {error}"
            ))),
        }
    }
}

fn json<V: Serialize>(view: &V) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(view).context("cannot write JSON")?;
    text.push('\n');
    Ok(escape_json(&text))
}

/// Writes a line to standard error; where nobody reads it there is nobody to
/// tell.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Tells a failure on standard error.
pub(crate) fn say_failure(format: Format, failure: &Failure) {
    let text = match format {
        Format::Json => json(&failure.to_view()).unwrap_or_else(|_| failure.to_text()),
        Format::Table => failure.to_text(),
    };
    say(text.trim_end());
}

/// Whether a terminal would act on this character, or would show the text in
/// another order than it has.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text of other people, made safe to show on a terminal.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// The beginning of a long text.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text of several lines, made safe and moved to the right, so that none of its lines
/// can be taken for one of ours.
pub(crate) fn block(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for line in text.lines() {
        let _ = writeln!(safe, "  {}", escape(line));
    }
    safe
}

/// The same for a JSON document, without changing what it means: inside a
/// string an escape stands for the character, and outside of strings valid JSON
/// has no such character but white space.
fn escape_json(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => safe.push(c),
            '\r' => safe.push(' '),
            // All of them lie in the basic plane.
            c if is_unsafe(c) => {
                let _ = write!(safe, "\\u{:04x}", c as u32);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// A table for people; cells and headings are made safe here.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(header.iter().map(|name| escape(name).into_owned()));
    for row in rows {
        table.add_row(row.iter().map(|cell| escape(cell).into_owned()));
    }
    lines(&table)
}

/// Names and values, one pair a line; empty values are left out.
pub(crate) fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for (name, value) in rows {
        if !value.is_empty() {
            table.add_row([Cow::Borrowed(name), Cow::Owned(escape(&value).into_owned())]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    lines(&table)
}

fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        // The preset pads every cell by one space on the left.
        let line = line.strip_prefix(' ').unwrap_or(&line);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        assert_eq!(escape("plain äöü 漢字"), "plain äöü 漢字");
        assert_eq!(escape("\u{1b}]0;x\u{7}"), r"\u{1b}]0;x\u{7}");
        assert_eq!(escape("a\nb\tc\r"), r"a\nb\tc\r");
        assert_eq!(escape("\u{9b}31m\u{7f}"), r"\u{9b}31m\u{7f}");
        assert_eq!(escape("\u{202e}abc"), r"\u{202e}abc");
    }

    #[test]
    fn json_is_escaped_without_a_change_of_meaning() {
        let raw = "{\r\n \"a\":\"\u{9b}\u{202e}\u{7f}x\"}".to_owned();
        let raw = RawValue::from_string(raw).expect("JSON");
        let text = json(&raw).expect("serialises");
        assert!(text.chars().all(|c| c == '\n' || !is_unsafe(c)), "{text:?}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(value["a"], "\u{9b}\u{202e}\u{7f}x");
    }

    #[test]
    fn a_block_keeps_its_lines_and_nothing_else() {
        assert_eq!(block("a\n\u{1b}b\r\n"), "  a\n  \\u{1b}b\n");
        assert_eq!(block(""), "");
        assert_eq!(cut("äöü", 2), "äö…");
        assert_eq!(cut("äöü", 3), "äöü");
    }

    #[test]
    fn tables_have_no_frames_and_safe_cells() {
        let text = table(
            &["A", "LONG"],
            [
                vec!["x\u{1b}y".to_owned(), "1".to_owned()],
                vec![String::new(), "2".to_owned()],
            ],
        );
        assert_eq!(text, "A         LONG\nx\\u{1b}y  1\n          2\n");
        // Headings are other people's text too, where they are columns of a file.
        assert_eq!(table(&["a\u{1b}]0;x\u{7}"], []), "a\\u{1b}]0;x\\u{7}\n");
    }

    #[test]
    fn pairs_leave_out_what_is_empty() {
        let text = pairs([("one", "1".to_owned()), ("none", String::new())]);
        assert_eq!(text, "one  1\n");
        assert_eq!(pairs([("none", String::new())]), "");
    }
}
