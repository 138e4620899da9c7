//! Schema files: read, and checked as far as the file to import is not needed for it.

mod names;
mod unique;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::names::{COLUMN_TYPES, nearest, nearest_type};
use self::unique::Unique;
use crate::errors::Failure;
use crate::values::read_small_file;

/// What a schema file may have: all of the payload but the file itself.
const KEYS: [&str; 13] = [
    "columns",
    "dataset",
    "delimiter",
    "encoding",
    "header",
    "max_rejected_percent",
    "max_rejected_rows",
    "mode",
    "null_values",
    "quote",
    "target",
    "validate_only",
    "webhook",
];

const TARGET_KEYS: [&str; 4] = ["table", "mode", "key", "columns"];

/// What a column may have.
const COLUMN_KEYS: [(&str, Shape); 17] = [
    ("name", Shape::Text),
    ("from", Shape::Text),
    ("type", Shape::Text),
    ("required", Shape::Switch),
    ("default", Shape::Text),
    ("unique", Shape::Switch),
    ("trim", Shape::Switch),
    ("null_values", Shape::Texts),
    ("formats", Shape::Texts),
    ("zone", Shape::Text),
    ("decimal_mark", Shape::Text),
    ("values", Shape::Texts),
    ("pattern", Shape::Text),
    ("min", Shape::Bound),
    ("max", Shape::Bound),
    ("min_length", Shape::Count),
    ("max_length", Shape::Count),
];

/// What a key of a column holds.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Switch,
    Count,
    Bound,
}

impl Shape {
    /// What is wrong with a value.
    fn check(self, value: &Value) -> Result<(), &'static str> {
        let right = match self {
            Self::Text => value.is_string(),
            Self::Texts => value
                .as_array()
                .is_some_and(|values| values.iter().all(Value::is_string)),
            Self::Switch => value.is_boolean(),
            Self::Count => value.is_u64(),
            Self::Bound => value.is_number() || value.is_string(),
        };
        // Absent, as far as the service takes it.
        if right || value.is_null() {
            return Ok(());
        }
        Err(match self {
            Self::Text => "must be a text",
            Self::Texts => "must be a list of texts",
            Self::Switch => "must be true or false",
            Self::Count => "must be a whole number of characters",
            Self::Bound => "must be a number, or a text written as in the file",
        })
    }
}

/// Reads a schema.
pub(super) fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    let bytes = read_small_file(path)?;
    parse(&bytes).map_err(|problem| {
        Failure::usage(format!("{}: {problem}", path.display())).hint(
            "a schema looks like {\"columns\": [{\"name\": \"id\", \"type\": \"integer\", \"required\": true}]}",
        )
    })
}

fn parse(bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let schema: Unique = serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            error.to_string()
        } else {
            format!("not JSON: {error}")
        }
    })?;
    let mut schema = check(schema.0)?;
    keep_digits(&mut schema, bytes);
    Ok(schema)
}

/// Finds the plain mistakes before the file is sent; the worker finds the rest.
fn check(schema: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(schema) = schema else {
        return Err("must be an object with `columns`".to_owned());
    };
    check_keys(&schema, &KEYS)?;
    match schema.get("target") {
        None => {}
        Some(Value::Object(target)) => {
            check_keys(target, &TARGET_KEYS).map_err(|problem| format!("target: {problem}"))?;
        }
        Some(_) => return Err("`target` must be an object with a `table`".to_owned()),
    }
    if let Some(columns) = schema.get("columns") {
        let columns = columns.as_array().ok_or("`columns` must be a list")?;
        if columns.is_empty() {
            return Err("`columns` is empty; left out, every column is text".to_owned());
        }
        for (at, column) in columns.iter().enumerate() {
            check_column(column).map_err(|problem| format!("columns[{at}]{problem}"))?;
        }
    }
    Ok(schema)
}

fn check_keys(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(other) => Err(match nearest(other, known) {
            Some(near) => format!("`{other}` is not known; did you mean `{near}`?"),
            None => format!("`{other}` is not known; use one of {}", known.join(", ")),
        }),
    }
}

fn check_column(column: &Value) -> Result<(), String> {
    let object = column.as_object().ok_or(": must be an object")?;
    match object.get("name") {
        Some(Value::String(name)) if !name.trim().is_empty() => {}
        Some(_) => return Err(".name: must be a text that is not empty".to_owned()),
        None => return Err(".name: is missing".to_owned()),
    }
    let known = COLUMN_KEYS.map(|(key, _)| key);
    check_keys(object, &known).map_err(|problem| format!(": {problem}"))?;
    for (key, shape) in COLUMN_KEYS {
        if let Some(value) = object.get(key) {
            shape
                .check(value)
                .map_err(|problem| format!(".{key}: {problem}"))?;
        }
    }
    let kind = object.get("type").and_then(Value::as_str);
    if let Some(kind) = kind
        && !COLUMN_TYPES.contains(&kind)
    {
        return Err(match nearest_type(kind) {
            Some(near) => format!(".type: \"{kind}\" is not a type; use {near}"),
            None => format!(
                ".type: \"{kind}\" is not a type; use one of {}",
                COLUMN_TYPES.join(", ")
            ),
        });
    }
    let values = object.get("values").and_then(Value::as_array);
    if kind == Some("enum") && values.is_none_or(Vec::is_empty) {
        return Err(
            ".values: an enum needs the values that are allowed, such as [\"open\", \"closed\"]"
                .to_owned(),
        );
    }
    Ok(())
}

