//! What callers do wrong, and how they are told: the right status and details each.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use prost_types::Timestamp;
use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::token::{SECRET, claims, now, sign, token};
use tenure_tests::v1::{
    ApplyJobTypesRequest, GetFileRequest, GetJobRequest, JobSpec, JobType, ListDeadLettersRequest,
    ListJobTypesRequest, ListJobsRequest, ListQueuesRequest, SubmitJobRequest, SubmitJobsRequest,
    UploadFileRequest, upload_file_request,
};
use tenure_tests::{Caller, JobState, Refusal, Stack};
use tonic::{Code, Request};

const BOUND: Duration = Duration::from_secs(60);

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = claims("ann", &["submitter"]);
    change(&mut claims);
    claims
}

fn signed(claims: &Value) -> Option<String> {
    Some(format!("Bearer {}", sign(Algorithm::HS256, SECRET, claims)))
}

/// Values of `authorization` that must not let anybody in.
fn bad_authorizations() -> Vec<(&'static str, Option<String>)> {
    let good = token("ann", &["submitter"]);
    let (body, _) = good.rsplit_once('.').expect("a signature");
    // {"alg":"none","typ":"JWT"}, in base64.
    let unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    let payload = body.rsplit_once('.').expect("a payload").1;
    let other = "another secret that is also more than thirty-two bytes";
    vec![
        ("no token", None),
        ("an empty value", Some(String::new())),
        ("no scheme", Some(good.clone())),
        ("another scheme", Some(format!("Basic {good}"))),
        ("no JWT", Some("Bearer hello".to_owned())),
        ("a cut token", Some(format!("Bearer {body}"))),
        ("no signature", Some(format!("Bearer {body}."))),
        (
            "algorithm none",
            Some(format!("Bearer {unsigned}.{payload}.")),
        ),
        (
            "another secret",
            Some(format!(
                "Bearer {}",
                sign(Algorithm::HS256, other, &with(|_| {}))
            )),
        ),
        (
            "another algorithm",
            Some(format!(
                "Bearer {}",
                sign(Algorithm::HS512, SECRET, &with(|_| {}))
            )),
        ),
        (
            "an expired token",
            signed(&with(|c| c["exp"] = json!(now() - 60))),
        ),
        (
            "no expiry",
            signed(&with(|c| _ = c.as_object_mut().map(|c| c.remove("exp")))),
        ),
        (
            "a token of later",
            signed(&with(|c| c["nbf"] = json!(now() + 600))),
        ),
        (
            "another issuer",
            signed(&with(|c| c["iss"] = json!("somebody"))),
        ),
        (
            "another audience",
            signed(&with(|c| c["aud"] = json!("something"))),
        ),
        (
            "no user",
            signed(&with(|c| _ = c.as_object_mut().map(|c| c.remove("sub")))),
        ),
        ("an empty user", signed(&with(|c| c["sub"] = json!("")))),
        (
            "a huge token",
            signed(&with(|c| c["more"] = json!("x".repeat(6000)))),
        ),
    ]
}

#[tokio::test]
async fn only_a_good_token_lets_a_caller_in() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .dead_letter_admin()
        .start()
        .await;
    let channel = stack.channel(0);
    for (what, authorization) in bad_authorizations() {
        let caller = Caller::new(channel.clone(), authorization.as_deref());
        let status = caller
            .try_submit(spec("noop", json!({})))
            .await
            .expect_err(what);
        let refusal = Refusal::of(&status);
        assert!(
            refusal.is(Code::Unauthenticated, "UNAUTHENTICATED"),
            "{what}: {refusal:?}"
        );
        assert!(!refusal.message.contains(SECRET), "{what}: {refusal:?}");
        // Streams as well.
        let status = caller.try_upload("a.csv", b"a,b\n").await.expect_err(what);
        assert_eq!(Refusal::of(&status).reason, "UNAUTHENTICATED", "{what}");
        let status = caller.watch("x", 0).await.expect_err(what);
        assert_eq!(Refusal::of(&status).reason, "UNAUTHENTICATED", "{what}");
    }
    assert_eq!(stack.number("select count(*) from jobs").await, 0);
}

