//! Text that is code somewhere else: it stays text in every field and filter.

use std::collections::HashMap;

use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::v1::upload_file_request::{Header, Part};
use tenure_tests::v1::{
    ApplyJobTypesRequest, File, GetFileRequest, GetJobRequest, JobSpec, JobType,
    ListDeadLettersRequest, ListJobTypesRequest, ListJobsRequest, ListNotificationsRequest,
    MarkNotificationsReadRequest, UploadFileRequest,
};
use tenure_tests::{Caller, JobState, Refusal, Stack, data};
use tonic::Code;

use super::BOUND;

/// Texts of `tests/data/strings` that have a syntax of their own.
const FILES: &[&str] = &[
    "amqp_pattern.txt",
    "crlf_header.txt",
    "html_script.txt",
    "log_forging.txt",
    "path_traversal.txt",
    "sql_placeholders.txt",
    "sqlish_quote.txt",
    "template_syntax.txt",
];

/// More of them: patterns of SQL, keys of the broker, a terminal's orders.
const MORE: &[&str] = &[
    "%",
    "_",
    "user_1",
    "user%",
    "\\%",
    "#",
    "*",
    "a.#",
    "{}",
    "${HOME}",
    "$1",
    "' or '1'='1",
    "1; drop table jobs; --",
    "{\"a\":1}",
    "\u{1b}[31mred\u{1b}[0m",
    "\u{1b}]0;title\u{7}",
    "a\nb",
];

fn texts() -> Vec<String> {
    let files = FILES
        .iter()
        .map(|name| String::from_utf8(data::bytes(&format!("strings/{name}"))).expect("a text"));
    files
        .chain(MORE.iter().map(|text| (*text).to_owned()))
        .collect()
}

/// Whether an id or a key may be this.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// A refusal, if it is one, is about the caller's text and names the field.
fn assert_refused(refusal: &Refusal, text: &str, field: &str) {
    assert_eq!(refusal.code, Code::InvalidArgument, "{text:?}: {refusal:?}");
    assert!(
        refusal.fields.iter().any(|f| f.starts_with(field)),
        "{text:?} as {field}: {refusal:?}"
    );
}

#[tokio::test]
async fn text_stays_text_in_every_field() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, robot) = (stack.user("ann"), stack.caller("robot", &["service"]));
    let (operator, letters) = (stack.operator(), stack.dead_letters());
    // Somebody whom a pattern would find.
    let bystander = JobSpec {
        user_id: "userX1".to_owned(),
        labels: HashMap::from([("from".to_owned(), "userX1".to_owned())]),
        dedupe_key: "userX1".to_owned(),
        ..spec("fail", json!({"class": "permanent", "code": "USERX1"}))
    };
    let bystander = robot.submit_spec(bystander).await;
    robot.wait_state(&bystander, JobState::Failed, BOUND).await;
    let tables = "select count(*) from information_schema.tables where table_schema = 'public'";
    let before = stack.number(tables).await;
    for text in texts() {
        as_owner(&robot, &operator, &letters, &text).await;
        as_label_and_reason(&ann, &text).await;
        as_message(&ann, &letters, &text).await;
        as_notification(&ann, &text).await;
        as_file_name(&ann, &text).await;
        as_description(&operator, &text).await;
        as_names_and_ids(&ann, &operator, &letters, &text).await;
    }
    assert_eq!(
        stack.number(tables).await,
        before,
        "tables are there as before"
    );
    for process in stack.all() {
        for line in process.log().lines() {
            let event: Value = serde_json::from_str(line)
                .unwrap_or_else(|_| panic!("{}: no event: {line:?}", process.name()));
            assert_ne!(event["message"], "forged", "{}", process.name());
            assert!(event["timestamp"].is_string(), "{line}");
        }
    }
}

