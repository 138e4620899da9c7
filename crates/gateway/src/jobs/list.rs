//! ListJobs.

use tenure_core::Result;
use tenure_core::domain::ids::JobId;
use tenure_proto::v1;

use super::Jobs;
use super::filter::{Asked, question};
use crate::call::Caller;
use crate::explain;
use crate::fields::Findings;

/// The jobs of a page where the caller names no number.
const DEFAULT_PAGE: i32 = 50;
/// The most jobs of a page.
const MAX_PAGE: i32 = 200;

impl Jobs {
    /// A page of the jobs that the caller may see.
    pub(super) async fn list(
        &self,
        caller: &Caller,
        request: v1::ListJobsRequest,
    ) -> Result<v1::ListJobsResponse> {
        let mut findings = Findings::default();
        if request.page_size < 0 {
            findings.add("page_size", "must not be negative");
        }
        let asked = Asked {
            states: request.states,
            job_type: request.job_type,
            queue: request.queue,
            user_id: request.user_id,
            labels: request.labels,
        };
        let filter = asked.check(caller, findings)?;
        let question = question(None, caller, &filter);
        let after = question.after(&request.page_token)?.map(JobId);
        let limit = match request.page_size {
            0 => DEFAULT_PAGE,
            size => size.min(MAX_PAGE),
        };
        let limit = limit.unsigned_abs() as usize;
        let page = self.store.list_jobs(&filter, after, limit).await?;
        Ok(v1::ListJobsResponse {
            jobs: explain::jobs(&self.store, page.jobs).await?,
            next_page_token: page
                .next
                .map(|after| question.token(after.uuid()))
                .unwrap_or_default(),
        })
    }
}
