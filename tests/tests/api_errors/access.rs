//! Who may call, and who may see what.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::token::{SECRET, claims, now, sign, token};
use tenure_tests::v1::{
    ApplyJobTypesRequest, GetFileRequest, JobSpec, ListDeadLettersRequest, ListJobsRequest,
    ListQueuesRequest,
};
use tenure_tests::{Caller, JobState, Refusal, Stack};
use tonic::Code;

use crate::BOUND;

/// Values of `authorization` that must not let anybody in.
fn bad_authorizations() -> Vec<(&'static str, Option<String>)> {
    let good = token("ann", &["submitter"]);
    let (body, _) = good.rsplit_once('.').expect("a signature");
    // {"alg":"none","typ":"JWT"}, in base64.
    let unsigned = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    let payload = body.rsplit_once('.').expect("a payload").1;
    let other = "another secret that is also more than thirty-two bytes";
    let claims = claims("ann", &["submitter"]);
    let strange = sign(Algorithm::HS256, other, &claims);
    let stronger = sign(Algorithm::HS512, SECRET, &claims);
    let mut bad = vec![
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
        ("another secret", Some(format!("Bearer {strange}"))),
        ("another algorithm", Some(format!("Bearer {stronger}"))),
    ];
    for (what, claim, value) in [
        ("an expired token", "exp", json!(now() - 60)),
        ("no expiry", "exp", Value::Null),
        ("a token of later", "nbf", json!(now() + 600)),
        ("another issuer", "iss", json!("somebody")),
        ("no issuer", "iss", Value::Null),
        ("another audience", "aud", json!("something")),
        ("no audience", "aud", Value::Null),
        ("no user", "sub", Value::Null),
        ("an empty user", "sub", json!("")),
        ("a huge token", "more", json!("x".repeat(6000))),
    ] {
        let mut claims = claims.clone();
        let set = claims.as_object_mut().expect("an object");
        match value {
            Value::Null => set.remove(claim),
            value => set.insert(claim.to_owned(), value),
        };
        let token = sign(Algorithm::HS256, SECRET, &claims);
        bad.push((what, Some(format!("Bearer {token}"))));
    }
    bad
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
