//! The whole product on a bucket.

use serde_json::{Value, json};
use tenure_core::config::FilesConfig;
use tenure_core::files::FileStore;
use tenure_core::test_util::bucket_config;
use tenure_tests::caller::result;
use tenure_tests::v1::DownloadFileRequest;
use tenure_tests::{JobState, Stack, StackBuilder, data, wait_until};

use crate::{BOUND, change, described};

fn on_a_bucket(config: &FilesConfig) -> StackBuilder {
    Stack::builder()
        .env("TENURE_FILES__URL", &config.url)
        .env("TENURE_FILES__S3_ENDPOINT", &config.s3_endpoint)
        .env("TENURE_FILES__S3_ALLOW_HTTP", "true")
        .env("TENURE_FILES__S3_ACCESS_KEY_ID", &config.s3_access_key_id)
        .env(
            "TENURE_FILES__S3_SECRET_ACCESS_KEY",
            config.s3_secret_access_key.expose(),
        )
        // What the environment says of proxies is not for files.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
}

#[tokio::test]
async fn a_file_in_a_bucket_is_imported_and_its_report_comes_back() {
    let config = bucket_config();
    let stack = on_a_bucket(&config)
        .env("TENURE_SWEEPER__PRUNE_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let content = data::example("airports.csv");
    let file = ann.upload("airports.csv", &content).await;
    let job = ann.submit("import_csv", json!({"file_id": file})).await;
    let job = ann.wait_state(&job, JobState::Success, BOUND).await;
    let result = result(&job);
    assert_eq!(result["rows_accepted"], 3376);
    assert_eq!(stack.number("select count(*) from import_rows").await, 3376);
    let report = result["report_file_id"].as_str().expect("a report");
    let report = ann.download(report).await.expect("the report");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["rows_accepted"], 3376);

    // More than one part, and from the middle.
    let large: Vec<u8> = (0..12_000_000_u32).map(|n| (n / 7 % 251) as u8).collect();
    let id = ann.upload("large.bin", &large).await;
    assert!(ann.download(&id).await.expect("the whole") == large);
    let request = DownloadFileRequest {
        file_id: id.clone(),
        offset: 11_999_990,
    };
    let mut parts = ann
        .files()
        .download_file(request)
        .await
        .expect("a stream")
        .into_inner();
    let mut end = Vec::new();
    while let Some(part) = parts.message().await.expect("a part") {
        end.extend_from_slice(&part.chunk);
    }
    assert_eq!(end, large[11_999_990..]);
    assert!(
        std::fs::read_dir(stack.folder().join("files"))
            .expect("a folder")
            .next()
            .is_none()
    );

    change(
        &stack,
        format!("update files set expires_at = now() - interval '1 minute' where file_id = '{id}'"),
    )
    .await;
    wait_until("the file has expired", BOUND, || async {
        (!described(&stack).await.contains(&id)).then_some(())
    })
    .await;
    ann.delete_file(&file).await.expect("removed");
    let store = FileStore::open(&config).expect("a store");
    let mut walk = store.walk();
    let mut left: Vec<String> = walk
        .next(1000)
        .await
        .expect("a list")
        .found
        .iter()
        .map(|found| found.file_id.to_string())
        .collect();
    left.sort();
    assert_eq!(left, described(&stack).await);
}
