//! Payloads that do not fit the schema of their job type, and schemas that are none.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::v1::submit_jobs_response::outcome;
use tenure_tests::v1::{
    ApplyJobTypesRequest, ApplyJobTypesResponse, JobSpec, JobType, ListJobTypesRequest,
    SubmitJobsRequest,
};
use tenure_tests::{Caller, Refusal, Stack, within};
use tonic::{Code, Status};

use super::BOUND;

async fn apply(
    operator: &Caller,
    job_type: JobType,
    validate_only: bool,
) -> Result<ApplyJobTypesResponse, Status> {
    let request = ApplyJobTypesRequest {
        job_types: vec![job_type],
        validate_only,
    };
    let answer = operator.job_types().apply_job_types(request).await?;
    Ok(answer.into_inner())
}

fn with_schema(name: &str, schema: &Value) -> JobType {
    JobType {
        name: name.to_owned(),
        payload_schema: schema.to_string(),
        ..JobType::default()
    }
}

#[tokio::test]
async fn payloads_are_checked_against_the_schema_of_their_type() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let id = "018f0000-0000-7000-8000-000000000000";
    let cases: Vec<(&str, &str, Value)> = vec![
        ("import_csv", "file_id", json!({})),
        (
            "import_csv",
            "file_id",
            json!({"file_id": "../../etc/passwd"}),
        ),
        ("import_csv", "file_id", json!({"file_id": 7})),
        ("import_csv", "extra", json!({"file_id": id, "extra": 1})),
        (
            "import_csv",
            "columns[1].type",
            json!({"file_id": id, "columns": [{"name": "a"}, {"name": "b", "type": "txt"}]}),
        ),
        (
            "import_csv",
            "columns[0].name",
            json!({"file_id": id, "columns": [{}]}),
        ),
        (
            "import_csv",
            "target.mode",
            json!({"file_id": id, "target": {"table": "a.b", "mode": "merge"}}),
        ),
        (
            "import_csv",
            "target.columns.a",
            json!({"file_id": id, "target": {"table": "a.b", "columns": {"a": 1}}}),
        ),
        (
            "import_csv",
            "max_rejected_percent",
            json!({"file_id": id, "max_rejected_percent": 101}),
        ),
        (
            "import_csv",
            "webhook",
            json!({"file_id": id, "webhook": "https://user:secret@hooks.example.org/"}),
        ),
        ("notify", "key", json!({"template": "t"})),
        (
            "notify",
            "data",
            json!({"template": "t", "key": "k", "data": []}),
        ),
        (
            "notify_webhook",
            "url",
            json!({"url": "file:///etc/passwd", "event": "e", "data": {}}),
        ),
        (
            "notify_webhook",
            "url",
            json!({"url": "ftp://127.0.0.1/", "event": "e", "data": {}}),
        ),
        (
            "notify_webhook",
            "url",
            json!({"url": "http://user:secret@127.0.0.1/", "event": "e", "data": {}}),
        ),
        (
            "notify_webhook",
            "url",
            json!({"url": "https:///user:secret@hooks.example.org/", "event": "e", "data": {}}),
        ),
        (
            "notify_webhook",
            "url",
            json!({"url": "https:\\\\user:secret@hooks.example.org/", "event": "e", "data": {}}),
        ),
        (
            "notify_webhook",
            "event",
            json!({"url": "https://hooks.example.org/", "event": "", "data": {}}),
        ),
        ("sleep", "ms", json!({"ms": "1"})),
    ];
    for (job_type, field, payload) in cases {
        let job = spec(job_type, payload.clone());
        let refusal = Refusal::of(&ann.try_submit(job.clone()).await.expect_err(field));
        assert!(
            refusal.names(&format!("job.payload.{field}")),
            "{job_type} {payload}: {refusal:?}"
        );
        assert!(!format!("{refusal:?}").contains("secret"), "{refusal:?}");
        assert_eq!(refusal.retry_after, None);
        // In a call of several the path says which one it is.
        let jobs = vec![spec("noop", json!({})), job];
        let answer = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
        let outcomes = answer.expect("outcomes").into_inner().outcomes;
        let Some(outcome::Result::Refused(status)) = &outcomes[1].result else {
            panic!("{job_type} {payload} was accepted")
        };
        let path = format!("jobs[1].payload.{field}");
        assert!(status.message.starts_with(&path), "{}", status.message);
    }
    for (job_type, payload) in [
        ("import_csv", json!({"file_id": id})),
        (
            "import_csv",
            json!({
                "file_id": id, "dataset": null, "mode": "replace", "validate_only": true, "encoding": "auto",
                "delimiter": "tab", "quote": "none", "header": false, "max_rejected_rows": 0, "max_rejected_percent": 2.5,
                "webhook": "https://hooks.example.org/a?b=c@d",
                "target": {"table": "crm.contacts", "mode": "upsert", "key": ["id"], "columns": {"a": "b"}},
                "columns": [{"name": "a", "from": "A", "type": "decimal", "required": true, "unique": true, "trim": false,
                    "default": "1", "formats": ["%d.%m.%Y"], "zone": "Europe/Berlin", "values": ["x"], "pattern": "a+",
                    "min": 1, "max": "2", "min_length": 1, "max_length": 2}]
            }),
        ),
        ("notify", json!({"template": "t", "key": "k"})),
        (
            "notify_webhook",
            json!({"url": "http://127.0.0.1:8080/x", "event": "e", "data": {"a": [1]}}),
        ),
        ("noop", json!({"anything": ["goes"]})),
    ] {
        ann.submit(job_type, payload).await;
    }
    // What is wrong besides is told with it.
    let job = JobSpec {
        max_attempts: 101,
        ..spec("sleep", json!({}))
    };
    let refusal = Refusal::of(&ann.try_submit(job).await.expect_err("two mistakes"));
    assert_eq!(refusal.fields, ["job.max_attempts", "job.payload.ms"]);
}

