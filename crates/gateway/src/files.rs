//! FileService.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use tenure_core::domain::ids::FileId;
use tenure_core::files::FileStore;
use tenure_core::storage::Store;
use tenure_core::storage::files::{self as rows, FileRow};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};
use v1::file_service_server::FileService;

use crate::call::{self, Caller, READERS, SUBMITTERS, refusal};
use crate::convert;
use crate::upload::{self, Storage};

/// The most content of one message of a download.
const DOWNLOAD_CHUNK: usize = 256 * 1024;
/// The most uploads at once: each keeps a few megabytes in memory.
const MAX_UPLOADS: usize = 64;

/// The service.
pub(crate) struct Files {
    storage: Arc<Storage>,
    uploads: Arc<Semaphore>,
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

    async fn list_files(
        &self,
        _request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        Err(Error::new(Code::Unimplemented, "files cannot be listed yet").into())
    }

    async fn delete_file(
        &self,
        _request: Request<v1::DeleteFileRequest>,
    ) -> Result<Response<v1::DeleteFileResponse>, Status> {
        Err(Error::new(Code::Unimplemented, "files cannot be removed yet").into())
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
        let _place = self.uploads.clone().try_acquire_owned().map_err(|_| {
            Error::new(
                Code::Overloaded,
                format!("{MAX_UPLOADS} uploads are under way here; try again"),
            )
        })?;
        upload::receive(&self.storage, &caller, request.into_inner()).await
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

#[cfg(test)]
mod tests {
    use super::*;

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
