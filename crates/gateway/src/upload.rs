//! Taking uploads in: the header, the content, then the description.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_core::domain::ids::{FileId, UserId, check_text};
use tenure_core::files::{Expected, FileStore};
use tenure_core::storage::Store;
use tenure_core::storage::files::uploads::{self, Announced, UploadRules};
use tenure_core::storage::files::{FileKind, FileRow, NewFile};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use v1::upload_file_request::{Header, Part};

use crate::call::Caller;
use crate::fields::Findings;
use crate::upload_places::Places;

/// The most content of one message of an upload.
const MAX_CHUNK: usize = 1024 * 1024;
/// How often the description of a stored file is written before the upload fails.
const INSERT_TRIES: u32 = 4;
/// The pause after the first failed write; it doubles.
const INSERT_PAUSE: Duration = Duration::from_millis(100);
/// A caller that sends less than this in a second, over the time of
/// `files.upload_idle_timeout`, holds a place for nothing.
const MIN_RATE: f64 = 1024.0;
/// The media type of a file that names none.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// Where files go, and the limits.
pub(crate) struct Storage {
    /// The descriptions.
    pub(crate) store: Store,
    /// The content.
    pub(crate) objects: FileStore,
    /// The largest file.
    pub(crate) max_bytes: u64,
    /// What one user may have, and for how long.
    pub(crate) rules: UploadRules,
    /// An upload that sends nothing for so long ends.
    pub(crate) idle: Duration,
}

/// An upload whose header was checked.
#[derive(Debug)]
struct Wanted {
    user_id: UserId,
    name: String,
    content_type: String,
    expected: Expected,
    /// The user's room, where that is what bounds the upload.
    room: Option<u64>,
}

/// What the call hands to the task that stores.
enum Piece {
    Content(Bytes),
    /// The caller was there until the end of its stream.
    End,
}

/// Takes an upload in: the call reads, and a task of its own stores.
///
/// A caller that cancels ends its stream just like one that has sent everything; only,
/// its call is dropped. So the call itself says that the end was reached, and a task
/// that does not hear it stores nothing.
///
/// # Errors
/// What is wrong with the upload, `DEADLINE_EXCEEDED` where nothing was sent for too
/// long, or why it could not be stored.
pub(crate) async fn receive(
    storage: &Arc<Storage>,
    places: &Places,
    caller: &Caller,
    mut parts: Streaming<v1::UploadFileRequest>,
) -> Result<FileRow> {
    let header = match next_part(&mut parts, storage.idle).await? {
        Some(Part::Header(header)) => header,
        Some(Part::Chunk(_)) => return Err(Error::invalid("header", "must be the first message")),
        None => return Err(Error::invalid("header", "is required; the stream is empty")),
    };
    let mut wanted = check_header(header, caller, storage.max_bytes)?;
    let _place = places.take(&wanted.user_id)?;
    if let Some(size) = wanted.expected.size {
        let announced = Announced {
            user_id: &wanted.user_id,
            name: &wanted.name,
            content_type: &wanted.content_type,
            size,
            sha256: wanted.expected.sha256,
        };
        uploads::check_room(&storage.store, announced, storage.rules).await?;
    } else {
        // Not announced, it is taken until the user's room is full.
        let room = uploads::room(&storage.store, &wanted.user_id, storage.rules).await?;
        if room < wanted.expected.max_bytes {
            wanted.expected.max_bytes = room;
            wanted.room = Some(room);
        }
    }
    let (pieces, content) = mpsc::channel(1);
    let task = {
        let storage = storage.clone();
        tokio::spawn(async move { storage.store(wanted, content).await })
    };
    let mut pace = Pace::default();
    loop {
        let asked = tokio::time::Instant::now();
        let part = next_part(&mut parts, storage.idle).await?;
        let bytes = match &part {
            Some(Part::Chunk(chunk)) => chunk.len(),
            _ => 0,
        };
        // Only the time that the caller took: the store may be slow, too.
        pace.note(asked.elapsed(), bytes, storage.idle)?;
        let piece = match part {
            Some(Part::Chunk(chunk)) if chunk.len() > MAX_CHUNK => return Err(too_long()),
            Some(Part::Chunk(chunk)) => Piece::Content(chunk),
            Some(Part::Header(_)) => {
                return Err(Error::invalid("header", "must be the first message only"));
            }
            None => {
                // Where the stream ended by a cancel, this call is dropped here: the port
                // looks for one whenever a call waits.
                tokio::task::yield_now().await;
                Piece::End
            }
        };
        let is_end = matches!(piece, Piece::End);
        // Where the task has ended already, it says why.
        if pieces.send(piece).await.is_err() || is_end {
            break;
        }
    }
    task.await
        .map_err(|e| Error::new(Code::Internal, "the upload broke off").with_source(e))?
}

/// How fast the caller sends.
#[derive(Debug, Default)]
struct Pace {
    waited: Duration,
    bytes: usize,
}

impl Pace {
    /// Notes what came after a wait; once that adds up to `window`, enough must have come.
    fn note(&mut self, waited: Duration, bytes: usize, window: Duration) -> Result<()> {
        self.waited += waited;
        self.bytes += bytes;
        if self.waited < window {
            return Ok(());
        }
        if (self.bytes as f64) < MIN_RATE * window.as_secs_f64() {
            return Err(Error::new(
                Code::DeadlineExceeded,
                format!(
                    "{} bytes came in {} s; an upload must send {MIN_RATE} bytes a second; upload again",
                    self.bytes,
                    self.waited.as_secs()
                ),
            ));
        }
        *self = Self::default();
        Ok(())
    }
}

