//! Files with every kind of trouble through the running product. The outcomes are listed
//! in tests/data/README.md.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::result;
use tenure_tests::v1::{ErrorClass, Job};
use tenure_tests::{JobState, Stack, data};

const BOUND: Duration = Duration::from_secs(90);

/// What should become of a file.
enum Outcome {
    /// Rows accepted, and the lines that are rejected.
    Imported(i64, &'static [i64]),
    /// The code with which all of it is refused.
    Refused(&'static str),
}
use Outcome::{Imported, Refused};

const FILES: &[(&str, Outcome)] = &[
    ("plain_control.csv", Imported(3, &[])),
    ("bom_utf8.csv", Imported(3, &[])),
    ("bom_utf8_quoted_header.csv", Imported(1, &[])),
    ("crlf.csv", Imported(3, &[])),
    ("mixed_line_ends.csv", Imported(4, &[])),
    ("cr_only.csv", Imported(2, &[])),
    ("no_final_newline.csv", Imported(3, &[])),
    ("blank_lines_between.csv", Imported(2, &[])),
    ("utf16le_bom.csv", Imported(3, &[])),
    ("utf16be_no_bom.csv", Refused("CSV_ENCODING")),
    ("cp1252_en_dash.csv", Refused("CSV_ENCODING")),
    ("latin1_names.csv", Refused("CSV_ENCODING")),
    ("embedded_newlines.csv", Imported(3, &[])),
    ("ragged_short.csv", Imported(2, &[3])),
    ("ragged_long.csv", Imported(2, &[3])),
    ("dup_header_exact.csv", Refused("CSV_HEADER_DUPLICATE")),
    (
        "dup_header_case_and_blanks.csv",
        Refused("CSV_HEADER_DUPLICATE"),
    ),
    ("empty_header_name.csv", Refused("CSV_HEADER_EMPTY")),
    ("missing_required_column.csv", Refused("CSV_COLUMN_MISSING")),
    ("empty_0_bytes.csv", Refused("CSV_EMPTY")),
    ("only_bom.csv", Refused("CSV_EMPTY")),
    ("header_only.csv", Imported(0, &[])),
    ("header_only_no_newline.csv", Imported(0, &[])),
    ("huge_field_1MiB.csv", Imported(3, &[])),
    ("nul_byte_in_field.csv", Imported(2, &[3])),
    ("trailing_delimiter_rows.csv", Imported(0, &[2, 3])),
    ("semicolon_delimited.csv", Imported(2, &[])),
    ("tab_delimited.csv", Imported(1, &[])),
    ("numbers_1e308.csv", Imported(5, &[5])),
    ("same_id_twice.csv", Imported(4, &[])),
    ("thousand_columns.csv", Imported(100, &[])),
    ("rows_5000.csv", Imported(5000, &[])),
    ("rows_1001_bad_last.csv", Imported(1000, &[1002])),
    ("hash_first_char.csv", Imported(1, &[2])),
    ("not_a_csv_zip_magic.csv", Refused("CSV_NOT_TEXT")),
];

#[test]
fn every_file_of_the_folder_has_an_outcome() {
    let mut present: Vec<String> = std::fs::read_dir(data::path("csv"))
        .expect("tests/data/csv")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a name")
        })
        .collect();
    let mut listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
    present.sort();
    listed.sort_unstable();
    assert_eq!(present, listed);
}

/// Files that need to be told about, or are packed: the folder, the name, the encoding.
const DECLARED: &[(&str, &str, Option<&str>, Outcome)] = &[
    (
        "csv",
        "utf16be_no_bom.csv",
        Some("utf-16be"),
        Imported(3, &[]),
    ),
    (
        "csv",
        "cp1252_en_dash.csv",
        Some("windows-1252"),
        Imported(2, &[]),
    ),
    ("csv", "latin1_names.csv", Some("latin-1"), Imported(3, &[])),
    (
        "csv",
        "utf16le_bom.csv",
        Some("utf-8"),
        Refused("CSV_ENCODING"),
    ),
    ("packed", "rows_5000.csv.gz", None, Imported(5000, &[])),
    ("packed", "rows_5000.zip", None, Imported(5000, &[])),
    ("packed", "two_files.zip", None, Refused("CSV_ARCHIVE")),
    ("packed", "cut_off.csv.gz", None, Refused("CSV_ARCHIVE")),
    ("packed", "sheet.xlsx", None, Refused("CSV_NOT_TEXT")),
];

#[tokio::test]
async fn encodings_are_declared_and_archives_unpacked() {
    let stack = Stack::builder()
        .env("TENURE_IMPORTS__MAX_UNPACKED_BYTES", "1MiB")
        .start()
        .await;
    let ann = stack.user("ann");
    let columns = json!([
        {"name": "id", "type": "integer", "required": true},
        {"name": "name", "type": "text", "required": true},
        {"name": "amount", "type": "decimal"},
    ]);
    for (folder, name, encoding, outcome) in DECLARED {
        let content = data::bytes(&format!("{folder}/{name}"));
        let more = json!({"encoding": encoding, "columns": columns});
        let job = ann
            .wait_end(&ann.import(name, &content, more).await, BOUND)
            .await;
        match outcome {
            Imported(accepted, rejected) => imported(&stack, name, &job, *accepted, rejected).await,
            Refused(code) => refused(&stack, name, &job, code).await,
        }
        let names: Vec<String> = sqlx::query_scalar(
            "select data->>'name' from import_rows where job_id = $1::uuid order by line_no limit 3",
        )
        .bind(&job.job_id)
        .fetch_all(stack.pool())
        .await
        .expect("names");
        let expected: &[&str] = match *name {
            "utf16be_no_bom.csv" => &["Anna", "Bela", "Chloé"],
            "cp1252_en_dash.csv" => &["Anna", "ten – twenty"],
            "latin1_names.csv" => &["Müller", "Sørensen", "Ana"],
            _ => continue,
        };
        assert_eq!(names, expected, "{name}");
    }
    // Flat however much is in it: stopped at the limit.
    let bomb = data::bytes("packed/bomb_2MiB.csv.gz");
    let job = ann.import("bomb.csv.gz", &bomb, json!({})).await;
    refused(
        &stack,
        "bomb",
        &ann.wait_end(&job, BOUND).await,
        "CSV_TOO_LARGE",
    )
    .await;
}

