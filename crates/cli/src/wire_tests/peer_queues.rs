//! The queues of the peer.

use tenure_proto::v1;
use tenure_proto::v1::queue_service_server::QueueService;
use tonic::{Request, Response, Status};

use super::peer::Peer;

fn queue(name: String, reason: Option<String>) -> v1::Queue {
    v1::Queue {
        name,
        paused: reason.is_some(),
        pause: reason.map(|reason| v1::QueuePause {
            reason,
            ..v1::QueuePause::default()
        }),
        ..v1::Queue::default()
    }
}

#[tonic::async_trait]
impl QueueService for Peer {
    async fn list_queues(
        &self,
        _: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        Ok(Response::new(v1::ListQueuesResponse::default()))
    }

    async fn pause_queue(
        &self,
        request: Request<v1::PauseQueueRequest>,
    ) -> Result<Response<v1::PauseQueueResponse>, Status> {
        let request = request.into_inner();
        let mut seen = self.0.lock().expect("no panic before");
        seen.pauses
            .push((request.queue.clone(), Some(request.reason.clone())));
        Ok(Response::new(v1::PauseQueueResponse {
            queue: Some(queue(request.queue, Some(request.reason))),
        }))
    }

    async fn resume_queue(
        &self,
        request: Request<v1::ResumeQueueRequest>,
    ) -> Result<Response<v1::ResumeQueueResponse>, Status> {
        let request = request.into_inner();
        let mut seen = self.0.lock().expect("no panic before");
        seen.pauses.push((request.queue.clone(), None));
        Ok(Response::new(v1::ResumeQueueResponse {
            queue: Some(queue(request.queue, None)),
        }))
    }
}
