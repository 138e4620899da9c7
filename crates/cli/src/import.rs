//! `import`: uploads a CSV file, submits `import_csv`, follows it, sums up.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_proto::v1;

use crate::args::ImportArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::files::Upload;
use crate::jobs::{accepted_text, send};
use crate::output::{Output, escape, pairs};
use crate::values::read_small_file;
use crate::{view, watch};

const COLUMN_TYPES: [&str; 6] = ["text", "integer", "decimal", "date", "timestamp", "boolean"];
/// The report has them all.
const SHOWN_REJECTS: usize = 5;

/// The payload of `import_csv`.
#[derive(Debug, Serialize)]
struct Payload<'a> {
    file_id: &'a str,
    dataset: &'a str,
    delimiter: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<&'a [Column]>,
}

/// A column of the file.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    required: bool,
}

/// The result of `import_csv`, as far as the summary shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImportResult {
    rows_accepted: u64,
    rows_rejected: u64,
    bytes: u64,
    delimiter: String,
    report_file_id: Option<String>,
    reject_samples: Vec<Reject>,
    warnings: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reject {
    line: u64,
    column: Option<String>,
    reason: String,
    message: String,
}

/// `tenure import`.
pub(crate) async fn run(
    client: &Client,
    args: ImportArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let columns = args.schema.as_deref().map(read_schema).transpose()?;
    let dataset = args.dataset.unwrap_or_else(|| dataset_of(&args.file));
    let upload = Upload::new(args.file, None, None, args.for_user.clone()).await?;
    let file = upload.send(client).await?;
    let payload = Payload {
        file_id: &file.file_id,
        dataset: &dataset,
        delimiter: args.delimiter.0,
        columns: columns.as_deref(),
    };
    let payload = serde_json::to_vec(&payload).map_err(anyhow::Error::from)?;
    let spec = v1::JobSpec {
        job_type: "import_csv".to_owned(),
        payload: payload.into(),
        dedupe_key: args.dedupe_key.unwrap_or_default(),
        user_id: args.for_user.unwrap_or_default(),
        ..v1::JobSpec::default()
    };
    let file_id = file.file_id.clone();
    let accepted = send(client, spec)
        .await
        .map_err(|failure| failure.hint(format!("the file is stored as {file_id}")))?;
    let job = if args.no_wait {
        None
    } else {
        Some(watch::follow(client, &accepted.job_id, args.wait_timeout).await?)
    };
    let exit = job.as_ref().map_or(Exit::Ok, |job| job.state().into());
    let state = job.as_ref().map_or(accepted.state, |job| job.state);
    let import = view::Import {
        file: file.into(),
        job_id: accepted.job_id,
        duplicate: accepted.duplicate,
        state: view::state(state),
        job: job.map(view::Job::from),
    };
    out.emit(&import, summary)?;
    Ok(exit)
}

fn summary(import: &view::Import) -> String {
    let mut text = accepted_text(&import.job_id, import.duplicate, &import.state);
    let Some(job) = &import.job else {
        let id = escape(&import.job_id);
        text.push_str(&pairs([(
            "next",
            format!("`tenure watch {id}` follows it"),
        )]));
        return text;
    };
    if let Some(error) = &job.last_error
        && job.state != "success"
    {
        text.push_str(&pairs([
            ("error", format!("{}: {}", error.code, error.message)),
            (
                "attempts",
                format!("{} of {}", job.attempt, job.max_attempts),
            ),
        ]));
    }
    let Some(raw) = &job.result else {
        return text;
    };
    let Ok(result) = serde_json::from_str::<ImportResult>(raw.get()) else {
        // A newer handler; show what there is.
        return text + &pairs([("result", raw.get().to_owned())]);
    };
    text.push_str(&result_text(&result));
    text
}

