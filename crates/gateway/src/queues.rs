//! QueueService.

use tenure_core::domain::ids::check_name;
use tenure_core::storage::Store;
use tenure_core::storage::queues::{COUNT_CAP, QueueStatus};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::queue_service_server::QueueService;

use crate::call::{self, OPERATORS};
use crate::convert;
use crate::fields::Findings;

/// The longest reason of a pause, in bytes.
const MAX_REASON: usize = 1000;

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
            let silent = self.store.sweepers_silent_for().await?;
            Ok(v1::ListQueuesResponse {
                queues: queues.into_iter().map(convert::queue).collect(),
                count_cap: COUNT_CAP,
                sweepers_silent_for: silent.map(convert::duration),
            })
        })
        .await
    }

    async fn pause_queue(
        &self,
        request: Request<v1::PauseQueueRequest>,
    ) -> Result<Response<v1::PauseQueueResponse>, Status> {
        call::unary("PauseQueue", OPERATORS, request, async |caller, request| {
            check(&request.queue, Some(&request.reason))?;
            let actor = caller.principal.user.as_str();
            let (name, reason) = (&request.queue, request.reason.trim());
            let queue = self.store.pause_queue(name, reason, actor).await?;
            Ok(v1::PauseQueueResponse {
                queue: Some(found(name, queue)?),
            })
        })
        .await
    }

    async fn resume_queue(
        &self,
        request: Request<v1::ResumeQueueRequest>,
    ) -> Result<Response<v1::ResumeQueueResponse>, Status> {
        call::unary(
            "ResumeQueue",
            OPERATORS,
            request,
            async |caller, request| {
                check(&request.queue, None)?;
                let actor = caller.principal.user.as_str();
                let queue = self.store.resume_queue(&request.queue, actor).await?;
                Ok(v1::ResumeQueueResponse {
                    queue: Some(found(&request.queue, queue)?),
                })
            },
        )
        .await
    }
}

fn check(queue: &str, reason: Option<&str>) -> Result<()> {
    let mut findings = Findings::default();
    findings.check("queue", check_name(queue));
    if let Some(reason) = reason {
        if reason.trim().is_empty() {
            findings.add("reason", "is required: it is what people read who wait");
        } else if reason.len() > MAX_REASON {
            findings.add("reason", format!("must be at most {MAX_REASON} bytes"));
        } else if reason.chars().any(char::is_control) {
            findings.add("reason", "must not contain control characters");
        }
    }
    findings.finish()
}

fn found(name: &str, queue: Option<QueueStatus>) -> Result<v1::Queue> {
    queue.map(convert::queue).ok_or_else(|| {
        Error::new(Code::QueueNotFound, format!("there is no queue {name:?}"))
            .with_meta("queue", name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_names_a_queue_and_a_reason() {
        let fields = |queue: &str, reason: Option<&str>| {
            let refused = check(queue, reason).expect_err("refused");
            let fields: Vec<_> = refused
                .violations()
                .iter()
                .map(|v| v.field.clone())
                .collect();
            fields
        };
        assert!(check("default", Some("new disks")).is_ok());
        assert!(check("default", None).is_ok());
        assert_eq!(fields("", Some(" ")), ["queue", "reason"]);
        assert_eq!(fields("A b", None), ["queue"]);
        assert_eq!(fields("default", Some(&"x".repeat(1001))), ["reason"]);
        assert_eq!(fields("default", Some("a\u{0}b")), ["reason"]);
        let missing = found("nope", None).expect_err("there is none");
        assert_eq!(missing.code(), Code::QueueNotFound);
    }
}
