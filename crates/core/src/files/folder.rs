//! Reading a store that is a folder.
//!
//! Whoever may write to the folder could put a link, a pipe or a folder where content
//! belongs. Content is opened once, without following a link and without waiting for a
//! pipe's other end, and what was opened is looked at, not what its name leads to.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::store_error::io_error;
use crate::domain::ids::FileId;
use crate::error::{Code, Error, Result};

/// The folder. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: Arc<PathBuf>,
}

/// Content that is open. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Content {
    file: Arc<File>,
    /// Its size when it was opened.
    pub(super) size: u64,
}

impl Folder {
    /// The folder at this path.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(root.canonicalize()?),
        })
    }

    /// The folder's path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Opens content.
    pub(super) async fn open(&self, id: FileId) -> Result<Content> {
        let path = self.root.join(id.to_string());
        blocking(move || {
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = File::options()
                .read(true)
                .custom_flags(flags.bits() as i32)
                .open(&path);
            let file = match opened {
                Ok(file) => file,
                Err(error) => {
                    return Err(match Errno::from_io_error(&error) {
                        // A link; a socket or a device without its other end.
                        Some(Errno::LOOP | Errno::NXIO | Errno::NODEV) => not_plain(id),
                        _ => io_error(id, error),
                    });
                }
            };
            let found = file.metadata().map_err(|error| io_error(id, error))?;
            if !found.is_file() {
                return Err(not_plain(id));
            }
            Ok(Content {
                file: Arc::new(file),
                size: found.len(),
            })
        })
        .await
    }

    /// Removes what a write that failed at its very end has staged. Best effort: the
    /// sweeper finds what stays.
    pub(super) async fn forget(&self, id: FileId) {
        let path = self.root.join(format!("{id}#1"));
        let _ = blocking(move || {
            let _ = std::fs::remove_file(path);
            Ok(())
        })
        .await;
    }
}

impl Content {
    /// Up to `length` bytes from an offset; fewer only at the end.
    pub(super) async fn read(&self, at: u64, length: usize) -> Result<Bytes> {
        let file = Arc::clone(&self.file);
        blocking(move || {
            let mut block = vec![0; length];
            let mut filled = 0;
            while filled < length {
                match file.read_at(&mut block[filled..], at + filled as u64) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        return Err(Error::new(
                            Code::StoreUnavailable,
                            "the object store cannot be read",
                        )
                        .with_source(error));
                    }
                }
            }
            block.truncate(filled);
            Ok(block.into())
        })
        .await
    }
}

/// Runs work on the disk beside the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::new(Code::Internal, "work on the object store broke off").with_source(error)
    })?
}

fn not_plain(id: FileId) -> Error {
    Error::invalid(
        "file_id",
        format!("what the object store holds for {id} is not a plain file; it is not read"),
    )
}