fn result_text(result: &ImportResult) -> String {
    let delimiter = match result.delimiter.as_str() {
        "\t" => "tab",
        other => other,
    };
    let report = result.report_file_id.as_deref().unwrap_or_default();
    let mut text = pairs([
        ("rows accepted", result.rows_accepted.to_string()),
        ("rows rejected", result.rows_rejected.to_string()),
        ("bytes", result.bytes.to_string()),
        ("delimiter", delimiter.to_owned()),
        ("report", report.to_owned()),
    ]);
    for warning in &result.warnings {
        let warning = warning
            .as_str()
            .map_or_else(|| warning.to_string(), str::to_owned);
        let _ = writeln!(text, "warning: {}", escape(&warning));
    }
    for reject in result.reject_samples.iter().take(SHOWN_REJECTS) {
        let column = reject
            .column
            .as_deref()
            .filter(|column| !column.is_empty())
            .map_or_else(String::new, |column| format!(", column {}", escape(column)));
        let _ = writeln!(
            text,
            "rejected: line {}{column}: {}: {}",
            reject.line,
            escape(&reject.reason),
            escape(&reject.message)
        );
    }
    let shown = result.reject_samples.len().min(SHOWN_REJECTS) as u64;
    if result.rows_rejected > shown {
        let _ = writeln!(
            text,
            "rejected: {} more, see the report",
            result.rows_rejected - shown
        );
    }
    if !report.is_empty() {
        let _ = writeln!(
            text,
            "download the report: tenure download {} -O report.json",
            escape(report)
        );
    }
    text
}

/// A dataset's name, made from the file's.
fn dataset_of(path: &Path) -> String {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let name: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(63)
        .collect();
    let name = name.trim_matches('_');
    if name.is_empty() {
        "import".to_owned()
    } else {
        name.to_owned()
    }
}

fn read_schema(path: &Path) -> Result<Vec<Column>, Failure> {
    let bytes = read_small_file(path)?;
    let wrong = |problem: String| {
        Failure::usage(format!("{}: {problem}", path.display())).hint(
            "a schema looks like {\"columns\": [{\"name\": \"id\", \"type\": \"integer\", \"required\": true}]}",
        )
    };
    let schema: Value =
        serde_json::from_slice(&bytes).map_err(|error| wrong(format!("not JSON: {error}")))?;
    columns(&schema).map_err(wrong)
}

fn columns(schema: &Value) -> Result<Vec<Column>, String> {
    let object = schema
        .as_object()
        .ok_or("must be an object with `columns`")?;
    if let Some(other) = object.keys().find(|key| *key != "columns") {
        return Err(format!("`{other}` is not known; there is only `columns`"));
    }
    let list = object.get("columns").ok_or("`columns` is missing")?;
    let list = list.as_array().ok_or("`columns` must be a list")?;
    if list.is_empty() {
        return Err("`columns` is empty; without --schema every column is text".to_owned());
    }
    let mut columns: Vec<Column> = Vec::with_capacity(list.len());
    for (at, value) in list.iter().enumerate() {
        let column = column(value).map_err(|problem| format!("columns[{at}]{problem}"))?;
        if columns.iter().any(|other| other.name == column.name) {
            return Err(format!("columns[{at}].name: `{}` comes twice", column.name));
        }
        columns.push(column);
    }
    Ok(columns)
}

