//! Reads CSV records out of bytes as they come in.
//!
//! - A line ends with LF, CRLF or a lone CR. Lines are counted physically: a line end
//!   within quotes counts too (and stays in the value as it is).
//! - A field that begins with `"` ends with the next `"` that is not doubled. A quote
//!   elsewhere is a character like any other. Nothing is a comment.
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
}

impl<'r> Record<'r> {
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
}

impl Reader {
    /// A reader whose first byte is at `offset` of the file, on physical line `line`.
    pub(crate) fn new(delimiter: u8, offset: u64, line: u64) -> Self {
        Self {
            delimiter,
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
        }
    }

    /// Bytes of the file that are read. Right after a record it is where the next begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The physical line of the next byte.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Reads on in `input` up to the end of the next record, and takes what it read
    /// off `input`. `None`: the input is used up.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Option<Record<'_>> {
        self.forget();
        while let Some(byte) = input.first().copied() {
            if self.state == State::Cr {
                let line_feed = byte == b'\n';
                if line_feed {
                    self.take(input, 1);
                }
                self.state = State::RecordStart;
                self.line += 1;
                if self.end_record() {
                    return Some(self.current());
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
                return Some(self.current());
            }
        }
        None
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
        }
    }

    /// The bytes at the beginning of `input` that need no decision. In the states in
    /// which any byte matters there are none.
    fn plain_stretch(&mut self, input: &[u8]) -> usize {
        let delimiter = self.delimiter;
        let stretch = match self.state {
            State::Quoted => input.iter().position(|b| matches!(b, b'"' | b'\n' | b'\r')),
            State::Plain => input
                .iter()
                .position(|b| *b == delimiter || matches!(b, b'\n' | b'\r')),
            State::RecordStart | State::FieldStart => {
                let stretch = input
                    .iter()
                    .position(|b| *b == delimiter || matches!(b, b'\n' | b'\r'))
                    .unwrap_or(input.len());
                if stretch == 0 || input[0] == b'"' {
                    return 0;
                }
                self.begin();
                self.state = State::Plain;
                return stretch;
            }
            State::QuotedCr | State::QuoteInQuoted | State::Cr => return 0,
        };
        stretch.unwrap_or(input.len())
    }

    /// Deals with one byte that matters; whether it ended a record.
    fn special(&mut self, byte: u8) -> bool {
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
            State::QuoteInQuoted if byte == b'"' => {
                self.keep(b"\"");
                self.state = State::Quoted;
            }
            State::RecordStart | State::FieldStart if byte == b'"' => {
                self.begin();
                self.state = State::Quoted;
            }
            State::RecordStart if byte == b'\n' => self.line += 1,
            State::RecordStart if byte == b'\r' => self.state = State::Cr,
            _ if byte == self.delimiter => {
                self.begin();
                self.end_field();
                self.state = State::FieldStart;
            }
            _ if byte == b'\n' => {
                self.end_field();
                self.line += 1;
                self.state = State::RecordStart;
                return self.end_record();
            }
            _ if byte == b'\r' => {
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
            b'"' => {
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

    fn begin(&mut self) {
        if self.state == State::RecordStart {
            self.record_line = self.line;
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

    /// The record that was read last; it stays until the next is asked for.
    pub(crate) fn current(&self) -> Record<'_> {
        Record {
            line: self.record_line,
            fields: self.fields,
            flaw: self.flaw,
            bytes: &self.bytes,
            ends: &self.ends,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Line = (u64, Vec<String>, Option<Flaw>, u64);

    fn read_in(text: &[u8], piece: usize) -> Vec<Line> {
        let mut reader = Reader::new(b',', 0, 1);
        let mut lines = Vec::new();
        let keep = |record: Record<'_>| {
            let fields: Vec<String> = record.text().expect("UTF-8").map(str::to_owned).collect();
            assert_eq!(fields.len(), record.fields.min(MAX_COLUMNS));
            (record.line, fields, record.flaw)
        };
        for mut input in text.chunks(piece) {
            while let Some(record) = reader.next(&mut input) {
                let (line, fields, flaw) = keep(record);
                lines.push((line, fields, flaw, reader.offset()));
            }
        }
        if let Some(record) = reader.finish() {
            let (line, fields, flaw) = keep(record);
            lines.push((line, fields, flaw, reader.offset()));
        }
        assert_eq!(reader.offset(), text.len() as u64);
        lines
    }

    fn read(text: &[u8]) -> Vec<Line> {
        let whole = read_in(text, usize::MAX);
        for piece in 1..text.len().min(9) {
            let pieces = read_in(text, piece);
            assert_eq!(pieces, whole, "in pieces of {piece}");
        }
        whole
    }

    fn rows(text: &[u8]) -> Vec<(u64, Vec<String>)> {
        read(text)
            .into_iter()
            .map(|(line, fields, _, _)| (line, fields))
            .collect()
    }

    fn row(line: u64, fields: &[&str]) -> (u64, Vec<String>) {
        (
            line,
            fields.iter().map(|field| (*field).to_owned()).collect(),
        )
    }

    #[test]
    fn line_ends_of_all_kinds() {
        let expected = vec![
            row(1, &["a", "b"]),
            row(2, &["c", "d"]),
            row(3, &["e", "f"]),
        ];
        for text in [
            "a,b\nc,d\ne,f\n",
            "a,b\r\nc,d\r\ne,f\r\n",
            "a,b\rc,d\re,f\r",
            "a,b\r\nc,d\ne,f",
        ] {
            assert_eq!(rows(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn blank_lines_are_skipped_and_counted() {
        assert_eq!(
            rows(b"\n\r\n\r\ra\n\n\nb\r\n\r\n"),
            vec![row(5, &["a"]), row(8, &["b"])]
        );
        assert_eq!(rows(b""), vec![]);
        assert_eq!(rows(b"\n\n"), vec![]);
        assert_eq!(rows(b"\"\"\n"), vec![row(1, &[""])]);
    }

    #[test]
    fn quotes() {
        assert_eq!(
            rows(b"\"a\nb\",\"c\r\nd\",\"e\rf\"\nx,\"y\"\"z\",\"\"\n5\" pipe, \"q\",\n"),
            vec![
                row(1, &["a\nb", "c\r\nd", "e\rf"]),
                row(5, &["x", "y\"z", ""]),
                row(6, &["5\" pipe", " \"q\"", ""]),
            ]
        );
    }

    #[test]
    fn flaws_belong_to_their_record_alone() {
        let lines = read(b"a,\"b\"c,d\ne,f\n\"g,h\n");
        assert_eq!(lines[0].2, Some(Flaw::TextAfterQuote(1)));
        assert_eq!((lines[1].0, lines[1].2), (2, None));
        assert_eq!((lines[2].0, lines[2].2), (3, Some(Flaw::UnclosedQuote(0))));
    }

    #[test]
    fn empty_fields_count() {
        assert_eq!(
            rows(b",\n,,\na,"),
            vec![row(1, &["", ""]), row(2, &["", "", ""]), row(3, &["a", ""])]
        );
    }

    #[test]
    fn long_fields_are_dropped_and_the_next_record_is_whole() {
        let mut text = b"a,".to_vec();
        text.resize(text.len() + MAX_FIELD, b'x');
        text.extend_from_slice(b",b\n1,");
        text.resize(text.len() + MAX_FIELD + 1, b'y');
        text.extend_from_slice(b",2\n3,4\n");
        for piece in [1000, usize::MAX] {
            let lines = read_in(&text, piece);
            assert_eq!(lines[0].1[1].len(), MAX_FIELD);
            assert_eq!(lines[0].2, None);
            assert_eq!(lines[1].2, Some(Flaw::TooLong(1)));
            assert_eq!(
                (lines[2].0, lines[2].1.as_slice()),
                (3, ["3".to_owned(), "4".to_owned()].as_slice())
            );
        }
        let mut reader = Reader::new(b',', 0, 1);
        let wide = [&b"x,".repeat(3 * MAX_RECORD)[..], b"\n"].concat();
        let record = reader.next(&mut &wide[..]).expect("a record");
        assert_eq!(record.fields, 3 * MAX_RECORD + 1);
        assert!(reader.bytes.capacity() <= MAX_RECORD && reader.ends.len() <= MAX_COLUMNS);
    }

    #[test]
    fn reading_can_begin_behind_any_record() {
        let text = b"id,name\r\n1,\"a\r\nb\"\r\n\r\n2,c\n3,d\r4,\"e\"\n".as_slice();
        let whole = read(text);
        let mut reader = Reader::new(b',', 0, 1);
        let mut input = text;
        let mut starts = Vec::new();
        while reader.next(&mut input).is_some() {
            starts.push((reader.offset(), reader.line()));
        }
        assert_eq!(starts.len(), whole.len());
        for (index, (offset, line)) in starts.into_iter().enumerate() {
            let mut reader = Reader::new(b',', offset, line);
            let mut input = &text[offset as usize..];
            let mut lines = Vec::new();
            while let Some(record) = reader.next(&mut input) {
                lines.push(record.line);
            }
            let expected: Vec<u64> = whole[index + 1..].iter().map(|line| line.0).collect();
            assert_eq!(lines, expected);
        }
    }
}
