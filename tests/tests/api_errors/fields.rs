//! Fields that break a rule.

use prost_types::Timestamp;
use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::token::now;
use tenure_tests::v1::{
    ApplyJobTypesRequest, GetJobRequest, JobSpec, JobType, ListJobTypesRequest, ListJobsRequest,
    SubmitJobRequest, SubmitJobsRequest,
};
use tenure_tests::{Refusal, Stack};
use tonic::Code;

#[tokio::test]
async fn every_wrong_field_is_named_by_its_path() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let in_seconds = |seconds: i64| {
        Some(Timestamp {
            seconds: now() as i64 + seconds,
            nanos: 0,
        })
    };
    let good = || spec("noop", json!({}));
    let long = "x".repeat(256);
    let cases: Vec<(&str, JobSpec)> = vec![
        ("job.job_type", spec("", json!({}))),
        ("job.job_type", spec("No Such!", json!({}))),
        ("job.lane", JobSpec { lane: 99, ..good() }),
        (
            "job.max_attempts",
            JobSpec {
                max_attempts: 101,
                ..good()
            },
        ),
        (
            "job.max_attempts",
            JobSpec {
                max_attempts: -1,
                ..good()
            },
        ),
        (
            "job.timeout_ms",
            JobSpec {
                timeout_ms: 1,
                ..good()
            },
        ),
        (
            "job.timeout_ms",
            JobSpec {
                timeout_ms: i64::MAX,
                ..good()
            },
        ),
        (
            "job.run_at",
            JobSpec {
                run_at: in_seconds(400 * 86_400),
                ..good()
            },
        ),
        (
            "job.run_at",
            JobSpec {
                run_at: Some(Timestamp {
                    seconds: i64::MAX,
                    nanos: 0,
                }),
                ..good()
            },
        ),
        (
            "job.expires_at",
            JobSpec {
                expires_at: in_seconds(-1),
                ..good()
            },
        ),
        (
            "job.expires_at",
            JobSpec {
                run_at: in_seconds(100),
                expires_at: in_seconds(50),
                ..good()
            },
        ),
        (
            "job.dedupe_key",
            JobSpec {
                dedupe_key: long.clone(),
                ..good()
            },
        ),
        (
            "job.request_id",
            JobSpec {
                request_id: long,
                ..good()
            },
        ),
        (
            "job.dedupe_key",
            JobSpec {
                dedupe_key: "\u{200b}\u{feff}".to_owned(),
                ..good()
            },
        ),
        (
            "job.request_id",
            JobSpec {
                request_id: " \u{2060}".to_owned(),
                ..good()
            },
        ),
        (
            "job.labels[\"Bad Key\"]",
            JobSpec {
                labels: [("Bad Key".to_owned(), String::new())].into(),
                ..good()
            },
        ),
        (
            "job.labels",
            JobSpec {
                labels: (0..17).map(|n| (format!("k{n}"), String::new())).collect(),
                ..good()
            },
        ),
        (
            "job.payload",
            JobSpec {
                payload: "[1]".into(),
                ..good()
            },
        ),
    ];
    for (field, job) in cases {
        let status = ann.try_submit(job.clone()).await.expect_err(field);
        let refusal = Refusal::of(&status);
        assert!(refusal.names(field), "{field}: {refusal:?}");
        assert_eq!(refusal.retry_after, None, "{field}: a retry cannot help");
        // In a call of several the path says which one it is.
        let jobs = vec![good(), job];
        let answer = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
        let outcomes = answer.expect("outcomes").into_inner().outcomes;
        let second = format!("{:?}", outcomes[1]);
        assert!(
            second.contains("refused") || second.contains("Refused"),
            "{field}: {second}"
        );
    }
    // All at once.
    let job = JobSpec {
        lane: 7,
        max_attempts: 1000,
        timeout_ms: 2,
        ..good()
    };
    let refusal = Refusal::of(&ann.try_submit(job).await.expect_err("three mistakes"));
    assert_eq!(
        refusal.fields,
        ["job.lane", "job.max_attempts", "job.timeout_ms"]
    );

    let missing = ann.jobs().submit_job(SubmitJobRequest { job: None }).await;
    assert!(Refusal::of(&missing.expect_err("no job")).names("job"));
    for count in [0, 1001] {
        let jobs = vec![good(); count];
        let status = ann.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
        assert!(
            Refusal::of(&status.expect_err("a wrong number")).names("jobs"),
            "{count}"
        );
    }
    for id in ["", "x", "00000000000070008000000000000000"] {
        let request = GetJobRequest {
            job_id: id.to_owned(),
            ..GetJobRequest::default()
        };
        let status = ann.jobs().get_job(request).await.expect_err(id);
        assert!(Refusal::of(&status).names("job_id"), "{id}");
    }
    let refusal = Refusal::of(&ann.watch("x", 0).await.expect_err("no id"));
    assert!(refusal.names("job_id"), "{refusal:?}");
    let strange = ListJobsRequest {
        page_size: -1,
        states: vec![77],
        ..ListJobsRequest::default()
    };
    let refusal = Refusal::of(&ann.list(strange).await.expect_err("a strange list"));
    assert_eq!(refusal.fields, ["page_size", "states[0]"]);
}

