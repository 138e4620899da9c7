//! The payload of `import_csv` from a schema file and the options.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::schema;
use crate::args::{ImportArgs, Limit};
use crate::errors::Failure;

/// The payload without its file.
pub(super) fn build(args: &ImportArgs) -> Result<Map<String, Value>, Failure> {
    let mut payload = match &args.schema {
        Some(path) => schema::read(path)?,
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
    }
    if !args.upsert_keys.is_empty() {
        let Some(target) = payload.get_mut("target") else {
            return Err(
                Failure::usage("--upsert-key is for a table, and none is named").hint(
                    "--table SCHEMA.TABLE names it; a data set has no key: rows are appended to it, or replace it with --replace",
                ),
            );
        };
        target["mode"] = json!("upsert");
        target["key"] = json!(args.upsert_keys);
    }
    check(&payload, args).map_err(Failure::usage)?;
    map(&mut payload, &args.maps).map_err(Failure::usage)?;
    Ok(payload)
}

/// What excludes each other, whether it stands in the schema or in an option.
fn check(payload: &Map<String, Value>, args: &ImportArgs) -> Result<(), String> {
    let table = payload.contains_key("target");
    if table && payload.contains_key("dataset") {
        return Err("rows go to a table or to a data set, not to both".to_owned());
    }
    if table && payload.get("mode") == Some(&json!("replace")) {
        return Err("only a data set can be replaced; a table has --upsert-key".to_owned());
    }
    let needs_name = !table && !args.dry_run && !payload.contains_key("dataset");
    if needs_name && args.file == Path::new("-") {
        return Err("standard input has no name for the data set; give --dataset NAME".to_owned());
    }
    Ok(())
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
    fn what_excludes_each_other_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("schema.json");
        std::fs::write(&path, r#"{"target": {"table": "crm.c"}}"#).expect("writes");
        let schema = path.to_str().expect("UTF-8");
        for (line, problem) in [
            (&["--upsert-key", "id"][..], "--upsert-key is for a table"),
            // clap takes what another option excludes for not required.
            (
                &["--dataset", "d", "--upsert-key", "id"],
                "--upsert-key is for a table",
            ),
            (&["--schema", schema, "--dataset", "d"], "not to both"),
            (&["--schema", schema, "--replace"], "only a data set"),
        ] {
            let failure = build(&args(line)).expect_err(problem);
            assert_eq!(failure.exit, crate::errors::Exit::Usage);
            assert!(failure.message.contains(problem), "{}", failure.message);
        }
        assert_eq!(
            payload(&["--schema", schema, "--upsert-key", "id"])["target"],
            json!({"table": "crm.c", "mode": "upsert", "key": ["id"]})
        );
    }

    #[test]
    fn standard_input_needs_a_name() {
        let build_of = |more: &[&str]| {
            let line = [&["tenure", "import", "-"], more].concat();
            match Cli::try_parse_from(line).map(|cli| cli.verb) {
                Ok(Verb::Import(args)) => build(&args),
                other => panic!("{other:?}"),
            }
        };
        assert!(build_of(&[]).is_err());
        for more in [&["--dataset", "d"][..], &["--table", "a.b"], &["--dry-run"]] {
            build_of(more).expect("has a name, or needs none");
        }
    }
}
