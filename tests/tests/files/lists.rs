//! Listing and removing: whose files, in which order, and what becomes of a job that
//! needs a removed one.

use serde_json::json;
use tenure_tests::v1::ListFilesRequest;
use tenure_tests::{Caller, JobState, Refusal, Stack};
use tonic::Code;

use crate::{BOUND, names};

/// The ids of a whole list, in pages.
async fn listed(caller: &Caller, request: ListFilesRequest, page_size: i32) -> Vec<String> {
    let (mut ids, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = caller
            .list_files(ListFilesRequest {
                page_size,
                page_token,
                ..request.clone()
            })
            .await
            .expect("a page");
        assert!(page.files.len() <= page_size as usize);
        ids.extend(page.files.into_iter().map(|file| file.file_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return ids;
        }
    }
}

#[tokio::test]
async fn files_are_listed_newest_first_with_the_reports_of_their_jobs() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let mut uploads = Vec::new();
    for n in 0..5 {
        let content = format!("id,name\n{n},x\n");
        uploads.insert(0, ann.upload(&format!("{n}.csv"), content.as_bytes()).await);
    }
    let job = ann
        .submit("import_csv", json!({"file_id": uploads[0]}))
        .await;
    ann.wait_state(&job, JobState::Success, BOUND).await;
    stack.user("bob").upload("b.csv", b"id,name\n1,x\n").await;

    let all = ListFilesRequest::default;
    for page_size in [1, 2, 200] {
        let ids = listed(&ann, all(), page_size).await;
        let (reports, rest) = ids.split_at(ids.len() - uploads.len());
        assert_eq!(rest, uploads, "pages of {page_size}");
        assert!(!reports.is_empty());
    }
    let kind = |kind: &str| ListFilesRequest {
        kind: kind.to_owned(),
        ..all()
    };
    assert_eq!(listed(&ann, kind("upload"), 2).await, uploads);
    let of_job = ListFilesRequest {
        job_id: job.clone(),
        ..kind("report")
    };
    let page = ann.list_files(of_job.clone()).await.expect("a page");
    assert!(!page.files.is_empty());
    assert!(
        page.files
            .iter()
            .all(|it| it.job_id == job && it.kind == "report")
    );
    // Reports take no room.
    let sizes: i64 = (0..5)
        .map(|n| format!("id,name\n{n},x\n").len() as i64)
        .sum();
    assert_eq!(page.used_bytes, sizes);

    // A token belongs to its filters and its caller.
    let first = ListFilesRequest {
        page_size: 1,
        ..kind("upload")
    };
    let token = ann
        .list_files(first.clone())
        .await
        .expect("a page")
        .next_page_token;
    for (caller, request) in [(&ann, all()), (&stack.user("bob"), first.clone())] {
        let request = ListFilesRequest {
            page_token: token.clone(),
            ..request
        };
        let status = caller.list_files(request).await.expect_err("refused");
        let refusal = Refusal::of(&status);
        assert!(
            refusal.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID"),
            "{refusal:?}"
        );
    }
    for (request, field) in [
        (kind("Upload"), "kind"),
        (
            ListFilesRequest {
                page_size: -1,
                ..all()
            },
            "page_size",
        ),
        (
            ListFilesRequest {
                job_id: "../x".to_owned(),
                ..all()
            },
            "job_id",
        ),
    ] {
        let status = ann.list_files(request).await.expect_err(field);
        assert!(Refusal::of(&status).names(field), "{status:?}");
    }
    let of_ann = ListFilesRequest {
        user_id: "ann".to_owned(),
        ..kind("upload")
    };
    assert_eq!(listed(&stack.operator(), of_ann.clone(), 3).await, uploads);
    let status = stack.user("bob").list_files(of_ann).await;
    assert_eq!(status.expect_err("refused").code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_file_is_removed_by_its_owner_or_an_operator_and_nobody_else() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let mut files = Vec::new();
    for n in 0..3 {
        files.push(ann.upload(&format!("{n}.csv"), b"id,name\n1,x\n").await);
    }
    let shop = stack.caller("shop", &["service"]);
    for (caller, code) in [
        (&stack.user("bob"), Code::NotFound),
        (&shop, Code::PermissionDenied),
    ] {
        let status = caller.delete_file(&files[0]).await.expect_err("refused");
        assert_eq!(status.code(), code, "{status:?}");
    }
    ann.delete_file(&files[0]).await.expect("removed");
    stack
        .operator()
        .delete_file(&files[1])
        .await
        .expect("removed");
    assert_eq!(names(&stack.folder().join("files")), [files[2].clone()]);
    let status = ann.download(&files[0]).await.expect_err("gone");
    assert_eq!(status.code(), Code::NotFound);
    let job = ann.submit("import_csv", json!({"file_id": files[1]})).await;
    let job = ann.wait_state(&job, JobState::Failed, BOUND).await;
    assert_eq!(job.last_error.expect("an error").code, "FILE_NOT_FOUND");
}