fn column(value: &Value) -> Result<Column, String> {
    let object = value.as_object().ok_or(": must be an object")?;
    for key in object.keys() {
        if !matches!(key.as_str(), "name" | "type" | "required") {
            return Err(format!(
                ": `{key}` is not known; use name, type and required"
            ));
        }
    }
    let name = match object.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        Some(_) => return Err(".name: must be a text that is not empty".to_owned()),
        None => return Err(".name: is missing".to_owned()),
    };
    let types = COLUMN_TYPES.join(", ");
    let kind = match object.get("type") {
        Some(Value::String(kind)) if COLUMN_TYPES.contains(&kind.as_str()) => kind.clone(),
        Some(other) => return Err(format!(".type: {other} is not a type; use one of {types}")),
        // As the importer takes it.
        None => "text".to_owned(),
    };
    let required = match object.get("required") {
        None => false,
        Some(Value::Bool(required)) => *required,
        Some(_) => return Err(".required: must be true or false".to_owned()),
    };
    Ok(Column {
        name,
        kind,
        required,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_checked_with_the_place_of_the_mistake() {
        let good = json!({"columns": [
            {"name": "id", "type": "integer", "required": true},
            {"name": "note", "type": "text"},
        ]});
        let read = columns(&good).expect("is right");
        assert_eq!(read.len(), 2);
        assert!(read[0].required && !read[1].required);
        for (schema, problem) in [
            (json!([]), "must be an object"),
            (json!({}), "`columns` is missing"),
            (json!({"columns": {}}), "must be a list"),
            (json!({"columns": []}), "is empty"),
            (json!({"columns": [], "x": 1}), "`x` is not known"),
            (json!({"columns": [1]}), "columns[0]: must be an object"),
            (
                json!({"columns": [{"type": "text"}]}),
                "columns[0].name: is missing",
            ),
            (
                json!({"columns": [{"name": "", "type": "text"}]}),
                "columns[0].name",
            ),
            (
                json!({"columns": [{"name": "a", "type": "int"}]}),
                "columns[0].type: \"int\" is not a type",
            ),
            (
                json!({"columns": [{"name": "a", "type": "text", "required": 1}]}),
                "columns[0].required",
            ),
            (
                json!({"columns": [{"name": "a", "type": "text", "typ": 1}]}),
                "`typ` is not known",
            ),
            (
                json!({"columns": [{"name": "a", "type": "text"}, {"name": "a", "type": "date"}]}),
                "columns[1].name: `a` comes twice",
            ),
        ] {
            let found = columns(&schema).expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
    }

    #[test]
    fn the_payload_is_what_the_handler_reads() {
        let columns = [Column {
            name: "id".into(),
            kind: "integer".into(),
            required: true,
        }];
        let mut payload = Payload {
            file_id: "f",
            dataset: "d",
            delimiter: "\t",
            columns: Some(&columns),
        };
        assert_eq!(
            serde_json::to_value(&payload).expect("serialises"),
            json!({"file_id": "f", "dataset": "d", "delimiter": "\t",
                   "columns": [{"name": "id", "type": "integer", "required": true}]})
        );
        payload.columns = None;
        let text = serde_json::to_string(&payload).expect("serialises");
        assert!(!text.contains("columns"));
    }

    #[test]
    fn datasets_are_named_after_files() {
        for (path, dataset) in [
            ("examples/airports.csv", "airports"),
            ("x/My Data (2).csv", "my_data__2"),
            ("...", "import"),
            ("ä.csv", "import"),
        ] {
            assert_eq!(dataset_of(Path::new(path)), dataset, "{path}");
        }
    }

    #[test]
    fn the_summary_shows_rejects_and_the_report() {
        let samples: Vec<Value> = (2..9)
            .map(|line| json!({"line": line, "column": "lat", "reason": "BAD", "message": "\u{1b}x"}))
            .collect();
        let result: ImportResult = serde_json::from_value(json!({
            "rows_accepted": 10, "rows_rejected": 9, "bytes": 100, "delimiter": "\t",
            "report_file_id": "r-1", "reject_samples": samples, "warnings": ["w"], "newer": 1,
        }))
        .expect("reads");
        let text = result_text(&result);
        assert!(text.contains("rows accepted  10\n"), "{text}");
        assert!(
            text.contains("rejected: line 2, column lat: BAD: \\u{1b}x\n"),
            "{text}"
        );
        assert!(!text.contains("line 7"), "{text}");
        assert!(text.contains("rejected: 4 more"), "{text}");
        assert!(text.contains("warning: w\n"), "{text}");
        assert!(
            text.ends_with("tenure download r-1 -O report.json\n"),
            "{text}"
        );
    }
}
