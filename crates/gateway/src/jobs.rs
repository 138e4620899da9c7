//! JobService.

use std::pin::Pin;

use futures::Stream;
use tenure_core::domain::ids::{JobId, UserId, check_name};
use tenure_core::domain::job::Job;
use tenure_core::storage::Store;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::list::JobFilter;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use v1::cancel_job_response::Outcome;
use v1::job_service_server::JobService;

use crate::call::{self, Caller, READERS, SUBMITTERS, refusal};
use crate::convert;
use crate::fields::{Findings, known};
use crate::page_token::Question;
use crate::submit::Pipeline;
use crate::watch::Hub;

/// The jobs of a page where the caller names no number.
const DEFAULT_PAGE: i32 = 50;
/// The most jobs of a page.
const MAX_PAGE: i32 = 200;

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
            let job = self.visible(&caller, &request.job_id, true).await?;
            Ok(v1::GetJobResponse {
                job: Some(convert::job(job)),
            })
        })
        .await
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        call::unary("ListJobs", READERS, request, async |caller, request| {
            let Listing {
                filter,
                question,
                after,
                limit,
            } = listing(&caller, request)?;
            let page = self.store.list_jobs(&filter, after, limit).await?;
            Ok(v1::ListJobsResponse {
                jobs: page.jobs.into_iter().map(convert::job).collect(),
                next_page_token: page
                    .next
                    .map(|after| question.token(after.uuid()))
                    .unwrap_or_default(),
            })
        })
        .await
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        call::unary("CancelJob", READERS, request, async |caller, request| {
            let mut findings = Findings::default();
            let reason = findings.optional_text("reason", request.reason);
            findings.finish()?;
            let job = self.visible(&caller, &request.job_id, false).await?;
            let done = self
                .cancel(job.job_id, cancel_message(&caller, &job, reason))
                .await?;
            // Read again: the cancel changed it, or it ended before.
            let job = self.store.get_job(job.job_id, false).await?.unwrap_or(job);
            let outcome = match done {
                Cancelled::Now => Outcome::Cancelled,
                Cancelled::Requested => Outcome::Requested,
                Cancelled::NotWaiting => Outcome::AlreadyEnded,
            };
            Ok(v1::CancelJobResponse {
                outcome: outcome.into(),
                job: Some(convert::job(job)),
            })
        })
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
        let id: JobId = id.parse().map_err(|_| {
            Error::invalid(
                "job_id",
                "must be a job's id, a hyphenated UUID in lower case",
            )
        })?;
        self.store
            .get_job(id, with_payload)
            .await?
            .filter(|job| caller.may_see(&job.user_id))
            .ok_or_else(|| {
                Error::new(
                    Code::JobNotFound,
                    format!("there is no job {id} that you may see"),
                )
            })
    }

    /// Cancels in a task of its own, which a caller that goes away does not stop.
    async fn cancel(&self, id: JobId, message: String) -> Result<Cancelled> {
        let store = self.store.clone();
        tokio::spawn(async move { store.cancel(id, &message).await })
            .await
            .map_err(|e| Error::new(Code::Internal, "cancelling broke off").with_source(e))?
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
        let first = self.visible(&caller, &request.job_id, false).await?;
        let changes = self.hub.watch(
            caller.principal.user.as_str(),
            first,
            request.after_revision,
        )?;
        Ok(Box::pin(changes))
    }
}

/// What the job's record will say.
fn cancel_message(caller: &Caller, job: &Job, reason: Option<String>) -> String {
    let by = caller.principal.user.as_str();
    let mut message = if by == job.user_id.as_str() {
        "cancelled by its owner".to_owned()
    } else {
        format!("cancelled by {by}")
    };
    if let Some(reason) = reason {
        message.push_str(": ");
        message.push_str(&reason);
    }
    message
}

/// A list request that was checked.
struct Listing {
    filter: JobFilter,
    question: Question,
    after: Option<JobId>,
    limit: usize,
}

fn listing(caller: &Caller, request: v1::ListJobsRequest) -> Result<Listing> {
    let mut findings = Findings::default();
    if request.page_size < 0 {
        findings.add("page_size", "must not be negative");
    }
    let mut states = Vec::new();
    for (index, number) in request.states.iter().enumerate() {
        let field = format!("states[{index}]");
        if let Some(named) = known::<v1::JobState>(&mut findings, field.clone(), *number) {
            match convert::state_from(named) {
                Some(state) => states.push(state),
                None => findings.add(field, "must name a state; leave the list empty for all"),
            }
        }
    }
    states.sort_unstable();
    states.dedup();
    for (field, name) in [("job_type", &request.job_type), ("queue", &request.queue)] {
        if !name.is_empty() {
            findings.check(field, check_name(name));
        }
    }
    let labels = findings.labels("labels", request.labels);
    let named = findings.optional_text("user_id", request.user_id);
    findings.finish()?;
    let some = |text: String| (!text.is_empty()).then_some(text);
    let filter = JobFilter {
        user_id: owner(caller, named)?,
        states,
        job_type: some(request.job_type),
        queue: some(request.queue),
        labels,
    };
    let question = question(caller, &filter);
    Ok(Listing {
        after: question.after(&request.page_token)?.map(JobId),
        question,
        limit: match request.page_size {
            0 => DEFAULT_PAGE,
            size => size.min(MAX_PAGE),
        }
        .unsigned_abs() as usize,
        filter,
    })
}

/// Whose jobs a list has: the caller's own, unless it may see others' and asks for them.
fn owner(caller: &Caller, named: Option<String>) -> Result<Option<UserId>> {
    use tenure_core::auth::Role::{Admin, Operator};
    let own = || UserId::from_stored(caller.principal.user.as_str().to_owned());
    match named {
        Some(named) => {
            let named = UserId::from_stored(named);
            if caller.may_see(&named) {
                Ok(Some(named))
            } else {
                Err(Error::new(
                    Code::PermissionDenied,
                    "only operators and services may list the jobs of another user; leave user_id out",
                ))
            }
        }
        None if caller.principal.has(Operator) || caller.principal.has(Admin) => Ok(None),
        None => Ok(Some(own())),
    }
}

fn question(caller: &Caller, filter: &JobFilter) -> Question {
    let mut parts = vec![
        caller.principal.user.as_str(),
        filter.user_id.as_ref().map_or("", UserId::as_str),
        filter.job_type.as_deref().unwrap_or_default(),
        filter.queue.as_deref().unwrap_or_default(),
    ];
    parts.extend(filter.states.iter().map(|state| state.as_str()));
    // Tells the states from the labels.
    parts.push("");
    parts.extend(
        filter
            .labels
            .iter()
            .flat_map(|(key, value)| [key.as_str(), value.as_str()]),
    );
    Question::new(parts)
}