#[tokio::test]
async fn each_role_may_do_its_own_calls_only() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .dead_letter_admin()
        .start()
        .await;
    let denied = |status: tonic::Status, what: &str| {
        let refusal = Refusal::of(&status);
        assert!(
            refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"),
            "{what}: {refusal:?}"
        );
    };
    let nobody = stack.caller("nora", &[]);
    denied(
        nobody
            .try_submit(spec("noop", json!({})))
            .await
            .expect_err("submit"),
        "no role",
    );
    let ann = stack.user("ann");
    denied(
        ann.queues()
            .list_queues(ListQueuesRequest {})
            .await
            .expect_err("queues"),
        "queues",
    );
    let types = ApplyJobTypesRequest::default();
    denied(
        ann.job_types()
            .apply_job_types(types)
            .await
            .expect_err("types"),
        "types",
    );
    let operator = stack.operator();
    denied(
        operator
            .try_submit(spec("noop", json!({})))
            .await
            .expect_err("submit"),
        "operator",
    );
    let for_bob = JobSpec {
        user_id: "bob".to_owned(),
        ..spec("noop", json!({}))
    };
    denied(
        ann.try_submit(for_bob.clone()).await.expect_err("submit"),
        "for another",
    );
    let of_bob = ListJobsRequest {
        user_id: "bob".to_owned(),
        ..ListJobsRequest::default()
    };
    denied(ann.list(of_bob).await.expect_err("list"), "of another");
    let listed = ListDeadLettersRequest::default();
    let channel = tonic::transport::Endpoint::from_shared(format!(
        "http://{}",
        stack.dead_letter_admin().grpc()
    ))
    .expect("an address")
    .connect_lazy();
    let submitter = Caller::new(
        channel,
        Some(&format!("Bearer {}", token("ann", &["submitter"]))),
    );
    denied(
        submitter
            .dead_letters()
            .list_dead_letters(listed)
            .await
            .expect_err("letters"),
        "letters",
    );

    let service = stack.caller("robot", &["service"]);
    let job_id = service.submit_spec(for_bob).await;
    let job = stack.user("bob").get(&job_id).await;
    assert_eq!(
        (job.user_id.as_str(), job.submitted_by.as_str()),
        ("bob", "robot")
    );
    operator
        .queues()
        .list_queues(ListQueuesRequest {})
        .await
        .expect("queues");
    assert_eq!(operator.get(&job_id).await.job_id, job_id);
}

#[tokio::test]
async fn somebody_elses_jobs_and_files_are_not_there() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let (ann, bob) = (stack.user("ann"), stack.user("bob"));
    let job_id = ann.submit("noop", json!({})).await;
    let file_id = ann.upload("a.csv", b"a,b\n1,2\n").await;
    let nothing = "00000000-0000-7000-8000-000000000000".to_owned();
    for id in [&job_id, &nothing] {
        for status in [
            bob.try_get(id).await.expect_err("get"),
            bob.cancel(id, "").await.expect_err("cancel"),
            bob.watch(id, 0).await.expect_err("watch"),
        ] {
            let refusal = Refusal::of(&status);
            assert!(refusal.is(Code::NotFound, "JOB_NOT_FOUND"), "{refusal:?}");
        }
    }
    for id in [&file_id, &nothing] {
        let request = GetFileRequest {
            file_id: id.clone(),
        };
        for status in [
            bob.files().get_file(request).await.expect_err("get"),
            bob.download(id).await.expect_err("download"),
        ] {
            let refusal = Refusal::of(&status);
            assert!(refusal.is(Code::NotFound, "FILE_NOT_FOUND"), "{refusal:?}");
        }
    }
    let listed = bob.list(ListJobsRequest::default()).await.expect("a list");
    assert!(listed.jobs.is_empty());
    assert_eq!(ann.get(&job_id).await.state(), JobState::Pending);
}

#[tokio::test]
async fn an_import_of_somebody_elses_file_is_refused_at_its_first_attempt() {
    let stack = Stack::builder().start().await;
    let file_id = stack.user("ann").upload("a.csv", b"a,b\n1,2\n").await;
    let bob = stack.user("bob");
    for id in [file_id.as_str(), "00000000-0000-7000-8000-000000000000"] {
        let job_id = bob.submit("import_csv", json!({"file_id": id})).await;
        let job = bob.wait_state(&job_id, JobState::Failed, BOUND).await;
        assert_eq!(
            job.last_error.map(|e| e.code).as_deref(),
            Some("FILE_NOT_FOUND")
        );
        assert_eq!(job.attempt, 1);
    }
    assert_eq!(stack.number("select count(*) from import_rows").await, 0);
}

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
async fn large_requests_are_refused_and_the_connection_serves_on() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let large = json!({"x": "y".repeat(300_000)});
    let refusal = Refusal::of(
        &ann.try_submit(spec("noop", large))
            .await
            .expect_err("too large"),
    );
    assert!(
        refusal.is(Code::InvalidArgument, "PAYLOAD_TOO_LARGE"),
        "{refusal:?}"
    );
    assert_eq!(
        refusal.metadata.get("limit_bytes").map(String::as_str),
        Some("262144")
    );
    // Beyond what a message may have, it is refused unread.
    let huge = json!({"x": "y".repeat(5 << 20)});
    let status = ann
        .try_submit(spec("noop", huge))
        .await
        .expect_err("too large");
    let refusal = Refusal::of(&status);
    assert!(
        refusal.is(Code::InvalidArgument, "PAYLOAD_TOO_LARGE"),
        "{refusal:?}"
    );
    assert!(refusal.message.contains("4194304"), "{}", refusal.message);
    let chunk = upload_file_request::Part::Chunk(vec![b'x'; 2 << 20].into());
    let header = upload_file_request::Part::Header(upload_file_request::Header {
        name: "a.csv".to_owned(),
        ..upload_file_request::Header::default()
    });
    let sent = [header, chunk].map(|part| UploadFileRequest { part: Some(part) });
    let status = ann.files().upload_file(futures::stream::iter(sent)).await;
    let refusal = Refusal::of(&status.expect_err("too large a chunk"));
    assert_eq!(refusal.code, Code::InvalidArgument, "{refusal:?}");
    assert_eq!(refusal.fields, ["chunk"]);
    ann.submit("noop", json!({})).await;
    assert_eq!(stack.number("select count(*) from files").await, 0);
}

