//! The verbs against a peer that breaks connections at chosen places.

mod admin;
mod dead_letters;
mod imports;
mod operators;
mod peer;
mod peer_queues;

use std::collections::HashSet;

use tenure_proto::v1;

use self::peer::{CONTENT, peer};
use crate::args::DownloadArgs;
use crate::errors::Exit;
use crate::files::Upload;
use crate::output::{Format, Output};
use crate::{download, jobs, watch};

#[tokio::test]
async fn a_submit_is_repeated_under_one_request_id() {
    let (peer, client) = peer().await;
    let accepted = jobs::send(&client, v1::JobSpec::default())
        .await
        .expect("the third try");
    assert_eq!(accepted.job_id, "j");
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.request_ids.len(), 3);
    let ids: HashSet<_> = seen.request_ids.iter().collect();
    assert_eq!(ids.len(), 1);
    assert!(!seen.request_ids[0].is_empty());
}

#[tokio::test]
async fn only_a_submit_that_may_have_been_accepted_is_said_to_be_so() {
    for (job_type, tries, unknown) in [("full", 1, false), ("late", 2, true)] {
        let (peer, client) = peer().await;
        let spec = v1::JobSpec {
            job_type: job_type.to_owned(),
            ..v1::JobSpec::default()
        };
        let failure = jobs::send(&client, spec).await.expect_err("refused");
        assert_eq!(failure.exit, Exit::TryLater);
        assert_eq!(failure.message, "the queue is full");
        let told = failure.hints.iter().any(|hint| hint.contains("accepted"));
        assert_eq!(told, unknown, "{job_type}: {:?}", failure.hints);
        let seen = peer.0.lock().expect("no panic before");
        assert_eq!(seen.request_ids.len(), tries);
    }
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_revision() {
    let (peer, client) = peer().await;
    let job = watch::follow(&client, "j", None).await.expect("the end");
    assert_eq!(job.state(), v1::JobState::Failed);
    let seen = peer.0.lock().expect("no panic before");
    // Cut after 4; ended, and 5 was read; refused; and the end.
    assert_eq!(seen.revisions, [0, 4, 5, 5]);
}

fn to(file: &std::path::Path) -> DownloadArgs {
    DownloadArgs {
        file_id: "f".to_owned(),
        out: Some(file.to_owned()),
    }
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_cut() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    let mut out = Output::new(Format::Json);
    let exit = download::run(&client, to(&file), &mut out)
        .await
        .expect("downloads");
    assert_eq!(exit, Exit::Ok);
    assert_eq!(std::fs::read(&file).expect("is there"), CONTENT);
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.offsets, [0, 7, 14]);
}

#[tokio::test]
async fn a_damaged_download_leaves_nothing() {
    let (peer, client) = peer().await;
    peer.0.lock().expect("no panic before").damaged = true;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    let mut out = Output::new(Format::Json);
    let failure = download::run(&client, to(&file), &mut out)
        .await
        .expect_err("is damaged");
    assert!(failure.message.contains("checksum"), "{}", failure.message);
    assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
}

#[tokio::test]
async fn an_upload_arrives_and_a_refusal_is_told() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("big");
    let content = vec![7; 3 << 20];
    std::fs::write(&path, &content).expect("writes");
    let upload = Upload::new(path.clone(), None, None, None)
        .await
        .expect("is there");
    assert_eq!(upload.send(&client).await.expect("uploads").file_id, "f");
    assert!(peer.0.lock().expect("no panic before").stored == content);
    let upload = Upload::new(path, Some("refused".to_owned()), None, None)
        .await
        .expect("is there");
    let failure = upload.send(&client).await.expect_err("is refused");
    assert_eq!(failure.exit, Exit::TryLater);
    assert_eq!(failure.message, "no room");
}

#[tokio::test]
async fn a_job_that_is_not_there_is_told() {
    let (_peer, client) = peer().await;
    let mut out = Output::new(Format::Json);
    let failure = jobs::cancel(&client, "x".to_owned(), String::new(), &mut out)
        .await
        .expect_err("is not there");
    assert_eq!(failure.exit, Exit::NotFound);
}