/// The owner of a failed job, in each list that has a filter for it.
async fn as_owner(robot: &Caller, operator: &Caller, letters: &Caller, text: &str) {
    let owned = JobSpec {
        user_id: text.to_owned(),
        dedupe_key: text.to_owned(),
        request_id: text.to_owned(),
        ..spec("fail", json!({"class": "permanent", "code": "TEXT"}))
    };
    let accepted = robot.try_submit(owned).await;
    let of_user = ListJobsRequest {
        user_id: text.to_owned(),
        ..ListJobsRequest::default()
    };
    let of_letters = ListDeadLettersRequest {
        user_id: text.to_owned(),
        ..ListDeadLettersRequest::default()
    };
    if !is_plain(text) {
        assert_refused(&Refusal::of(&accepted.expect_err(text)), text, "job.");
        let status = operator.list(of_user).await.expect_err(text);
        assert_refused(&Refusal::of(&status), text, "user_id");
        return;
    }
    let job_id = accepted.expect("accepted").job_id;
    let job = robot.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(
        (job.user_id.as_str(), job.dedupe_key.as_str()),
        (text, text)
    );
    let found = operator.list(of_user).await.expect("a list").jobs;
    let ids: Vec<&str> = found.iter().map(|job| job.job_id.as_str()).collect();
    assert_eq!(ids, [job_id.as_str()], "{text:?} finds its own jobs only");
    let found = letters.dead_letters().list_dead_letters(of_letters).await;
    let found = found.expect("a list").into_inner().dead_letters;
    let ids: Vec<&str> = found.iter().map(|letter| letter.job_id.as_str()).collect();
    assert_eq!(
        ids,
        [job_id.as_str()],
        "{text:?} finds its own letters only"
    );
    let inbox = ListNotificationsRequest {
        user_id: text.to_owned(),
        ..ListNotificationsRequest::default()
    };
    let inbox = robot.notifications().list_notifications(inbox).await;
    assert!(
        inbox.expect("a list").into_inner().notifications.is_empty(),
        "{text:?}"
    );
    let request = MarkNotificationsReadRequest {
        notification_ids: Vec::new(),
        user_id: text.to_owned(),
    };
    let marked = robot.notifications().mark_notifications_read(request).await;
    assert_eq!(
        marked.expect("an answer").into_inner().marked,
        0,
        "{text:?}"
    );
}

async fn as_label_and_reason(ann: &Caller, text: &str) {
    let labels = HashMap::from([("from".to_owned(), text.to_owned())]);
    let labelled = JobSpec {
        labels: labels.clone(),
        run_at: Some(prost_types::Timestamp {
            seconds: tenure_tests::token::now() as i64 + 3600,
            nanos: 0,
        }),
        ..spec("noop", json!({}))
    };
    let filter = ListJobsRequest {
        labels,
        ..ListJobsRequest::default()
    };
    if !is_plain(text) {
        let status = ann.try_submit(labelled).await.expect_err(text);
        assert_refused(&Refusal::of(&status), text, "job.labels");
        let status = ann.list(filter).await.expect_err(text);
        assert_refused(&Refusal::of(&status), text, "labels");
        return;
    }
    let job_id = ann.submit_spec(labelled).await;
    let found = ann.list(filter).await.expect("a list").jobs;
    let ids: Vec<&str> = found.iter().map(|job| job.job_id.as_str()).collect();
    assert_eq!(ids, [job_id.as_str()], "{text:?} finds its own label only");
    ann.cancel(&job_id, text).await.expect("cancelled");
    let why = ann.get(&job_id).await.last_error.map(|error| error.message);
    if let Some(why) = why {
        assert!(why.ends_with(text), "{why:?}");
    }
}

/// The message of an error, which a handler may take from anywhere.
async fn as_message(ann: &Caller, letters: &Caller, text: &str) {
    let failing = spec(
        "fail",
        json!({"class": "permanent", "code": "TEXT", "message": text}),
    );
    let job_id = ann.submit_spec(failing).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    let message = job.last_error.expect("an error").message;
    let harmless = |c: char| !c.is_control() || c == '\n' || c == '\t';
    assert!(message.chars().all(harmless), "{message:?}");
    if is_plain(text) {
        assert_eq!(message, text);
    }
    let request = ListDeadLettersRequest {
        error_code: text.to_owned(),
        ..ListDeadLettersRequest::default()
    };
    // Either no code can be this, or none is.
    match letters.dead_letters().list_dead_letters(request).await {
        Ok(found) => assert!(found.into_inner().dead_letters.is_empty(), "{text:?}"),
        Err(status) => assert_refused(&Refusal::of(&status), text, "error_code"),
    }
}

async fn as_notification(ann: &Caller, text: &str) {
    let payload = json!({"template": text, "key": text, "data": {"text": text, "list": [text]}});
    let job_id = ann.submit("notify", payload.clone()).await;
    if !is_plain(text) {
        let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        assert_eq!(job.last_error.expect("an error").code, "PAYLOAD_INVALID");
        return;
    }
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let request = ListNotificationsRequest {
        page_size: 1,
        ..ListNotificationsRequest::default()
    };
    let newest = ann.notifications().list_notifications(request).await;
    let newest = newest.expect("a list").into_inner().notifications;
    assert_eq!(
        (newest[0].template.as_str(), newest[0].key.as_str()),
        (text, text)
    );
    let data: Value = serde_json::from_str(&newest[0].data).expect("JSON");
    assert_eq!(data, payload["data"], "{text:?}");
}

