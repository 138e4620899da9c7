//! The room that each user has, and how it is given back.

use tenure_tests::v1::ListFilesRequest;
use tenure_tests::{Refusal, Stack};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::{change, described, names};

fn no_room(status: &Status) -> Refusal {
    let refusal = Refusal::of(status);
    assert!(
        refusal.is(Code::ResourceExhausted, "FILE_QUOTA_EXCEEDED"),
        "{refusal:?}"
    );
    refusal
}

async fn used(stack: &Stack, user: &str) -> (i64, i64) {
    let user = stack.user(user);
    let answer = user.list_files(ListFilesRequest::default()).await;
    let answer = answer.expect("a list");
    (answer.used_bytes, answer.quota_bytes)
}

#[tokio::test]
async fn uploads_stay_within_their_users_room_however_many_come_at_once() {
    let stack = Stack::builder()
        .gateways(2)
        .workers(0)
        .sweepers(0)
        .env("TENURE_FILES__MAX_USER_BYTES", "1000")
        .start()
        .await;
    let calls = (0..10).map(|n| {
        let ann = stack.caller_on(n % 2, "ann", &["submitter"]);
        async move { ann.stream_upload(&format!("{n}.csv"), &[b'x'; 300]).await }
    });
    let calls = futures::future::join_all(calls).await;
    let mut files = Vec::new();
    for call in calls {
        match call {
            Ok(file) => files.push(file),
            Err(status) => drop(no_room(&status)),
        }
    }
    assert_eq!(files.len(), 3);
    assert_eq!(used(&stack, "ann").await, (900, 1000));
    // What was refused has left neither content nor description.
    let folder = stack.folder().join("files");
    assert_eq!(names(&folder), described(&stack).await);
    assert_eq!(names(&folder).len(), 3);

    // Announced, it is refused before its content comes, and told what to do.
    let ann = stack.user("ann");
    let status = ann.try_upload("more.csv", &[b'y'; 101]).await;
    let status = status.expect_err("no room");
    let refusal = no_room(&status);
    assert_eq!(refusal.retry_after, None);
    assert_eq!(refusal.metadata["used_bytes"], "900");
    assert_eq!(refusal.metadata["limit_bytes"], "1000");
    assert!(
        refusal.message.contains("DeleteFile"),
        "{}",
        refusal.message
    );
    let details = status.get_error_details();
    let quota = details.quota_failure().expect("a quota failure");
    assert_eq!(quota.violations[0].subject, "files.max_user_bytes");
    // The same file again takes no room, and others have their own.
    let again = ann.stream_upload(&files[0].name, &[b'x'; 300]).await;
    assert_eq!(again.expect("stored before").file_id, files[0].file_id);
    stack.user("bob").upload("b.csv", &[b'x'; 1000]).await;

    for _ in 0..2 {
        let removed = ann.delete_file(&files[0].file_id).await;
        if let Err(status) = removed {
            let refusal = Refusal::of(&status);
            assert!(refusal.is(Code::NotFound, "FILE_NOT_FOUND"), "{refusal:?}");
        }
    }
    assert_eq!(used(&stack, "ann").await, (600, 1000));
    assert_eq!(names(&folder), described(&stack).await);
    ann.upload("more.csv", &[b'y'; 101]).await;
}

#[tokio::test]
async fn an_upload_has_an_end_which_the_same_upload_again_puts_off() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .env("TENURE_FILES__UPLOAD_RETENTION", "10d")
        .start()
        .await;
    let ann = stack.user("ann");
    let file = ann
        .try_upload("a.csv", b"id,name\n1,Ann\n")
        .await
        .expect("stored");
    let end = |file: &tenure_tests::v1::File| file.expire_time.expect("an end").seconds;
    let created = file.create_time.expect("a time").seconds;
    assert_eq!(end(&file) - created, 10 * 86_400);
    assert_eq!(file.detected_type, "text/csv");
    assert_eq!(file.kind, "upload");
    change(
        &stack,
        "update files set expires_at = now() + interval '2 days'".into(),
    )
    .await;
    let again = ann
        .try_upload("a.csv", b"id,name\n1,Ann\n")
        .await
        .expect("stored");
    assert_eq!(again.file_id, file.file_id);
    assert!(end(&again) >= end(&file));
    assert_eq!(ann.file(&file.file_id).await.expect("a file"), again);
    change(
        &stack,
        "update files set expires_at = now() + interval '1 hour'".into(),
    )
    .await;
    let fresh = ann
        .try_upload("a.csv", b"id,name\n1,Ann\n")
        .await
        .expect("stored");
    assert_ne!(fresh.file_id, file.file_id);
    change(&stack, "update files set expires_at = now()".into()).await;
    for id in [&file.file_id, &fresh.file_id] {
        let gone = ann.file(id).await.expect_err("expired");
        assert_eq!(gone.code(), Code::NotFound);
        let gone = ann.download(id).await.expect_err("expired");
        assert_eq!(gone.code(), Code::NotFound);
    }
}
