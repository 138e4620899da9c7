//! An import that is killed again and again ends like one that nobody disturbed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::result;
use tenure_tests::v1::Job;
use tenure_tests::{Caller, JobState, Stack, data, wait_until};

const BOUND: Duration = Duration::from_mins(3);
const ROWS: usize = 200_000;
const KILLS: u32 = 10;

/// The flights with every 997th row spoilt, in one of four ways.
fn spoilt() -> (Vec<u8>, usize) {
    let content = data::unpacked("flights_200k.csv.gz");
    let text = String::from_utf8(content).expect("UTF-8");
    let mut lines = text.lines();
    let mut out = String::with_capacity(text.len());
    out.push_str(lines.next().expect("a header"));
    out.push('\n');
    let mut rejects = 0;
    for (number, line) in lines.enumerate() {
        if number % 997 == 996 {
            rejects += 1;
            match rejects % 4 {
                0 => out.push_str("=HYPERLINK(\"x\")"),
                1 => out.push_str(&line.replacen("2013", "MMXIII", 1)),
                2 => {
                    out.push_str(line);
                    out.push_str(",more");
                }
                _ => out.push_str(
                    &line
                        .replacen(",UA,", ",U\0A,", 1)
                        .replacen("2013,", "2013.5,", 1),
                ),
            }
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    (out.into_bytes(), rejects)
}

fn columns() -> Value {
    json!([
        {"name": "year", "type": "integer", "required": true},
        {"name": "carrier"},
        {"name": "distance", "type": "decimal"},
        {"name": "at", "from": "time_hour", "type": "timestamp"},
    ])
}

/// What an import has left, apart from times and batches.
#[derive(Debug, PartialEq)]
struct Left {
    rows: i64,
    rows_digest: String,
    rejects_digest: String,
    report: Value,
    rejects_file: Vec<u8>,
    result: Value,
}

async fn left(stack: &Stack, caller: &Caller, job: &Job) -> Left {
    let digest = |table: &'static str, order: &'static str| {
        let statement = format!(
            "select md5(string_agg(md5(t.*::text), '' order by {order})) from \
             (select {table}) t"
        );
        async move {
            sqlx::query_scalar::<_, String>(sqlx::AssertSqlSafe(statement))
                .bind(&job.job_id)
                .fetch_one(stack.pool())
                .await
                .expect("a digest")
        }
    };
    let rows: i64 = sqlx::query_scalar("select count(*) from import_rows where job_id = $1::uuid")
        .bind(&job.job_id)
        .fetch_one(stack.pool())
        .await
        .expect("a count");
    let mut report = caller.report(job).await;
    let mut result = result(job);
    // What differs from run to run by its nature.
    for value in [&mut report, &mut result] {
        for key in [
            "timing",
            "job_id",
            "file_id",
            "report_file_id",
            "report_html_file_id",
            "rejects_file_id",
            "duration_ms",
            "rows_per_second",
        ] {
            value.as_object_mut().expect("an object").remove(key);
        }
    }
    Left {
        rows,
        rows_digest: digest(
            "line_no, data from import_rows where job_id = $1::uuid",
            "line_no",
        )
        .await,
        rejects_digest: digest(
            "line_no, column_name, reason, message, value, original from import_rejects where job_id = $1::uuid",
            "line_no",
        )
        .await,
        report,
        rejects_file: caller.result_file(job, "rejects_file_id").await,
        result,
    }
}

#[tokio::test]
async fn an_import_killed_ten_times_at_random_moments_equals_an_undisturbed_one_after_each_crash() {
    let stack = Stack::builder()
        .lease("2s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .env("TENURE_RETRY__POISON_LOST", "1000")
        .start()
        .await;
    let (ann, bob) = (stack.user("ann"), stack.user("bob"));
    let (content, spoilt) = spoilt();

    let calm = ann
        .import("flights.csv", &content, json!({"columns": columns()}))
        .await;
    let calm = ann.wait_state(&calm, JobState::Success, BOUND).await;
    let expected = left(&stack, &ann, &calm).await;
    assert_eq!(expected.rows, (ROWS - spoilt) as i64);
    assert_eq!(expected.report["rows_rejected"], spoilt);

    let file = bob.upload("flights.csv", &content).await;
    let mut spec =
        tenure_tests::caller::spec("import_csv", json!({"file_id": file, "columns": columns()}));
    spec.max_attempts = 50;
    let job_id = bob.submit_spec(spec).await;
    let mut random = Random::new();
    let mut kills = BTreeMap::new();
    let mut killed = 0;
    for kill in 1..=KILLS {
        // A run of its own: one that was killed looks as if it ran until its lease is over.
        let job = wait_until("the import runs", BOUND, || async {
            let job = bob.try_get(&job_id).await.ok()?;
            assert_ne!(job.state(), JobState::Failed, "{:?}", job.last_error);
            let runs = job.state() == JobState::Running && job.run > killed;
            (runs || job.state() == JobState::Success).then_some(job)
        })
        .await;
        if job.state() == JobState::Success {
            break;
        }
        killed = job.run;
        // Up to the time that a tenth of an undisturbed import takes: the moments spread
        // over all of it. No fact to wait for: it is the moment that is to be random.
        let pause = random.below(duration(&calm) / u64::from(KILLS));
        tokio::time::sleep(Duration::from_millis(pause)).await;
        stack.worker(0).kill();
        let at: i64 = sqlx::query_scalar(
            "select coalesce((select byte_offset from import_checkpoints where job_id = $1::uuid), 0)",
        )
        .bind(&job_id)
        .fetch_one(stack.pool())
        .await
        .expect("an offset");
        kills.insert(kill, at);
        stack.worker(0).start().await;
    }
    println!(
        "killed at {kills:?} of {} bytes, seed {}",
        content.len(),
        random.seed
    );
    let job = bob.wait_state(&job_id, JobState::Success, BOUND).await;
    println!("{} runs", job.run);
    assert_eq!(left(&stack, &bob, &job).await, expected);
}

/// How long the run of a job took, in milliseconds.
fn duration(job: &Job) -> u64 {
    let took = result(job)["duration_ms"].as_u64().expect("a duration");
    took.max(1000)
}

/// Random numbers from a seed that a failure tells.
struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    fn new() -> Self {
        let seed = std::env::var("TENURE_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
        Self {
            seed,
            state: seed | 1,
        }
    }

    /// The next number below a bound (xorshift: spread enough for moments).
    fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound.max(1)
    }
}
