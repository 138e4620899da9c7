//! The object store: the content of files, each under its `file_id`.
//!
//! Content appears whole or not at all: it is staged, flushed to the disk, and then
//! renamed. Its description goes into the database afterwards
//! ([`crate::storage::files`]), so a row never names content that is not there.

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};
use sha2::{Digest, Sha256};

use crate::domain::ids::FileId;
use crate::error::{Code, Error, Result};

/// The bytes that are read at once; a reader's stream has pieces of up to this size.
pub const READ_BLOCK: u64 = 512 * 1024;

/// The bytes that are written at once.
const WRITE_BLOCK: usize = 1024 * 1024;

/// The longest that one step on the store may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// What a caller says of content before it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The most bytes that are taken.
    pub max_bytes: u64,
    /// The exact size, where it was announced.
    pub size: Option<u64>,
    /// SHA-256 of the content, where it was announced.
    pub sha256: Option<[u8; 32]>,
}

impl Expected {
    /// Nothing is known but a limit.
    pub fn at_most(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            size: None,
            sha256: None,
        }
    }
}

/// Content that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The size in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: [u8; 32],
}

/// The object store. Cheap to clone.
#[derive(Clone)]
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.objects)
    }
}

impl FileStore {
    /// A store in a local folder, which is made where it is missing. Several
    /// processes may share it.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where the folder cannot be made or opened.
    pub fn local(root: &Path) -> Result<Self> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(
                Code::ConfigInvalid,
                format!("files.root: the folder {} cannot be used", root.display()),
            )
            .with_source(error)
        };
        std::fs::create_dir_all(root).map_err(|error| failed(error.into()))?;
        let objects = LocalFileSystem::new_with_prefix(root)
            .map_err(|error| failed(error.into()))?
            .with_fsync(true);
        Ok(Self {
            objects: Arc::new(objects),
        })
    }

    /// Stores content as it comes in, and checks it on the way. Content that breaks
    /// a rule, or whose stream fails, leaves nothing.
    ///
    /// # Errors
    /// `FILE_TOO_LARGE`, `SIZE_MISMATCH`, `CHECKSUM_MISMATCH`, `STORE_UNAVAILABLE`,
    /// `STORAGE_FULL`, or the stream's own error.
    pub async fn put<S>(&self, id: FileId, content: S, expected: Expected) -> Result<Stored>
    where
        S: Stream<Item = Result<Bytes>> + Send,
    {
        let upload = step(self.objects.put_multipart(&path(id))).await?;
        let mut writer = WriteMultipart::new_with_chunk_size(upload, WRITE_BLOCK);
        match receive(&mut writer, content, expected).await {
            Ok(stored) => {
                step(writer.finish()).await?;
                Ok(stored)
            }
            Err(error) => {
                // Best effort: what stays behind is a staging file without a name.
                let _ = step(writer.abort()).await;
                Err(error)
            }
        }
    }

    /// Stores content that is at hand, in place of what is there.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORAGE_FULL`.
    pub async fn put_bytes(&self, id: FileId, content: Bytes) -> Result<Stored> {
        let stored = Stored {
            size: content.len() as u64,
            sha256: Sha256::digest(&content).into(),
        };
        step(self.objects.put(&path(id), content.into())).await?;
        Ok(stored)
    }

    /// The size of stored content in bytes.
    ///
    /// # Errors
    /// `FILE_NOT_FOUND`, `STORE_UNAVAILABLE`.
    pub async fn size(&self, id: FileId) -> Result<u64> {
        Ok(step(self.objects.head(&path(id))).await?.size)
    }

    /// Streams content from a byte offset to the end, in pieces of up to
    /// [`READ_BLOCK`] bytes.
    ///
    /// # Errors
    /// `FILE_NOT_FOUND`, `STORE_UNAVAILABLE`; the same from the stream.
    pub async fn read(&self, id: FileId, offset: u64) -> Result<BoxStream<'static, Result<Bytes>>> {
        let size = self.size(id).await?;
        let objects = Arc::clone(&self.objects);
        let blocks = futures::stream::try_unfold(offset, move |at| {
            let objects = Arc::clone(&objects);
            async move {
                if at >= size {
                    return Ok(None);
                }
                let end = size.min(at + READ_BLOCK);
                let block = step(objects.get_range(&path(id), at..end)).await?;
                if block.is_empty() {
                    return Err(Error::new(
                        Code::StoreUnavailable,
                        format!("the content of file {id} ends early"),
                    ));
                }
                let next = at + block.len() as u64;
                Ok(Some((block, next)))
            }
        });
        Ok(blocks.boxed())
    }

    /// Removes content. Content that is not there is no error.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn delete(&self, id: FileId) -> Result<()> {
        match step(self.objects.delete(&path(id))).await {
            Err(error) if error.code() != Code::FileNotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Writes a stream, counting and hashing.
async fn receive<S>(writer: &mut WriteMultipart, content: S, expected: Expected) -> Result<Stored>
where
    S: Stream<Item = Result<Bytes>> + Send,
{
    let mut content = pin!(content);
    let mut hash = Sha256::new();
    let mut size = 0_u64;
    let limit = expected
        .size
        .unwrap_or(expected.max_bytes)
        .min(expected.max_bytes);
    while let Some(chunk) = content.try_next().await? {
        size += chunk.len() as u64;
        if size > limit {
            return Err(match expected.size {
                Some(announced) if announced <= expected.max_bytes => Error::new(
                    Code::SizeMismatch,
                    format!("more bytes were sent than the {announced} that were announced"),
                ),
                _ => Error::new(
                    Code::FileTooLarge,
                    format!(
                        "the file is larger than the limit of {} bytes",
                        expected.max_bytes
                    ),
                ),
            });
        }
        hash.update(&chunk);
        step(writer.wait_for_capacity(2)).await?;
        writer.put(chunk);
    }
    if let Some(announced) = expected.size.filter(|announced| *announced != size) {
        return Err(Error::new(
            Code::SizeMismatch,
            format!("{size} bytes were sent and {announced} were announced"),
        ));
    }
    let sha256: [u8; 32] = hash.finalize().into();
    if expected.sha256.is_some_and(|announced| announced != sha256) {
        return Err(Error::new(
            Code::ChecksumMismatch,
            format!(
                "the content's SHA-256 is {}, not the one that was announced",
                hex::encode(sha256)
            ),
        ));
    }
    Ok(Stored { size, sha256 })
}

fn path(id: FileId) -> ObjectPath {
    ObjectPath::from(id.to_string())
}

/// One step on the store, bounded in time.
async fn step<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T> {
    match tokio::time::timeout(STEP_TIMEOUT, work).await {
        Ok(result) => result.map_err(store_error),
        Err(_) => Err(Error::new(
            Code::StoreUnavailable,
            format!(
                "the object store did not answer within {} s",
                STEP_TIMEOUT.as_secs()
            ),
        )),
    }
}

fn store_error(error: object_store::Error) -> Error {
    if let object_store::Error::NotFound { path, .. } = &error {
        // The last part only: the id. The rest would tell where the store is.
        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
        return Error::new(
            Code::FileNotFound,
            format!("file {id} is not in the object store"),
        )
        .with_source(error);
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<std::io::Error>()
            && matches!(
                io.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            )
        {
            return Error::new(Code::StorageFull, "the object store has no room left")
                .with_source(error);
        }
        cause = inner.source();
    }
    Error::new(Code::StoreUnavailable, "the object store failed").with_source(error)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(stored, Stored { size: 6, sha256 });
        std::fs::remove_dir_all(root).expect("cleaned");
    }
}
