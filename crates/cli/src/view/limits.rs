//! The shapes of `limits`.

use serde::Serialize;
use tenure_proto::v1;

use super::time;

/// A page of users, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct LimitList {
    pub(crate) users: Vec<LimitEntry>,
    pub(crate) next_page_token: Option<String>,
}

/// A user with limits of its own; `null`: the default.
#[derive(Debug, Serialize)]
pub(crate) struct LimitEntry {
    pub(crate) user_id: String,
    pub(crate) limits: Limits,
    pub(crate) update_time: Option<String>,
    pub(crate) updated_by: String,
}

/// Limits.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Limits {
    pub(crate) max_jobs: Option<i64>,
    pub(crate) submits_per_second: Option<f64>,
    pub(crate) submit_burst: Option<i64>,
    pub(crate) weight: Option<i32>,
}

/// What holds for a user.
#[derive(Debug, Serialize)]
pub(crate) struct UserLimits {
    pub(crate) user_id: String,
    /// What was set; `null`: nothing.
    pub(crate) set: Option<LimitEntry>,
    /// What holds, defaults included.
    pub(crate) effective: Limits,
    /// The jobs that have not ended, counted up to one more than the limit.
    pub(crate) jobs: i64,
}

/// The user for whom the defaults hold again.
#[derive(Debug, Serialize)]
pub(crate) struct LimitsReset {
    pub(crate) user_id: String,
}

impl From<v1::UserLimits> for Limits {
    fn from(it: v1::UserLimits) -> Self {
        Self {
            max_jobs: it.max_jobs,
            submits_per_second: it.submits_per_second,
            submit_burst: it.submit_burst,
            weight: it.weight,
        }
    }
}

impl From<v1::UserLimitsEntry> for LimitEntry {
    fn from(it: v1::UserLimitsEntry) -> Self {
        Self {
            user_id: it.user_id,
            limits: it.limits.unwrap_or_default().into(),
            update_time: time(it.update_time),
            updated_by: it.updated_by,
        }
    }
}
