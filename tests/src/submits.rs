//! Submits of many jobs in one call, and the wait for their success.

use std::time::Duration;

use serde_json::json;
use tenure_proto::v1::submit_jobs_response::outcome;
use tenure_proto::v1::{JobSpec, SubmitJobsRequest};

use crate::caller::{Caller, spec};
use crate::stack::Stack;
use crate::wait::wait_until;

/// The most jobs of one call.
const MAX_JOBS: usize = 1000;

/// So many jobs that do nothing.
pub fn noops(count: usize) -> Vec<JobSpec> {
    vec![spec("noop", json!({})); count]
}

impl Caller {
    /// Submits jobs, as many in one call as it may have; returns their ids in order.
    ///
    /// # Panics
    /// Where one of them is refused.
    pub async fn submit_all(&self, jobs: Vec<JobSpec>) -> Vec<String> {
        let mut ids = Vec::with_capacity(jobs.len());
        for part in jobs.chunks(MAX_JOBS) {
            let request = SubmitJobsRequest {
                jobs: part.to_vec(),
            };
            let answer = self.jobs().submit_jobs(request).await.expect("an answer");
            for outcome in answer.into_inner().outcomes {
                match outcome.result.expect("a result") {
                    outcome::Result::Accepted(accepted) => ids.push(accepted.job_id),
                    outcome::Result::Refused(status) => panic!("{status:?}"),
                }
            }
        }
        assert_eq!(ids.len(), jobs.len());
        ids
    }
}

impl Stack {
    /// Waits until so many jobs have succeeded, each at its first attempt, and looks that
    /// there are no others.
    ///
    /// # Panics
    /// Where that is not so after `bound`.
    pub async fn all_succeed(&self, count: i64, bound: Duration) {
        let done = "select count(*) from jobs where status = 'success' and attempt = 1";
        wait_until(format!("{count} jobs done"), bound, || async {
            (self.number(done).await == count).then_some(())
        })
        .await;
        assert_eq!(self.number("select count(*) from jobs").await, count);
    }
}
