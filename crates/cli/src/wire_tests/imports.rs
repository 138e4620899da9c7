//! `import` and its upload over the wire.

use clap::Parser as _;
use tenure_proto::v1;

use super::peer::{CONTENT, peer, stored_file};
use crate::args::{Cli, Verb};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::files::Upload;
use crate::import;
use crate::output::{Format, Output};

async fn import_with(client: &Client, line: &[&str]) -> Result<Exit, Failure> {
    let line = [&["tenure", "import"], line].concat();
    match Cli::try_parse_from(line).map(|cli| cli.verb) {
        Ok(Verb::Import(args)) => import::run(client, *args, &mut Output::new(Format::Json)).await,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_failed_import_still_gives_its_files() {
    let (peer, client) = peer().await;
    let file = |kind: &str, content_type: &str| v1::File {
        file_id: kind.to_owned(),
        kind: kind.to_owned(),
        content_type: content_type.to_owned(),
        ..stored_file()
    };
    peer.0.lock().expect("no panic before").files = vec![file("report", "application/json")];
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(at("a.csv"), "a,b\n1,2\n").expect("writes");
    std::fs::write(at("rejects.csv"), "of an earlier run").expect("writes");
    let (report, rejects) = (at("report.json"), at("rejects.csv"));
    let exit = import_with(
        &client,
        &[&at("a.csv"), "--report", &report, "--rejects", &rejects],
    )
    .await
    .expect("is told");
    assert_eq!(exit, Exit::JobFailed);
    assert_eq!(std::fs::read(&report).expect("is there"), CONTENT);
    // All rows were judged and none was rejected.
    assert!(!std::path::Path::new(&rejects).exists());
}

#[tokio::test]
async fn what_would_be_lost_is_told_before_the_upload() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "a,b\n1,2\n").expect("writes");
    let path = path.to_str().expect("UTF-8");
    let failure = import_with(&client, &[path, "--report", path])
        .await
        .expect_err("would be lost");
    assert_eq!(failure.exit, Exit::Usage);
    assert!(peer.0.lock().expect("no panic before").stored.is_empty());
}

#[tokio::test]
async fn an_upload_comes_again_where_it_was_put_off() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("f");
    std::fs::write(&path, "content").expect("writes");
    let upload = Upload::new(path, None, None, None).await.expect("is there");
    peer.0.lock().expect("no panic before").busy = 2;
    assert_eq!(upload.send(&client).await.expect("uploads").file_id, "f");
    assert_eq!(peer.0.lock().expect("no panic before").stored, b"content");
    peer.0.lock().expect("no panic before").busy = u32::MAX;
    let failure = upload.send(&client).await.expect_err("is put off for ever");
    assert_eq!(failure.exit, Exit::TryLater);
    assert_eq!(failure.reason.as_deref(), Some("OVERLOADED"));
    let left = peer.0.lock().expect("no panic before").busy;
    assert!(u32::MAX - left <= 10, "tried {} times", u32::MAX - left);
}
