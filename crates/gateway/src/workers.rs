//! WorkerService.

use tenure_core::Result;
use tenure_core::storage::Store;
use tenure_core::storage::workers::Worker;
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::worker_service_server::WorkerService;

use crate::call::{self, OPERATORS};
use crate::convert;

/// The service.
pub(crate) struct Workers {
    /// The database.
    pub(crate) store: Store,
}

#[tonic::async_trait]
impl WorkerService for Workers {
    async fn list_workers(
        &self,
        request: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        call::unary("ListWorkers", OPERATORS, request, async |_, _| {
            let workers = self.store.live_workers().await?;
            let silent = self.store.sweepers_silent_for().await?;
            Ok(v1::ListWorkersResponse {
                workers: workers.into_iter().map(worker).collect(),
                sweepers_silent_for: silent.map(convert::duration),
            })
        })
        .await
    }
}

fn worker(worker: Worker) -> v1::Worker {
    v1::Worker {
        session: worker.session().to_string(),
        name: worker.name,
        version: worker.version,
        queues: worker.queues,
        job_types: worker.job_types,
        slots: worker.slots,
        running: worker.running,
        draining: worker.draining,
        start_time: Some(convert::time(worker.started_at)),
        last_contact_time: Some(convert::time(worker.last_contact_at)),
    }
}
