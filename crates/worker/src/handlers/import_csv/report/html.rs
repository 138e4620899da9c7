//! The report for people: one page that needs nothing else. Whatever comes from the file is
//! escaped, and stands in an element that keeps its writing direction to itself.

use askama::Template;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::Value;
use tenure_core::error::{Code, Error, Result};

use super::{Column, Finished, Home};
use crate::handlers::import_csv::decode::Compression;

/// The rejects on the page.
const SAMPLES: usize = 100;

#[derive(Template)]
#[template(path = "import_report.html")]
struct Page<'p> {
    title: &'p str,
    into: &'static str,
    job_id: String,
    failure: Option<&'p str>,
    validate_only: bool,
    accepted: String,
    rejected: String,
    rows: String,
    rate: String,
    /// The parts of the bar, in percent with one decimal.
    accepted_share: String,
    rejected_share: String,
    groups: Vec<Group<'p>>,
    more_groups: bool,
    samples: Vec<Sample<'p>>,
    more_samples: Option<String>,
    warnings: &'p [String],
    columns: Vec<ColumnLine<'p>>,
    facts: Vec<(&'static str, String)>,
    timing: Vec<(&'static str, String)>,
}

struct Group<'p> {
    reason: &'p str,
    column: &'p str,
    rows: String,
    share: String,
}

struct Sample<'p> {
    line: String,
    column: &'p str,
    reason: &'p str,
    message: &'p str,
    value: &'p str,
}

struct ColumnLine<'p> {
    name: &'p str,
    from: &'p str,
    kind: String,
    rules: String,
}

impl Finished<'_> {
    /// The report's content for people.
    ///
    /// # Errors
    /// `INTERNAL`: the page cannot be written.
    pub(crate) fn html(&self) -> Result<Bytes> {
        let position = &self.checkpoint.position;
        let (accepted, rejected) = (position.rows_accepted, position.rows_rejected);
        let rows = self.rows();
        let (into, title) = match self.home {
            Home::Dataset(name) => ("data set", name),
            Home::Table(name) => ("table", name),
        };
        let samples: Vec<Sample<'_>> = self
            .rejects
            .iter()
            .take(SAMPLES)
            .map(|reject| Sample {
                line: grouped(reject.line),
                column: &reject.column,
                reason: &reject.reason,
                message: &reject.message,
                value: reject.value.as_deref().unwrap_or_default(),
            })
            .collect();
        let left_out = rejected - samples.len() as i64;
        let told: i64 = self.groups.iter().map(|group| group.rejects).sum();
        let page = Page {
            title,
            into,
            job_id: self.job_id.to_string(),
            failure: self.failure,
            validate_only: self.payload.validate_only,
            accepted: grouped(accepted),
            rejected: grouped(rejected),
            rows: grouped(rows),
            rate: grouped(self.rows_per_second()),
            accepted_share: share(accepted, rows),
            rejected_share: share(rejected, rows),
            groups: self
                .groups
                .iter()
                .map(|group| Group {
                    reason: &group.reason,
                    column: &group.column,
                    rows: grouped(group.rejects),
                    share: share(group.rejects, rejected),
                })
                .collect(),
            more_groups: told < rejected,
            more_samples: (left_out > 0).then(|| grouped(left_out)),
            samples,
            warnings: &self.plan.warnings,
            columns: self.columns().map(line).collect(),
            facts: self.facts(),
            timing: vec![
                ("Started", moment(self.plan.started_at)),
                ("Finished", moment(self.checkpoint.updated_at)),
                ("Duration", duration(self.duration_ms())),
                ("Rows per second", grouped(self.rows_per_second())),
                ("Batches", grouped(position.batch_no.into())),
            ],
        };
        let text = page.render().map_err(|e| {
            Error::new(Code::Internal, "the report cannot be written").with_source(e)
        })?;
        Ok(Bytes::from(text))
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("File", self.file_name.to_owned()),
            ("Size", format!("{} bytes", grouped(self.bytes))),
        ];
        facts.push(("Encoding", self.plan.encoding.clone()));
        match self.plan.compression {
            Compression::None => {}
            Compression::Gzip => facts.push(("Compression", "gzip".to_owned())),
            Compression::Zip => facts.push(("Compression", "ZIP".to_owned())),
        }
        let delimiter = match self.plan.delimiter {
            '\t' => "tab".to_owned(),
            other => other.to_string(),
        };
        facts.push(("Delimiter", delimiter));
        if let Some(Value::String(mode)) = self.summary().get("mode") {
            facts.push(("Mode", mode.clone()));
        }
        facts
    }
}

fn line(column: &Column) -> ColumnLine<'_> {
    let kind = column.kind().name();
    let mut rules = Vec::new();
    if column.required {
        rules.push("required");
    }
    if column.unique {
        rules.push("unique");
    }
    if column.default.is_some() {
        rules.push("default");
    }
    let limited = column.pattern.is_some()
        || column.min.is_some()
        || column.max.is_some()
        || column.min_length.is_some()
        || column.max_length.is_some()
        || !column.values.is_empty();
    if limited {
        rules.push("limited values");
    }
    ColumnLine {
        name: &column.name,
        from: column.source(),
        kind: kind.to_owned(),
        rules: rules.join(", "),
    }
}

/// A number with its digits in groups of three.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A part in percent with one decimal. Neither nothing nor all of it, unless it is.
fn share(part: i64, whole: i64) -> String {
    if whole <= 0 || part <= 0 {
        return "0".to_owned();
    }
    if part >= whole {
        return "100".to_owned();
    }
    let percent = (part as f64 * 100.0 / whole as f64).clamp(0.1, 99.9);
    format!("{percent:.1}")
}

fn moment(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn duration(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{}.{:03} s", seconds, ms % 1000),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(-1_234), "-1,234");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(share(0, 0), "0");
        assert_eq!(share(1, 1_000_000), "0.1");
        assert_eq!(share(999_999, 1_000_000), "99.9");
        assert_eq!(share(1, 3), "33.3");
        assert_eq!(share(3, 3), "100");
        assert_eq!(duration(1_042), "1.042 s");
        assert_eq!(duration(61_000), "1 min 1 s");
        assert_eq!(duration(3_660_000), "1 h 1 min");
    }
}
