//! FileService.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use chrono::DateTime;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tenure_core::auth::Role;
use tenure_core::config::FilesConfig;
use tenure_core::domain::ids::{FileId, JobId, UserId};
use tenure_core::files::FileStore;
use tenure_core::storage::Store;
use tenure_core::storage::files::list::{self, FileFilter, Place};
use tenure_core::storage::files::uploads::{self, UploadRules};
use tenure_core::storage::files::{self as rows, FileKind, FileRow};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status, Streaming};
use v1::file_service_server::FileService;

use crate::call::{self, Caller, READERS, SUBMITTERS, refusal};
use crate::convert;
use crate::fields::Findings;
use crate::page_token::Question;
use crate::upload::{self, Storage};
use crate::upload_places::Places;

/// The most content of one message of a download.
const DOWNLOAD_CHUNK: usize = 256 * 1024;
/// The end of the year 9999.
const LAST_SECOND: i64 = 253_402_300_799;
/// The files of a page where the caller names no number.
const DEFAULT_PAGE: i32 = 50;
/// The most files of a page.
const MAX_PAGE: i32 = 200;

/// The service.
pub(crate) struct Files {
    storage: Arc<Storage>,
    places: Places,
}

impl Files {
    /// The service over this store.
    pub(crate) fn new(store: Store, objects: FileStore, config: &FilesConfig) -> Self {
        Self {
            storage: Arc::new(Storage {
                store,
                objects,
                max_bytes: config.max_bytes,
                rules: UploadRules {
                    max_user_bytes: config.max_user_bytes,
                    retention: config.upload_retention,
                },
                idle: config.upload_idle_timeout,
            }),
            places: Places::default(),
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

    async fn list_files(
        &self,
        request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        call::unary("ListFiles", READERS, request, async |caller, request| {
            let Listing {
                filter,
                question,
                after,
                limit,
            } = listing(&caller, request)?;
            let store = &self.storage.store;
            let page = list::list(store, &filter, after, limit).await?;
            let quota = self.storage.rules.max_user_bytes;
            Ok(v1::ListFilesResponse {
                files: page.files.into_iter().map(convert::file).collect(),
                next_page_token: page
                    .next
                    .map(|place| question.seal(&cursor(place)))
                    .unwrap_or_default(),
                used_bytes: uploads::used_bytes(store, &filter.user_id).await?,
                quota_bytes: i64::try_from(quota).unwrap_or(i64::MAX),
            })
        })
        .await
    }

    async fn delete_file(
        &self,
        request: Request<v1::DeleteFileRequest>,
    ) -> Result<Response<v1::DeleteFileResponse>, Status> {
        call::unary("DeleteFile", READERS, request, async |caller, request| {
            let row = self.visible(&caller, &request.file_id).await?;
            if !may_delete(&caller, &row) {
                return Err(Error::new(
                    Code::PermissionDenied,
                    "only its owner, an operator or an admin may remove a file",
                ));
            }
            self.delete(row.file.file_id).await?;
            Ok(v1::DeleteFileResponse {})
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

    /// Removes a file, in a task of its own, which a caller that goes away does not stop.
    async fn delete(&self, id: FileId) -> Result<()> {
        let storage = self.storage.clone();
        let delete = async move {
            if !uploads::delete(&storage.store, id).await? {
                // Somebody was faster; the content is theirs to remove.
                return Ok(());
            }
            if let Err(error) = storage.objects.delete(id).await {
                // To its owner the file is gone; the sweeper removes what is left.
                tracing::warn!(file_id = %id, error = &error as &dyn std::error::Error, "the content of a removed file stays for now");
            }
            Ok(())
        };
        tokio::spawn(delete)
            .await
            .map_err(|e| Error::new(Code::Internal, "removing broke off").with_source(e))?
    }

    async fn upload(&self, request: Request<Streaming<v1::UploadFileRequest>>) -> Result<FileRow> {
        let caller = Caller::of(&request, SUBMITTERS)?;
        upload::receive(&self.storage, &self.places, &caller, request.into_inner()).await
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

fn may_delete(caller: &Caller, row: &FileRow) -> bool {
    caller.principal.user.as_str() == row.file.user_id.as_str()
        || caller.principal.has(Role::Operator)
        || caller.principal.has(Role::Admin)
}

/// A list request that was checked.
struct Listing {
    filter: FileFilter,
    question: Question,
    after: Option<Place>,
    limit: usize,
}

fn listing(caller: &Caller, request: v1::ListFilesRequest) -> Result<Listing> {
    let mut findings = Findings::default();
    if request.page_size < 0 {
        findings.add("page_size", "must not be negative");
    }
    let named = findings.optional_text("user_id", request.user_id);
    let kind = FileKind::parse(&request.kind);
    if kind.is_none() && !request.kind.is_empty() {
        findings.add(
            "kind",
            "must be `upload`, `report` or `rejects`; leave it empty for all",
        );
    }
    let job_id = request.job_id.parse::<JobId>().ok();
    if job_id.is_none() && !request.job_id.is_empty() {
        findings.add(
            "job_id",
            "must be a job's id, a hyphenated UUID in lower case",
        );
    }
    findings.finish()?;
    let own = caller.principal.user.as_str();
    let user_id = UserId::from_stored(named.unwrap_or_else(|| own.to_owned()));
    if !caller.may_see(&user_id) {
        return Err(Error::new(
            Code::PermissionDenied,
            "only operators and services may list the files of another user; leave user_id out",
        ));
    }
    let question = Question::new([
        "files",
        own,
        user_id.as_str(),
        request.kind.as_str(),
        request.job_id.as_str(),
    ]);
    Ok(Listing {
        after: question.open(&request.page_token)?.map(place),
        question,
        limit: match request.page_size {
            0 => DEFAULT_PAGE,
            size => size.min(MAX_PAGE),
        }
        .unsigned_abs() as usize,
        filter: FileFilter {
            user_id,
            kind,
            job_id,
        },
    })
}

/// A place as the bytes of a page token: the microseconds, as the database keeps them,
/// and the id.
fn cursor(place: Place) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&place.created_at.timestamp_micros().to_be_bytes());
    bytes[8..].copy_from_slice(place.file_id.uuid().as_bytes());
    bytes
}

fn place(bytes: [u8; 24]) -> Place {
    let (mut micros, mut id) = ([0; 8], [0; 16]);
    micros.copy_from_slice(&bytes[..8]);
    id.copy_from_slice(&bytes[8..]);
    Place {
        // Out of range only where somebody made the token up: then the list is empty.
        created_at: DateTime::from_timestamp_micros(i64::from_be_bytes(micros))
            .filter(|at| (0..LAST_SECOND).contains(&at.timestamp()))
            .unwrap_or_default(),
        file_id: FileId(uuid::Uuid::from_bytes(id)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_token() {
        let place_of = Place {
            created_at: DateTime::from_timestamp_micros(1_700_000_000_123_456).unwrap_or_default(),
            file_id: FileId::new(),
        };
        assert_eq!(place(cursor(place_of)), place_of);
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