#[tokio::test]
async fn every_file_has_its_outcome() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let mut jobs = Vec::new();
    for (name, outcome) in FILES {
        let content = data::bytes(&format!("csv/{name}"));
        let columns = json!({"columns": [
            {"name": "id", "type": "integer", "required": true},
            {"name": "name", "type": "text", "required": true},
            {"name": "amount", "type": "decimal"},
        ]});
        jobs.push((name, outcome, ann.import(name, &content, columns).await));
    }
    for (name, outcome, job_id) in &jobs {
        let job = ann.wait_end(job_id, BOUND).await;
        assert_eq!(job.attempt, 1, "{name}: {:?}", job.last_error);
        match outcome {
            Imported(accepted, rejected) => imported(&stack, name, &job, *accepted, rejected).await,
            Refused(code) => refused(&stack, name, &job, code).await,
        }
    }
    sums(&stack, |wanted| {
        let found = jobs.iter().find(|(name, _, _)| **name == wanted);
        found.expect("the file").2.clone()
    })
    .await;
    let log = stack.worker(0).log();
    assert!(
        !log.contains("22021"),
        "the database was given a NUL:\n{log}"
    );
}

async fn imported(stack: &Stack, name: &str, job: &Job, accepted: i64, rejected: &[i64]) {
    assert_eq!(
        job.state(),
        JobState::Success,
        "{name}: {:?}",
        job.last_error
    );
    let result = result(job);
    assert_eq!(result["rows_accepted"], accepted, "{name}");
    assert_eq!(result["rows_rejected"], rejected.len(), "{name}");
    let progress = job.progress.as_ref().expect("progress");
    assert_eq!(progress.done, progress.total, "{name}");
    assert_eq!(count(stack, "import_rows", job).await, accepted, "{name}");
    let lines: Vec<i64> =
        sqlx::query_scalar("select line_no from import_rejects where job_id = $1::uuid order by 1")
            .bind(&job.job_id)
            .fetch_all(stack.pool())
            .await
            .expect("rejects");
    assert_eq!(lines, rejected, "{name}");
}

async fn refused(stack: &Stack, name: &str, job: &Job, code: &str) {
    assert_eq!(job.state(), JobState::Failed, "{name}");
    // No other attempt could have come to another end.
    assert_eq!((job.attempt, job.run), (1, 1), "{name}");
    let error = job.last_error.as_ref().expect("an error");
    assert_eq!(error.code, code, "{name}: {}", error.message);
    assert_eq!(error.error_class(), ErrorClass::Permanent, "{name}");
    assert!(
        !error.message.contains(char::is_control) && error.message.len() < 500,
        "{name}: {:?}",
        error.message
    );
    assert_eq!(count(stack, "import_rows", job).await, 0, "{name}");
    assert_eq!(count(stack, "dead_letters", job).await, 1, "{name}");
}

async fn count(stack: &Stack, table: &str, job: &Job) -> i64 {
    let statement = match table {
        "import_rows" => "select count(*) from import_rows where job_id = $1::uuid",
        _ => "select count(*) from dead_letters where job_id = $1::uuid",
    };
    sqlx::query_scalar(statement)
        .bind(&job.job_id)
        .fetch_one(stack.pool())
        .await
        .expect("a count")
}

/// Amounts are exact decimals, and names keep their characters.
async fn sums(stack: &Stack, job: impl Fn(&str) -> String) {
    for (file, sum) in [
        ("plain_control.csv", "60.75"),
        ("utf16le_bom.csv", "60.75"),
        ("crlf.csv", "60.75"),
        ("rows_5000.csv", "248750.00"),
        ("semicolon_delimited.csv", "30.50"),
    ] {
        let found: String = sqlx::query_scalar(
            "select sum((data->>'amount')::numeric)::text from import_rows where job_id = $1::uuid",
        )
        .bind(job(file))
        .fetch_one(stack.pool())
        .await
        .expect("a sum");
        assert_eq!(found, sum, "{file}");
    }
    for (file, line, expected) in [
        ("plain_control.csv", 4_i64, "Chloé"),
        ("bom_utf8.csv", 4, "Chloé"),
        ("utf16le_bom.csv", 4, "Chloé"),
        ("embedded_newlines.csv", 2, "line one\nline two"),
        ("embedded_newlines.csv", 4, "a\r\nb"),
    ] {
        let name: String = sqlx::query_scalar(
            "select data->>'name' from import_rows where job_id = $1::uuid and line_no = $2",
        )
        .bind(job(file))
        .bind(line)
        .fetch_one(stack.pool())
        .await
        .expect("a name");
        assert_eq!(name, expected, "{file}");
    }
}
