//! Payloads and texts with every kind of trouble: taken or refused, never INTERNAL, and
//! the connection stays usable.

use std::time::Duration;

use bytes::Bytes;
use tenure_tests::caller::spec;
use tenure_tests::v1::{GetFileRequest, JobSpec, ListJobsRequest};
use tenure_tests::{Caller, JobState, Refusal, Stack, data, wait_until};
use tonic::{Code, Status};

const BOUND: Duration = Duration::from_mins(1);

const TAKEN: &[&str] = &[
    "int_2_53_plus_1",
    "negative_zero",
    "empty_object",
    // Empty bytes stand for `{}`, as the protocol says.
    "empty_0_bytes",
    "number_spelling_and_order",
    "many_keys_10000",
];

const REFUSED: &[&str] = &[
    "nul_escape_in_value",
    "lone_high_surrogate",
    "lone_low_surrogate",
    "deep_arrays_10000",
    "deep_objects_10000",
    "duplicate_keys",
    "huge_number_1e400",
    "not_object_array",
    "not_object_null",
    "not_object_string",
    "trailing_garbage",
    "two_documents",
    "invalid_utf8",
    "comments_trailing_comma",
];

fn noop(payload: Vec<u8>) -> JobSpec {
    JobSpec {
        job_type: "noop".to_owned(),
        payload: payload.into(),
        ..JobSpec::default()
    }
}

fn json_file(name: &str) -> Vec<u8> {
    data::bytes(&format!("json/{name}.json"))
}

#[tokio::test]
async fn payloads_are_kept_byte_by_byte_or_refused_by_name() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    for name in TAKEN {
        let content = json_file(name);
        let job_id = ann.submit_spec(noop(content.clone())).await;
        let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
        let expected = if content.is_empty() {
            Bytes::from_static(b"{}")
        } else {
            Bytes::from(content)
        };
        // wait_state answers GetJob, which has the payload.
        assert!(job.payload == expected, "{name} came back changed");
    }
    let stored = stack.number("select count(*) from jobs").await;
    for name in REFUSED {
        let status = ann.try_submit(noop(json_file(name))).await.expect_err(name);
        let refusal = Refusal::of(&status);
        assert!(refusal.names("job.payload"), "{name}: {refusal:?}");
    }
    let status = ann
        .try_submit(noop(json_file("size_300KiB")))
        .await
        .expect_err("too large");
    let refusal = Refusal::of(&status);
    assert!(
        refusal.is(Code::InvalidArgument, "PAYLOAD_TOO_LARGE"),
        "{refusal:?}"
    );
    assert_eq!(refusal.fields, ["job.payload"]);
    assert!(refusal.message.contains("262144"), "{}", refusal.message);
    // Nothing of what was refused is stored, and the connection still serves.
    assert_eq!(stack.number("select count(*) from jobs").await, stored);
    ann.submit_spec(noop(b"{}".to_vec())).await;
}

#[test]
fn every_payload_of_the_folder_is_tried() {
    let mut tried: Vec<String> = TAKEN
        .iter()
        .chain(REFUSED)
        .chain(&["size_300KiB"])
        .map(|name| format!("{name}.json"))
        .collect();
    let mut present: Vec<String> = std::fs::read_dir(data::path("json"))
        .expect("tests/data/json")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a name")
        })
        .collect();
    tried.sort();
    present.sort();
    assert_eq!(tried, present);
}

#[tokio::test]
async fn a_dedupe_key_compares_what_a_payload_means() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let keyed = |payload: &[u8]| JobSpec {
        dedupe_key: "spelling".to_owned(),
        ..noop(payload.to_vec())
    };
    let first = ann
        .submit_spec(keyed(&json_file("number_spelling_and_order")))
        .await;
    let other = br#"{"a":100,"b":1.0,"c":1.1}"#;
    // Before and after it went through the store and a worker.
    for state in ["at once", "after its end"] {
        let again = ann.try_submit(keyed(other)).await.expect("the same job");
        assert_eq!(
            (again.job_id.as_str(), again.duplicate),
            (first.as_str(), true),
            "{state}"
        );
        ann.wait_state(&first, JobState::Success, BOUND).await;
    }
}

