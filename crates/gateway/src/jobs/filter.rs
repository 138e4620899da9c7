//! Which jobs a list has, and which a cancel by filter is for.

use std::collections::HashMap;

use tenure_core::domain::ids::{UserId, check_name};
use tenure_core::domain::state::JobState;
use tenure_core::storage::list::JobFilter;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;

use crate::call::Caller;
use crate::convert;
use crate::fields::{Findings, known};
use crate::page_token::Question;

/// The filter fields of a request.
pub(super) struct Asked {
    pub(super) states: Vec<i32>,
    pub(super) job_type: String,
    pub(super) queue: String,
    pub(super) user_id: String,
    pub(super) labels: HashMap<String, String>,
}

impl Asked {
    /// Whether no field is set.
    pub(super) fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.job_type.is_empty()
            && self.queue.is_empty()
            && self.user_id.is_empty()
            && self.labels.is_empty()
    }

    /// Checks the fields together with what was found before.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the fields, `PERMISSION_DENIED` for the jobs of another user.
    pub(super) fn check(self, caller: &Caller, mut findings: Findings) -> Result<JobFilter> {
        let states = states(&mut findings, &self.states);
        for (field, name) in [("job_type", &self.job_type), ("queue", &self.queue)] {
            if !name.is_empty() {
                findings.check(field, check_name(name));
            }
        }
        let labels = findings.labels("labels", self.labels);
        let named = findings.optional_text("user_id", self.user_id);
        findings.finish()?;
        let some = |text: String| (!text.is_empty()).then_some(text);
        Ok(JobFilter {
            user_id: owner(caller, named)?,
            states,
            job_type: some(self.job_type),
            queue: some(self.queue),
            labels,
        })
    }
}

/// The states that a request names.
fn states(findings: &mut Findings, numbers: &[i32]) -> Vec<JobState> {
    let mut states = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        let field = format!("states[{index}]");
        if let Some(named) = known::<v1::JobState>(findings, field.clone(), *number) {
            match convert::state_from(named) {
                Some(state) => states.push(state),
                None => findings.add(field, "must name a state; leave the list empty for all"),
            }
        }
    }
    states.sort_unstable();
    states.dedup();
    states
}

/// Whose jobs are meant: the caller's own, unless it may see others' and asks for them.
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
                    "only operators and services may name the jobs of another user; leave user_id out",
                ))
            }
        }
        None if caller.principal.has(Operator) || caller.principal.has(Admin) => Ok(None),
        None => Ok(Some(own())),
    }
}

/// What a page token belongs to: what is done (nothing, for a list), by whom, and with
/// which filter.
pub(super) fn question(
    what: Option<&'static str>,
    caller: &Caller,
    filter: &JobFilter,
) -> Question {
    let mut parts: Vec<&str> = what.into_iter().collect();
    parts.extend([
        caller.principal.user.as_str(),
        filter.user_id.as_ref().map_or("", UserId::as_str),
        filter.job_type.as_deref().unwrap_or_default(),
        filter.queue.as_deref().unwrap_or_default(),
    ]);
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
