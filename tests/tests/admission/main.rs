//! What is taken in, and what is refused: limits of users, rates and backlogs.

mod backlogs;
mod limits;
mod rates;

use tenure_tests::v1::submit_jobs_response::outcome;
use tenure_tests::v1::{JobSpec, SubmitJobsRequest, UserLimits};
use tenure_tests::{Caller, Refusal};
use tonic::{Code, Status};

/// Submits jobs in one call; how many were accepted, and the refusals of the others.
async fn submit_all(caller: &Caller, jobs: Vec<JobSpec>) -> (usize, Vec<Refusal>) {
    let answer = caller.jobs().submit_jobs(SubmitJobsRequest { jobs }).await;
    let mut accepted = 0;
    let mut refused = Vec::new();
    for outcome in answer.expect("an answer").into_inner().outcomes {
        match outcome.result.expect("a result") {
            outcome::Result::Accepted(_) => accepted += 1,
            outcome::Result::Refused(status) => {
                let code = Code::from_i32(status.code);
                let details = prost::Message::encode_to_vec(&status);
                refused.push(Refusal::of(&Status::with_details(
                    code,
                    status.message,
                    details.into(),
                )));
            }
        }
    }
    (accepted, refused)
}

/// Sets the limits of a user, as an operator.
async fn set_limits(operator: &Caller, user: &str, limits: UserLimits) {
    let request = tenure_tests::v1::SetUserLimitsRequest {
        user_id: user.to_owned(),
        limits: Some(limits),
        update_mask: None,
    };
    operator
        .user_limits()
        .set_user_limits(request)
        .await
        .expect("set");
}
