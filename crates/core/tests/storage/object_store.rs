//! The object store in a bucket, and walks over both kinds of store.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use sha2::{Digest as _, Sha256};
use tenure_core::config::FilesConfig;
use tenure_core::domain::ids::FileId;
use tenure_core::files::{Expected, FileStore, Found, READ_BLOCK, Walk};
use tenure_core::test_util::bucket_config;
use tenure_core::{Code, Error, Result};

const MIB: usize = 1024 * 1024;

/// Content whose every block differs from the next.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 / 7 % 251) as u8).collect()
}

fn pieces(content: &[u8]) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
    let pieces: Vec<_> = content
        .chunks(256 * 1024)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    futures::stream::iter(pieces)
}

async fn read(store: &FileStore, id: FileId, offset: u64) -> Result<Vec<u8>> {
    let blocks: Vec<Bytes> = store.read(id, offset).await?.try_collect().await?;
    assert!(blocks.iter().all(|block| block.len() as u64 <= READ_BLOCK));
    Ok(blocks.concat())
}

/// The uploads in parts that a bucket keeps below the test's prefix.
async fn unfinished(config: &FilesConfig) -> usize {
    let (bucket, prefix) = config
        .url
        .trim_start_matches("s3://")
        .split_once('/')
        .expect("a prefix");
    let url = format!("{}/{bucket}?uploads&prefix={prefix}", config.s3_endpoint);
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(10))
        .build()
        .expect("a client");
    let answer = client.get(url).send().await.expect("an answer");
    assert!(answer.status().is_success());
    let text = answer.text().await.expect("a list");
    text.matches(&format!("<Key>{prefix}/")).count()
}

#[tokio::test]
async fn a_bucket_gives_back_what_it_was_given() {
    let config = bucket_config();
    let store = FileStore::open(&config).expect("a store");
    // One call, just a part, and parts with a rest.
    for length in [0, 1, 5 * MIB, 11 * MIB + 7] {
        let id = FileId::new();
        let whole = content(length);
        let expected = Expected {
            max_bytes: 1 << 30,
            size: Some(length as u64),
            sha256: Some(Sha256::digest(&whole).into()),
        };
        let stored = store
            .put(id, pieces(&whole), expected)
            .await
            .expect("stored");
        assert_eq!(stored.size, length as u64);
        assert_eq!(store.size(id).await.expect("a size"), length as u64);
        assert!(read(&store, id, 0).await.expect("the whole") == whole);
        let offset = (length as u64).saturating_sub(3);
        assert_eq!(
            read(&store, id, offset).await.expect("the end"),
            whole[offset as usize..]
        );
        store.delete(id).await.expect("deleted");
        store.delete(id).await.expect("deleted twice");
        for code in [
            store.size(id).await.expect_err("gone").code(),
            read(&store, id, 0).await.expect_err("gone").code(),
        ] {
            assert_eq!(code, Code::FileNotFound);
        }
    }
    let id = FileId::new();
    for text in [&b"first"[..], b"second"] {
        store.put_bytes(id, text.into()).await.expect("stored");
        assert_eq!(read(&store, id, 0).await.expect("read"), text);
    }
    assert_eq!(unfinished(&config).await, 0);
}

#[tokio::test]
async fn an_upload_to_a_bucket_that_breaks_off_leaves_nothing() {
    let config = bucket_config();
    let store = FileStore::open(&config).expect("a store");
    let whole = content(11 * MIB);
    let broken = pieces(&whole).try_filter_map({
        let mut left = 10 * MIB;
        move |piece| {
            left = left.saturating_sub(piece.len());
            let piece = if left > 0 {
                Ok(Some(piece))
            } else {
                Err(Error::new(Code::Cancelled, "the caller went away"))
            };
            async move { piece }
        }
    });
    let error = store
        .put(FileId::new(), broken, Expected::at_most(1 << 30))
        .await
        .expect_err("broken off");
    assert_eq!(error.code(), Code::Cancelled);
    let wrong = Expected {
        sha256: Some([7; 32]),
        ..Expected::at_most(1 << 30)
    };
    let error = store
        .put(FileId::new(), pieces(&whole), wrong)
        .await
        .expect_err("refused");
    assert_eq!(error.code(), Code::ChecksumMismatch);
    assert_eq!(unfinished(&config).await, 0);
    let found = all(&mut store.walk(), 1000).await;
    assert!(found.is_empty(), "{found:?}");

    // A writer that is dropped in the middle, as with its task, is taken back as well.
    let (started, seen) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let endless = pieces(&whole).try_filter_map(move |piece| {
        let started = started.take();
        async move {
            if let Some(started) = started {
                let _ = started.send(());
            }
            Ok(Some(piece))
        }
    });
    let endless = futures::StreamExt::chain(endless, futures::stream::pending());
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            let limit = Expected::at_most(1 << 30);
            store.put(FileId::new(), endless, limit).await
        }
    });
    seen.await.expect("begun");
    until("the parts are there", async || {
        unfinished(&config).await == 1
    })
    .await;
    writing.abort();
    until("the parts are gone", async || {
        unfinished(&config).await == 0
    })
    .await;
}

