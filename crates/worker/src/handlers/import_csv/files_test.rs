//! Files with every kind of trouble, from the first byte to the verdict on each row,
//! without a database. The outcomes are listed in tests/data/README.md.

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::domain::ids::{FileId, JobId};
use tenure_core::storage::imports::{Batch, Candidate, Position, Reject};

use super::batch::{BATCH_BYTES, BATCH_ROWS, Batcher};
use super::decode::Wishes;
use super::decode::tests::{check, text_from};
use super::payload::Payload;
use super::plan::{Plan, plan};
use crate::handler::JobError;

/// The bytes of a piece of the text; real ones are larger.
const PIECE: usize = 4_099;

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) plan: Plan,
    pub(super) rows: Vec<(i64, Value)>,
    pub(super) rejects: Vec<Reject>,
    pub(super) candidates: Vec<Candidate>,
    positions: Vec<Position>,
}

impl Outcome {
    pub(super) fn rejected(&self) -> Vec<(i64, &str, &str)> {
        self.rejects
            .iter()
            .map(|reject| (reject.line, reject.column.as_str(), reject.reason.as_str()))
            .collect()
    }

    pub(super) fn lines(&self) -> Vec<i64> {
        self.rows.iter().map(|(line, _)| *line).collect()
    }

    pub(super) fn column(&self, name: &str) -> Vec<&Value> {
        self.rows.iter().map(|(_, row)| &row[name]).collect()
    }
}

pub(super) fn payload(more: Value) -> Payload {
    let mut payload = json!({"file_id": FileId::new()});
    for (key, value) in more.as_object().expect("an object") {
        payload[key] = value.clone();
    }
    Payload::parse(payload.to_string().as_bytes()).expect("a payload")
}

/// The payload of most files.
fn typed() -> Payload {
    typed_in(None)
}

/// The same with an encoding.
fn typed_in(encoding: Option<&str>) -> Payload {
    payload(json!({"encoding": encoding, "columns": [
        {"name": "id", "type": "integer", "required": true},
        {"name": "name", "type": "text", "required": true},
        {"name": "amount", "type": "decimal"},
    ]}))
}

pub(super) fn wishes(payload: &Payload) -> Wishes {
    Wishes {
        encoding: payload.declared_encoding().expect("an encoding"),
        max_unpacked: 1 << 30,
    }
}