#[tokio::test]
async fn an_upload_is_what_was_announced_or_it_is_refused() {
    use upload_file_request::{Header, Part};
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .env("TENURE_FILES__MAX_BYTES", "1000")
        .start()
        .await;
    let ann = stack.user("ann");
    let header = || Header {
        name: "a.csv".to_owned(),
        ..Header::default()
    };
    let upload = |parts: Vec<Part>| {
        let sent = parts
            .into_iter()
            .map(|part| UploadFileRequest { part: Some(part) });
        let mut files = ann.files();
        let sent = futures::stream::iter(sent.collect::<Vec<_>>());
        async move { files.upload_file(sent).await }
    };
    let chunk = |size: usize| Part::Chunk(vec![b'x'; size].into());
    let wrong_sum = Header {
        sha256: "0".repeat(64),
        ..header()
    };
    let wrong_size = Header {
        size_bytes: 5,
        ..header()
    };
    let announced = Header {
        size_bytes: 1001,
        ..header()
    };
    let nameless = Header {
        name: String::new(),
        ..header()
    };
    for (what, reason, parts) in [
        (
            "checksum",
            "CHECKSUM_MISMATCH",
            vec![Part::Header(wrong_sum), chunk(4)],
        ),
        (
            "short",
            "SIZE_MISMATCH",
            vec![Part::Header(wrong_size.clone()), chunk(4)],
        ),
        (
            "long",
            "SIZE_MISMATCH",
            vec![Part::Header(wrong_size), chunk(6)],
        ),
        ("announced", "FILE_TOO_LARGE", vec![Part::Header(announced)]),
        (
            "sent",
            "FILE_TOO_LARGE",
            vec![Part::Header(header()), chunk(1001)],
        ),
        (
            "no name",
            "INVALID_ARGUMENT",
            vec![Part::Header(nameless), chunk(4)],
        ),
        ("no header", "INVALID_ARGUMENT", vec![chunk(4)]),
        ("nothing", "INVALID_ARGUMENT", vec![]),
        (
            "two headers",
            "INVALID_ARGUMENT",
            vec![Part::Header(header()), Part::Header(header())],
        ),
    ] {
        let refusal = Refusal::of(&upload(parts).await.expect_err(what));
        assert!(
            refusal.is(Code::InvalidArgument, reason),
            "{what}: {refusal:?}"
        );
    }
    assert_eq!(stack.number("select count(*) from files").await, 0);
    let left = walk(&stack.folder().join("files"));
    assert!(left.is_empty(), "refused uploads have left {left:?}");
    let whole = upload(vec![Part::Header(header()), chunk(500), chunk(500)]).await;
    let file = whole.expect("stored").into_inner().file.expect("a file");
    assert_eq!(
        ann.download(&file.file_id).await.expect("content"),
        vec![b'x'; 1000]
    );
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
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

#[tokio::test]
async fn a_deadline_is_kept_while_the_database_keeps_everybody_waiting() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .env("TENURE_GATEWAY__MAX_DEADLINE", "1s")
        .start()
        .await;
    let ann = stack.user("ann");
    let job_id = ann.submit("noop", json!({})).await;
    let mut lock = stack.pool().begin().await.expect("a transaction");
    sqlx::query("lock table jobs in access exclusive mode")
        .execute(&mut *lock)
        .await
        .expect("a lock");
    // A call that names no deadline has the gateway's.
    let status = ann.try_get(&job_id).await.expect_err("too late");
    let refusal = Refusal::of(&status);
    assert!(
        refusal.is(Code::DeadlineExceeded, "DEADLINE_EXCEEDED"),
        "{refusal:?}"
    );
    assert!(refusal.retry_after.is_some(), "{refusal:?}");
    // One that names a shorter one has its own.
    let mut request = Request::new(GetJobRequest {
        job_id: job_id.clone(),
    });
    request.set_timeout(Duration::from_millis(200));
    let status = ann.jobs().get_job(request).await.expect_err("too late");
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status:?}"
    );
    lock.rollback().await.expect("the lock goes");
    assert_eq!(ann.get(&job_id).await.job_id, job_id);
}