async fn as_file_name(ann: &Caller, text: &str) {
    let header = Header {
        name: text.to_owned(),
        ..Header::default()
    };
    let parts = vec![
        UploadFileRequest {
            part: Some(Part::Header(header)),
        },
        UploadFileRequest {
            part: Some(Part::Chunk("a,b\n1,2\n".into())),
        },
    ];
    let stored = ann.files().upload_file(futures::stream::iter(parts)).await;
    match stored {
        Ok(answer) => {
            let file = answer.into_inner().file.expect("a file");
            assert_eq!(file.name, text);
            let again = file_of(ann, &file.file_id).await;
            assert_eq!(again.name, text);
        }
        Err(status) => assert_refused(&Refusal::of(&status), text, "header.name"),
    }
}

async fn file_of(ann: &Caller, file_id: &str) -> File {
    let request = GetFileRequest {
        file_id: file_id.to_owned(),
    };
    let answer = ann.files().get_file(request).await.expect("the file");
    answer.into_inner().file.expect("a file")
}

async fn as_description(operator: &Caller, text: &str) {
    let job_types = vec![JobType {
        name: "described".to_owned(),
        description: text.to_owned(),
        ..JobType::default()
    }];
    let request = ApplyJobTypesRequest {
        job_types,
        validate_only: false,
    };
    operator
        .job_types()
        .apply_job_types(request)
        .await
        .expect("applied");
    let types = operator
        .job_types()
        .list_job_types(ListJobTypesRequest {})
        .await;
    let types = types.expect("a list").into_inner().job_types;
    let found = types.iter().find(|it| it.name == "described");
    assert_eq!(found.expect("the type").description, text);
}

/// Places where only a name or an id can stand: none of these texts is one.
async fn as_names_and_ids(ann: &Caller, operator: &Caller, letters: &Caller, text: &str) {
    let status = ann.try_submit(spec(text, json!({}))).await.expect_err(text);
    assert_refused(&Refusal::of(&status), text, "job.job_type");
    let request = GetJobRequest {
        job_id: text.to_owned(),
        ..GetJobRequest::default()
    };
    let status = ann.jobs().get_job(request).await.expect_err(text);
    assert_refused(&Refusal::of(&status), text, "job_id");
    let job_types = vec![JobType {
        name: "named".to_owned(),
        queue: text.to_owned(),
        ..JobType::default()
    }];
    let is_name = text == "user_1";
    let request = ApplyJobTypesRequest {
        job_types,
        validate_only: true,
    };
    match operator.job_types().apply_job_types(request).await {
        Ok(_) => assert!(is_name, "{text:?} as a queue"),
        Err(status) => assert_refused(&Refusal::of(&status), text, "job_types[0].queue"),
    }
    let by_name = [
        (text.to_owned(), String::new(), "job_type"),
        (String::new(), text.to_owned(), "queue"),
    ];
    for (job_type, queue, field) in by_name {
        let jobs = ListJobsRequest {
            job_type: job_type.clone(),
            queue: queue.clone(),
            ..ListJobsRequest::default()
        };
        match operator.list(jobs).await {
            Ok(found) => assert!(is_name && found.jobs.is_empty(), "{text:?} as {field}"),
            Err(status) => assert_refused(&Refusal::of(&status), text, field),
        }
        let request = ListDeadLettersRequest {
            job_type,
            queue,
            ..ListDeadLettersRequest::default()
        };
        match letters.dead_letters().list_dead_letters(request).await {
            Ok(found) => assert!(
                found.into_inner().dead_letters.is_empty(),
                "{text:?} as {field}"
            ),
            Err(status) => assert_refused(&Refusal::of(&status), text, field),
        }
    }
    let token = ListNotificationsRequest {
        page_token: text.to_owned(),
        ..ListNotificationsRequest::default()
    };
    let status = ann
        .notifications()
        .list_notifications(token)
        .await
        .expect_err(text);
    assert_refused(&Refusal::of(&status), text, "page_token");
    let request = MarkNotificationsReadRequest {
        notification_ids: vec![text.to_owned()],
        user_id: String::new(),
    };
    let status = ann
        .notifications()
        .mark_notifications_read(request)
        .await
        .expect_err(text);
    assert_refused(&Refusal::of(&status), text, "notification_ids[0]");
}
