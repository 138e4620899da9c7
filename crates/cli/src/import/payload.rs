//! The payload of `import_csv` from a schema file and the options.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::{ImportArgs, Limit};
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

const COLUMN_TYPES: [&str; 8] = [
    "text",
    "integer",
    "decimal",
    "float",
    "boolean",
    "date",
    "timestamp",
    "enum",
];

/// The payload without its file.
pub(super) fn build(args: &ImportArgs) -> Result<Map<String, Value>, Failure> {
    let mut payload = match &args.schema {
        Some(path) => read_schema(path)?,
        None => Map::new(),
    };
    let texts = [
        ("delimiter", &args.delimiter),
        ("quote", &args.quote),
        ("encoding", &args.encoding),
        ("dataset", &args.dataset),
        ("webhook", &args.webhook),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            payload.insert(key.to_owned(), json!(value));
        }
    }
    if !args.null_values.is_empty() {
        payload.insert("null_values".to_owned(), json!(args.null_values));
    }
    if args.no_header {
        payload.insert("header".to_owned(), json!(false));
    }
    if args.replace {
        payload.insert("mode".to_owned(), json!("replace"));
    }
    if args.dry_run {
        payload.insert("validate_only".to_owned(), json!(true));
    }
    match args.max_rejected {
        None => {}
        Some(Limit::Rows(rows)) => {
            payload.insert("max_rejected_rows".to_owned(), json!(rows));
        }
        Some(Limit::Percent(percent)) => {
            payload.insert("max_rejected_percent".to_owned(), json!(percent));
        }
    }
    if let Some(table) = &args.table {
        let target = payload.entry("target").or_insert_with(|| json!({}));
        target["table"] = json!(table);
        if !args.upsert_keys.is_empty() {
            target["mode"] = json!("upsert");
            target["key"] = json!(args.upsert_keys);
        }
    }
    map(&mut payload, &args.maps).map_err(Failure::usage)?;
    Ok(payload)
}

/// Gives columns the headers that they come from.
fn map(payload: &mut Map<String, Value>, maps: &[(String, String)]) -> Result<(), String> {
    if maps.is_empty() {
        return Ok(());
    }
    let declared = payload.contains_key("columns");
    let columns = payload.entry("columns").or_insert_with(|| json!([]));
    let Some(columns) = columns.as_array_mut() else {
        return Ok(());
    };
    for (header, name) in maps {
        let same = |column: &&mut Value| column["name"].as_str() == Some(name);
        match columns.iter_mut().find(same) {
            Some(column) => column["from"] = json!(header),
            None if declared => {
                return Err(format!(
                    "--map {header}={name}: the schema has no column `{name}`"
                ));
            }
            None => columns.push(json!({"name": name, "from": header})),
        }
    }
    Ok(())
}

fn read_schema(path: &Path) -> Result<Map<String, Value>, Failure> {
    let bytes = read_small_file(path)?;
    let wrong = |problem: String| {
        Failure::usage(format!("{}: {problem}", path.display())).hint(
            "a schema looks like {\"columns\": [{\"name\": \"id\", \"type\": \"integer\", \"required\": true}]}",
        )
    };
    let schema: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not JSON: {error}")))?;
    check(schema).map_err(wrong)
}

/// Finds the plain mistakes before the file is sent; the gateway finds the rest.
fn check(schema: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(schema) = schema else {
        return Err("must be an object with `columns`".to_owned());
    };
    if let Some(other) = schema.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!(
            "`{other}` is not known; use one of {}",
            KEYS.join(", ")
        ));
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

fn check_column(column: &Value) -> Result<(), String> {
    let object = column.as_object().ok_or(": must be an object")?;
    match object.get("name") {
        Some(Value::String(name)) if !name.is_empty() => {}
        Some(_) => return Err(".name: must be a text that is not empty".to_owned()),
        None => return Err(".name: is missing".to_owned()),
    }
    match object.get("type") {
        None => Ok(()),
        Some(Value::String(kind)) if COLUMN_TYPES.contains(&kind.as_str()) => Ok(()),
        Some(other) => Err(format!(
            ".type: {other} is not a type; use one of {}",
            COLUMN_TYPES.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    fn args(line: &[&str]) -> ImportArgs {
        let line = [&["tenure", "import", "a.csv"], line].concat();
        match Cli::try_parse_from(line).map(|cli| cli.verb) {
            Ok(Verb::Import(args)) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn payload(line: &[&str]) -> Value {
        Value::Object(build(&args(line)).expect("a payload"))
    }

    #[test]
    fn options_become_the_payload() {
        assert_eq!(payload(&[]), json!({}));
        assert_eq!(
            payload(&[
                "--delimiter",
                "tab",
                "--encoding",
                "latin-1",
                "--no-header",
                "--dataset",
                "d",
                "--replace",
                "--dry-run",
                "--max-rejected",
                "2%",
                "--map",
                "Betrag=amount"
            ]),
            json!({
                "delimiter": "\t", "encoding": "latin-1", "header": false, "dataset": "d",
                "mode": "replace", "validate_only": true, "max_rejected_percent": 2.0,
                "columns": [{"name": "amount", "from": "Betrag"}],
            })
        );
        assert_eq!(
            payload(&[
                "--table",
                "crm.c",
                "--upsert-key",
                "id,owner",
                "--max-rejected",
                "0"
            ]),
            json!({
                "target": {"table": "crm.c", "mode": "upsert", "key": ["id", "owner"]},
                "max_rejected_rows": 0,
            })
        );
    }

    #[test]
    fn a_mapping_must_meet_a_column_of_the_schema() {
        let mut declared = Map::new();
        declared.insert(
            "columns".to_owned(),
            json!([{"name": "amount", "type": "decimal"}]),
        );
        let to = |name: &str| [("Betrag".to_owned(), name.to_owned())];
        map(&mut declared, &to("amount")).expect("mapped");
        assert_eq!(declared["columns"][0]["from"], "Betrag");
        let problem = map(&mut declared, &to("total")).expect_err("no such column");
        assert!(problem.contains("no column `total`"), "{problem}");
    }

    #[test]
    fn a_schema_is_checked_with_the_place_of_the_mistake() {
        let good = json!({"columns": [
            {"name": "id", "type": "integer", "required": true},
            {"name": "note"},
        ], "delimiter": ";"});
        check(good).expect("is right");
        for (schema, problem) in [
            (json!([]), "must be an object"),
            (json!({"columns": {}}), "must be a list"),
            (json!({"columns": []}), "is empty"),
            (
                json!({"columns": [{"name": "a"}], "x": 1}),
                "`x` is not known",
            ),
            (json!({"columns": [1]}), "columns[0]: must be an object"),
            (
                json!({"columns": [{"type": "text"}]}),
                "columns[0].name: is missing",
            ),
            (json!({"columns": [{"name": ""}]}), "columns[0].name"),
            (
                json!({"columns": [{"name": "a", "type": "int"}]}),
                "columns[0].type: \"int\" is not a type",
            ),
        ] {
            let found = check(schema).expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
    }
}
