//! Reads CSV records out of bytes as they come in.
//!
//! - A line ends with LF, CRLF or a lone CR. Lines are counted physically: a line end
//!   within quotes counts too (and stays in the value as it is).
//! - A field that begins with the quote ends with the next one that is not doubled. A
//!   quote elsewhere is a character like any other. Nothing is a comment.
//! - Empty lines are skipped.
//! - Memory is bounded: the content of a field or record beyond its limit is dropped,
//!   and the record says so.
//!
//! A reader can begin at any byte offset at which a record begins.

use std::str::Utf8Error;

/// The most bytes of one field.
pub(crate) const MAX_FIELD: usize = 1024 * 1024;
/// The most bytes of one record.
pub(crate) const MAX_RECORD: usize = 4 * 1024 * 1024;
/// The most columns of a file; of a longer record the fields beyond are only counted.
pub(crate) const MAX_COLUMNS: usize = 1_000;

/// The most bytes of a record that are kept as they stand in the file.
pub(crate) const MAX_ORIGINAL: usize = 16 * 1024;

/// What is wrong with a record's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// This field (from 0), or the record up to it, is too long; its content is lost.
    TooLong(usize),
    /// This field (from 0) goes on behind its closing quote.
    TextAfterQuote(usize),
    /// The file ends within the quotes of this field (from 0).
    UnclosedQuote(usize),
}

/// A record, borrowed from its reader until the next one is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'r> {
    /// The physical line, from 1, on which it begins.
    pub(crate) line: u64,
    /// How many fields it has.
    pub(crate) fields: usize,
    /// What is wrong with it.
    pub(crate) flaw: Option<Flaw>,
    bytes: &'r [u8],
    ends: &'r [usize],
    /// The record as it stands in the file: its part in the inputs before this one, up to
    /// a little more than is kept of it, and its part in this one.
    before: &'r [u8],
    rest: &'r [u8],
}

impl<'r> Record<'r> {
    /// Whether there is a NUL in it.
    pub(crate) fn has_nul(&self) -> bool {
        self.bytes.contains(&0)
    }

