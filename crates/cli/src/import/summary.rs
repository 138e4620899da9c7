//! The summary of an import, for people.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

use crate::jobs::accepted_text;
use crate::output::{escape, pairs};
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

/// What came of an import.
pub(super) fn summary(import: &view::Import) -> String {
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
    let downloads = [
        (
            "the report as a page",
            &result.report_html_file_id,
            "report.html",
        ),
        ("the report as data", &result.report_file_id, "report.json"),
        ("the rejected rows", &result.rejects_file_id, "rejects.csv"),
    ];
    for (what, file, name) in downloads {
        if let Some(file) = file {
            let file = escape(file);
            let _ = writeln!(text, "download {what}: tenure download {file} -O {name}");
        }
    }
    if let Some(dataset) = &result.dataset
        && !result.validate_only
        && result.rows_accepted > 0
    {
        let _ = writeln!(text, "look at the rows: tenure rows '{}'", escape(dataset));
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
        let text = result_text(&result);
        assert!(text.contains("rows accepted  10\n"), "{text}");
        assert!(
            text.contains("rejected: line 2, column lat: BAD: \\u{1b}x\n"),
            "{text}"
        );
        assert!(!text.contains("line 7"), "{text}");
        assert!(text.contains("rejected: 4 more"), "{text}");
        assert!(text.contains("warning: w\n"), "{text}");
        for line in [
            "download the report as data: tenure download r-1 -O report.json\n",
            "download the rejected rows: tenure download r-2 -O rejects.csv\n",
            "look at the rows: tenure rows 'd'\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
