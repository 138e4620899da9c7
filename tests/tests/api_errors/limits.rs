//! What is too large, too long, or not what was announced.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::v1::{GetJobRequest, UploadFileRequest, upload_file_request};
use tenure_tests::{Refusal, Stack};
use tonic::{Code, Request};

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
        ..GetJobRequest::default()
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