    /// The record as it stands in the file, without its line end; `…` stands for what is
    /// beyond [`MAX_ORIGINAL`], and `␀` for a NUL, which the database cannot hold.
    pub(crate) fn original(&self) -> String {
        let rest = &self.rest[..self.rest.len().min(MAX_ORIGINAL + 1)];
        let mut bytes = [self.before, rest].concat();
        let cut = bytes.len() > MAX_ORIGINAL;
        bytes.truncate(MAX_ORIGINAL);
        let valid = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            // A character that the cut went through. (All of it was text.)
            Err(error) => error.valid_up_to(),
        };
        bytes.truncate(valid);
        let mut text = String::from_utf8(bytes).unwrap_or_default();
        if text.contains('\0') {
            text = text.replace('\0', "\u{2400}");
        }
        if cut {
            text.push('…');
        }
        text
    }

    /// The text of the record's fields, up to [`MAX_COLUMNS`] of them.
    pub(crate) fn text(&self) -> Result<impl Iterator<Item = &'r str> + use<'r>, Utf8Error> {
        let text = std::str::from_utf8(self.bytes)?;
        let mut start = 0;
        Ok(self.ends.iter().map(move |end| {
            // Fields end where a delimiter, quote or line end stood: at a character's border.
            let field = text.get(start..*end).unwrap_or_default();
            start = *end;
            field
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the beginning of a record.
    RecordStart,
    /// At the beginning of a field that is not a record's first.
    FieldStart,
    /// In a field without quotes, or behind a closing quote.
    Plain,
    /// Within quotes.
    Quoted,
    /// Behind a CR within quotes: a LF next belongs to the same line end.
    QuotedCr,
    /// Behind a quote within quotes: the end, or the first of two.
    QuoteInQuoted,
    /// Behind a CR that ended a record (or an empty line): a LF next belongs to it.
    Cr,
}

/// Splits bytes into records.
#[derive(Debug)]
pub(crate) struct Reader {
    delimiter: u8,
    quote: Option<u8>,
    state: State,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    fields: usize,
    flaw: Option<Flaw>,
    field_start: usize,
    record_line: u64,
    line: u64,
    offset: u64,
    complete: bool,
    /// Where the record begins and where its content ends.
    record_start: u64,
    record_end: u64,
    /// The record's bytes of earlier inputs, as far as they are kept.
    before: Vec<u8>,
}

impl Reader {
    /// A reader whose first byte is at `offset` of the text, on physical line `line`.
    pub(crate) fn new(delimiter: u8, quote: Option<u8>, offset: u64, line: u64) -> Self {
        Self {
            delimiter,
            quote,
            state: State::RecordStart,
            bytes: Vec::new(),
            ends: Vec::new(),
            fields: 0,
            flaw: None,
            field_start: 0,
            record_line: line,
            line,
            offset,
            complete: false,
            record_start: offset,
            record_end: offset,
            before: Vec::new(),
        }
    }

    /// Bytes of the text that are read. Right after a record it is where the next begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The physical line of the next byte.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Reads on in `input` up to the end of the next record, and takes what it read
    /// off `input`. `None`: the input is used up.
    pub(crate) fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Option<Record<'r>> {
        self.forget();
        let (all, at) = (*input, self.offset);
        if self.read(input) {
            let from = self.record_start.max(at) - at;
            let to = self.record_end.max(at) - at;
            let rest = &all[from as usize..to.max(from) as usize];
            return Some(Record {
                rest,
                ..self.current()
            });
        }
        self.remember(all, at);
        None
    }

    /// Reads on; whether a record ended.
    fn read(&mut self, input: &mut &[u8]) -> bool {
        while let Some(byte) = input.first().copied() {
            if self.state == State::Cr {
                let line_feed = byte == b'\n';
                if line_feed {
                    self.take(input, 1);
                }
                self.state = State::RecordStart;
                self.line += 1;
                if self.end_record() {
                    return true;
                }
                continue;
            }
            let plain = self.plain_stretch(input);
            if plain > 0 {
                self.keep(&input[..plain]);
                self.take(input, plain);
                continue;
            }
            self.take(input, 1);
            if self.special(byte) {
                return true;
            }
        }
        false
    }

    /// Keeps what the input that was used up has of a record that goes on in the next.
    fn remember(&mut self, all: &[u8], at: u64) {
        let to = match self.state {
            State::RecordStart => return,
            State::Cr if self.fields == 0 => return,
            State::Cr => self.record_end,
            _ => self.offset,
        };
        let from = self.record_start.max(at) - at;
        let part = &all[from as usize..(to.max(at) - at).max(from) as usize];
        // One more than is kept: so that it shows whether anything is beyond.
        let room = (MAX_ORIGINAL + 1).saturating_sub(self.before.len());
        self.before.extend_from_slice(&part[..part.len().min(room)]);
    }

    /// The last record, where the file ends without a line end.
    pub(crate) fn finish(&mut self) -> Option<Record<'_>> {
        self.forget();
        let was = std::mem::replace(&mut self.state, State::RecordStart);
        match was {
            State::RecordStart => {}
            State::Cr => self.line += 1,
            State::FieldStart | State::Plain | State::QuoteInQuoted => self.end_field(),
            State::Quoted | State::QuotedCr => {
                // Says more than that the field became too long by it.
                self.flaw = match self.flaw {
                    Some(Flaw::TooLong(field)) if field == self.fields => None,
                    flaw => flaw,
                };
                self.flaw.get_or_insert(Flaw::UnclosedQuote(self.fields));
                self.end_field();
            }
        }
        self.end_record().then(|| self.current())
    }

    fn forget(&mut self) {
        if self.complete {
            self.complete = false;
            self.bytes.clear();
            // A rare large record must not hold its memory for ever.
            self.bytes.shrink_to(64 * 1024);
            self.ends.clear();
            self.fields = 0;
            self.flaw = None;
            self.field_start = 0;
            self.before.clear();
        }
    }

    /// The bytes at the beginning of `input` that need no decision. In the states in
    /// which any byte matters there are none.
    fn plain_stretch(&mut self, input: &[u8]) -> usize {
        let (delimiter, quote) = (self.delimiter, self.quote);
        let stretch = match self.state {
            State::Quoted => {
                let quote = quote.unwrap_or(b'\n');
                input
                    .iter()
                    .position(|b| *b == quote || matches!(b, b'\n' | b'\r'))
            }
            State::Plain => input
                .iter()
                .position(|b| *b == delimiter || matches!(b, b'\n' | b'\r')),
            State::RecordStart | State::FieldStart => {
                let stretch = input
                    .iter()
                    .position(|b| *b == delimiter || matches!(b, b'\n' | b'\r'))
                    .unwrap_or(input.len());
                if stretch == 0 || Some(input[0]) == quote {
                    return 0;
                }
                self.begin(self.offset);
                self.state = State::Plain;
                return stretch;
            }
            State::QuotedCr | State::QuoteInQuoted | State::Cr => return 0,
        };
        stretch.unwrap_or(input.len())
    }

    /// Deals with one byte that matters; whether it ended a record.
    fn special(&mut self, byte: u8) -> bool {
        // It is taken off already.
        let at = self.offset - 1;
        let quote = Some(byte) == self.quote;
        match self.state {
            State::Quoted => self.in_quotes(byte),
            State::QuotedCr => {
                // The CR's line is counted already.
                self.state = State::Quoted;
                if byte == b'\n' {
                    self.keep(b"\n");
                } else {
                    self.in_quotes(byte);
                }
            }
            State::QuoteInQuoted if quote => {
                self.keep(&[byte]);
                self.state = State::Quoted;
            }
            State::RecordStart | State::FieldStart if quote => {
                self.begin(at);
                self.state = State::Quoted;
            }
            State::RecordStart if byte == b'\n' => self.line += 1,
            State::RecordStart if byte == b'\r' => self.state = State::Cr,
            _ if byte == self.delimiter => {
                self.begin(at);
                self.end_field();
                self.state = State::FieldStart;
            }
            _ if byte == b'\n' => {
                self.record_end = at;
                self.end_field();
                self.line += 1;
                self.state = State::RecordStart;
                return self.end_record();
            }
            _ if byte == b'\r' => {
                self.record_end = at;
                self.end_field();
                self.state = State::Cr;
            }
            _ => {
                // Text behind a closing quote: what was meant is not known.
                self.flaw.get_or_insert(Flaw::TextAfterQuote(self.fields));
                self.state = State::Plain;
            }
        }
        false
    }

    fn in_quotes(&mut self, byte: u8) {
        match byte {
            _ if Some(byte) == self.quote => {
                self.state = State::QuoteInQuoted;
                return;
            }
            b'\n' => self.line += 1,
            b'\r' => {
                self.line += 1;
                self.state = State::QuotedCr;
            }
            _ => {}
        }
        self.keep(&[byte]);
    }

    fn begin(&mut self, at: u64) {
        if self.state == State::RecordStart {
            self.record_line = self.line;
            self.record_start = at;
        }
    }

    fn take(&mut self, input: &mut &[u8], count: usize) {
        *input = &input[count..];
        self.offset += count as u64;
    }

    /// Keeps content of the current field, within the limits.
    fn keep(&mut self, content: &[u8]) {
        if self.fields >= MAX_COLUMNS || matches!(self.flaw, Some(Flaw::TooLong(_))) {
            return;
        }
        let field = self.bytes.len() - self.field_start + content.len();
        if field > MAX_FIELD || self.bytes.len() + content.len() > MAX_RECORD {
            self.flaw = Some(Flaw::TooLong(self.fields));
            self.bytes.truncate(self.field_start);
        } else {
            self.bytes.extend_from_slice(content);
        }
    }

    fn end_field(&mut self) {
        if self.fields < MAX_COLUMNS {
            self.ends.push(self.bytes.len());
        }
        self.field_start = self.bytes.len();
        self.fields += 1;
    }

    /// Whether there is a record (and not an empty line).
    fn end_record(&mut self) -> bool {
        self.complete = self.fields > 0;
        self.complete
    }

    /// The record that was read last; it stays until the next is asked for. Of its form in
    /// the file it has what was in earlier inputs.
    pub(crate) fn current(&self) -> Record<'_> {
        Record {
            line: self.record_line,
            fields: self.fields,
            flaw: self.flaw,
            bytes: &self.bytes,
            ends: &self.ends,
            before: &self.before,
            rest: &[],
        }
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