#[tokio::test]
async fn an_unknown_job_type_is_answered_with_near_names() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let status = ann.try_submit(spec("import_cvs", json!({}))).await;
    let refusal = Refusal::of(&status.expect_err("unknown"));
    assert!(
        refusal.is(Code::InvalidArgument, "UNKNOWN_JOB_TYPE"),
        "{refusal:?}"
    );
    assert_eq!(refusal.fields, ["job.job_type"]);
    assert_eq!(
        refusal.metadata.get("near").map(String::as_str),
        Some("import_csv")
    );
    assert!(
        refusal.message.contains("import_csv"),
        "{}",
        refusal.message
    );
    let status = ann.try_submit(spec("zzzzzz", json!({}))).await;
    let refusal = Refusal::of(&status.expect_err("unknown"));
    assert!(
        refusal.message.contains("ListJobTypes"),
        "{}",
        refusal.message
    );

    // A type that an operator adds can be used at once.
    let types = vec![JobType {
        name: "zzzzzz".to_owned(),
        ..JobType::default()
    }];
    let request = ApplyJobTypesRequest {
        job_types: types,
        validate_only: false,
    };
    let applied = stack.operator().job_types().apply_job_types(request).await;
    assert_eq!(applied.expect("applied").into_inner().created, ["zzzzzz"]);
    ann.submit("zzzzzz", json!({})).await;
    let listed = ann.job_types().list_job_types(ListJobTypesRequest {}).await;
    let names: Vec<String> = listed
        .expect("a list")
        .into_inner()
        .job_types
        .into_iter()
        .map(|t| t.name)
        .collect();
    assert!(
        names.is_sorted() && names.contains(&"zzzzzz".to_owned()),
        "{names:?}"
    );
    let types = vec![JobType {
        name: "Bad".to_owned(),
        ..JobType::default()
    }];
    let request = ApplyJobTypesRequest {
        job_types: types,
        validate_only: true,
    };
    let status = stack.operator().job_types().apply_job_types(request).await;
    assert!(Refusal::of(&status.expect_err("a bad name")).names("job_types[0].name"));
}

#[tokio::test]
async fn a_page_token_belongs_to_its_filters_and_its_caller() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let (ann, bob) = (stack.user("ann"), stack.user("bob"));
    let jobs = vec![spec("noop", json!({})); 5];
    ann.jobs()
        .submit_jobs(SubmitJobsRequest { jobs })
        .await
        .expect("accepted");
    let request = ListJobsRequest {
        page_size: 2,
        ..ListJobsRequest::default()
    };
    let first = ann.list(request.clone()).await.expect("a page");
    let token = first.next_page_token;
    assert!(!token.is_empty());
    let other_filter = ListJobsRequest {
        page_token: token.clone(),
        job_type: "noop".to_owned(),
        ..request.clone()
    };
    let same = ListJobsRequest {
        page_token: token.clone(),
        ..request.clone()
    };
    let broken = ListJobsRequest {
        page_token: token.to_uppercase() + "A",
        ..request
    };
    for status in [
        ann.list(other_filter).await.expect_err("other filters"),
        bob.list(same.clone()).await.expect_err("another caller"),
        ann.list(broken).await.expect_err("no token of ours"),
    ] {
        let refusal = Refusal::of(&status);
        assert!(
            refusal.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID"),
            "{refusal:?}"
        );
        assert_eq!(refusal.fields, ["page_token"]);
    }
    assert_eq!(ann.list(same).await.expect("the next page").jobs.len(), 2);
}
