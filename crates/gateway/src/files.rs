//! FileService.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tenure_core::domain::ids::{FileId, UserId, check_text};
use tenure_core::files::{Expected, FileStore};
use tenure_core::storage::Store;
use tenure_core::storage::files::{self as rows, FileKind, FileRow, NewFile};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};
use v1::file_service_server::FileService;
use v1::upload_file_request::{Header, Part};

use crate::call::{self, Caller, READERS, SUBMITTERS, refusal};
use crate::convert;
use crate::fields::Findings;

/// The most content of one message of an upload.
const MAX_CHUNK: usize = 1024 * 1024;
/// The most content of one message of a download.
const DOWNLOAD_CHUNK: usize = 256 * 1024;
/// The most uploads at once: each keeps a few megabytes in memory.
const MAX_UPLOADS: usize = 64;
/// How often the description of a stored file is written before the upload fails.
const INSERT_TRIES: u32 = 4;
/// The pause after the first failed write; it doubles.
const INSERT_PAUSE: Duration = Duration::from_millis(100);
/// The media type of a file that names none.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// The service.
pub(crate) struct Files {
    storage: Arc<Storage>,
    uploads: Arc<Semaphore>,
}

/// Where files go, and the limits.
struct Storage {
    store: Store,
    objects: FileStore,
    max_bytes: u64,
    idle: Duration,
}

impl Files {
    /// The service over this store. `idle`: an upload that sends nothing for so long ends.
    pub(crate) fn new(store: Store, objects: FileStore, max_bytes: u64, idle: Duration) -> Self {
        Self {
            storage: Arc::new(Storage {
                store,
                objects,
                max_bytes,
                idle,
            }),
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
        }
    }
}

#[tonic::async_trait]
impl FileService for Files {
    type DownloadFileStream =
        Pin<Box<dyn Stream<Item = Result<v1::DownloadFileResponse, Status>> + Send>>;

    async fn upload_file(
        &self,
        request: Request<Streaming<v1::UploadFileRequest>>,
    ) -> Result<Response<v1::UploadFileResponse>, Status> {
        let uploaded = self
            .upload(request)
            .await
            .map_err(|error| refusal("UploadFile", error))?;
        Ok(Response::new(v1::UploadFileResponse {
            file: Some(convert::file(uploaded)),
        }))
    }

    async fn get_file(
        &self,
        request: Request<v1::GetFileRequest>,
    ) -> Result<Response<v1::GetFileResponse>, Status> {
        call::unary("GetFile", READERS, request, async |caller, request| {
            let row = self.visible(&caller, &request.file_id).await?;
            Ok(v1::GetFileResponse {
                file: Some(convert::file(row)),
            })
        })
        .await
    }

    async fn download_file(
        &self,
        request: Request<v1::DownloadFileRequest>,
    ) -> Result<Response<Self::DownloadFileStream>, Status> {
        self.download(request)
            .await
            .map(Response::new)
            .map_err(|error| refusal("DownloadFile", error))
    }
}

impl Files {
    /// A file that the caller may see. Somebody else's is answered as one that is not there.
    async fn visible(&self, caller: &Caller, id: &str) -> Result<FileRow> {
        let id: FileId = id.parse().map_err(|_| {
            Error::invalid(
                "file_id",
                "must be a file's id, a hyphenated UUID in lower case",
            )
        })?;
        rows::get(&self.storage.store, id)
            .await?
            .filter(|row| caller.may_see(&row.file.user_id))
            .ok_or_else(|| {
                Error::new(
                    Code::FileNotFound,
                    format!("there is no file {id} that you may see"),
                )
            })
    }

    async fn upload(&self, request: Request<Streaming<v1::UploadFileRequest>>) -> Result<FileRow> {
        let caller = Caller::of(&request, SUBMITTERS)?;
        let place = self.uploads.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                Code::Overloaded,
                format!("{MAX_UPLOADS} uploads are under way here; try again"),
            )
        })?;
        let mut parts = request.into_inner();
        let header = match next_part(&mut parts, self.storage.idle).await? {
            Some(Part::Header(header)) => header,
            Some(Part::Chunk(_)) => {
                return Err(Error::invalid("header", "must be the first message"));
            }
            None => return Err(Error::invalid("header", "is required; the stream is empty")),
        };
        let wanted = check_header(header, &caller, self.storage.max_bytes)?;
        let storage = self.storage.clone();
        // A task of its own: when the caller goes away, the stream's error ends it in
        // order, with nothing left behind.
        tokio::spawn(async move {
            let _place = place;
            storage.receive(wanted, parts).await
        })
        .await
        .map_err(|e| Error::new(Code::Internal, "the upload broke off").with_source(e))?
    }

    async fn download(
        &self,
        request: Request<v1::DownloadFileRequest>,
    ) -> Result<<Self as FileService>::DownloadFileStream> {
        let caller = Caller::of(&request, READERS)?;
        let request = request.into_inner();
        let row = self.visible(&caller, &request.file_id).await?;
        let size = u64::try_from(row.file.size_bytes).unwrap_or_default();
        let offset = u64::try_from(request.offset)
            .ok()
            .filter(|offset| *offset <= size)
            .ok_or_else(|| {
                Error::invalid("offset", format!("must be 0 to {size}, the file's size"))
            })?;
        let blocks = self.storage.objects.read(row.file.file_id, offset).await?;
        Ok(Box::pin(
            blocks
                .map_ok(|block| futures::stream::iter(pieces(block)).map(Ok))
                .try_flatten()
                .map_ok(|chunk| v1::DownloadFileResponse { chunk })
                .map_err(|error| refusal("DownloadFile", error)),
        ))
    }
}

