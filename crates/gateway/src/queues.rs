//! QueueService.

use tenure_core::Result;
use tenure_core::storage::Store;
use tenure_core::storage::queues::COUNT_CAP;
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::queue_service_server::QueueService;

use crate::call::{self, OPERATORS};
use crate::convert;

/// The service.
pub(crate) struct Queues {
    /// The database.
    pub(crate) store: Store,
}

#[tonic::async_trait]
impl QueueService for Queues {
    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        call::unary("ListQueues", OPERATORS, request, async |_, _| {
            let queues = self.store.list_queues().await?;
            Ok(v1::ListQueuesResponse {
                queues: queues.into_iter().map(convert::queue).collect(),
                count_cap: COUNT_CAP,
            })
        })
        .await
    }
}