async fn until(what: &str, fact: impl AsyncFn() -> bool) {
    let look = async {
        while !fact().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), look)
        .await
        .unwrap_or_else(|_| panic!("{what}: not in time"));
}

/// A whole walk in pages.
async fn all(walk: &mut Walk, page: usize) -> Vec<Found> {
    let mut found = Vec::new();
    loop {
        let next = walk.next(page).await.expect("a page");
        assert!(next.found.len() <= page);
        found.extend(next.found);
        if next.ended {
            return found;
        }
    }
}

fn ids(found: &[Found]) -> Vec<FileId> {
    let mut ids: Vec<_> = found.iter().map(|found| found.file_id).collect();
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn a_walk_sees_all_of_a_store_in_pages_and_removes_what_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let outside = tempfile::tempdir().expect("another folder");
    let local = FileStore::local(folder.path()).expect("a store");
    let bucket = FileStore::open(&bucket_config()).expect("a store");
    for store in [local, bucket] {
        let mut wanted = Vec::new();
        for _ in 0..7 {
            let id = FileId::new();
            store
                .put_bytes(id, Bytes::from_static(b"abc"))
                .await
                .expect("stored");
            wanted.push(id);
        }
        wanted.sort_unstable();
        let mut walk = store.walk();
        for page in [3, 7, 1000] {
            let found = all(&mut walk, page).await;
            assert_eq!(ids(&found), wanted, "{store:?}, pages of {page}");
            assert!(found.iter().all(|it| it.size == 3 && !it.is_staged()));
        }
        let found = all(&mut walk, 1000).await;
        walk.remove(&found[0]).await.expect("removed");
        walk.remove(&found[0]).await.expect("removed twice");
        let rest = all(&mut walk, 1000).await;
        assert_eq!(rest.len(), 6);
        assert!(!ids(&rest).contains(&found[0].file_id));
    }

    // What others have put into the folder is not ours: links are not followed.
    let (stranger, staged) = (FileId::new(), FileId::new());
    std::fs::write(outside.path().join(stranger.to_string()), "secret").expect("written");
    let at = |name: &str| folder.path().join(name);
    std::os::unix::fs::symlink(outside.path(), at("link")).expect("a link");
    let target = outside.path().join(stranger.to_string());
    std::os::unix::fs::symlink(&target, at(&stranger.to_string())).expect("a link");
    std::fs::create_dir(at(&FileId::new().to_string())).expect("a folder");
    std::fs::write(at("notes.txt"), "mine").expect("written");
    std::fs::write(at(&format!("{staged}#1")), "half").expect("written");
    let hour_ago = SystemTime::now() - Duration::from_hours(1);
    std::fs::File::options()
        .write(true)
        .open(at(&format!("{staged}#1")))
        .and_then(|file| file.set_modified(hour_ago))
        .expect("made old");
    let store = FileStore::local(folder.path()).expect("a store");
    let mut walk = store.walk();
    let found = all(&mut walk, 1000).await;
    assert_eq!(found.len(), 7, "{found:?}");
    assert!(!ids(&found).contains(&stranger));
    let half = found
        .iter()
        .find(|it| it.is_staged())
        .expect("what is staged");
    assert_eq!((half.file_id, half.size), (staged, 4));
    assert_eq!(
        half.modified,
        chrono::DateTime::<chrono::Utc>::from(hour_ago)
    );
    walk.remove(half).await.expect("removed");
    assert!(!at(&format!("{staged}#1")).exists());
    assert!(target.exists() && at("notes.txt").exists());
}
