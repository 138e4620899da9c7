//! Each type and rule, field by field.

use serde_json::{Value as Json, json};

use super::*;
use crate::handlers::import_csv::payload::Column;

fn column(declared: Json) -> Column {
    let mut column = json!({"name": "c"});
    for (key, value) in declared.as_object().expect("an object") {
        column[key] = value.clone();
    }
    serde_json::from_str(&column.to_string()).expect("a column")
}

fn converter(declared: Json) -> Converter {
    Converter::new(&column(declared.clone()), false)
        .unwrap_or_else(|wrong| panic!("{declared}: {wrong:?}"))
}

fn convert(converter: &Converter, text: &str) -> Result<String, &'static str> {
    let mut out = String::new();
    match converter.convert(text, &mut out) {
        Ok(_) => {
            serde_json::from_str::<Json>(&out).unwrap_or_else(|error| panic!("{out}: {error}"));
            Ok(out)
        }
        Err(misfit) => Err(misfit.reason),
    }
}

/// Fields and the JSON they become, and fields and the reason that they are rejected for.
fn judges(declared: Json, good: &[(&str, &str)], bad: &[(&str, &'static str)]) {
    let converter = converter(declared.clone());
    for (text, json) in good {
        assert_eq!(
            convert(&converter, text).as_deref(),
            Ok(*json),
            "{declared} {text:?}"
        );
    }
    for (text, reason) in bad {
        assert_eq!(
            convert(&converter, text),
            Err(*reason),
            "{declared} {text:?}"
        );
    }
}

#[test]
fn text_is_kept() {
    let text = converter(json!({}));
    assert_eq!(convert(&text, ""), Ok("null".into()));
    for sample in [
        " a ",
        "a\"b\\c",
        "line\r\nend\ttab",
        "\u{1}\u{1f}",
        "Chloé 😀",
        "\u{7f}\u{2028}",
    ] {
        let json = convert(&text, sample).expect("text");
        assert!(json.bytes().all(|b| b >= 0x20), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), sample);
    }
}

#[test]
fn values_that_stand_for_none() {
    let nulls = json!(["NA", "-", "\\N"]);
    judges(
        json!({"type": "integer", "null_values": nulls}),
        &[
            ("NA", "null"),
            (" - ", "null"),
            ("\\N", "null"),
            ("-1", "-1"),
        ],
        &[("na", "BAD_INTEGER"), ("N/A", "BAD_INTEGER")],
    );
    judges(
        json!({"null_values": nulls, "default": "none"}),
        &[("NA", "\"none\""), (" NA", "\"none\""), ("NAB", "\"NAB\"")],
        &[],
    );
    judges(
        json!({"null_values": nulls, "required": true}),
        &[],
        &[("NA", "REQUIRED_MISSING")],
    );
    for (wrong, part) in [
        (json!([" NA"]), "blanks"),
        (json!([""]), "[0]"),
        (json!(vec!["x"; 17]), "at most 16"),
    ] {
        let told = Converter::new(&column(json!({"null_values": wrong})), false);
        let told = told.expect_err("is refused");
        assert_eq!(told.option, "null_values");
        assert!(told.why.contains(part), "{}", told.why);
    }
}

#[test]
fn blanks() {
    judges(
        json!({"trim": true}),
        &[(" a ", "\"a\""), (" \t", "null")],
        &[],
    );
    judges(
        json!({"type": "integer"}),
        &[(" 7\t", "7"), (" ", "null")],
        &[],
    );
    judges(
        json!({"type": "integer", "trim": false}),
        &[("7", "7"), ("", "null")],
        &[(" 7", "BAD_INTEGER"), (" ", "BAD_INTEGER")],
    );
    judges(
        json!({"required": true}),
        &[(" ", "\" \"")],
        &[("", "REQUIRED_MISSING")],
    );
    judges(
        json!({"required": true, "trim": true}),
        &[],
        &[(" ", "REQUIRED_MISSING")],
    );
}

#[test]
fn lengths_are_of_characters() {
    judges(
        json!({"min_length": 2, "max_length": 3}),
        &[("éé", "\"éé\""), ("😀😀😀", "\"😀😀😀\""), ("", "null")],
        &[
            ("é", "TOO_SHORT"),
            ("abcd", "TOO_LONG"),
            ("😀😀😀😀", "TOO_LONG"),
        ],
    );
}

#[test]
fn integers() {
    judges(
        json!({"type": "integer"}),
        &[
            ("42", "42"),
            (" +7 ", "7"),
            ("-007", "-7"),
            ("-7", "-7"),
            ("-0", "0"),
            ("0", "0"),
            ("000", "0"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775808", "-9223372036854775808"),
        ],
        &[
            ("9223372036854775808", "NUMBER_OUT_OF_RANGE"),
            ("-9223372036854775809", "NUMBER_OUT_OF_RANGE"),
            ("9223372036854775808x", "BAD_INTEGER"),
            ("#1", "BAD_INTEGER"),
            ("1.0", "BAD_INTEGER"),
            ("1e3", "BAD_INTEGER"),
            ("1,000", "BAD_INTEGER"),
            ("--1", "BAD_INTEGER"),
            ("+", "BAD_INTEGER"),
            ("٣", "BAD_INTEGER"),
            ("0x1f", "BAD_INTEGER"),
        ],
    );
    judges(
        json!({"type": "integer", "min": -1, "max": "9223372036854775806"}),
        &[("-1", "-1"), ("9223372036854775806", "9223372036854775806")],
        &[
            ("-2", "OUT_OF_RANGE"),
            ("9223372036854775807", "OUT_OF_RANGE"),
        ],
    );
}

#[test]
fn decimals_keep_their_digits() {
    let long = format!("0.{}", "1".repeat(1000));
    let longer = format!("{long}1");
    judges(
        json!({"type": "decimal"}),
        &[
            ("10.50", "10.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-00.10", "-0.10"),
            ("+1.5E+3", "1.5e3"),
            ("1e308", "1e308"),
            ("-1e308", "-1e308"),
            ("9007199254740993.1", "9007199254740993.1"),
            ("-0", "0"),
            ("0e999999999999999999999", "0"),
            ("1e-308", "1e-308"),
            ("0.1e309", "0.1e309"),
            (&long, &long),
        ],
        &[
            ("1e309", "NUMBER_OUT_OF_RANGE"),
            ("10e308", "NUMBER_OUT_OF_RANGE"),
            ("1e-309", "NUMBER_OUT_OF_RANGE"),
            ("1e99999999999999999999", "NUMBER_OUT_OF_RANGE"),
            (&longer, "NUMBER_OUT_OF_RANGE"),
            ("abc", "BAD_DECIMAL"),
            ("1,5", "BAD_DECIMAL"),
            ("1.2.3", "BAD_DECIMAL"),
            ("1e", "BAD_DECIMAL"),
            ("e5", "BAD_DECIMAL"),
            (".", "BAD_DECIMAL"),
            ("NaN", "BAD_DECIMAL"),
            ("inf", "BAD_DECIMAL"),
            ("1 000", "BAD_DECIMAL"),
            ("1e1.5", "BAD_DECIMAL"),
            ("1é5", "BAD_DECIMAL"),
            ("-", "BAD_DECIMAL"),
        ],
    );
}

#[test]
fn decimals_are_compared_exactly() {
    // As numbers in JSON: no binary float may come between.
    let declared = r#"{"name": "c", "type": "decimal",
        "min": -0.00000000000000000000000001, "max": 9007199254740993.10}"#;
    let column: Column = serde_json::from_str(declared).expect("a column");
    let again = serde_json::to_value(&column).expect("JSON");
    assert_eq!(
        serde_json::from_value::<Column>(again).expect("a column"),
        column
    );
    let converter = Converter::new(&column, false).expect("a rule");
    for good in [
        "9007199254740993.1",
        "9007199254740993.1000",
        "9.0071992547409931e15",
        "90071992547409931e-1",
        "0",
        "-1e-26",
        "-0.0000000000000000000000000099",
        "9007199254740993.0999999",
    ] {
        assert!(convert(&converter, good).is_ok(), "{good}");
    }
    for bad in [
        "9007199254740993.10000000000000000001",
        "9007199254740994",
        "1e300",
        "-0.000000000000000000000000010000001",
        "-1",
    ] {
        assert_eq!(convert(&converter, bad), Err("OUT_OF_RANGE"), "{bad}");
    }
    let plain = |json| plain_digits(json).expect("a number");
    assert_eq!(plain("10.50"), plain("1.05e1"));
    assert_eq!(plain("0"), plain("0.00"));
    assert_ne!(plain("10.5"), plain("-10.5"));
    assert_ne!(plain("1"), plain("10"));
}

#[test]
fn a_decimal_comma_is_a_mark_and_never_dropped() {
    for kind in ["decimal", "float"] {
        let declared = column(json!({"type": kind, "min": "0,5", "default": "1,5"}));
        let comma = Converter::new(&declared, true).expect("a rule");
        let good = [("10,50", "10.50"), ("10.50", "10.50"), ("", "1.5")];
        for (text, json) in good {
            let found = convert(&comma, text).expect(text);
            let number = |json: &str| json.parse::<f64>().expect("a number").to_bits();
            assert_eq!(number(&found), number(json), "{text}");
        }
        assert_eq!(convert(&comma, "0,4"), Err("OUT_OF_RANGE"));
        for text in ["1.234,56", "1,234,567", ","] {
            assert!(convert(&comma, text).is_err(), "{text}");
        }
        let wrong = Converter::new(&declared, false).expect_err("no comma");
        assert_eq!(wrong.option, "min");
    }
}

#[test]
fn floats_read_back_as_the_same_number() {
    judges(
        json!({"type": "float"}),
        &[
            ("0.1", "0.1"),
            ("0.10000000000000001", "0.1"),
            ("1e308", "1e308"),
            ("5e-324", "5e-324"),
            ("-0", "0.0"),
            ("+5.", "5.0"),
            ("123456789", "123456789.0"),
        ],
        &[
            ("1e309", "NUMBER_OUT_OF_RANGE"),
            ("1e-400", "NUMBER_OUT_OF_RANGE"),
            ("inf", "BAD_FLOAT"),
            ("NaN", "BAD_FLOAT"),
            ("1,5", "BAD_FLOAT"),
            ("1_0", "BAD_FLOAT"),
            ("e", "BAD_FLOAT"),
            (".", "BAD_FLOAT"),
        ],
    );
    let float = converter(json!({"type": "float"}));
    for text in [
        "0.3",
        "2.2250738585072014e-308",
        "1.7976931348623157e308",
        "-9007199254740993",
    ] {
        let json = convert(&float, text).expect(text);
        let number = |text: &str| text.parse::<f64>().expect("a number").to_bits();
        assert_eq!(number(&json), number(text), "{json}");
    }
    judges(
        json!({"type": "float", "min": 0, "max": 0.5}),
        &[("0.5", "0.5")],
        &[("0.50001", "OUT_OF_RANGE"), ("-1e-300", "OUT_OF_RANGE")],
    );
}

#[test]
fn booleans_and_enums() {
    judges(
        json!({"type": "boolean"}),
        &[
            ("TRUE", "true"),
            ("No", "false"),
            ("1", "true"),
            ("0", "false"),
            (" ", "null"),
        ],
        &[("maybe", "BAD_BOOLEAN"), ("2", "BAD_BOOLEAN")],
    );
    judges(
        json!({"type": "enum", "values": ["open", "clo\"sed", "Ö"]}),
        &[
            (" open ", "\"open\""),
            ("clo\"sed", "\"clo\\\"sed\""),
            ("Ö", "\"Ö\""),
            ("", "null"),
        ],
        &[("Open", "NOT_ALLOWED"), ("closed", "NOT_ALLOWED")],
    );
    let many: Vec<String> = (0..12).map(|n| format!("v{n}")).collect();
    let many = converter(json!({"type": "enum", "values": many}));
    let misfit = many.convert("x", &mut String::new()).expect_err("not one");
    assert!(
        misfit.message.ends_with("'v9', and 2 more"),
        "{}",
        misfit.message
    );
}

#[test]
fn dates() {
    judges(
        json!({"type": "date"}),
        &[
            ("2024-02-29", "\"2024-02-29\""),
            ("2012/01/31", "\"2012-01-31\""),
        ],
        &[
            ("2023-02-29", "BAD_DATE"),
            ("0000-01-01", "BAD_DATE"),
            ("2024-1-1", "BAD_DATE"),
            ("2024-01/01", "BAD_DATE"),
            ("31.12.2024", "BAD_DATE"),
            ("2024-01-0é", "BAD_DATE"),
            ("+024-01-01", "BAD_DATE"),
        ],
    );
    judges(
        json!({"type": "date", "formats": ["%d.%m.%Y", "%Y%m%d", "%d %b %Y"],
            "min": "01.01.2000", "max": "31.12.2024"}),
        &[
            ("31.12.2024", "\"2024-12-31\""),
            ("20000101", "\"2000-01-01\""),
            ("5 Feb 2001", "\"2001-02-05\""),
        ],
        &[
            ("2024-12-31", "BAD_DATE"),
            ("30.02.2024", "BAD_DATE"),
            ("31.12.2024x", "BAD_DATE"),
            ("31.12.1999", "OUT_OF_RANGE"),
            ("01.01.2025", "OUT_OF_RANGE"),
        ],
    );
}

#[test]
fn timestamps() {
    judges(
        json!({"type": "timestamp"}),
        &[
            ("2013-01-01T10:00:00Z", "\"2013-01-01T10:00:00Z\""),
            ("2013-01-01t10:00:00z", "\"2013-01-01T10:00:00Z\""),
            (
                "2013-01-01T10:00:00.250+02:00",
                "\"2013-01-01T08:00:00.250Z\"",
            ),
        ],
        &[
            ("2013-01-01T10:00:00", "BAD_TIMESTAMP"),
            ("2013-01-01", "BAD_TIMESTAMP"),
            ("2013-02-30T10:00:00Z", "BAD_TIMESTAMP"),
            ("2013-01-01T24:00:00Z", "BAD_TIMESTAMP"),
            ("0000-01-01T10:00:00Z", "BAD_TIMESTAMP"),
            ("now", "BAD_TIMESTAMP"),
            ("9999-12-31T23:59:59-05:00", "BAD_TIMESTAMP"),
        ],
    );
    judges(
        json!({"type": "timestamp", "min": "2013-01-01T00:00:00Z", "max": "2013-12-31T00:00:00+01:00"}),
        &[("2013-01-01T00:00:00Z", "\"2013-01-01T00:00:00Z\"")],
        &[
            ("2012-12-31T23:59:59Z", "OUT_OF_RANGE"),
            ("2013-12-30T23:00:01Z", "OUT_OF_RANGE"),
        ],
    );
}

#[test]
fn local_times() {
    judges(
        json!({"type": "timestamp", "zone": "Europe/Berlin"}),
        &[
            ("2026-07-01T12:00:00", "\"2026-07-01T10:00:00Z\""),
            ("2026-01-01 12:00:00.5", "\"2026-01-01T11:00:00.500Z\""),
            ("2026-01-01 12:00", "\"2026-01-01T11:00:00Z\""),
            // Its own offset goes before the column's zone.
            ("2026-10-25T02:30:00+01:00", "\"2026-10-25T01:30:00Z\""),
        ],
        &[("2026-01-01", "BAD_TIMESTAMP"), ("x", "BAD_TIMESTAMP")],
    );
    judges(
        json!({"type": "timestamp", "zone": "America/New_York",
            "formats": ["%m/%d/%Y %I:%M %p", "%Y-%m-%d %H:%M:%S %z", "%s"]}),
        &[
            ("01/31/2026 1:05 PM", "\"2026-01-31T18:05:00Z\""),
            ("2026-01-31 13:05:00 +0100", "\"2026-01-31T12:05:00Z\""),
            ("1700000000", "\"2023-11-14T22:13:20Z\""),
        ],
        &[("2026-01-31T13:05:00Z", "BAD_TIMESTAMP")],
    );
    let berlin = converter(json!({"type": "timestamp", "zone": "Europe/Berlin"}));
    for (text, part) in [
        (
            "2026-10-25T02:30:00",
            "2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00",
        ),
        ("2026-03-29T02:30:00", "set forward"),
    ] {
        let misfit = berlin.convert(text, &mut String::new()).expect_err(text);
        assert_eq!(misfit.reason, "BAD_TIMESTAMP");
        assert!(misfit.message.contains(part), "{}", misfit.message);
    }
}

#[test]
fn patterns_match_the_whole_value() {
    judges(
        json!({"pattern": "a|ab|[0-9]{2}"}),
        &[("ab", "\"ab\""), ("12", "\"12\""), ("", "null")],
        &[
            ("abc", "PATTERN_MISMATCH"),
            ("123", "PATTERN_MISMATCH"),
            ("ab\n", "PATTERN_MISMATCH"),
        ],
    );
    judges(
        json!({"type": "decimal", "pattern": "[0-9]+[.][0-9]{2}"}),
        &[(" 1.50 ", "1.50")],
        &[("1.5", "PATTERN_MISMATCH"), ("x", "BAD_DECIMAL")],
    );
    // The person reads the pattern as it was declared.
    let misfit = converter(json!({"pattern": "a|b"}))
        .convert("c", &mut String::new())
        .expect_err("does not match");
    assert_eq!(misfit.message, "does not match the column's pattern a|b");
}

#[test]
fn defaults_stand_for_empty_fields() {
    judges(
        json!({"type": "integer", "default": "+07"}),
        &[("", "7"), (" ", "7"), ("8", "8")],
        &[],
    );
    judges(json!({"default": ""}), &[("", "\"\"")], &[]);
    judges(
        json!({"type": "date", "formats": ["%d.%m.%Y"], "default": "01.02.2003", "required": true}),
        &[("", "\"2003-02-01\"")],
        &[],
    );
}

#[test]
fn rules_that_make_no_sense() {
    for (declared, option) in [
        (json!({"type": "text", "min": 1}), "min"),
        (json!({"type": "boolean", "max": 1}), "max"),
        (json!({"type": "integer", "max_length": 1}), "max_length"),
        (json!({"type": "date", "min_length": 1}), "min_length"),
        (json!({"type": "boolean", "pattern": "x"}), "pattern"),
        (json!({"type": "text", "values": ["a"]}), "values"),
        (json!({"type": "enum"}), "values"),
        (json!({"type": "enum", "values": ["a", "a"]}), "values[1]"),
        (json!({"type": "enum", "values": [""]}), "values[0]"),
        (json!({"type": "enum", "values": [" a"]}), "values[0]"),
        (json!({"type": "integer", "formats": ["%d"]}), "formats"),
        (json!({"type": "date", "zone": "UTC"}), "zone"),
        (json!({"type": "timestamp", "zone": "Berlin"}), "zone"),
        (
            json!({"type": "date", "formats": ["%d.%m.%Y", "%Q"]}),
            "formats[1]",
        ),
        (json!({"type": "date", "formats": [""]}), "formats[0]"),
        (json!({"type": "date", "formats": ["%d.%m."]}), "formats[0]"),
        (
            json!({"type": "date", "formats": ["%d.%m.%Y %H:%M"]}),
            "formats[0]",
        ),
        (
            json!({"type": "timestamp", "formats": ["%d.%m.%Y"], "zone": "UTC"}),
            "formats[0]",
        ),
        (
            json!({"type": "timestamp", "formats": ["%Y-%m-%d %I:%M"], "zone": "UTC"}),
            "formats[0]",
        ),
        (
            json!({"type": "timestamp", "formats": ["%Y-%m-%d %H:%M"]}),
            "formats[0]",
        ),
        (json!({"type": "integer", "min": 1.5}), "min"),
        (json!({"type": "integer", "min": 2, "max": 1}), "min"),
        (json!({"type": "decimal", "max": "x"}), "max"),
        (json!({"type": "date", "max": "31.12.2024"}), "max"),
        (json!({"type": "date", "max": 2024}), "max"),
        (json!({"min_length": 3, "max_length": 2}), "min_length"),
        (json!({"pattern": "("}), "pattern"),
        (json!({"pattern": "a)(b"}), "pattern"),
        (json!({"pattern": "\\w{1000}"}), "pattern"),
        (json!({"pattern": "x".repeat(1_001)}), "pattern"),
        (json!({"type": "integer", "default": "x"}), "default"),
        (json!({"type": "integer", "default": ""}), "default"),
        (
            json!({"type": "integer", "default": "5", "max": 4}),
            "default",
        ),
        (json!({"default": "abc", "max_length": 2}), "default"),
        (json!({"default": "a", "unique": true}), "default"),
    ] {
        let wrong = Converter::new(&column(declared.clone()), false)
            .map(|_| ())
            .expect_err(&declared.to_string());
        assert_eq!(wrong.option, option, "{declared}: {}", wrong.why);
        assert!(
            wrong.why.len() < 250 && !wrong.why.contains(char::is_control),
            "{}",
            wrong.why
        );
    }
}

#[test]
fn a_year_is_written_with_its_four_digits() {
    judges(
        json!({"type": "date", "formats": ["%d.%m.%Y", "%Y%m%d"]}),
        &[
            ("31.12.2024", "\"2024-12-31\""),
            ("31.12.0024", "\"0024-12-31\""),
            ("20240115", "\"2024-01-15\""),
            ("00240115", "\"0024-01-15\""),
        ],
        &[
            ("31.12.24", "BAD_DATE"),
            ("31.12.024", "BAD_DATE"),
            ("2024115", "BAD_DATE"),
            ("240115", "BAD_DATE"),
        ],
    );
    judges(
        json!({"type": "timestamp", "zone": "UTC"}),
        &[("0024-05-31 12:00", "\"0024-05-31T12:00:00Z\"")],
        &[("24-05-31 12:00", "BAD_TIMESTAMP")],
    );
    judges(
        json!({"type": "timestamp", "formats": ["%d.%m.%Y %H%M%S", "%Y%m%d%H%M%S%z"], "zone": "UTC"}),
        &[
            ("31.12.2024 070809", "\"2024-12-31T07:08:09Z\""),
            ("20241231070809+0100", "\"2024-12-31T06:08:09Z\""),
        ],
        &[
            ("31.12.24 002400", "BAD_TIMESTAMP"),
            ("31.12.2024 70809", "BAD_TIMESTAMP"),
        ],
    );
    for format in ["%d.%m.%y", "%D", "%g-W%V-%u", "%Y%-m%-d"] {
        let declared = column(json!({"type": "date", "formats": [format]}));
        let wrong = Converter::new(&declared, false).expect_err(format);
        assert_eq!(wrong.option, "formats[0]", "{format}");
        assert!(
            wrong.why.contains("four digits") || wrong.why.contains("leading zeros"),
            "{}",
            wrong.why
        );
    }
}

#[test]
fn a_dot_that_may_separate_thousands_is_not_guessed() {
    for (kind, reason) in [("decimal", "BAD_DECIMAL"), ("float", "BAD_FLOAT")] {
        let made = |mark: Option<&str>| {
            let declared = column(json!({"type": kind, "decimal_mark": mark, "min": 0.125}));
            Converter::new(&declared, true).expect("a rule")
        };
        let open = made(None);
        for text in ["1.234", "123.456", "+1.234"] {
            assert_eq!(convert(&open, text), Err(reason), "{text}");
        }
        for text in ["1,234", "1.23", "1.2345", "0.125", "1234.567", "1.234e1"] {
            assert!(convert(&open, text).is_ok(), "{text}");
        }
        assert_eq!(convert(&made(Some(".")), "1.234").as_deref(), Ok("1.234"));
        assert!(convert(&made(Some(".")), "1,2").is_err());
        assert_eq!(convert(&made(Some(",")), "1,234").as_deref(), Ok("1.234"));
        assert!(convert(&made(Some(",")), "1.234").is_err());
        let wrong = Converter::new(&column(json!({"type": kind, "decimal_mark": ";"})), true);
        assert_eq!(wrong.expect_err("no mark").option, "decimal_mark");
    }
    let text = column(json!({"decimal_mark": "."}));
    let wrong = Converter::new(&text, true).expect_err("text");
    assert_eq!(wrong.option, "decimal_mark");
}

#[test]
fn a_table_that_keeps_fewer_places_refuses_the_number() {
    let made = |declared: Json, scale| converter(declared).with_scale(Some(scale));
    let cents = made(json!({"type": "decimal"}), 2).expect("a rule");
    for text in ["1", "1.5", "1.50", "1.500", "0", "0.000", "1.5e-1", "12e-2"] {
        assert!(convert(&cents, text).is_ok(), "{text}");
    }
    for text in ["1.005", "0.001", "1.5e-2"] {
        assert_eq!(convert(&cents, text), Err("TABLE_REFUSED"), "{text}");
    }
    let float = made(json!({"type": "float"}), 2).expect("a rule");
    assert_eq!(convert(&float, "1.005"), Err("TABLE_REFUSED"));
    let hundreds = made(json!({"type": "integer"}), -2).expect("a rule");
    assert!(convert(&hundreds, "1200").is_ok());
    assert_eq!(convert(&hundreds, "1250"), Err("TABLE_REFUSED"));
    let wrong = made(json!({"type": "decimal", "default": "0.125"}), 2);
    assert_eq!(wrong.expect_err("a default").option, "default");
}

#[test]
fn a_long_value_is_not_matched() {
    let pattern = converter(json!({"pattern": "a*"}));
    assert!(convert(&pattern, &"a".repeat(64 * 1024)).is_ok());
    assert_eq!(
        convert(&pattern, &"a".repeat(64 * 1024 + 1)),
        Err("TOO_LONG")
    );
}