/// Gives bounds that are numbers as texts, which mean the same: a binary float would lose
/// digits of a decimal.
fn keep_digits(schema: &mut Map<String, Value>, bytes: &[u8]) {
    #[derive(Deserialize)]
    struct Exact<'a> {
        #[serde(borrow, default)]
        columns: Vec<BTreeMap<String, &'a RawValue>>,
    }
    let Some(columns) = schema.get_mut("columns").and_then(Value::as_array_mut) else {
        return;
    };
    let exact = serde_json::from_slice::<Exact<'_>>(bytes);
    let exact = exact.map_or_else(|_| Vec::new(), |exact| exact.columns);
    for (column, exact) in columns.iter_mut().zip(exact) {
        for key in ["min", "max"] {
            if let (Some(bound), Some(raw)) = (column.get_mut(key), exact.get(key))
                && bound.is_number()
            {
                *bound = Value::String(raw.get().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_checked_with_the_place_of_the_mistake() {
        let good = json!({"columns": [
            {"name": "id", "type": "integer", "required": true, "min": 1, "max": "9"},
            {"name": "note", "trim": null, "max_length": 3},
            {"name": "state", "type": "enum", "values": ["a"]},
        ], "delimiter": ";", "target": {"table": "a.b", "key": ["id"]}});
        check(good).expect("is right");
        let column = |more: Value| {
            let mut column = json!({"name": "a"});
            for (key, value) in more.as_object().expect("an object") {
                column[key] = value.clone();
            }
            json!({ "columns": [column] })
        };
        for (schema, problem) in [
            (json!([]), "must be an object"),
            (json!({"columns": {}}), "must be a list"),
            (json!({"columns": []}), "is empty"),
            (json!({"colums": []}), "did you mean `columns`?"),
            (json!({"x": 1}), "`x` is not known; use one of columns"),
            (json!({"target": 1}), "`target` must be an object"),
            (
                json!({"target": {"tabel": "a.b"}}),
                "target: `tabel` is not known; did you mean `table`?",
            ),
            (json!({"columns": [1]}), "columns[0]: must be an object"),
            (
                json!({"columns": [{"type": "text"}]}),
                "columns[0].name: is missing",
            ),
            (json!({"columns": [{"name": ""}]}), "columns[0].name"),
            (
                column(json!({"type": "int"})),
                "columns[0].type: \"int\" is not a type; use integer",
            ),
            (column(json!({"type": "string"})), "use text"),
            (column(json!({"type": "blob"})), "use one of text, integer"),
            (
                column(json!({"type": 1})),
                "columns[0].type: must be a text",
            ),
            (
                column(json!({"requird": true})),
                "columns[0]: `requird` is not known; did you mean `required`?",
            ),
            (
                column(json!({"required": "yes"})),
                ".required: must be true",
            ),
            (column(json!({"formats": "%Y"})), ".formats: must be a list"),
            (column(json!({"max_length": -1})), ".max_length: must be"),
            (column(json!({"min": []})), ".min: must be a number"),
            (column(json!({"type": "enum"})), ".values: an enum needs"),
            (
                column(json!({"type": "enum", "values": []})),
                ".values: an enum needs",
            ),
        ] {
            let found = check(schema).expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_told_with_its_place() {
        for (text, key, line) in [
            (
                "{\"columns\":[{\"name\":\"a\",\n\"name\":\"b\"}]}",
                "name",
                2,
            ),
            ("{\"mode\":\"append\",\"mode\":\"replace\"}", "mode", 1),
        ] {
            let problem = parse(text.as_bytes()).expect_err("stands twice");
            assert!(
                problem.starts_with(&format!("`{key}` stands twice")),
                "{problem}"
            );
            assert!(problem.contains(&format!("line {line} ")), "{problem}");
        }
        let problem = parse(b"{").expect_err("is cut off");
        assert!(problem.starts_with("not JSON"), "{problem}");
    }

    #[test]
    fn bounds_lose_no_digit() {
        let text = r#"{"columns":[
            {"name":"a","type":"decimal","min":-0.10,"max":12345678901234567890.123},
            {"name":"b","min":"1,5","max_length":7}]}"#;
        let schema = parse(text.as_bytes()).expect("is right");
        assert_eq!(
            schema["columns"],
            json!([
                {"name": "a", "type": "decimal", "min": "-0.10", "max": "12345678901234567890.123"},
                {"name": "b", "min": "1,5", "max_length": 7},
            ])
        );
    }

    #[test]
    fn a_folder_and_a_missing_file_are_mistakes_of_the_command_line() {
        let dir = tempfile::tempdir().expect("a folder");
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let failure = read(&path).expect_err("is no schema");
            assert_eq!(failure.exit, crate::errors::Exit::Usage);
        }
    }
}
