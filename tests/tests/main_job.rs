//! The main job: a file goes up, is imported, is watched, and its report comes back.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::result;
use tenure_tests::v1::{Job, ListJobsRequest};
use tenure_tests::{Caller, JobState, Stack, data, wait_until, within};

const BOUND: Duration = Duration::from_secs(90);

/// Follows a job to its end; all that was told.
async fn watched(caller: &Caller, job_id: &str) -> Vec<Job> {
    let mut changes = caller.watch(job_id, 0).await.expect("a watch");
    let all = async {
        let mut told = Vec::new();
        while let Some(change) = changes.message().await.expect("a change") {
            told.push(change.job.expect("a job"));
        }
        told
    };
    within("the end of the watch", BOUND, all).await
}

/// The report of an import, as it is downloaded.
async fn report(caller: &Caller, result: &Value) -> Value {
    let file_id = result["report_file_id"].as_str().expect("a report");
    let content = caller.download(file_id).await.expect("the report's bytes");
    serde_json::from_slice(&content).expect("the report's JSON")
}

/// The notification jobs of a user.
async fn notifications(caller: &Caller) -> Vec<Job> {
    let request = ListJobsRequest {
        job_type: "notify".to_owned(),
        ..ListJobsRequest::default()
    };
    caller.list(request).await.expect("a list").jobs
}

#[tokio::test]
async fn a_file_is_imported_and_watched_to_its_report_and_one_notification() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let content = data::example("airports.csv");
    let job_id = ann
        .import("airports.csv", &content, json!({"dataset": "airports"}))
        .await;

    let told = watched(&ann, &job_id).await;
    let revisions: Vec<i64> = told.iter().map(|job| job.revision).collect();
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
    let done: Vec<i64> = told
        .iter()
        .filter_map(|job| job.progress.as_ref().map(|p| p.done))
        .collect();
    assert!(done.is_sorted(), "progress goes back: {done:?}");
    let last = told.last().expect("an end");
    assert_eq!(last.state(), JobState::Success, "{:?}", last.last_error);
    let progress = last.progress.as_ref().expect("progress");
    assert_eq!(
        (progress.done, progress.total),
        (content.len() as i64, content.len() as i64)
    );
    assert_eq!(progress.message, "rows 3376 (0 rejected)");
    assert_eq!((last.attempt, last.run), (1, 1));

    let result = result(last);
    assert_eq!(result["rows_accepted"], 3376);
    assert_eq!(result["rows_rejected"], 0);
    let report = report(&ann, &result).await;
    assert_eq!(report["rows_accepted"], 3376);
    assert_eq!(report["dataset"], "airports");
    assert_eq!(report["rejects"], json!([]));
    assert_eq!(stack.number("select count(*) from import_rows").await, 3376);
    assert_eq!(
        stack
            .number(
                "select count(distinct line_no) from import_rows where line_no between 2 and 3377"
            )
            .await,
        3376
    );

    let notify = wait_until("the notification's job", BOUND, || async {
        notifications(&ann).await.pop()
    })
    .await;
    ann.wait_state(&notify.job_id, JobState::Success, BOUND)
        .await;
    assert_eq!(notifications(&ann).await.len(), 1);
    let key: Vec<String> = sqlx::query_scalar(
        "select dedupe_key from notifications where user_id = 'ann' and template = 'import_finished'",
    )
    .fetch_all(stack.pool())
    .await
    .expect("notifications");
    assert_eq!(key, [job_id]);
}

#[tokio::test]
async fn bad_rows_are_listed_with_line_column_and_reason_and_the_others_go_in() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let schema = data::example("contacts.schema.json");
    let schema: Value = serde_json::from_slice(&schema).expect("a schema");
    let content = data::example("contacts-with-mistakes.csv");
    let job_id = ann.import("contacts.csv", &content, schema).await;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let result = result(&job);
    assert_eq!(result["rows_accepted"], 6);
    assert_eq!(result["rows_rejected"], 8);

    let report = report(&ann, &result).await;
    let rejects: Vec<(i64, &str, &str)> = report["rejects"]
        .as_array()
        .expect("rejects")
        .iter()
        .map(|reject| {
            (
                reject["line"].as_i64().expect("a line"),
                reject["column"].as_str().expect("a column"),
                reject["reason"].as_str().expect("a reason"),
            )
        })
        .collect();
    assert_eq!(
        rejects,
        [
            (6, "id", "BAD_INTEGER"),
            (7, "name", "REQUIRED_MISSING"),
            (8, "born", "BAD_DATE"),
            (9, "active", "BAD_BOOLEAN"),
            (10, "balance", "BAD_DECIMAL"),
            (11, "member_since", "BAD_TIMESTAMP"),
            (12, "member_since", "TOO_FEW_FIELDS"),
            (13, "", "TOO_MANY_FIELDS"),
        ]
    );
    assert_eq!(report["rejects"][0]["value"], "four");
    assert_eq!(stack.number("select count(*) from import_rows").await, 6);
    assert_eq!(stack.number("select count(*) from import_rejects").await, 8);
}
