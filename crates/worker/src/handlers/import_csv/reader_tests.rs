//! Records of every form, in pieces of every size.

use super::*;

type Line = (u64, Vec<String>, Option<Flaw>, u64);

fn read_in(text: &[u8], piece: usize) -> Vec<Line> {
    let mut reader = Reader::new(b',', Some(b'"'), 0, 1);
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
    let mut reader = Reader::new(b',', Some(b'"'), 0, 1);
    let wide = [&b"x,".repeat(3 * MAX_RECORD)[..], b"\n"].concat();
    let record = reader.next(&mut &wide[..]).expect("a record");
    assert_eq!(record.fields, 3 * MAX_RECORD + 1);
    assert!(reader.bytes.capacity() <= MAX_RECORD && reader.ends.len() <= MAX_COLUMNS);
}

#[test]
fn reading_can_begin_behind_any_record() {
    let text = b"id,name\r\n1,\"a\r\nb\"\r\n\r\n2,c\n3,d\r4,\"e\"\n".as_slice();
    let whole = read(text);
    let mut reader = Reader::new(b',', Some(b'"'), 0, 1);
    let mut input = text;
    let mut starts = Vec::new();
    while reader.next(&mut input).is_some() {
        starts.push((reader.offset(), reader.line()));
    }
    assert_eq!(starts.len(), whole.len());
    for (index, (offset, line)) in starts.into_iter().enumerate() {
        let mut reader = Reader::new(b',', Some(b'"'), offset, line);
        let mut input = &text[offset as usize..];
        let mut lines = Vec::new();
        while let Some(record) = reader.next(&mut input) {
            lines.push(record.line);
        }
        let expected: Vec<u64> = whole[index + 1..].iter().map(|line| line.0).collect();
        assert_eq!(lines, expected);
    }
}

/// The records as they stand in the file, in pieces of every size.
fn originals(text: &[u8], quote: Option<u8>) -> Vec<String> {
    let in_pieces = |piece: usize| {
        let mut reader = Reader::new(b',', quote, 7, 1);
        let mut found = Vec::new();
        for mut input in text.chunks(piece) {
            while let Some(record) = reader.next(&mut input) {
                found.push(record.original());
            }
        }
        found.extend(reader.finish().map(|record| record.original()));
        found
    };
    let whole = in_pieces(text.len());
    for piece in 1..text.len().min(30) {
        assert_eq!(in_pieces(piece), whole, "in pieces of {piece}");
    }
    whole
}

#[test]
fn records_are_kept_as_they_stand() {
    let text = "\r\n\na,\"b\r\n\"\"c\",\r\rö,'x'\n,\n\0,1\r\n\"x\"y,\"\n\"\nlast,\"open\n";
    assert_eq!(
        originals(text.as_bytes(), Some(b'"')),
        [
            "a,\"b\r\n\"\"c\",",
            "ö,'x'",
            ",",
            "\u{2400},1",
            "\"x\"y,\"\n\"",
            "last,\"open\n",
        ]
    );
}

#[test]
fn a_long_record_is_cut_at_a_character() {
    for (count, cut) in [(MAX_ORIGINAL / 2 - 1, false), (MAX_ORIGINAL / 2, true)] {
        let text = format!("x{},\nb\n", "é".repeat(count));
        for piece in [1_000, MAX_ORIGINAL, MAX_ORIGINAL + 1, 50_000] {
            let mut reader = Reader::new(b',', None, 0, 1);
            let mut found = Vec::new();
            for mut input in text.as_bytes().chunks(piece) {
                while let Some(record) = reader.next(&mut input) {
                    found.push(record.original());
                }
            }
            let expected = if cut {
                format!("x{}…", "é".repeat(MAX_ORIGINAL / 2 - 1))
            } else {
                format!("x{},", "é".repeat(count))
            };
            assert_eq!(found, [expected, "b".to_owned()], "in pieces of {piece}");
        }
    }
}

#[test]
fn other_quotes_and_none() {
    let rows = |text: &[u8], quote| {
        let mut reader = Reader::new(b',', quote, 0, 1);
        let mut input = text;
        let mut rows = Vec::new();
        while let Some(record) = reader.next(&mut input) {
            let fields = record.text().expect("UTF-8").map(str::to_owned);
            rows.push(fields.collect::<Vec<_>>());
        }
        rows
    };
    let text = b"'a,''b','c\nd',\"e\"\n";
    assert_eq!(rows(text, Some(b'\'')), [["a,'b", "c\nd", "\"e\""]]);
    assert_eq!(
        rows(text, None),
        [vec!["'a", "''b'", "'c"], vec!["d'", "\"e\""]]
    );
}

#[test]
fn a_quote_that_is_never_closed_is_named_however_long_its_value_is() {
    let text = format!("a,\"{}", "x".repeat(2 * MAX_FIELD));
    let mut reader = Reader::new(b',', Some(b'"'), 0, 1);
    assert!(reader.next(&mut text.as_bytes()).is_none());
    let record = reader.finish().expect("a record");
    assert_eq!(record.flaw, Some(Flaw::UnclosedQuote(1)));
    assert_eq!(record.original().chars().count(), MAX_ORIGINAL + 1);
}