impl Storage {
    /// Stores the content, then its description. What fails leaves neither.
    async fn store(&self, wanted: Wanted, pieces: mpsc::Receiver<Piece>) -> Result<FileRow> {
        let content = futures::stream::try_unfold(pieces, |mut pieces| async move {
            match pieces.recv().await {
                Some(Piece::Content(chunk)) => Ok(Some((chunk, pieces))),
                Some(Piece::End) => Ok(None),
                None => Err(broken_off()),
            }
        });
        let file_id = FileId::new();
        let stored = self
            .objects
            .put(file_id, content, wanted.expected)
            .await
            .map_err(|error| match wanted.room {
                Some(room) if error.code() == Code::FileTooLarge => Error::new(
                    Code::FileQuotaExceeded,
                    format!(
                        "the file has more than {room} bytes, and the uploads of this user may take {} in all; delete \
                         uploads that are needed no more, or wait until they expire",
                        self.rules.max_user_bytes
                    ),
                ),
                _ => error,
            })?;
        let file = NewFile {
            file_id,
            user_id: wanted.user_id,
            name: wanted.name,
            content_type: wanted.content_type,
            size_bytes: i64::try_from(stored.size).unwrap_or(i64::MAX),
            sha256: stored.sha256,
            kind: FileKind::Upload,
            job_id: None,
            // By the database's clock.
            expires_at: None,
        };
        let described = self.describe(&file, stored.detected_type).await;
        // Where the outcome of the write is not known the description may be there: then
        // the content must be, too, and the sweeper finds it where it is not.
        let unwanted = match &described {
            Ok(row) => row.file.file_id != file_id,
            Err(error) => !error.is_temporary(),
        };
        if unwanted && let Err(error) = self.objects.delete(file_id).await {
            tracing::warn!(%file_id, error = &error as &dyn std::error::Error, "content without a description stays");
        }
        described
    }

    /// Writes the description, or finds that of the same upload from before. Again where
    /// the database is away for a moment: the caller would have to send everything again.
    async fn describe(&self, file: &NewFile, detected_type: Option<&str>) -> Result<FileRow> {
        let mut pause = INSERT_PAUSE;
        let mut tries = 1;
        loop {
            match uploads::insert(&self.store, file, detected_type, self.rules).await {
                Err(error) if error.is_temporary() && tries < INSERT_TRIES => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    tries += 1;
                }
                result => return result,
            }
        }
    }
}

/// The next message of an upload; `None`: the caller has sent everything.
async fn next_part(
    parts: &mut Streaming<v1::UploadFileRequest>,
    idle: Duration,
) -> Result<Option<Part>> {
    let message = tokio::time::timeout(idle, parts.message())
        .await
        .map_err(|_| {
            Error::new(
                Code::DeadlineExceeded,
                format!("nothing was sent for {} s; upload again", idle.as_secs()),
            )
        })?
        .map_err(broken)?;
    match message {
        None => Ok(None),
        Some(message) => message.part.map(Some).ok_or_else(|| {
            Error::invalid(
                "part",
                "must be a header or a chunk; the message has neither",
            )
        }),
    }
}

/// Why a message could not be read.
fn broken(status: Status) -> Error {
    match status.code() {
        // What tonic says of a message that is too long, and of one that is no message.
        tonic::Code::OutOfRange => too_long(),
        tonic::Code::Internal => Error::invalid("part", "is not a readable message"),
        _ => broken_off(),
    }
}

fn broken_off() -> Error {
    Error::new(Code::Cancelled, "the upload broke off before its end")
}

fn too_long() -> Error {
    Error::invalid(
        "chunk",
        format!("must be at most {MAX_CHUNK} bytes in one message"),
    )
}

fn check_header(header: Header, caller: &Caller, max_bytes: u64) -> Result<Wanted> {
    let (user_id, _) = caller.acting_for("header.user_id", &header.user_id)?;
    check_upload(header, user_id, max_bytes)
}

fn check_upload(header: Header, user_id: UserId, max_bytes: u64) -> Result<Wanted> {
    let mut findings = Findings::default();
    findings.check("header.name", check_text(&header.name));
    let content_type = findings
        .optional_text("header.content_type", header.content_type)
        .unwrap_or_else(|| DEFAULT_TYPE.to_owned());
    // It is sent back to browsers: nothing that could end a header line or be misread.
    let graphic = |b: u8| b.is_ascii_graphic() || b == b' ';
    if !content_type.contains('/') || !content_type.bytes().all(graphic) {
        findings.add(
            "header.content_type",
            "must be a media type such as `text/csv`",
        );
    }
    let size = match u64::try_from(header.size_bytes) {
        Err(_) => {
            findings.add(
                "header.size_bytes",
                "must not be negative; 0 where it is not known",
            );
            None
        }
        Ok(size) if size > max_bytes => {
            let why = format!("is {size}; files may have {max_bytes} bytes at most");
            findings.add_as(Code::FileTooLarge, "header.size_bytes", why);
            findings.note("limit_bytes", max_bytes.to_string());
            None
        }
        Ok(size) => (size > 0).then_some(size),
    };
    let sha256 = if header.sha256.is_empty() {
        None
    } else {
        let digest = hex::decode(&header.sha256)
            .ok()
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        if digest.is_none() {
            findings.add("header.sha256", "must be 64 hexadecimal digits");
        }
        digest
    };
    findings.finish()?;
    Ok(Wanted {
        user_id,
        name: header.name,
        content_type,
        expected: Expected {
            max_bytes,
            size,
            sha256,
        },
        room: None,
    })
}

#[cfg(test)]
#[path = "upload_tests.rs"]
mod tests;