/// Cuts a block into the messages of a download, without copying.
fn pieces(mut block: Bytes) -> Vec<Bytes> {
    let mut pieces = Vec::with_capacity(block.len().div_ceil(DOWNLOAD_CHUNK));
    while block.len() > DOWNLOAD_CHUNK {
        pieces.push(block.split_to(DOWNLOAD_CHUNK));
    }
    pieces.push(block);
    pieces
}

/// An upload whose header was checked.
#[derive(Debug)]
struct Wanted {
    user_id: UserId,
    name: String,
    content_type: String,
    expected: Expected,
}

impl Storage {
    /// Stores the content, then its description. What fails leaves neither.
    async fn receive(
        &self,
        wanted: Wanted,
        parts: Streaming<v1::UploadFileRequest>,
    ) -> Result<FileRow> {
        let idle = self.idle;
        let content = futures::stream::try_unfold(parts, move |mut parts| async move {
            match next_part(&mut parts, idle).await? {
                Some(Part::Chunk(chunk)) if chunk.len() > MAX_CHUNK => Err(Error::invalid(
                    "chunk",
                    format!("must be at most {MAX_CHUNK} bytes in one message"),
                )),
                Some(Part::Chunk(chunk)) => Ok(Some((chunk, parts))),
                Some(Part::Header(_)) => {
                    Err(Error::invalid("header", "must be the first message only"))
                }
                None => Ok(None),
            }
        });
        let file_id = FileId::new();
        let stored = self.objects.put(file_id, content, wanted.expected).await?;
        let file = NewFile {
            file_id,
            user_id: wanted.user_id,
            name: wanted.name,
            content_type: wanted.content_type,
            size_bytes: i64::try_from(stored.size).unwrap_or(i64::MAX),
            sha256: stored.sha256,
            kind: FileKind::Upload,
            job_id: None,
            expires_at: None,
        };
        let described = self.describe(&file).await;
        if described.is_err() {
            // Nobody will ever know this id: the content would stay for good.
            if let Err(error) = self.objects.delete(file_id).await {
                tracing::warn!(%file_id, error = &error as &dyn std::error::Error, "content without a description stays");
            }
        }
        described
    }

    /// Writes the description, again where the database is away for a moment: the
    /// caller would have to send everything again.
    async fn describe(&self, file: &NewFile) -> Result<FileRow> {
        let mut pause = INSERT_PAUSE;
        let mut tries = 1;
        loop {
            match rows::insert(&self.store, file).await {
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
        tonic::Code::OutOfRange => Error::invalid(
            "chunk",
            format!("must be at most {MAX_CHUNK} bytes in one message"),
        ),
        tonic::Code::Internal => Error::invalid("part", "is not a readable message"),
        _ => Error::new(Code::Cancelled, "the upload broke off before its end"),
    }
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            name: "a.csv".into(),
            ..Header::default()
        }
    }

    fn check(header: Header) -> Result<Wanted> {
        check_upload(header, UserId::from_stored("ada".into()), 100)
    }

    #[test]
    fn an_upload_may_leave_out_all_but_its_name() {
        let wanted = check(header()).expect("accepted");
        assert_eq!(wanted.content_type, DEFAULT_TYPE);
        assert_eq!((wanted.expected.size, wanted.expected.sha256), (None, None));
        let full = Header {
            content_type: "text/csv; charset=utf-8".into(),
            size_bytes: 100,
            sha256: "AB".repeat(32),
            ..header()
        };
        let wanted = check(full).expect("accepted");
        assert_eq!(
            (wanted.expected.size, wanted.expected.sha256),
            (Some(100), Some([0xab; 32]))
        );
    }

    #[test]
    fn a_wrong_header_is_refused_before_any_content() {
        let cases = [
            (
                Header {
                    name: String::new(),
                    ..header()
                },
                "header.name",
                Code::InvalidArgument,
            ),
            (
                Header {
                    name: "a\0".into(),
                    ..header()
                },
                "header.name",
                Code::InvalidArgument,
            ),
            (
                Header {
                    name: "n".repeat(256),
                    ..header()
                },
                "header.name",
                Code::InvalidArgument,
            ),
            (
                Header {
                    content_type: "csv".into(),
                    ..header()
                },
                "header.content_type",
                Code::InvalidArgument,
            ),
            (
                Header {
                    content_type: "text/ä".into(),
                    ..header()
                },
                "header.content_type",
                Code::InvalidArgument,
            ),
            (
                Header {
                    size_bytes: -1,
                    ..header()
                },
                "header.size_bytes",
                Code::InvalidArgument,
            ),
            (
                Header {
                    size_bytes: 101,
                    ..header()
                },
                "header.size_bytes",
                Code::FileTooLarge,
            ),
            (
                Header {
                    sha256: "ab".repeat(31),
                    ..header()
                },
                "header.sha256",
                Code::InvalidArgument,
            ),
            (
                Header {
                    sha256: "xy".repeat(32),
                    ..header()
                },
                "header.sha256",
                Code::InvalidArgument,
            ),
        ];
        for (header, field, code) in cases {
            let error = check(header).expect_err(field);
            assert_eq!(
                (error.code(), error.violations()[0].field.as_str()),
                (code, field)
            );
        }
    }

    #[test]
    fn blocks_are_cut_without_losing_a_byte() {
        let block = Bytes::from(
            (0..DOWNLOAD_CHUNK * 2 + 7)
                .map(|i| (i % 251) as u8)
                .collect::<Vec<_>>(),
        );
        let cut = pieces(block.clone());
        let lengths: Vec<_> = cut.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [DOWNLOAD_CHUNK, DOWNLOAD_CHUNK, 7]);
        assert_eq!(cut.concat(), block);
        assert_eq!(pieces(Bytes::from(vec![1; DOWNLOAD_CHUNK])).len(), 1);
    }
}