#[tokio::test]
async fn a_schema_is_applied_changed_and_taken_away() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let (ann, operator) = (stack.user("ann"), stack.operator());
    let schema = json!({"required": ["n"], "properties": {"n": {"type": "integer"}}});
    let mut job_type = with_schema("count", &schema);
    let told = apply(&operator, job_type.clone(), true)
        .await
        .expect("told");
    assert_eq!(
        (told.created, told.created_queues),
        (vec!["count".to_owned()], vec![])
    );
    apply(&operator, job_type.clone(), false)
        .await
        .expect("applied");
    let listed = ann.job_types().list_job_types(ListJobTypesRequest {}).await;
    let listed = listed.expect("a list").into_inner().job_types;
    let stored = listed
        .iter()
        .find(|it| it.name == "count")
        .expect("the type");
    assert_eq!(stored.payload_schema, schema.to_string());

    // All digits stay as they are.
    let digits = br#"{ "n": 9007199254740993, "x": 1.10 }"#;
    let exact = JobSpec {
        job_type: "count".to_owned(),
        payload: digits.as_slice().into(),
        ..JobSpec::default()
    };
    let job_id = ann.submit_spec(exact).await;
    assert_eq!(ann.get(&job_id).await.payload.as_ref(), digits);
    let status = ann
        .try_submit(spec("count", json!({})))
        .await
        .expect_err("no n");
    assert!(Refusal::of(&status).names("job.payload.n"));

    // As large and as deep as a payload may be, at most ten misfits are told, and others
    // are served meanwhile.
    job_type.payload_schema = json!({"properties": {"a": {"items": {"type": "null"}}}}).to_string();
    apply(&operator, job_type.clone(), false)
        .await
        .expect("applied");
    let large = spec("count", json!({"a": vec![1; 100_000]}));
    let refusal = Refusal::of(&ann.try_submit(large).await.expect_err("numbers"));
    assert_eq!(refusal.fields.len(), 10, "{refusal:?}");
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let deep = JobSpec {
        job_type: "count".to_owned(),
        payload: deep.into(),
        ..JobSpec::default()
    };
    assert!(Refusal::of(&ann.try_submit(deep).await.expect_err("deep")).names("job.payload"));

    job_type.payload_schema = String::new();
    apply(&operator, job_type.clone(), false)
        .await
        .expect("applied");
    ann.submit("count", json!({"a": [1]})).await;

    // A mistyped queue is told before it is made, and when it is.
    job_type.queue = "imprts".to_owned();
    for validate_only in [true, false] {
        let told = apply(&operator, job_type.clone(), validate_only)
            .await
            .expect("told");
        assert_eq!(told.created_queues, ["imprts"], "{validate_only}");
    }
    let told = apply(&operator, job_type, false).await.expect("told");
    assert_eq!(told.created_queues, Vec::<String>::new());
}

#[tokio::test]
async fn a_schema_that_is_none_is_refused() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let operator = stack.operator();
    for schema in [
        json!({"type": 5}),
        json!([]),
        json!({"$ref": "https://schemas.example/a.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"properties": {"a": {"$ref": "#"}}}),
        json!({"pattern": "((a{999}){999}){999}"}),
        json!({"description": "x".repeat(70_000)}),
    ] {
        let refused = within(
            "an answer",
            BOUND,
            apply(&operator, with_schema("a", &schema), false),
        );
        let refusal = Refusal::of(&refused.await.expect_err("refused"));
        assert!(refusal.names("job_types[0].payload_schema"), "{refusal:?}");
    }
    assert_eq!(
        stack
            .number("select count(*) from job_types where name = 'a'")
            .await,
        0
    );

    // One that came another way is told as what it is, and takes no job.
    sqlx::query("update job_types set payload_schema = '{\"type\":5}' where name = 'noop'")
        .execute(stack.pool())
        .await
        .expect("updated");
    let ann = stack.user("ann");
    let status =
        tenure_tests::wait_until("the change is seen", Duration::from_secs(30), || async {
            ann.try_submit(spec("noop", json!({}))).await.err()
        })
        .await;
    let refusal = Refusal::of(&status);
    assert!(
        refusal.is(Code::FailedPrecondition, "CONFIG_INVALID"),
        "{refusal:?}"
    );
    assert!(refusal.message.contains("noop"), "{}", refusal.message);
}
