//! The store in a folder.

use super::*;

fn folder() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("tenure-files-{}", FileId::new()))
}

fn chunks(parts: &[&'static [u8]]) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
    let parts: Vec<_> = parts
        .iter()
        .map(|part| Ok(Bytes::from_static(part)))
        .collect();
    futures::stream::iter(parts)
}

async fn content(store: &FileStore, id: FileId, offset: u64) -> Result<Vec<u8>> {
    let pieces: Vec<Bytes> = store.read(id, offset).await?.try_collect().await?;
    Ok(pieces.concat())
}

#[tokio::test]
async fn content_comes_back_whole_and_from_an_offset() {
    let root = folder();
    let store = FileStore::local(&root).expect("a store");
    let id = FileId::new();
    let block = vec![7_u8; 700_000];
    let parts = vec![
        Ok(Bytes::from(block.clone())),
        Ok(Bytes::from_static(b"end")),
    ];
    let stored = store
        .put(
            id,
            futures::stream::iter(parts),
            Expected::at_most(1_000_000),
        )
        .await
        .expect("stored");
    assert_eq!(stored.size, 700_003);
    assert_eq!(store.size(id).await.expect("a size"), 700_003);
    assert_eq!(content(&store, id, 700_000).await.expect("the end"), b"end");
    let whole = content(&store, id, 0).await.expect("the whole");
    assert_eq!(<[u8; 32]>::from(Sha256::digest(&whole)), stored.sha256);
    store.delete(id).await.expect("deleted");
    store.delete(id).await.expect("deleted twice");
    let gone = content(&store, id, 0).await.expect_err("gone");
    assert_eq!(gone.code(), Code::FileNotFound);
    std::fs::remove_dir_all(root).expect("cleaned");
}

#[tokio::test]
async fn content_that_breaks_a_rule_leaves_nothing() {
    let root = folder();
    let store = FileStore::local(&root).expect("a store");
    let sha256: [u8; 32] = Sha256::digest(b"abcdef").into();
    let exact = |size, sha256| Expected {
        max_bytes: 6,
        size: Some(size),
        sha256: Some(sha256),
    };
    let cases = [
        (Expected::at_most(5), Code::FileTooLarge),
        (exact(7, sha256), Code::FileTooLarge),
        (exact(5, sha256), Code::SizeMismatch),
        (exact(6, [0; 32]), Code::ChecksumMismatch),
    ];
    for (expected, code) in cases {
        let more: &[&'static [u8]] = &[b"abc", b"def", b"g"];
        let parts = if code == Code::FileTooLarge {
            more
        } else {
            &more[..2]
        };
        let error = store
            .put(FileId::new(), chunks(parts), expected)
            .await
            .expect_err("refused");
        assert_eq!(error.code(), code);
    }
    let failing = futures::stream::iter(vec![
        Ok(Bytes::from_static(b"abc")),
        Err(Error::new(Code::DeadlineExceeded, "the client went away")),
    ]);
    let error = store
        .put(FileId::new(), failing, Expected::at_most(100))
        .await
        .expect_err("broken off");
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert_eq!(std::fs::read_dir(&root).expect("a folder").count(), 0);
    let stored = store
        .put(FileId::new(), chunks(&[b"abc", b"def"]), exact(6, sha256))
        .await
        .expect("stored");
    assert_eq!((stored.size, stored.sha256), (6, sha256));
    assert_eq!(stored.detected_type, Some("text/plain"));
    std::fs::remove_dir_all(root).expect("cleaned");
}
