//! The object store: the content of files, each under its `file_id`.
//!
//! Content appears whole or not at all: in a folder it is staged, flushed to the disk,
//! and then renamed; in a bucket its parts are put together by one call. Its description
//! goes into the database afterwards ([`crate::storage::files`]), so a row never names
//! content that is not there. Content that a crash leaves without a row is found again by
//! a [`Walk`].

mod folder;
pub(crate) mod s3;
mod sniff;
mod store_error;
mod walk;
mod write;

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use sha2::{Digest, Sha256};

use self::folder::Folder;
use self::sniff::Head;
use self::store_error::store_error;
pub use self::walk::{Found, Page, Walk};
use self::write::Writer;
use crate::config::FilesConfig;
use crate::domain::ids::FileId;
use crate::error::{Code, Error, Result};

/// The bytes that are read at once; a reader's stream has pieces of up to this size.
pub const READ_BLOCK: u64 = 512 * 1024;

/// The bytes that are written at once to a folder.
const FOLDER_PART: usize = 1024 * 1024;

/// The longest that one step on the store may take; longer than a bucket's own retries.
const STEP_TIMEOUT: Duration = Duration::from_secs(45);

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
    /// The media type that its first bytes look like; `None`: unknown.
    pub detected_type: Option<&'static str>,
}

/// The object store: a folder, or a bucket. Cheap to clone.
#[derive(Clone)]
pub struct FileStore {
    objects: Arc<dyn ObjectStore>,
    /// What stands before each id in a bucket.
    prefix: ObjectPath,
    /// The bytes of one write.
    part_bytes: usize,
    /// Where the store is a folder: it is read past `objects`, which would follow links.
    folder: Option<Folder>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.objects)
    }
}

impl FileStore {
    /// The store that the configuration names: the folder `files.root`, or the bucket
    /// `files.url`. A bucket is not contacted here.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where there is none or both, or it cannot be used.
    pub fn open(config: &FilesConfig) -> Result<Self> {
        match (config.root.as_os_str().is_empty(), config.url.is_empty()) {
            (false, true) => Self::local(&config.root),
            (true, false) => s3::open(config),
            _ => Err(Error::new(
                Code::ConfigInvalid,
                "exactly one of files.root and files.url must be set",
            )),
        }
    }

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
        let folder = Folder::new(root).map_err(|error| failed(error.into()))?;
        Ok(Self {
            objects: Arc::new(objects),
            prefix: ObjectPath::default(),
            part_bytes: FOLDER_PART,
            folder: Some(folder),
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
        let mut writer = Writer::new(Arc::clone(&self.objects), self.path(id), self.part_bytes);
        let received = match receive(&mut writer, content, expected).await {
            Ok(stored) => writer.finish().await.map(|()| stored),
            Err(error) => Err(error),
        };
        if received.is_err() {
            writer.abort().await;
            if let Some(folder) = &self.folder {
                folder.forget(id).await;
            }
        }
        received
    }

    /// Stores content that is at hand, in place of what is there.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORAGE_FULL`.
    pub async fn put_bytes(&self, id: FileId, content: Bytes) -> Result<Stored> {
        let mut head = Head::default();
        head.feed(&content);
        let stored = Stored {
            size: content.len() as u64,
            sha256: Sha256::digest(&content).into(),
            detected_type: head.detect(),
        };
        step(self.objects.put(&self.path(id), content.into())).await?;
        Ok(stored)
    }

    /// The size of stored content in bytes.
    ///
    /// # Errors
    /// `FILE_NOT_FOUND`, `STORE_UNAVAILABLE`; `INVALID_ARGUMENT` where something else
    /// than a plain file lies in the content's place.
    pub async fn size(&self, id: FileId) -> Result<u64> {
        match &self.folder {
            Some(folder) => Ok(within(folder.open(id)).await?.size),
            None => Ok(step(self.objects.head(&self.path(id))).await?.size),
        }
    }

    /// Streams content from a byte offset to the end, in pieces of up to
    /// [`READ_BLOCK`] bytes.
    ///
    /// # Errors
    /// Those of [`FileStore::size`]; the same from the stream.
    pub async fn read(&self, id: FileId, offset: u64) -> Result<BoxStream<'static, Result<Bytes>>> {
        if let Some(folder) = &self.folder {
            let file = within(folder.open(id)).await?;
            let blocks = futures::stream::try_unfold(offset, move |at| {
                let file = file.clone();
                async move {
                    if at >= file.size {
                        return Ok(None);
                    }
                    let length = READ_BLOCK.min(file.size - at);
                    let block = within(file.read(at, length as usize)).await?;
                    next_block(id, at, block)
                }
            });
            return Ok(blocks.boxed());
        }
        let size = self.size(id).await?;
        let (objects, path) = (Arc::clone(&self.objects), self.path(id));
        let blocks = futures::stream::try_unfold(offset, move |at| {
            let (objects, path) = (Arc::clone(&objects), path.clone());
            async move {
                if at >= size {
                    return Ok(None);
                }
                let end = size.min(at + READ_BLOCK);
                let block = step(objects.get_range(&path, at..end)).await?;
                next_block(id, at, block)
            }
        });
        Ok(blocks.boxed())
    }

    /// Removes content. Content that is not there is no error.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`.
    pub async fn delete(&self, id: FileId) -> Result<()> {
        match step(self.objects.delete(&self.path(id))).await {
            Err(error) if error.code() != Code::FileNotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A walk over all that the store holds.
    pub fn walk(&self) -> Walk {
        Walk::new(self.clone())
    }

    fn path(&self, id: FileId) -> ObjectPath {
        self.prefix.clone().join(id.to_string())
    }
}

/// The state after a block of content that must not be empty.
fn next_block(id: FileId, at: u64, block: Bytes) -> Result<Option<(Bytes, u64)>> {
    if block.is_empty() {
        return Err(Error::new(
            Code::StoreUnavailable,
            format!("the content of file {id} ends early"),
        ));
    }
    let next = at + block.len() as u64;
    Ok(Some((block, next)))
}

/// Writes a stream, counting and hashing.
async fn receive<S>(writer: &mut Writer, content: S, expected: Expected) -> Result<Stored>
where
    S: Stream<Item = Result<Bytes>> + Send,
{
    let mut content = pin!(content);
    let mut hash = Sha256::new();
    let mut head = Head::default();
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
        head.feed(&chunk);
        writer.put(chunk).await?;
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
    Ok(Stored {
        size,
        sha256,
        detected_type: head.detect(),
    })
}

/// One step on the store, bounded in time.
async fn step<T>(work: impl Future<Output = object_store::Result<T>>) -> Result<T> {
    within(async { work.await.map_err(store_error) }).await
}

/// Work on the store, bounded in time.
async fn within<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(STEP_TIMEOUT, work)
        .await
        .unwrap_or_else(|_| {
            Err(Error::new(
                Code::StoreUnavailable,
                format!(
                    "the object store did not answer within {} s",
                    STEP_TIMEOUT.as_secs()
                ),
            ))
        })
}

#[cfg(test)]
mod tests;
