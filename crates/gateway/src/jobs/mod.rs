//! JobService.

mod cancel;
mod filter;
mod list;
mod verbs;

use std::pin::Pin;

use futures::Stream;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Job;
use tenure_core::storage::Store;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::job_service_server::JobService;

use crate::call::{self, Caller, OPERATORS, READERS, SUBMITTERS, refusal};
use crate::explain;
use crate::fields::{Findings, known};
use crate::submit::Pipeline;
use crate::watch::{Hub, Told};

/// What a job's id must be.
const ID_RULE: &str = "must be a job's id, a hyphenated UUID in lower case";

/// The service.
pub(crate) struct Jobs {
    /// The database.
    pub(crate) store: Store,
    /// Takes jobs in.
    pub(crate) pipeline: Pipeline,
    /// Follows jobs.
    pub(crate) hub: Hub,
}

#[tonic::async_trait]
impl JobService for Jobs {
    type WatchJobStream = Pin<Box<dyn Stream<Item = Result<v1::WatchJobResponse, Status>> + Send>>;

    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobResponse>, Status> {
        call::unary("SubmitJob", SUBMITTERS, request, async |caller, request| {
            let spec = request
                .job
                .ok_or_else(|| Error::invalid("job", "is required"))?;
            self.pipeline.one(&caller, spec).await
        })
        .await
    }

    async fn submit_jobs(
        &self,
        request: Request<v1::SubmitJobsRequest>,
    ) -> Result<Response<v1::SubmitJobsResponse>, Status> {
        call::unary(
            "SubmitJobs",
            SUBMITTERS,
            request,
            async |caller, request| {
                let outcomes = self.pipeline.many(&caller, request.jobs).await?;
                Ok(v1::SubmitJobsResponse { outcomes })
            },
        )
        .await
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        call::unary("GetJob", READERS, request, async |caller, request| {
            let full = is_full(request.view)?;
            let job = self.visible(&caller, &request.job_id, true).await?;
            let (timeline, hold) = if full {
                (
                    explain::timeline(&self.store, &job).await?,
                    explain::hold(&self.store, &job).await?,
                )
            } else {
                (Vec::new(), None)
            };
            Ok(v1::GetJobResponse {
                job: Some(explain::job(&self.store, job).await?),
                timeline,
                hold,
            })
        })
        .await
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        call::unary("ListJobs", READERS, request, async |caller, request| {
            self.list(&caller, request).await
        })
        .await
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        call::unary("CancelJob", READERS, request, async |caller, request| {
            self.cancel_one(&caller, request).await
        })
        .await
    }

    async fn cancel_jobs(
        &self,
        request: Request<v1::CancelJobsRequest>,
    ) -> Result<Response<v1::CancelJobsResponse>, Status> {
        call::unary("CancelJobs", READERS, request, async |caller, request| {
            self.cancel_many(&caller, request).await
        })
        .await
    }

    async fn retry_job_now(
        &self,
        request: Request<v1::RetryJobNowRequest>,
    ) -> Result<Response<v1::RetryJobNowResponse>, Status> {
        call::unary(
            "RetryJobNow",
            OPERATORS,
            request,
            async |caller, request| {
                let job = Some(self.retry_now(&caller, request).await?);
                Ok(v1::RetryJobNowResponse { job })
            },
        )
        .await
    }

    async fn reschedule_job(
        &self,
        request: Request<v1::RescheduleJobRequest>,
    ) -> Result<Response<v1::RescheduleJobResponse>, Status> {
        call::unary(
            "RescheduleJob",
            OPERATORS,
            request,
            async |caller, request| {
                let job = Some(self.reschedule(&caller, request).await?);
                Ok(v1::RescheduleJobResponse { job })
            },
        )
        .await
    }

    async fn set_job_max_attempts(
        &self,
        request: Request<v1::SetJobMaxAttemptsRequest>,
    ) -> Result<Response<v1::SetJobMaxAttemptsResponse>, Status> {
        call::unary(
            "SetJobMaxAttempts",
            OPERATORS,
            request,
            async |caller, request| {
                let job = Some(self.set_max_attempts(&caller, request).await?);
                Ok(v1::SetJobMaxAttemptsResponse { job })
            },
        )
        .await
    }

    async fn watch_job(
        &self,
        request: Request<v1::WatchJobRequest>,
    ) -> Result<Response<Self::WatchJobStream>, Status> {
        self.watch(request)
            .await
            .map(Response::new)
            .map_err(|error| refusal("WatchJob", error))
    }
}

impl Jobs {
    /// A job that the caller may see. Somebody else's is answered as one that is not there.
    async fn visible(&self, caller: &Caller, id: &str, with_payload: bool) -> Result<Job> {
        let id: JobId = id.parse().map_err(|_| Error::invalid("job_id", ID_RULE))?;
        self.store
            .get_job(id, with_payload)
            .await?
            .filter(|job| caller.may_see(&job.user_id))
            .ok_or_else(|| no_such_job(id))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchJobRequest>,
    ) -> Result<<Self as JobService>::WatchJobStream> {
        let caller = Caller::of(&request, READERS)?;
        let request = request.into_inner();
        if request.after_revision < 0 {
            return Err(Error::invalid(
                "after_revision",
                "must be 0, or a revision that was told before",
            ));
        }
        let full = is_full(request.view)?;
        let job = self.visible(&caller, &request.job_id, false).await?;
        let first = Told::of(&self.store, job).await?;
        let changes = self.hub.watch(
            caller.principal.user.as_str(),
            first,
            request.after_revision,
            full.then(|| self.store.clone()),
        )?;
        Ok(Box::pin(changes))
    }
}

/// The answer about a job that is not there, or is somebody else's.
fn no_such_job(id: JobId) -> Error {
    Error::new(
        Code::JobNotFound,
        format!("there is no job {id} that you may see"),
    )
}

/// Whether a view has the timeline.
fn is_full(view: i32) -> Result<bool> {
    let mut findings = Findings::default();
    let view = known::<v1::JobView>(&mut findings, "view", view);
    findings.finish()?;
    Ok(view == Some(v1::JobView::Full))
}
