//! What operators do to single jobs: RetryJobNow, RescheduleJob, SetJobMaxAttempts.

use chrono::Utc;
use tenure_core::domain::ids::JobId;
use tenure_core::storage::job_actions::{Acted, Action, Actor};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;

use super::cancel::unstopped;
use super::{Jobs, no_such_job};
use crate::call::Caller;
use crate::check::{MAX_AHEAD, MAX_ATTEMPTS};
use crate::explain;
use crate::fields::Findings;

impl Jobs {
    /// Makes a waiting job due.
    pub(super) async fn retry_now(
        &self,
        caller: &Caller,
        request: v1::RetryJobNowRequest,
    ) -> Result<v1::Job> {
        let findings = Findings::default();
        let asked = Asked::check(findings, &request.job_id, request.reason)?;
        self.act(caller, asked, Action::RetryNow).await
    }

    /// Sets the earliest start of a waiting job.
    pub(super) async fn reschedule(
        &self,
        caller: &Caller,
        request: v1::RescheduleJobRequest,
    ) -> Result<v1::Job> {
        let mut findings = Findings::default();
        if request.run_at.is_none() {
            findings.add("run_at", "is required");
        }
        let run_at = findings.time("run_at", request.run_at.as_ref());
        if run_at.is_some_and(|at| at > Utc::now() + MAX_AHEAD) {
            findings.add("run_at", "must be at most 366 days ahead");
        }
        let asked = Asked::check(findings, &request.job_id, request.reason)?;
        // What PostgreSQL cannot hold is long past, and so is now.
        let action = match run_at.filter(|at| at.timestamp() > 0) {
            Some(at) => Action::Reschedule(at),
            None => Action::Reschedule(chrono::DateTime::UNIX_EPOCH),
        };
        self.act(caller, asked, action).await
    }

    /// Sets the most starts of a job that has not ended.
    pub(super) async fn set_max_attempts(
        &self,
        caller: &Caller,
        request: v1::SetJobMaxAttemptsRequest,
    ) -> Result<v1::Job> {
        let mut findings = Findings::default();
        if !(1..=MAX_ATTEMPTS).contains(&request.max_attempts) {
            findings.add("max_attempts", "must be 1 to 100");
        }
        let asked = Asked::check(findings, &request.job_id, request.reason)?;
        let action = Action::SetMaxAttempts(request.max_attempts);
        self.act(caller, asked, action).await
    }

    async fn act(&self, caller: &Caller, asked: Asked, action: Action) -> Result<v1::Job> {
        let id = asked.job_id;
        let actor = Actor {
            name: caller.principal.user.as_str().to_owned(),
            reason: asked.reason,
        };
        let store = self.store.clone();
        let acted = unstopped(async move { store.act_on_job(id, action, &actor).await }).await?;
        refusal(id, action, acted)?;
        let job = self.store.get_job(id, false).await?;
        let job = job.ok_or_else(|| no_such_job(id))?;
        explain::job(&self.store, job).await
    }
}

/// The fields that all of them have.
struct Asked {
    job_id: JobId,
    reason: Option<String>,
}

impl Asked {
    fn check(mut findings: Findings, job_id: &str, reason: String) -> Result<Self> {
        let reason = findings.optional_text("reason", reason);
        let id = job_id.parse().ok();
        if id.is_none() {
            findings.add("job_id", super::ID_RULE);
        }
        findings.finish()?;
        id.map(|job_id| Self { job_id, reason })
            .ok_or_else(|| Error::invalid("job_id", super::ID_RULE))
    }
}

/// Why an act took no effect; `Ok`: it did, or had before.
fn refusal(id: JobId, action: Action, acted: Acted) -> Result<()> {
    match acted {
        Acted::Done | Acted::Already => Ok(()),
        Acted::Missing => Err(no_such_job(id)),
        Acted::Conflict(state) => {
            let rule = match action {
                Action::RetryNow => "only a job that waits can be made due",
                Action::Reschedule(_) => "only a job that waits can be rescheduled",
                Action::SetMaxAttempts(_) => "only a job that has not ended has attempts to come",
            };
            let now = if state.is_final() {
                format!("the job has ended in {state}")
            } else {
                format!("the job is {state}")
            };
            Err(Error::new(Code::JobStateConflict, format!("{now}; {rule}"))
                .with_meta("state", state.as_str()))
        }
        Acted::Expires(at) => Err(match action {
            Action::Reschedule(_) => Error::invalid(
                "run_at",
                format!("must be before the job's expires_at, {}", at.to_rfc3339()),
            ),
            _ => Error::new(
                Code::JobStateConflict,
                format!("the job has expired at {}", at.to_rfc3339()),
            ),
        }),
        Acted::TooFew(least) => Err(Error::invalid(
            "max_attempts",
            format!("must be at least {least}, since so many starts are spent or yet to come"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::domain::state::JobState;

    use super::*;

    #[test]
    fn a_refusal_names_the_state_or_the_field() {
        let id = JobId::new();
        let refused = |action, acted| refusal(id, action, acted).expect_err("refused");
        let error = refused(Action::RetryNow, Acted::Conflict(JobState::Running));
        assert_eq!(error.code(), Code::JobStateConflict);
        assert!(
            error.message().starts_with("the job is running;"),
            "{error}"
        );
        assert_eq!(error.meta(), [("state", "running".to_owned())]);
        let error = refused(Action::SetMaxAttempts(1), Acted::Conflict(JobState::Failed));
        assert!(
            error.message().starts_with("the job has ended in failed;"),
            "{error}"
        );
        let error = refused(Action::SetMaxAttempts(1), Acted::TooFew(3));
        assert_eq!(error.violations()[0].field, "max_attempts");
        assert!(error.message().contains("at least 3"), "{error}");
        let at = Utc::now();
        let error = refused(Action::Reschedule(at), Acted::Expires(at));
        assert_eq!(error.violations()[0].field, "run_at");
        let error = refused(Action::RetryNow, Acted::Expires(at));
        assert_eq!(error.code(), Code::JobStateConflict);
        assert_eq!(
            refused(Action::RetryNow, Acted::Missing).code(),
            Code::JobNotFound
        );
        assert!(refusal(id, Action::RetryNow, Acted::Already).is_ok());
    }
}