/// A text of the folder; `None`: it is no UTF-8, which no field of the API can carry.
fn text(name: &str) -> Option<String> {
    String::from_utf8(data::bytes(&format!("strings/{name}"))).ok()
}

fn texts() -> Vec<(String, String)> {
    let mut texts: Vec<(String, String)> = std::fs::read_dir(data::path("strings"))
        .expect("tests/data/strings")
        .filter_map(|entry| {
            let name = entry.expect("an entry").file_name();
            let name = name.into_string().expect("a name");
            text(&name).map(|text| (name, text))
        })
        .collect();
    texts.sort();
    assert!(texts.len() >= 25, "texts are missing: {texts:?}");
    texts
}

/// What docs say of ids and keys: 1 to 255 bytes, no control characters, not only blanks.
fn is_legal(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && !text.chars().any(char::is_control)
        && !text.trim().is_empty()
}

/// A refusal for one field of the request.
fn assert_refused(status: &Status, what: &str, field: &str) {
    let refusal = Refusal::of(status);
    assert_eq!(refusal.code, Code::InvalidArgument, "{what}: {refusal:?}");
    assert_eq!(refusal.domain, "tenure", "{what}: {refusal:?}");
    assert!(
        refusal.fields.iter().any(|f| f == field),
        "{what}: {refusal:?}"
    );
}

#[tokio::test]
async fn texts_are_taken_or_refused_in_every_place() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let service = stack.caller("robot", &["service"]);
    let waiting = ann
        .submit_spec(JobSpec {
            run_at: Some(prost_types::Timestamp {
                seconds: tenure_tests::token::now() as i64 + 3600,
                nanos: 0,
            }),
            ..spec("noop", serde_json::json!({}))
        })
        .await;
    for (name, text) in texts() {
        as_key(&ann, &name, &text).await;
        as_user(&service, &name, &text).await;
        as_job_type(&ann, &name, &text).await;
        as_file(&stack, &ann, &name, &text).await;
        as_filter(&ann, &name, &text).await;
        as_reason(&ann, &name, &text, &waiting).await;
        as_label(&ann, &name, &text).await;
    }
    let first = ann.submit("noop", serde_json::json!({})).await;
    ann.wait_state(&first, JobState::Success, BOUND).await;
    // One event a line, whatever the texts hold.
    let log = stack.gateway(0).log();
    for line in log.lines() {
        assert!(
            serde_json::from_str::<serde_json::Value>(line).is_ok(),
            "a line that is no event: {line:?}"
        );
    }
}

async fn as_key(ann: &Caller, name: &str, text: &str) {
    let keyed = || JobSpec {
        dedupe_key: text.to_owned(),
        ..spec("noop", serde_json::json!({}))
    };
    match ann.try_submit(keyed()).await {
        Ok(first) => {
            assert!(text.is_empty() || is_legal(text), "{name} as dedupe_key");
            assert!(!first.duplicate, "{name} is taken for another key");
            let again = ann.try_submit(keyed()).await.expect("again");
            // No key makes two jobs; a key makes one.
            assert_eq!(again.job_id == first.job_id, !text.is_empty(), "{name}");
            let job = ann.get(&first.job_id).await;
            assert_eq!(job.dedupe_key, text, "{name} came back changed");
        }
        Err(status) => {
            assert!(!is_legal(text), "{name} as dedupe_key: {status:?}");
            assert_refused(&status, name, "job.dedupe_key");
        }
    }
}

async fn as_user(service: &Caller, name: &str, text: &str) {
    let acting = JobSpec {
        user_id: text.to_owned(),
        ..spec("noop", serde_json::json!({}))
    };
    match service.try_submit(acting).await {
        Ok(accepted) => {
            let job = service.get(&accepted.job_id).await;
            let expected = if text.is_empty() { "robot" } else { text };
            assert_eq!(job.user_id, expected, "{name} came back changed");
            let listed = service
                .list(ListJobsRequest {
                    user_id: expected.to_owned(),
                    ..ListJobsRequest::default()
                })
                .await
                .expect("a list");
            assert!(
                listed.jobs.iter().all(|job| job.user_id == expected),
                "{name}"
            );
            assert!(
                listed.jobs.iter().any(|job| job.job_id == accepted.job_id),
                "{name}"
            );
        }
        Err(status) => {
            assert!(!is_legal(text), "{name} as user_id: {status:?}");
            assert_refused(&status, name, "job.user_id");
        }
    }
}

