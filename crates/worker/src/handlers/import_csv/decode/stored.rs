//! A stored file as `Read` and `Seek`, for a thread that may wait.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use tenure_core::domain::ids::FileId;
use tenure_core::error::{Code, Error};
use tenure_core::files::{FileStore, READ_BLOCK};
use tokio::runtime::Handle;

/// The object store failed: not the content's fault.
#[derive(Debug)]
pub(super) struct StoreFailed {
    code: Code,
    message: String,
}

impl StoreFailed {
    /// As an error of ours.
    pub(super) fn error(&self) -> Error {
        Error::new(self.code, self.message.clone())
    }
}

impl std::fmt::Display for StoreFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreFailed {}

fn failed(error: Error) -> io::Error {
    io::Error::other(StoreFailed {
        code: error.code(),
        message: error.message().to_owned(),
    })
}

/// The content of a file. Each wait is bounded by the store; one block is held.
pub(super) struct Stored {
    runtime: Handle,
    files: FileStore,
    id: FileId,
    size: u64,
    at: u64,
    block: Bytes,
    block_at: u64,
    blocks: Option<BoxStream<'static, Result<Bytes, Error>>>,
}

impl Stored {
    /// The file of this size.
    pub(super) fn new(runtime: Handle, files: FileStore, id: FileId, size: u64) -> Self {
        Self {
            runtime,
            files,
            id,
            size,
            at: 0,
            block: Bytes::new(),
            block_at: 0,
            blocks: None,
        }
    }

    fn has(&self, at: u64) -> bool {
        (self.block_at..self.block_at + self.block.len() as u64).contains(&at)
    }

    /// Makes `block` the one with the byte at `at`.
    fn fetch(&mut self) -> io::Result<()> {
        let end = self.block_at + self.block.len() as u64;
        // Given back before the next is taken.
        self.block = Bytes::new();
        self.block_at = end;
        if self.blocks.is_none() || self.at != end {
            // Near the end one block is the whole rest: archives are searched backwards.
            let from = self.at.min(self.size.saturating_sub(READ_BLOCK));
            let opened = self.runtime.block_on(self.files.read(self.id, from));
            self.blocks = Some(opened.map_err(failed)?);
            self.block_at = from;
        }
        while !self.has(self.at) {
            let blocks = self.blocks.as_mut().expect("opened above");
            let next = self.runtime.block_on(blocks.try_next()).map_err(failed)?;
            let Some(block) = next else {
                return Err(failed(Error::new(
                    Code::StoreUnavailable,
                    format!("the content of file {} ends early", self.id),
                )));
            };
            self.block_at += self.block.len() as u64;
            self.block = block;
        }
        Ok(())
    }
}

impl BufRead for Stored {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.size {
            return Ok(&[]);
        }
        if !self.has(self.at) {
            self.fetch()?;
        }
        Ok(&self.block[(self.at - self.block_at) as usize..])
    }

    fn consume(&mut self, amount: usize) {
        self.at += amount as u64;
    }
}

impl Read for Stored {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl Seek for Stored {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
