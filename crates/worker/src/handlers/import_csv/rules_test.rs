//! The rules of a payload, from its checking to the verdict on each row.

use serde_json::{Value, json};
use tenure_core::domain::ids::FileId;

use super::decode::tests::{gzip, zip};
use super::files_test::{bytes_of, import_bytes, payload};
use super::payload::Payload;

#[test]
fn a_reject_keeps_the_record_as_it_stands() {
    let text = "\u{feff}id,name\r\n1,\"a\r\nb\",x\r\nx,é\0\r\n2,ok\r\n3,\"open\n";
    let columns = json!({"columns": [{"name": "id", "type": "integer"}, {"name": "name"}]});
    let outcome = import_bytes(text.as_bytes(), &payload(columns)).expect("an outcome");
    let originals: Vec<_> = outcome
        .rejects
        .iter()
        .map(|reject| (reject.line, reject.original.as_deref().expect("the record")))
        .collect();
    assert_eq!(
        originals,
        [(2, "1,\"a\r\nb\",x"), (4, "x,é\u{2400}"), (6, "3,\"open\n"),]
    );
    assert_eq!(outcome.lines(), [5]);
}

#[test]
fn archives_and_encodings_give_the_same_rows() {
    let plain = bytes_of("rows_5000.csv");
    let expected = import_bytes(&plain, &payload(json!({}))).expect("an outcome");
    let text = std::str::from_utf8(&plain).expect("UTF-8");
    let wide: Vec<u8> = format!("\u{feff}{text}")
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    for (stored, compression, encoding) in [
        (gzip(&plain), "gzip", "utf-8"),
        (zip(&[("rows.csv", &plain)]), "zip", "utf-8"),
        (wide.clone(), "none", "utf-16be"),
        (gzip(&wide), "gzip", "utf-16be"),
    ] {
        let outcome = import_bytes(&stored, &payload(json!({}))).expect("an outcome");
        assert!(outcome.rows == expected.rows, "{compression} {encoding}");
        let plan = serde_json::to_value(&outcome.plan).expect("JSON");
        assert_eq!(plan["compression"], compression);
        assert_eq!(plan["encoding"], encoding);
        assert_eq!(plan["text_bytes"], plain.len());
    }
}

#[test]
fn quotes_are_found_or_declared() {
    let single = "id,name\n1,'a, b'\n2,'it''s'\n";
    let names = |text: &str, more: Value| {
        let outcome = import_bytes(text.as_bytes(), &payload(more)).expect("an outcome");
        let names: Vec<String> = outcome
            .column("name")
            .iter()
            .map(|name| name.as_str().unwrap_or_default().to_owned())
            .collect();
        (names, outcome.plan.warnings.len(), outcome.rejects.len())
    };
    let pair = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
    assert_eq!(names(single, json!({})), (pair("a, b", "it's"), 1, 0));
    assert_eq!(
        names(single, json!({"quote": "single"})),
        (pair("a, b", "it's"), 0, 0)
    );
    assert_eq!(
        names(single, json!({"quote": "double", "delimiter": ","})).2,
        1
    );
    assert_eq!(
        names("id,name\n1,\"a\n2,b\"\n", json!({"quote": "none"})),
        (pair("\"a", "b\""), 0, 0)
    );
}

