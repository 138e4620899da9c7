//! Trying again within a run.

use std::time::Duration;

use tenure_core::error::{Code, Error, Result as CoreResult};

use crate::handler::JobError;

/// The waits before the database is tried again within a run: a short outage should not
/// cost an attempt, nor the way back through the file.
pub(super) const WAITS: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// Repeats what is safe to repeat while the database cannot be reached, a few times.
pub(super) async fn patiently<T, F>(work: impl Fn() -> F + Send) -> Result<T, JobError>
where
    F: Future<Output = CoreResult<T>> + Send,
{
    for wait in WAITS {
        match work().await {
            Err(error) if may_pass(&error) => tokio::time::sleep(wait).await,
            result => return result.map_err(JobError::from),
        }
    }
    work().await.map_err(JobError::from)
}

/// Whether an error is likely to be over soon.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::DatabaseUnavailable | Code::ImportTargetBusy
    )
}