pub(super) fn bytes_of(file: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/data/csv/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(super) fn batches(
    plan: &Plan,
    content: &[u8],
    wishes: Wishes,
    at: Position,
) -> Result<Vec<Batch>, JobError> {
    let mut batcher = Batcher::new(JobId::new(), plan, at, false)?;
    let mut batches = Vec::new();
    let text = text_from(content, wishes, at.byte_offset as u64)?.concat();
    for piece in text.chunks(PIECE) {
        let mut piece = Bytes::copy_from_slice(piece);
        while !piece.is_empty() {
            batches.extend(batcher.feed(&mut piece, &|| false)?);
        }
    }
    batches.extend(batcher.finish()?);
    Ok(batches)
}

fn rows_of(batch: &Batch) -> Vec<(i64, Value)> {
    let rows: Vec<(i64, Value)> = batch
        .rows
        .iter()
        .map(|(line, json)| (line, serde_json::from_str(json).expect("JSON")))
        .collect();
    assert_eq!(rows.len(), batch.rows.len());
    rows
}

pub(super) fn import_bytes(content: &[u8], payload: &Payload) -> Result<Outcome, JobError> {
    let wishes = wishes(payload);
    let checked = check(content, wishes)?;
    let planned = plan(payload, &checked, chrono::Utc::now())?;
    let stored = serde_json::to_value(&planned.plan).expect("JSON");
    // A column without a type is text once it is stored.
    let again: Plan = serde_json::from_value(stored.clone()).expect("a plan");
    assert_eq!(serde_json::to_value(&again).expect("JSON"), stored);
    let start = Position {
        byte_offset: planned.offset as i64,
        line_no: planned.line as i64,
        ..Position::default()
    };
    let whole = batches(&planned.plan, content, wishes, start)?;
    let mut at = start;
    let mut outcome = Outcome {
        plan: planned.plan,
        rows: Vec::new(),
        rejects: Vec::new(),
        candidates: Vec::new(),
        positions: vec![start],
    };
    for batch in whole {
        assert_eq!(batch.from, at);
        at = batch.to;
        assert!(batch.rows.len() + batch.rejects.len() <= BATCH_ROWS);
        outcome.rows.extend(rows_of(&batch));
        outcome.rejects.extend(batch.rejects);
        outcome.candidates.extend(batch.candidates);
        outcome.positions.push(at);
    }
    assert_eq!(at.byte_offset, outcome.plan.text_bytes as i64);
    assert_eq!(at.rows_accepted, outcome.rows.len() as i64);
    assert_eq!(at.rows_rejected, outcome.rejects.len() as i64);
    resumes(&outcome, content, wishes);
    Ok(outcome)
}

/// From each position the rest comes out the same.
fn resumes(outcome: &Outcome, content: &[u8], wishes: Wishes) {
    for at in &outcome.positions {
        let rest = batches(&outcome.plan, content, wishes, *at).expect("the rest");
        let rows: Vec<_> = rest.iter().flat_map(rows_of).collect();
        let rejects: Vec<_> = rest.into_iter().flat_map(|batch| batch.rejects).collect();
        assert_eq!(rows, outcome.rows[at.rows_accepted as usize..]);
        assert_eq!(rejects, outcome.rejects[at.rows_rejected as usize..]);
    }
}

fn import(file: &str) -> Outcome {
    import_bytes(&bytes_of(file), &typed()).unwrap_or_else(|error| panic!("{file}: {error:?}"))
}

fn refused(file: &str) -> (String, String) {
    let error = import_bytes(&bytes_of(file), &typed()).expect_err(file);
    assert_eq!(error.class, tenure_core::error::Class::Permanent);
    assert!(
        error.message.len() < 300 && !error.message.contains(char::is_control),
        "{}",
        error.message
    );
    (error.code, error.message)
}

#[test]
fn the_control_and_its_variants() {
    let control = import("plain_control.csv");
    assert_eq!(control.lines(), [2, 3, 4]);
    assert_eq!(
        control.column("amount"),
        [&json!(10.50), &json!(20.00), &json!(30.25)]
    );
    assert_eq!(control.column("name")[2], "Chloé");
    for file in [
        "bom_utf8.csv",
        "crlf.csv",
        "no_final_newline.csv",
        "utf16le_bom.csv",
    ] {
        let outcome = import(file);
        assert_eq!(outcome.rows, control.rows, "{file}");
        assert_eq!(outcome.plan.header[0], "id", "{file}");
        assert!(outcome.rejects.is_empty());
    }
    let quoted = import("bom_utf8_quoted_header.csv");
    assert_eq!(
        (quoted.plan.header[0].as_str(), quoted.rows.len()),
        ("id", 1)
    );
}

#[test]
fn amounts_keep_their_digits() {
    let content = bytes_of("plain_control.csv");
    let wishes = wishes(&typed());
    let checked = check(&content, wishes).expect("text");
    let planned = plan(&typed(), &checked, chrono::Utc::now()).expect("a plan");
    let at = Position {
        byte_offset: planned.offset as i64,
        line_no: 2,
        ..Position::default()
    };
    let batch = batches(&planned.plan, &content, wishes, at)
        .expect("a batch")
        .remove(0);
    let text: String = batch.rows.iter().map(|(_, json)| json).collect();
    assert!(
        text.contains(r#"{"id":1,"name":"Anna","amount":10.50}"#),
        "{text}"
    );
}

#[test]
fn line_ends_and_blank_lines() {
    assert_eq!(import("mixed_line_ends.csv").lines(), [2, 3, 4, 5]);
    assert_eq!(import("cr_only.csv").lines(), [2, 3]);
    assert_eq!(import("blank_lines_between.csv").lines(), [3, 6]);
    let embedded = import("embedded_newlines.csv");
    assert_eq!(embedded.lines(), [2, 4, 6]);
    assert_eq!(
        embedded.column("name"),
        ["line one\nline two", "a\r\nb", "plain"]
    );
}

#[test]
fn other_encodings_are_asked_for_and_taken() {
    let control = import("plain_control.csv");
    for (file, encoding, part) in [
        ("utf16be_no_bom.csv", "utf-16be", "`utf-16be`"),
        ("cp1252_en_dash.csv", "windows-1252", "`windows-1252`"),
        ("latin1_names.csv", "latin-1", "`windows-1252`"),
    ] {
        let (code, message) = refused(file);
        assert_eq!(code, "CSV_ENCODING", "{file}");
        assert!(message.contains(part), "{file}: {message}");
        let outcome = import_bytes(&bytes_of(file), &typed_in(Some(encoding))).expect(file);
        assert!(outcome.rejects.is_empty(), "{file}");
        match file {
            "utf16be_no_bom.csv" => assert_eq!(outcome.rows, control.rows),
            "cp1252_en_dash.csv" => {
                assert_eq!(outcome.column("name"), ["Anna", "ten – twenty"]);
            }
            _ => assert_eq!(outcome.column("name"), ["Müller", "Sørensen", "Ana"]),
        }
    }
    let dash = import_bytes(&bytes_of("cp1252_en_dash.csv"), &typed_in(Some("latin-1")));
    let warnings = dash.expect("control characters").plan.warnings;
    assert!(warnings[0].contains("windows-1252"), "{warnings:?}");
    let wrong = import_bytes(&bytes_of("utf16le_bom.csv"), &typed_in(Some("utf-8")));
    assert_eq!(wrong.expect_err("a mark").code, "CSV_ENCODING");
}

#[test]
fn what_is_not_utf8_text_is_refused_whole() {
    let told = |file, code: &str, begins: &str| {
        let (got, message) = refused(file);
        assert_eq!(got, code, "{file}");
        assert!(message.starts_with(begins), "{file}: {message}");
    };
    told("utf16be_no_bom.csv", "CSV_ENCODING", "line 1");
    told("cp1252_en_dash.csv", "CSV_ENCODING", "line 3: byte 0x96");
    told("latin1_names.csv", "CSV_ENCODING", "line 2: byte 0xfc");
    told("not_a_csv_zip_magic.csv", "CSV_NOT_TEXT", "line 1");
    told("empty_0_bytes.csv", "CSV_EMPTY", "");
    told("only_bom.csv", "CSV_EMPTY", "");
}

#[test]
fn headers_that_are_refused() {
    let (code, message) = refused("dup_header_exact.csv");
    assert_eq!(code, "CSV_HEADER_DUPLICATE");
    assert!(message.contains("'name'"), "{message}");
    assert_eq!(
        refused("dup_header_case_and_blanks.csv").0,
        "CSV_HEADER_DUPLICATE"
    );
    assert_eq!(refused("empty_header_name.csv").0, "CSV_HEADER_EMPTY");
    let (code, message) = refused("missing_required_column.csv");
    assert_eq!(code, "CSV_COLUMN_MISSING");
    assert!(message.contains("'name', 'amount'"), "{message}");
    let wide = format!(
        "{}\n",
        (0..=1000)
            .map(|n| format!("c{n}"))
            .collect::<Vec<_>>()
            .join(",")
    );
    let error = import_bytes(wide.as_bytes(), &payload(json!({}))).expect_err("too wide");
    assert_eq!(error.code, "CSV_TOO_MANY_COLUMNS");
}

#[test]
fn no_rows_are_a_success() {
    for file in ["header_only.csv", "header_only_no_newline.csv"] {
        let outcome = import(file);
        assert!(
            outcome.rows.is_empty() && outcome.rejects.is_empty(),
            "{file}"
        );
    }
}

#[test]
fn rows_are_rejected_one_by_one() {
    let rejected = |file: &str, accepted: &[i64], expected: &[(i64, &str, &str)]| {
        let outcome = import(file);
        assert_eq!(outcome.lines(), accepted, "{file}");
        assert_eq!(outcome.rejected(), expected, "{file}");
    };
    rejected(
        "ragged_short.csv",
        &[2, 4],
        &[(3, "amount", "TOO_FEW_FIELDS")],
    );
    rejected("ragged_long.csv", &[2, 4], &[(3, "", "TOO_MANY_FIELDS")]);
    let both = [(2, "", "TOO_MANY_FIELDS"), (3, "", "TOO_MANY_FIELDS")];
    rejected("trailing_delimiter_rows.csv", &[], &both);
    rejected("nul_byte_in_field.csv", &[2, 4], &[(3, "name", "NUL_BYTE")]);
    rejected("hash_first_char.csv", &[3], &[(2, "id", "BAD_INTEGER")]);
    rejected(
        "numbers_1e308.csv",
        &[2, 3, 4, 6, 7],
        &[(5, "amount", "NUMBER_OUT_OF_RANGE")],
    );
    rejected("same_id_twice.csv", &[2, 3, 4, 5], &[]);
}

#[test]
fn a_value_that_is_required() {
    let outcome =
        import_bytes(b"id,name,amount\n1,,2\n,Anna,3\n2,Bela,\n", &typed()).expect("an outcome");
    assert_eq!(
        outcome.rejected(),
        [
            (2, "name", "REQUIRED_MISSING"),
            (3, "id", "REQUIRED_MISSING")
        ]
    );
    assert_eq!(
        outcome.rows,
        [(4, json!({"id": 2, "name": "Bela", "amount": null}))]
    );
}

#[test]
fn quotes_that_do_not_close() {
    let outcome = import_bytes(
        b"id,name\n1,\"a\"b\n2,ok\n3,\"open\n4,lost\n",
        &payload(json!({})),
    )
    .expect("an outcome");
    assert_eq!(outcome.lines(), [3]);
    assert_eq!(
        outcome.rejected(),
        [(2, "name", "BAD_QUOTES"), (4, "name", "UNCLOSED_QUOTE")]
    );
}

#[test]
fn long_fields() {
    let mut content = bytes_of("huge_field_1MiB.csv");
    let outcome = import_bytes(&content, &typed()).expect("an outcome");
    assert_eq!((outcome.rows.len(), outcome.rejects.len()), (3, 0));
    let at = content.iter().position(|b| *b == b'x').expect("the field");
    content.insert(at, b'x');
    let outcome = import_bytes(&content, &typed()).expect("an outcome");
    assert_eq!(outcome.lines(), [2, 4]);
    assert_eq!(outcome.rejected(), [(3, "name", "FIELD_TOO_LONG")]);
    // Within the limits as text, beyond them as JSON.
    let control = format!("a,b\n{0},{0}\n1,2\n", "\u{1}".repeat(800_000));
    let outcome = import_bytes(control.as_bytes(), &payload(json!({}))).expect("an outcome");
    assert_eq!(outcome.rejected(), [(2, "", "FIELD_TOO_LONG")]);
}

#[test]
fn delimiters_are_found() {
    let semicolon = import("semicolon_delimited.csv");
    assert_eq!(semicolon.plan.delimiter, ';');
    assert_eq!(semicolon.column("amount"), [&json!(10.50), &json!(20.00)]);
    assert_eq!(semicolon.plan.warnings.len(), 1);
    let tab = import("tab_delimited.csv");
    assert_eq!((tab.plan.delimiter, tab.rows.len()), ('\t', 1));

    let found = |text: &str, more: Value| {
        import_bytes(text.as_bytes(), &payload(more))
            .map(|o| o.plan.delimiter)
            .map_err(|e| e.code)
    };
    assert_eq!(found("a|b\n1|2\n", json!({})), Ok('|'));
    assert_eq!(found("name|alias,amount\nx,1\ny,2\n", json!({})), Ok(','));
    assert_eq!(
        found("a;b,c\n1,5;2,5\n", json!({"columns": [{"name": "a"}]})),
        Ok(';')
    );
    assert_eq!(found("\"x, y\";z\n1;2\n", json!({})), Ok(';'));
    assert_eq!(found("a,b\n", json!({"delimiter": ";"})), Ok(';'));
    assert_eq!(
        found("only\nx\n", json!({})),
        Err("CSV_NO_DELIMITER".into())
    );
    assert_eq!(
        found("only\nx\n", json!({"columns": [{"name": "Only"}]})),
        Ok(',')
    );
    assert_eq!(found("only\nx\n", json!({"delimiter": "\t"})), Ok('\t'));
    let two = json!({"columns": [{"name": "only"}, {"name": "more"}]});
    assert_eq!(found("only\nx\n", two), Err("CSV_COLUMN_MISSING".into()));
}

#[test]
fn many_columns_and_many_rows() {
    let wide = import("thousand_columns.csv");
    assert_eq!((wide.rows.len(), wide.rejects.len()), (100, 0));
    assert!(
        wide.plan.warnings[0].starts_with("997 columns"),
        "{:?}",
        wide.plan.warnings
    );
    let all =
        import_bytes(&bytes_of("thousand_columns.csv"), &payload(json!({}))).expect("an outcome");
    assert_eq!(
        all.rows[99].1.as_object().map(serde_json::Map::len),
        Some(1000)
    );

    let long = import("rows_5000.csv");
    assert_eq!(long.lines(), (2..=5001).collect::<Vec<_>>());
    let cents: f64 = long
        .column("amount")
        .iter()
        .filter_map(|v| v.as_f64())
        .map(|v| v * 100.0)
        .sum();
    assert_eq!(format!("{cents:.0}"), "24875000");
    let batches: Vec<i64> = long.positions.iter().map(|at| at.rows_accepted).collect();
    assert_eq!(batches, [0, 2000, 4000, 5000]);

    let bad_last = import("rows_1001_bad_last.csv");
    assert_eq!(bad_last.rows.len(), 1000);
    assert_eq!(bad_last.rejected(), [(1002, "amount", "BAD_DECIMAL")]);
}

#[test]
fn batches_are_bounded_in_bytes() {
    let row = format!("{}\n", "y".repeat(1_000_000));
    let content = format!("text\n{}", row.repeat(9));
    let outcome =
        import_bytes(content.as_bytes(), &payload(json!({"delimiter": ","}))).expect("an outcome");
    let rows: Vec<i64> = outcome
        .positions
        .windows(2)
        .map(|w| w[1].rows_accepted - w[0].rows_accepted)
        .collect();
    let most = (BATCH_BYTES / 1_000_000 + 1) as i64;
    assert!(rows.iter().all(|rows| *rows <= most), "{rows:?}");
    assert_eq!(rows.iter().sum::<i64>(), 9);
}

#[test]
fn a_stopped_import_leaves_a_block_and_rows_for_a_table_keep_their_records() {
    let content = b"name\n"
        .iter()
        .chain(b"a\n".repeat(300).iter())
        .copied()
        .collect::<Vec<u8>>();
    let payload = payload(json!({"delimiter": ","}));
    let checked = check(&content, wishes(&payload)).expect("text");
    let planned = plan(&payload, &checked, chrono::Utc::now()).expect("a plan");
    let at = Position {
        byte_offset: planned.offset as i64,
        line_no: planned.line as i64,
        ..Position::default()
    };
    let rows = Bytes::copy_from_slice(&content[5..]);
    let mut batcher = Batcher::new(JobId::new(), &planned.plan, at, true).expect("a batcher");
    let error = batcher
        .feed(&mut rows.clone(), &|| true)
        .expect_err("stopped");
    assert_eq!(error.code, "CANCELLED");

    let mut batcher = Batcher::new(JobId::new(), &planned.plan, at, true).expect("a batcher");
    let batch = batcher
        .feed(&mut rows.clone(), &|| false)
        .expect("rows")
        .expect("a full batch");
    // A table may refuse each of them: so they are few.
    assert!(batch.rows.len() < BATCH_ROWS);
    assert_eq!(batch.candidates.len(), batch.rows.len());
    assert_eq!(batch.candidates[0].original, "a");
    assert!(batch.candidates[0].values.is_empty());
}
