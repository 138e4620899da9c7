//! CancelJob and CancelJobs.

use chrono::DateTime;
use tenure_core::domain::ids::JobId;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::cancel_many::{Canceller, Position};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use uuid::Uuid;
use v1::cancel_job_response::Outcome;

use super::Jobs;
use super::filter::{Asked, question};
use crate::call::Caller;
use crate::fields::Findings;
use crate::page_token::Question;
use crate::{convert, explain};

/// The filters of which one must be set.
const FILTERS: [&str; 5] = ["states", "job_type", "queue", "user_id", "labels"];
/// The bytes of a position: the next job's id, and microseconds since the epoch.
const POSITION: usize = 24;

impl Jobs {
    /// Cancels one job.
    pub(super) async fn cancel_one(
        &self,
        caller: &Caller,
        request: v1::CancelJobRequest,
    ) -> Result<v1::CancelJobResponse> {
        let mut findings = Findings::default();
        let reason = findings.optional_text("reason", request.reason);
        findings.finish()?;
        let job = self.visible(caller, &request.job_id, false).await?;
        let owner = caller.principal.user.as_str() == job.user_id.as_str();
        let message = message(caller, owner, reason.as_deref());
        let (store, id) = (self.store.clone(), job.job_id);
        let done = unstopped(async move { store.cancel(id, &message).await }).await?;
        // Read again: the cancel changed it, or it ended before.
        let job = self.store.get_job(job.job_id, false).await?.unwrap_or(job);
        let outcome = match done {
            Cancelled::Now => Outcome::Cancelled,
            Cancelled::Requested => Outcome::Requested,
            Cancelled::NotWaiting => Outcome::AlreadyEnded,
        };
        Ok(v1::CancelJobResponse {
            outcome: outcome.into(),
            job: Some(explain::job(&self.store, job).await?),
        })
    }

    /// Cancels a bounded number of jobs that match.
    pub(super) async fn cancel_many(
        &self,
        caller: &Caller,
        request: v1::CancelJobsRequest,
    ) -> Result<v1::CancelJobsResponse> {
        let mut findings = Findings::default();
        let reason = findings.optional_text("reason", request.reason);
        let asked = Asked {
            states: request.states,
            job_type: request.job_type,
            queue: request.queue,
            user_id: request.user_id,
            labels: request.labels,
        };
        if asked.is_empty() {
            // All jobs of everybody are one slip away otherwise.
            for field in FILTERS {
                findings.add(field, "one of the filters must be set");
            }
        }
        for (index, number) in asked.states.iter().enumerate() {
            let named = v1::JobState::try_from(*number).ok();
            if let Some(state) = named.and_then(convert::state_from).filter(|s| s.is_final()) {
                findings.add(
                    format!("states[{index}]"),
                    format!("{state} is the end of a job, which cannot be cancelled"),
                );
            }
        }
        let filter = asked.check(caller, findings)?;
        let what = if request.dry_run {
            "count to cancel"
        } else {
            "cancel"
        };
        let question = question(Some(what), caller, &filter);
        let from = position(&question, &request.page_token)?;
        let by = (!request.dry_run).then(|| Canceller {
            name: caller.principal.user.as_str().to_owned(),
            own_message: message(caller, true, reason.as_deref()),
            other_message: message(caller, false, reason.as_deref()),
            reason,
        });
        let store = self.store.clone();
        let done =
            unstopped(async move { store.cancel_many(&filter, from, by.as_ref()).await }).await?;
        Ok(v1::CancelJobsResponse {
            cancelled: done.cancelled,
            requested: done.requested,
            already_ended: done.already_ended,
            failed: done.failed,
            next_page_token: done
                .next
                .map(|next| token(&question, next))
                .unwrap_or_default(),
        })
    }
}

/// Runs in a task of its own, which a caller that goes away does not stop.
pub(super) async fn unstopped<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work)
        .await
        .map_err(|e| Error::new(Code::Internal, "the call broke off").with_source(e))?
}

/// What a job's record will say.
fn message(caller: &Caller, owner: bool, reason: Option<&str>) -> String {
    let mut message = if owner {
        "cancelled by its owner".to_owned()
    } else {
        format!("cancelled by {}", caller.principal.user.as_str())
    };
    if let Some(reason) = reason {
        message.push_str(": ");
        message.push_str(reason);
    }
    message
}

fn token(question: &Question, next: Position) -> String {
    let mut bytes = next.below.uuid().as_bytes().to_vec();
    bytes.extend_from_slice(&next.began.timestamp_micros().to_be_bytes());
    question.seal(&bytes)
}

fn position(question: &Question, token: &str) -> Result<Option<Position>> {
    let Some(bytes) = question.open::<POSITION>(token)? else {
        return Ok(None);
    };
    let (mut id, mut micros) = ([0; 16], [0; 8]);
    id.copy_from_slice(&bytes[..16]);
    micros.copy_from_slice(&bytes[16..]);
    let began = DateTime::from_timestamp_micros(i64::from_be_bytes(micros)).ok_or_else(|| {
        Error::new(
            Code::PageTokenInvalid,
            "page_token: is not a token of this call; begin without one",
        )
        .with_violation("page_token", "is not a token of this call")
    })?;
    Ok(Some(Position {
        began,
        below: JobId(Uuid::from_bytes(id)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_from_its_token_alone() {
        let question = Question::new(["cancel"]);
        let next = Position {
            began: DateTime::from_timestamp_micros(1_700_000_000_123_456).expect("a time"),
            below: JobId::new(),
        };
        let sealed = token(&question, next);
        assert_eq!(position(&question, &sealed).expect("its own"), Some(next));
        assert_eq!(position(&question, "").expect("the first"), None);
        // The token of a list has no moment.
        for foreign in [question.token(next.below.uuid()), sealed[2..].to_owned()] {
            let error = position(&question, &foreign).expect_err("foreign");
            assert_eq!(error.code(), Code::PageTokenInvalid);
        }
        let mut bytes = next.below.uuid().as_bytes().to_vec();
        bytes.extend_from_slice(&i64::MAX.to_be_bytes());
        let error = position(&question, &question.seal(&bytes)).expect_err("no time");
        assert_eq!(error.code(), Code::PageTokenInvalid);
    }
}
