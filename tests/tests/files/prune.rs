//! What the sweeper removes from the store, and what it leaves alone.

use std::path::Path;
use std::time::{Duration, SystemTime};

use tenure_tests::v1::ListFilesRequest;
use tenure_tests::{Stack, wait_until};

use crate::{BOUND, change, described, names};

/// Puts something into the folder that was last written days ago.
fn leave(folder: &Path, name: &str, days: u64) {
    let path = folder.join(name);
    std::fs::write(&path, "left behind").expect("written");
    let then = SystemTime::now() - Duration::from_hours(24 * days);
    std::fs::File::options()
        .write(true)
        .open(path)
        .and_then(|file| file.set_modified(then))
        .expect("made old");
}

fn id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[tokio::test]
async fn what_has_expired_and_what_nobody_knows_of_is_removed_by_any_sweeper() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(2)
        .env("TENURE_SWEEPER__PRUNE_INTERVAL", "100ms")
        .start()
        .await;
    let folder = stack.folder().join("files");
    let ann = stack.user("ann");
    let mut files = Vec::new();
    for n in 0..130 {
        let content = format!("id\n{n}\n");
        files.push(ann.upload(&format!("{n}.csv"), content.as_bytes()).await);
    }
    let kept = files.split_off(120);
    // One whose content is gone already, as after a crash between the two.
    std::fs::remove_file(folder.join(&files[0])).expect("removed");
    let list: Vec<String> = files.iter().map(|id| format!("'{id}'")).collect();
    change(
        &stack,
        format!(
            "update files set expires_at = now() - interval '1 hour' where file_id in ({})",
            list.join(", ")
        ),
    )
    .await;

    let (orphan, staged, young) = (id(), format!("{}#1", id()), id());
    let described_long_ago = &kept[0];
    leave(&folder, described_long_ago, 400);
    leave(&folder, &orphan, 2);
    leave(&folder, &staged, 2);
    leave(&folder, &young, 0);
    leave(&folder, "notes.txt", 2);
    leave(&folder, ".hidden#1", 2);

    let mut wanted = kept.clone();
    wanted.extend([young, "notes.txt".to_owned(), ".hidden#1".to_owned()]);
    wanted.sort();
    wait_until("only what is needed is left", BOUND, || async {
        (names(&folder) == wanted).then_some(())
    })
    .await;
    let mut left = kept.clone();
    left.sort();
    wait_until("the descriptions are gone", BOUND, || async {
        (described(&stack).await == left).then_some(())
    })
    .await;
    let answer = ann.list_files(ListFilesRequest::default()).await;
    let sizes: i64 = (120..130).map(|n| format!("id\n{n}\n").len() as i64).sum();
    assert_eq!(answer.expect("a list").used_bytes, sizes);

    let (first, second) = tokio::join!(stack.sweeper(0).metrics(), stack.sweeper(1).metrics());
    let counted = |name: &str, kind: &str| {
        let labels = [("kind", kind)];
        (first.sum(name, &labels) + second.sum(name, &labels)) as i64
    };
    assert_eq!(counted("tenure_pruned_files_total", "expired"), 120);
    // Both may have found the same one: then the second found it gone, which is as good.
    assert!(counted("tenure_pruned_files_total", "orphan") >= 1);
    assert!(counted("tenure_pruned_files_total", "staged") >= 1);
    for kind in ["expired", "orphan", "staged"] {
        assert_eq!(counted("tenure_prune_failures_total", kind), 0, "{kind}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_removed_does_not_keep_the_others() {
    let stack = Stack::builder()
        .workers(0)
        .env("TENURE_SWEEPER__PRUNE_INTERVAL", "100ms")
        .start()
        .await;
    let folder = stack.folder().join("files");
    let ann = stack.user("ann");
    let stuck = ann.upload("stuck.csv", b"id\n1\n").await;
    let other = ann.upload("other.csv", b"id\n2\n").await;
    // A folder in the content's place cannot be removed as a file.
    std::fs::remove_file(folder.join(&stuck)).expect("removed");
    std::fs::create_dir(folder.join(&stuck)).expect("a folder");
    change(
        &stack,
        "update files set expires_at = now() - interval '1 hour' + (case name when 'other.csv' then interval '1 minute' else '0' end)".into(),
    )
    .await;
    wait_until("the other file is gone", BOUND, || async {
        (described(&stack).await == [stuck.clone()]).then_some(())
    })
    .await;
    assert!(!folder.join(&other).exists());
    // Its description stays as long as its content does.
    std::fs::remove_dir(folder.join(&stuck)).expect("removed");
    wait_until("the file is gone", BOUND, || async {
        described(&stack).await.is_empty().then_some(())
    })
    .await;
    let metrics = stack.sweeper(0).metrics().await;
    let failures = metrics.sum("tenure_prune_failures_total", &[("kind", "expired")]);
    assert!(failures >= 1.0);
}
