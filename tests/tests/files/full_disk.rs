//! A store without room, and a store that is away.

use std::io::Write as _;
use std::path::Path;

use serde_json::json;
use tenure_tests::{JobState, Kind, Refusal, Stack, wait_until};
use tonic::Code;

use crate::{BOUND, described, names};

const MIB: usize = 1 << 20;

/// Fills a disk to its last byte.
fn fill(file: &Path) {
    let mut file = std::fs::File::create(file).expect("a file");
    let block = vec![0; 4096];
    let error = loop {
        if let Err(error) = file.write_all(&block) {
            break error;
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

fn is_full(refusal: &Refusal) -> bool {
    refusal.is(Code::ResourceExhausted, "STORAGE_FULL") && refusal.retry_after.is_some()
}

#[tokio::test]
async fn an_upload_to_a_full_disk_is_put_off_and_leaves_nothing() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .small_disk(Kind::Gateway, "4m")
        .start()
        .await;
    let folder = stack.gateway(0).files();
    let ann = stack.user("ann");
    let kept = ann.upload("kept.csv", b"id\n1\n").await;
    let large = vec![b'x'; 6 * MIB];
    for n in 0..2 {
        let status = ann.stream_upload("large.csv", &large).await;
        let refusal = Refusal::of(&status.expect_err("full"));
        assert!(is_full(&refusal), "{n}: {refusal:?}");
        wait_until("what was written is gone", BOUND, || async {
            (names(&folder) == [kept.clone()]).then_some(())
        })
        .await;
    }
    fill(&folder.join("filler"));
    let status = ann.try_upload("small.csv", b"id\n2\n").await;
    let refusal = Refusal::of(&status.expect_err("full"));
    assert!(is_full(&refusal), "{refusal:?}");
    assert_eq!(names(&folder), [kept.clone(), "filler".to_owned()]);
    assert_eq!(described(&stack).await, std::slice::from_ref(&kept));
    // What is there can be read, and the service is ready all the while.
    assert_eq!(ann.download(&kept).await.expect("read"), b"id\n1\n");
    assert_eq!(stack.gateway(0).get("/readyz").await.0, 200);
    std::fs::remove_file(folder.join("filler")).expect("removed");
    ann.upload("small.csv", b"id\n2\n").await;
    ann.upload("fits.csv", &large[..2 * MIB]).await;
}

#[tokio::test]
async fn an_import_whose_report_finds_no_room_is_tried_again() {
    let stack = Stack::builder()
        .small_disk(Kind::Worker, "2m")
        .env("TENURE_BACKOFF_BASE", "1s")
        .start()
        .await;
    let folder = stack.worker(0).files();
    let ann = stack.user("ann");
    let file = ann.upload("a.csv", b"id,name\n1,Ann\n2,Bob\n").await;
    std::fs::copy(stack.folder().join("files").join(&file), folder.join(&file)).expect("copied");
    fill(&folder.join("filler"));
    let job = ann.submit("import_csv", json!({"file_id": file})).await;
    let waits = wait_until("the import waits for room", BOUND, || async {
        let job = ann.try_get(&job).await.ok()?;
        job.last_error.clone().map(|error| (job.state(), error))
    })
    .await;
    assert_eq!(waits.1.code, "STORAGE_FULL", "{waits:?}");
    std::fs::remove_file(folder.join("filler")).expect("removed");
    let job = ann.wait_state(&job, JobState::Success, BOUND).await;
    assert!(job.attempt > 1);
    assert_eq!(stack.number("select count(*) from import_rows").await, 2);
    let reports: Vec<String> =
        sqlx::query_scalar("select file_id::text from files where kind = 'report'")
            .fetch_all(stack.pool())
            .await
            .expect("reports");
    let names = names(&folder);
    assert!(!reports.is_empty() && reports.iter().all(|id| names.contains(id)));
    assert!(names.iter().all(|name| !name.contains('#')), "{names:?}");
}

#[tokio::test]
async fn a_store_that_is_away_refuses_uploads_and_nothing_else() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        free.local_addr().expect("an address").port()
    };
    let stack = Stack::builder()
        .env("TENURE_FILES__URL", "s3://nobody/there")
        .env(
            "TENURE_FILES__S3_ENDPOINT",
            &format!("http://127.0.0.1:{port}"),
        )
        .env("TENURE_FILES__S3_ALLOW_HTTP", "true")
        .env("TENURE_FILES__S3_ACCESS_KEY_ID", "key")
        .env("TENURE_FILES__S3_SECRET_ACCESS_KEY", "hush-hush")
        .start()
        .await;
    let ann = stack.user("ann");
    let status = ann.try_upload("a.csv", b"id\n1\n").await;
    let refusal = Refusal::of(&status.expect_err("away"));
    assert!(
        refusal.is(Code::Unavailable, "STORE_UNAVAILABLE"),
        "{refusal:?}"
    );
    assert!(!refusal.message.contains("127.0.0.1"), "{refusal:?}");
    assert!(described(&stack).await.is_empty());
    let job = ann.submit("noop", json!({})).await;
    ann.wait_state(&job, JobState::Success, BOUND).await;
    for process in stack.all() {
        assert_eq!(process.get("/readyz").await.0, 200, "{}", process.name());
        assert!(!process.log().contains("hush-hush"), "{}", process.name());
    }
}
