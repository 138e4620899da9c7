//! The summary of an import, for people.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::outputs::Kind;
use crate::jobs::accepted_text;
use crate::output::{escape, pairs};
use crate::shell::Line;
use crate::view;

/// The report has them all.
const SHOWN_REJECTS: usize = 5;

/// The result of `import_csv`, as far as the summary shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImportResult {
    rows_accepted: u64,
    rows_rejected: u64,
    bytes: u64,
    delimiter: String,
    dataset: Option<String>,
    table: Option<String>,
    validate_only: bool,
    rows_per_second: Option<f64>,
    report_file_id: Option<String>,
    report_html_file_id: Option<String>,
    rejects_file_id: Option<String>,
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

/// What came of an import; `user`: the one whom it was for, where that is another one.
pub(super) fn summary(import: &view::Import, user: Option<&str>) -> String {
    let mut text = accepted_text(&import.job_id, import.duplicate, &import.state);
    let Some(job) = &import.job else {
        let line = Line::new(["watch"]).name(&import.job_id).text();
        text.push_str(&pairs([("next", format!("`{line}` follows it"))]));
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
        // An import that failed has no result, and has left its reports all the same.
        let files = import.files.as_deref().unwrap_or_default();
        let newest = |kind: Kind| {
            kind.find(files, |file| (&file.kind, &file.content_type))
                .map(|file| file.file_id.as_str())
        };
        text.push_str(&downloads(newest));
        return text;
    };
    let Ok(result) = serde_json::from_str::<ImportResult>(raw.get()) else {
        // A newer handler; show what there is.
        return text + &pairs([("result", raw.get().to_owned())]);
    };
    text.push_str(&result_text(&result, user));
    text
}

/// The lines that download what there is.
fn downloads<'f>(file: impl Fn(Kind) -> Option<&'f str>) -> String {
    const FILES: [(Kind, &str, &str); 3] = [
        (Kind::ReportHtml, "the report as a page", "report.html"),
        (Kind::ReportJson, "the report as data", "report.json"),
        (Kind::Rejects, "the rejected rows", "rejects.csv"),
    ];
    let mut text = String::new();
    for (kind, what, name) in FILES {
        if let Some(file) = file(kind) {
            let line = Line::new(["download", file]).option("-O", Some(name));
            let _ = writeln!(text, "download {what}: {}", line.text());
        }
    }
    text
}

fn result_text(result: &ImportResult, user: Option<&str>) -> String {
    let delimiter = match result.delimiter.as_str() {
        "\t" => "tab",
        other => other,
    };
    let mut text = pairs([
        (
            "rows accepted",
            if result.validate_only {
                format!("{} (a dry run: none is stored)", result.rows_accepted)
            } else {
                result.rows_accepted.to_string()
            },
        ),
        ("rows rejected", result.rows_rejected.to_string()),
        ("dataset", result.dataset.clone().unwrap_or_default()),
        ("table", result.table.clone().unwrap_or_default()),
        ("bytes", result.bytes.to_string()),
        ("delimiter", delimiter.to_owned()),
        (
            "rate",
            result
                .rows_per_second
                .map_or_else(String::new, |rate| format!("{rate:.0} rows/s")),
        ),
    ]);
    for warning in &result.warnings {
        let warning = warning
            .as_str()
            .map_or_else(|| warning.to_string(), str::to_owned);
        let _ = writeln!(text, "warning: {}", escape(&warning));
    }
    if result.rows_accepted == 0 {
        let why = if result.rows_rejected == 0 {
            "the file has a header and no rows"
        } else {
            "all rows were rejected"
        };
        let _ = writeln!(text, "warning: no row was accepted: {why}");
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
    text.push_str(&downloads(|kind| match kind {
        Kind::ReportHtml => result.report_html_file_id.as_deref(),
        Kind::ReportJson => result.report_file_id.as_deref(),
        Kind::Rejects => result.rejects_file_id.as_deref(),
    }));
    if let Some(dataset) = &result.dataset
        && !result.validate_only
        && result.rows_accepted > 0
    {
        let line = Line::new(["rows"]).option("--user", user).name(dataset);
        let _ = writeln!(text, "look at the rows: {}", line.text());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_summary_shows_rejects_and_the_report() {
        let samples: Vec<Value> = (2..9)
            .map(|line| json!({"line": line, "column": "lat", "reason": "BAD", "message": "\u{1b}x"}))
            .collect();
        let result: ImportResult = serde_json::from_value(json!({
            "rows_accepted": 10, "rows_rejected": 9, "bytes": 100, "delimiter": "\t",
            "report_file_id": "r-1", "rejects_file_id": "r-2", "dataset": "d", "reject_samples": samples, "warnings": ["w"], "newer": 1,
        }))
        .expect("reads");
        let text = result_text(&result, None);
        assert!(text.contains("rows accepted  10\n"), "{text}");
        assert!(
            text.contains("rejected: line 2, column lat: BAD: \\u{1b}x\n"),
            "{text}"
        );
        assert!(!text.contains("line 7"), "{text}");
        assert!(text.contains("rejected: 4 more"), "{text}");
        assert!(text.contains("warning: w\n"), "{text}");
        assert!(!text.contains("no row was accepted"), "{text}");
        let told = |rejected| {
            let none = ImportResult {
                rows_rejected: rejected,
                ..ImportResult::default()
            };
            result_text(&none, None)
        };
        assert!(told(0).contains("warning: no row was accepted: the file has"));
        assert!(told(3).contains("warning: no row was accepted: all rows"));
        for line in [
            "download the report as data: tenure download r-1 -O report.json\n",
            "download the rejected rows: tenure download r-2 -O rejects.csv\n",
            "look at the rows: tenure rows d\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn a_line_to_paste_has_the_name_in_quotes() {
        let text = |dataset: &str, user| {
            let result = ImportResult {
                rows_accepted: 1,
                dataset: Some(dataset.to_owned()),
                ..ImportResult::default()
            };
            result_text(&result, user)
        };
        let quoted = text("it's $HOME", Some("ann"));
        assert!(
            quoted.ends_with("look at the rows: tenure rows --user ann 'it'\\''s $HOME'\n"),
            "{quoted}"
        );
        let unsafe_name = text("a\u{1b}[2J", None);
        assert!(!unsafe_name.contains("tenure rows"), "{unsafe_name}");
        assert!(!unsafe_name.contains('\u{1b}'), "{unsafe_name}");
    }

    #[test]
    fn a_failed_import_names_what_it_left() {
        let file = |file_id: &str, kind: &str, content_type: &str| {
            view::File::from(tenure_proto::v1::File {
                file_id: file_id.to_owned(),
                kind: kind.to_owned(),
                content_type: content_type.to_owned(),
                ..tenure_proto::v1::File::default()
            })
        };
        let job = tenure_proto::v1::Job {
            state: tenure_proto::v1::JobState::Failed.into(),
            ..tenure_proto::v1::Job::default()
        };
        let import = view::Import {
            file: file("f", "upload", "text/csv"),
            job_id: "j".to_owned(),
            duplicate: false,
            state: "failed".to_owned(),
            job: Some(job.into()),
            files: Some(vec![
                file("new", "report", "application/json"),
                file("old", "report", "application/json"),
                file("page", "report", "text/html; charset=utf-8"),
                file("rows", "rejects", "text/csv"),
            ]),
        };
        let text = summary(&import, None);
        for line in [
            "tenure download new -O report.json\n",
            "tenure download page -O report.html\n",
            "tenure download rows -O rejects.csv\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!text.contains("download old"), "{text}");
    }
}