async fn as_job_type(ann: &Caller, name: &str, text: &str) {
    let status = ann
        .try_submit(spec(text, serde_json::json!({})))
        .await
        .expect_err(name);
    assert_refused(&status, name, "job.job_type");
}

async fn as_file(stack: &Stack, ann: &Caller, name: &str, text: &str) {
    let request = GetFileRequest {
        file_id: text.to_owned(),
    };
    let status = ann.files().get_file(request).await.expect_err(name);
    assert_refused(&status, name, "file_id");
    let status = ann.download(text).await.expect_err(name);
    assert_refused(&status, name, "file_id");
    // In a payload it is the job type's schema that refuses it.
    if text.len() < 100_000 {
        let payload = serde_json::json!({"file_id": text});
        let spec = spec("import_csv", payload.clone());
        let refusal = Refusal::of(&ann.try_submit(spec).await.expect_err(name));
        let field = if text.contains('\0') {
            "job.payload"
        } else {
            "job.payload.file_id"
        };
        assert!(refusal.names(field), "{name}: {refusal:?}");
        // A job that came another way is refused by its handler, at the first attempt.
        let job_id = stack
            .insert_job("ann", "import_csv", &payload.to_string())
            .await;
        let job = ann.wait_end(&job_id, BOUND).await;
        assert_eq!((job.state(), job.attempt), (JobState::Failed, 1), "{name}");
        let error = job.last_error.expect("an error");
        assert_eq!(error.code, "PAYLOAD_INVALID", "{name}: {}", error.message);
    }
}

async fn as_filter(ann: &Caller, name: &str, text: &str) {
    let mut request = ListJobsRequest {
        page_token: text.to_owned(),
        ..ListJobsRequest::default()
    };
    match ann.list(request.clone()).await {
        Ok(_) => assert!(text.is_empty(), "{name} as page_token"),
        Err(status) => {
            assert_refused(&status, name, "page_token");
            assert_eq!(Refusal::of(&status).reason, "PAGE_TOKEN_INVALID", "{name}");
        }
    }
    request.page_token = String::new();
    request.job_type = text.to_owned();
    if let Err(status) = ann.list(request).await {
        assert_refused(&status, name, "job_type");
    }
}

async fn as_reason(ann: &Caller, name: &str, text: &str, waiting: &str) {
    // The reason is looked at before the job, which the first good one cancels.
    match ann.cancel(waiting, text).await {
        Ok(_) => assert!(text.is_empty() || is_legal(text), "{name} as reason"),
        Err(status) => {
            assert!(!is_legal(text), "{name} as reason: {status:?}");
            assert_refused(&status, name, "reason");
        }
    }
}

async fn as_label(ann: &Caller, name: &str, text: &str) {
    let labels = [("from".to_owned(), text.to_owned())];
    let labelled = JobSpec {
        labels: labels.into(),
        ..spec("noop", serde_json::json!({}))
    };
    match ann.try_submit(labelled).await {
        Ok(accepted) => {
            let filter = ListJobsRequest {
                labels: [("from".to_owned(), text.to_owned())].into(),
                ..ListJobsRequest::default()
            };
            let found = wait_until(format!("{name} by its label"), BOUND, || async {
                let page = ann.list(filter.clone()).await.ok()?;
                (!page.jobs.is_empty()).then_some(page.jobs)
            })
            .await;
            assert_eq!(found.len(), 1, "{name} as a label");
            assert_eq!(found[0].job_id, accepted.job_id, "{name} as a label");
        }
        Err(status) => {
            let refusal = Refusal::of(&status);
            assert_eq!(refusal.code, Code::InvalidArgument, "{name}: {refusal:?}");
            assert!(
                text.len() > 255 || text.chars().any(char::is_control),
                "{name} as a label: {refusal:?}"
            );
        }
    }
}