#[test]
fn files_without_a_header() {
    let text = b"1,Anna\n2,Bela,x\n3,Cleo\n";
    let numbered = import_bytes(text, &payload(json!({"header": false}))).expect("an outcome");
    assert_eq!(numbered.lines(), [1, 3]);
    assert_eq!(
        numbered.rows[0].1,
        json!({"column_1": "1", "column_2": "Anna"})
    );
    assert_eq!(numbered.rejected(), [(2, "", "TOO_MANY_FIELDS")]);
    let declared =
        |columns: Value| import_bytes(text, &payload(json!({"header": false, "columns": columns})));
    let named = declared(json!([{"name": "id", "type": "integer"}, {"name": "name"}]));
    let named = named.expect("an outcome");
    assert_eq!(named.rows[1], (3, json!({"id": 3, "name": "Cleo"})));
    let short = declared(json!([{"name": "id"}])).expect_err("two fields");
    assert_eq!(short.code, "CSV_SCHEMA_INVALID");
    assert!(short.message.contains("has 2 fields"), "{}", short.message);

    let of = |text: &str, more: Value| {
        import_bytes(text.as_bytes(), &payload(more))
            .map(|outcome| (outcome.plan.delimiter, outcome.rows.len()))
            .map_err(|error| error.code)
    };
    let one = json!({"header": false, "columns": [{"name": "only"}]});
    assert_eq!(of("x\ny\n", one.clone()), Ok((',', 2)));
    assert_eq!(
        of("x\ny\n", json!({"header": false})),
        Err("CSV_NO_DELIMITER".into())
    );
    assert_eq!(of(" \n\n", one), Err("CSV_EMPTY".into()));
    // The delimiter with which the row is as wide as the columns.
    let two = json!({"header": false, "columns": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(of("x;y,z,z\n", two), Ok((';', 1)));
}

#[test]
fn columns_may_be_renamed() {
    let columns = json!({"columns": [
        {"name": "number", "from": " ID ", "type": "integer"},
        {"name": "id", "from": "name"},
    ]});
    let outcome = import_bytes(b"name,id\nAnna,1\n", &payload(columns)).expect("an outcome");
    assert_eq!(outcome.rows, [(2, json!({"id": "Anna", "number": 1}))]);
}

#[test]
fn each_rule_rejects_its_row() {
    let columns = json!({"columns": [
        {"name": "id", "type": "integer", "min": 1, "required": true},
        {"name": "state", "type": "enum", "values": ["open", "closed"], "default": "open"},
        {"name": "code", "pattern": "[A-Z]{2}", "trim": true},
        {"name": "ratio", "type": "float", "max": 1},
        {"name": "note", "min_length": 2, "max_length": 5},
    ]});
    let text = "id,state,code,ratio,note\n\
        1,closed, AB ,0.5,abc\n\
        2,,,,\n\
        0,open,AB,0.5,abc\n\
        3,Open,AB,0.5,abc\n\
        4,open,ABC,0.5,abc\n\
        5,open,AB,1.5,abc\n\
        6,open,AB,x,abc\n\
        7,open,AB,,a\n\
        8,open,AB,,abcdef\n";
    let outcome = import_bytes(text.as_bytes(), &payload(columns)).expect("an outcome");
    assert_eq!(
        outcome.rows,
        [
            (
                2,
                json!({"id": 1, "state": "closed", "code": "AB", "ratio": 0.5, "note": "abc"})
            ),
            (
                3,
                json!({"id": 2, "state": "open", "code": null, "ratio": null, "note": null})
            ),
        ]
    );
    assert_eq!(
        outcome.rejected(),
        [
            (4, "id", "OUT_OF_RANGE"),
            (5, "state", "NOT_ALLOWED"),
            (6, "code", "PATTERN_MISMATCH"),
            (7, "ratio", "OUT_OF_RANGE"),
            (8, "ratio", "BAD_FLOAT"),
            (9, "note", "TOO_SHORT"),
            (10, "note", "TOO_LONG"),
        ]
    );
    let message = &outcome.rejects[0].message;
    assert_eq!(message, "'0' is less than 1, the least that is allowed");
}

#[test]
fn unique_values_come_with_the_batch() {
    let columns = json!({"columns": [
        {"name": "id", "type": "integer", "unique": true},
        {"name": "name"},
        {"name": "price", "type": "decimal", "unique": true},
    ]});
    let text = "name,id,price\na,07,10.5\nb,7,10.50\nc,,\nd,x,1\ne,8,\n";
    let outcome = import_bytes(text.as_bytes(), &payload(columns)).expect("an outcome");
    assert_eq!(outcome.rows.len(), 4);
    let found: Vec<_> = outcome
        .candidates
        .iter()
        .map(|row| {
            let values: Vec<_> = row
                .values
                .iter()
                .map(|value| (value.column_no, value.column.as_str(), value.shown.as_str()))
                .collect();
            (row.line, row.original.as_str(), values)
        })
        .collect();
    assert_eq!(
        found,
        [
            (2, "a,07,10.5", vec![(1, "id", "07"), (2, "price", "10.5")]),
            (3, "b,7,10.50", vec![(1, "id", "7"), (2, "price", "10.50")]),
            (6, "e,8,", vec![(1, "id", "8")]),
        ]
    );
    let digest = |row: usize, value: usize| outcome.candidates[row].values[value].digest;
    assert_eq!(digest(0, 0), digest(1, 0));
    assert_eq!(digest(0, 1), digest(1, 1));
    assert_ne!(digest(0, 0), digest(2, 0));
    assert_ne!(digest(0, 0), digest(0, 1));
}

#[test]
fn other_files_are_named_by_what_they_are() {
    for (content, code, part) in [
        (&b"%PDF-1.4\n"[..], "CSV_NOT_TEXT", "PDF"),
        (b"<!DOCTYPE html>\n<p>a,b</p>", "CSV_NOT_TEXT", "HTML"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "CSV_NOT_TEXT", "image"),
        (b" \r\n\n", "CSV_EMPTY", "empty"),
    ] {
        let error = import_bytes(content, &payload(json!({}))).expect_err(part);
        assert_eq!(error.code, code);
        assert!(error.message.contains(part), "{}", error.message);
    }
    let long = "x".repeat(2 << 20);
    let error = import_bytes(long.as_bytes(), &payload(json!({}))).expect_err("no line");
    assert_eq!(error.code, "CSV_NOT_TEXT");
}

#[test]
fn a_line_that_names_the_delimiter_is_no_row() {
    let content = b"sep=;\r\nid;name,x\r\n1;\"a\r\nb\"\r\nx;y\r\n";
    let columns = json!({"columns": [{"name": "id", "type": "integer"}, {"name": "name,x"}]});
    let outcome = import_bytes(content, &payload(columns)).expect("imports");
    // Lines are counted as they stand in the file.
    assert_eq!(outcome.lines(), [3]);
    assert_eq!(outcome.rejected(), [(5, "id", "BAD_INTEGER")]);
    assert_eq!(outcome.plan.header, ["id", "name,x"]);
    let headless = import_bytes(b"sep=|\na|b\n", &payload(json!({"header": false})));
    assert_eq!(headless.expect("imports").lines(), [2]);
    // What the payload says goes before.
    let declared = import_bytes(b"sep=;\na,b\n1,2\n", &payload(json!({"delimiter": ","})));
    assert_eq!(declared.expect("imports").lines(), [3]);
    let error = import_bytes(b"sep=;\n", &payload(json!({}))).expect_err("is empty");
    assert_eq!(error.code, "CSV_EMPTY");
}

#[test]
fn messages_have_the_mark_and_the_number_of_what_they_tell() {
    let rejected = |content: &[u8], columns: Value| {
        let outcome = import_bytes(content, &payload(json!({ "columns": columns })));
        let reject = outcome.expect("imports").rejects.remove(0);
        (reject.reason, reject.message)
    };
    let decimal = |mark: Option<&str>| json!([{"name": "a"}, {"name": "b", "type": "decimal", "decimal_mark": mark}]);
    for (content, mark, part) in [
        (&b"a;b\n1;x\n"[..], Some(","), "such as 10,50 or 1,5e3"),
        (b"a;b\n1;x\n", Some("."), "such as 10.50 or 1.5e3"),
        (b"a;b\n1;x\n", None, "such as 10,50 or 10.50"),
        (b"a,b\n1,1e\n", None, "such as 10.50 or 1.5e3"),
    ] {
        let (reason, message) = rejected(content, decimal(mark));
        assert_eq!(reason, "BAD_DECIMAL");
        assert!(message.contains(part), "{message}");
    }
    let (_, message) = rejected(
        b"a,b\n1,xy\n",
        json!([{"name": "a"}, {"name": "b", "max_length": 1}]),
    );
    assert!(
        message.ends_with("has 2 characters; at most 1 is allowed"),
        "{message}"
    );
    let (_, message) = rejected(b"a,b\n1\n", json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(message, "the row has 1 field, and there are 2 columns");
    let one = import_bytes(b"a,b\n1,2\n", &payload(json!({"columns": [{"name": "a"}]})));
    assert_eq!(
        one.expect("imports").plan.warnings,
        ["1 column of the file is not declared and was ignored: 'b'"]
    );
}

#[test]
fn payloads_are_checked() {
    let parse = |payload: Value| {
        Payload::parse(payload.to_string().as_bytes())
            .map(|_| ())
            .map_err(|error| (error.code, error.message))
    };
    let id = FileId::new();
    let column = |name: &str| json!({"name": name});
    assert_eq!(parse(json!({"file_id": id})), Ok(()));
    for (payload, code, text) in [
        (json!({}), "PAYLOAD_INVALID", "file_id"),
        (
            json!({"file_id": "../../etc/passwd"}),
            "PAYLOAD_INVALID",
            "UUID",
        ),
        (
            json!({"file_id": id, "colums": []}),
            "PAYLOAD_INVALID",
            "colums",
        ),
        (
            json!({"file_id": id, "delimiter": "x"}),
            "PAYLOAD_INVALID",
            "auto",
        ),
        (
            json!({"file_id": id, "dataset": ""}),
            "PAYLOAD_INVALID",
            "dataset",
        ),
        (
            json!({"file_id": id, "columns": [{"name": "a", "type": "money"}]}),
            "PAYLOAD_INVALID",
            "decimal",
        ),
        (
            json!({"file_id": id, "columns": []}),
            "CSV_SCHEMA_INVALID",
            "columns",
        ),
        (
            json!({"file_id": id, "columns": [column("a"), column(" A ")]}),
            "CSV_SCHEMA_INVALID",
            "columns[1]",
        ),
        (
            json!({"file_id": id, "columns": [column(" ")]}),
            "CSV_SCHEMA_INVALID",
            "columns[0]",
        ),
        (
            json!({"file_id": id, "encoding": "klingon"}),
            "PAYLOAD_INVALID",
            "`windows-1252`",
        ),
        (
            json!({"file_id": id, "quote": "x"}),
            "PAYLOAD_INVALID",
            "none",
        ),
        (
            json!({"file_id": id, "columns": [{"name": "a", "min": true}]}),
            "PAYLOAD_INVALID",
            "a number or a text",
        ),
        (
            json!({"file_id": id, "columns": [column("a"), {"name": "b", "type": "date", "formats": ["%d"]}]}),
            "CSV_SCHEMA_INVALID",
            "columns[1].formats[0]: ",
        ),
        (
            json!({"file_id": id, "header": false, "columns": [{"name": "a", "from": "b"}]}),
            "CSV_SCHEMA_INVALID",
            "columns[0].from",
        ),
        // A decimal comma cannot be where a comma separates.
        (
            json!({"file_id": id, "delimiter": ",", "columns": [{"name": "a", "type": "decimal", "min": "0,5"}]}),
            "CSV_SCHEMA_INVALID",
            "columns[0].min",
        ),
    ] {
        let (got, message) = parse(payload.clone()).expect_err("refused");
        assert_eq!(got, code, "{payload}");
        assert!(message.contains(text), "{message}");
    }
}
