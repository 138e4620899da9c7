//! Writing content in parts, one of them under way while the next one fills.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::{step, within};
use crate::error::{Code, Error, Result};

/// Content on its way to the store. What is smaller than a part goes there by one call,
/// which leaves nothing behind where it fails. Dropped before its end it is aborted.
pub(super) struct Writer {
    objects: Arc<dyn ObjectStore>,
    path: ObjectPath,
    part_bytes: usize,
    /// The part that fills. One buffer: pieces of a few bytes each would cost many times
    /// their content if they were kept as they are.
    filling: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
    under_way: JoinSet<object_store::Result<()>>,
}

impl Writer {
    /// Content for this path.
    pub(super) fn new(objects: Arc<dyn ObjectStore>, path: ObjectPath, part_bytes: usize) -> Self {
        Self {
            objects,
            path,
            part_bytes,
            filling: BytesMut::new(),
            upload: None,
            under_way: JoinSet::new(),
        }
    }

    /// Takes a piece; waits where a part is full and the one before is still under way.
    pub(super) async fn put(&mut self, mut piece: Bytes) -> Result<()> {
        while self.filling.len() + piece.len() > self.part_bytes {
            // Parts but the last are equally large, as some stores want it.
            let room = self.part_bytes - self.filling.len();
            self.filling.extend_from_slice(&piece.split_to(room));
            self.send_part().await?;
        }
        self.filling.extend_from_slice(&piece);
        Ok(())
    }

    fn take_part(&mut self) -> PutPayload {
        self.filling.split().freeze().into()
    }

    async fn send_part(&mut self) -> Result<()> {
        self.settle().await?;
        if self.upload.is_none() {
            self.upload = Some(step(self.objects.put_multipart(&self.path)).await?);
        }
        let part = self.take_part();
        if let Some(upload) = &mut self.upload {
            self.under_way.spawn(upload.put_part(part));
        }
        Ok(())
    }

    /// Waits for the part that is under way.
    async fn settle(&mut self) -> Result<()> {
        while let Some(ended) = within(async { Ok(self.under_way.join_next().await) }).await? {
            let ended = ended.map_err(|error| {
                Error::new(Code::Internal, "a write to the object store broke off")
                    .with_source(error)
            })?;
            ended.map_err(super::store_error)?;
        }
        Ok(())
    }

    /// Puts the content into its place.
    pub(super) async fn finish(&mut self) -> Result<()> {
        if self.upload.is_none() {
            let payload = self.take_part();
            step(self.objects.put(&self.path, payload)).await?;
            return Ok(());
        }
        if !self.filling.is_empty() {
            self.send_part().await?;
        }
        self.settle().await?;
        if let Some(upload) = &mut self.upload {
            step(upload.complete()).await?;
        }
        self.upload = None;
        Ok(())
    }

    /// Takes back what has been written. Best effort: what stays has no name, and is
    /// found by the sweeper or by the bucket's own rule.
    pub(super) async fn abort(mut self) {
        if let Some(upload) = self.upload.take() {
            let under_way = std::mem::take(&mut self.under_way);
            take_back(upload, under_way).await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let under_way = std::mem::take(&mut self.under_way);
            runtime.spawn(take_back(upload, under_way));
        }
    }
}

async fn take_back(
    mut upload: Box<dyn MultipartUpload>,
    mut under_way: JoinSet<object_store::Result<()>>,
) {
    // A part that arrives after the abort would stay.
    under_way.shutdown().await;
    if let Err(error) = step(upload.abort()).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "an upload could not be taken back"
        );
    }
}
