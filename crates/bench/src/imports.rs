//! Importing 200,000 rows, beside what `COPY` of the same rows by psql takes; and the
//! worker's memory over a file of 1 GB.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::test_util::TestDb;
use tenure_proto::v1::upload_file_request::{Header, Part};
use tenure_proto::v1::{JobState, UploadFileRequest};
use tenure_tests::{Caller, Stack, data};

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, progress};

/// The flights out of New York in 2013: 19 columns, about 92 bytes a row.
const FILE: &str = "flights_200k.csv.gz";

/// Its columns and their types, for the import and for the plain table alike.
const COLUMNS: [(&str, &str); 19] = [
    ("year", "integer"),
    ("month", "integer"),
    ("day", "integer"),
    ("dep_time", "integer"),
    ("sched_dep_time", "integer"),
    ("dep_delay", "integer"),
    ("arr_time", "integer"),
    ("sched_arr_time", "integer"),
    ("arr_delay", "integer"),
    ("carrier", "text"),
    ("flight", "integer"),
    ("tailnum", "text"),
    ("origin", "text"),
    ("dest", "text"),
    ("air_time", "integer"),
    ("distance", "integer"),
    ("hour", "integer"),
    ("minute", "integer"),
    ("time_hour", "timestamp"),
];

/// What stands for an empty field in it.
const NULL: &str = "NA";

/// The size of the large file.
const LARGE: usize = 1_000_000_000;

/// The longest that one import may take.
const BOUND: Duration = Duration::from_secs(280);

/// From the start of the run to its end, by the database's clock.
const SECONDS: &str =
    "select extract(epoch from finished_at - started_at)::float8 from jobs where job_id = $1::uuid";

/// Measures what is wanted of it.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    if ["import_rows_per_s", "limit_copy_rows_per_s"]
        .iter()
        .any(|figure| wanted.needs(figure))
    {
        let content = data::unpacked(FILE);
        let (mut imports, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            copies.push(copy(&content).await?);
            imports.push(import(&content).await?);
        }
        progress(format_args!(
            "import: {imports:.0?} rows/s, COPY: {copies:.0?}"
        ));
        report.add("import_rows_per_s", imports);
        report.add("limit_copy_rows_per_s", copies);
    }
    // Minutes long: measured only where it is asked for by its name.
    if wanted.asked("import_1gb") {
        large(report).await?;
    }
    Ok(())
}

/// What the import is told of the columns, and of what stands for an empty field.
fn payload() -> Value {
    let columns: Value = COLUMNS
        .iter()
        .map(|(name, kind)| json!({"name": name, "type": kind}))
        .collect();
    json!({"columns": columns, "null_values": [NULL]})
}

/// Rows per second of one import by a worker with nothing else to do.
async fn import(content: &[u8]) -> Result<f64> {
    let stack = Stack::builder().start().await;
    let caller = stack.user("bench");
    let job_id = caller.import("flights.csv", content, payload()).await;
    caller.wait_state(&job_id, JobState::Success, BOUND).await;
    let rows = stack.number("select count(*) from import_rows").await;
    ensure!(
        rows == lines(content) - 1,
        "{rows} rows are there, and {} were sent",
        lines(content) - 1
    );
    Ok(rows as f64 / seconds(&stack, &job_id).await?)
}

async fn seconds(stack: &Stack, job_id: &str) -> Result<f64> {
    let seconds = sqlx::query_scalar(SECONDS)
        .bind(job_id)
        .fetch_one(stack.pool())
        .await?;
    Ok(seconds)
}

fn lines(content: &[u8]) -> i64 {
    content.split(|byte| *byte == b'\n').count() as i64 - 1
}

/// Rows per second of psql's `\copy` into a plain table with these columns and no index.
async fn copy(content: &[u8]) -> Result<f64> {
    let database = TestDb::create_empty().await;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), content)?;
    let mut table = String::from("create table flights (");
    for (number, (name, kind)) in COLUMNS.iter().enumerate() {
        let kind = if *kind == "timestamp" {
            "timestamptz"
        } else {
            kind
        };
        let comma = if number == 0 { "" } else { ", " };
        write!(table, "{comma}{name} {kind}")?;
    }
    table.push(')');
    psql(&database.url, &table).await?;
    let start = Instant::now();
    psql(&database.url, &copy_command(file.path())).await?;
    Ok((lines(content) - 1) as f64 / start.elapsed().as_secs_f64())
}

fn copy_command(file: &Path) -> String {
    format!(
        "\\copy flights from '{}' with (format csv, header, null '{NULL}')",
        file.display()
    )
}

async fn psql(url: &str, command: &str) -> Result<()> {
    let program = std::env::var("TENURE_PSQL").unwrap_or_else(|_| "psql".to_owned());
    // The password goes by the environment, where other users cannot read it.
    let address: url::Url = url.parse().context("the database's address")?;
    let mut plain = address.clone();
    let _ = plain.set_password(None);
    let status = tokio::process::Command::new(&program)
        .args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            command,
            plain.as_str(),
        ])
        .env("PGPASSWORD", address.password().unwrap_or_default())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| program.clone())?;
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

/// A file of 1 GB, made while it is sent: how fast, and the worker's memory.
async fn large(report: &mut Report<'_>) -> Result<()> {
    let stack = Stack::builder().start().await;
    let caller = stack.user("bench");
    let (file_id, rows) = upload_large(&caller).await?;
    let mut payload = payload();
    payload["file_id"] = json!(file_id);
    let job_id = caller.submit("import_csv", payload).await;
    caller.wait_state(&job_id, JobState::Success, BOUND).await;
    let seconds = seconds(&stack, &job_id).await?;
    let mib = stack.worker(0).peak_memory_bytes() as f64 / 1_048_576.0;
    progress(format_args!(
        "1 GB: {rows} rows in {seconds:.1} s, worker {mib:.1} MiB"
    ));
    report.add("import_1gb_rows_per_s", vec![rows as f64 / seconds]);
    report.add("import_1gb_rss_worker_mib", vec![mib]);
    Ok(())
}

/// Sends the flights again and again; the file's id and its rows.
async fn upload_large(caller: &Caller) -> Result<(String, i64)> {
    let content = data::unpacked(FILE);
    let end = content.iter().position(|byte| *byte == b'\n').unwrap_or(0) + 1;
    let content = Bytes::from(content);
    let (header, body) = (content.slice(..end), content.slice(end..));
    let times = LARGE.div_ceil(body.len());
    let rows = lines(&body) * times as i64;
    let described = UploadFileRequest {
        part: Some(Part::Header(Header {
            name: "large.csv".to_owned(),
            content_type: "text/csv".to_owned(),
            ..Header::default()
        })),
    };
    let pieces = std::iter::once(header)
        .chain(std::iter::repeat_n(body, times))
        .flat_map(|mut rest| {
            std::iter::from_fn(move || {
                let next = rest.split_to(rest.len().min(256 * 1024));
                (!next.is_empty()).then_some(next)
            })
        })
        .map(|chunk| UploadFileRequest {
            part: Some(Part::Chunk(chunk)),
        });
    let messages = futures::stream::iter(std::iter::once(described).chain(pieces));
    let answer = caller.files().upload_file(messages).await?.into_inner();
    let file = answer.file.context("an answer without its file")?;
    Ok((file.file_id, rows))
}
