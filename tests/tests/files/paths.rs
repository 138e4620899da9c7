//! Names that lead out of the store, and things in it that are no files.

use std::path::Path;
use std::process::Command;

use serde_json::json;
use tenure_tests::v1::upload_file_request::{Header, Part};
use tenure_tests::v1::{ErrorClass, ListFilesRequest, UploadFileRequest};
use tenure_tests::{JobState, Refusal, Stack, data};
use tonic::Code;

use crate::{BOUND, described, names};

const PATHS: [&str; 3] = ["path_absolute", "path_backslash", "path_traversal"];

fn text(name: &str) -> String {
    String::from_utf8(data::bytes(&format!("strings/{name}.txt"))).expect("text")
}

#[tokio::test]
async fn a_path_for_a_file_or_a_user_leads_nowhere() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let shop = stack.caller("shop", &["service"]);
    for name in PATHS {
        let path = text(name);
        for (call, refused) in [
            ("get", ann.file(&path).await.map(drop)),
            ("download", ann.download(&path).await.map(drop)),
            ("delete", ann.delete_file(&path).await),
        ] {
            let refusal = Refusal::of(&refused.expect_err(call));
            assert!(refusal.names("file_id"), "{name}, {call}: {refusal:?}");
        }
        // Refused when it is submitted, or when it is read.
        let payload = json!({"file_id": path});
        match ann
            .try_submit(tenure_tests::caller::spec("import_csv", payload))
            .await
        {
            Err(status) => assert_eq!(status.code(), Code::InvalidArgument, "{name}"),
            Ok(accepted) => {
                let job = ann
                    .wait_state(&accepted.job_id, JobState::Failed, BOUND)
                    .await;
                let error = job.last_error.expect("an error");
                assert_eq!(error.error_class(), ErrorClass::Permanent, "{name}");
                assert_eq!(job.attempt, 1, "{name}");
            }
        }

        // Nobody may name another user, but a service; to that it is a name like others.
        let upload = |caller: &tenure_tests::Caller| {
            let header = Header {
                name: path.clone(),
                user_id: path.clone(),
                ..Header::default()
            };
            let parts = [Part::Header(header), Part::Chunk((&b"id\n1\n"[..]).into())];
            let parts = parts.map(|part| UploadFileRequest { part: Some(part) });
            let mut files = caller.files();
            async move { files.upload_file(futures::stream::iter(parts)).await }
        };
        let status = upload(&ann).await.expect_err("refused");
        assert_eq!(status.code(), Code::PermissionDenied);
        let file = upload(&shop).await.expect("stored").into_inner().file;
        let file = file.expect("a file");
        assert_eq!((&file.user_id, &file.name), (&path, &path));
        let of_path = ListFilesRequest {
            user_id: path.clone(),
            ..ListFilesRequest::default()
        };
        let list = shop.list_files(of_path).await.expect("a list");
        assert_eq!(list.files, [file]);
    }
    // Whatever they were called, the content lies under their ids.
    assert_eq!(
        names(&stack.folder().join("files")),
        described(&stack).await
    );
}

#[tokio::test]
async fn a_link_a_pipe_or_a_folder_in_place_of_content_is_never_read() {
    const SECRET: &str = "id\nnobody-may-read-this\n";
    let stack = Stack::builder().slots(1).start().await;
    let folder = stack.folder().join("files");
    let outside = stack.folder().join("outside.csv");
    std::fs::write(&outside, SECRET).expect("written");
    let ann = stack.user("ann");
    let link = |path: &Path| std::os::unix::fs::symlink(&outside, path).expect("a link");
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(made.success());
    };
    let directory = |path: &Path| std::fs::create_dir(path).expect("a folder");
    for what in ["link", "pipe", "folder"] {
        // As large as the secret, so that its size does not give it away.
        let id = ann.upload(what, "x".repeat(SECRET.len()).as_bytes()).await;
        std::fs::remove_file(folder.join(&id)).expect("removed");
        let place = folder.join(&id);
        match what {
            "link" => link(&place),
            "pipe" => pipe(&place),
            _ => directory(&place),
        }
        let refusal = Refusal::of(&ann.download(&id).await.expect_err(what));
        assert!(refusal.names("file_id"), "{what}: {refusal:?}");
        let job = ann.submit("import_csv", json!({"file_id": id})).await;
        let job = ann.wait_state(&job, JobState::Failed, BOUND).await;
        let error = job.last_error.expect("an error");
        assert_eq!(
            error.error_class(),
            ErrorClass::Permanent,
            "{what}: {error:?}"
        );
        assert!(!error.message.contains("nobody-may"), "{what}: {error:?}");
    }
    // The one slot is free for others.
    let job = ann.import("ok.csv", b"id,name\n1,x\n", json!({})).await;
    ann.wait_state(&job, JobState::Success, BOUND).await;
    assert_eq!(stack.number("select count(*) from import_rows").await, 1);
    assert_eq!(std::fs::read_to_string(&outside).expect("there"), SECRET);
    for process in stack.all() {
        assert!(!process.log().contains("nobody-may-read-this"));
    }
}
