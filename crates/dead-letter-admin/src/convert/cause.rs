//! Causes.

use tenure_core::domain::ids::{check_name, check_text};
use tenure_core::storage::dead_letters::{Cause, CauseCount, CauseFilter, CauseOrder};
use tenure_core::{Error, Result};
use tenure_proto::v1;
use tenure_proto::v1::list_dead_letter_causes_request::Order as WireOrder;

use super::filter::field;
use super::letter::job_error;
use super::timestamp;

/// The filter of a list of causes.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that cannot match anything.
pub(crate) fn cause_filter(request: &v1::ListDeadLetterCausesRequest) -> Result<CauseFilter> {
    Ok(CauseFilter {
        queue: field("queue", &request.queue, check_name)?,
        job_type: field("job_type", &request.job_type, check_name)?,
        error_code: field("error_code", &request.error_code, check_text)?,
        include_closed: request.include_closed,
    })
}

/// The order of a list of causes.
///
/// # Errors
/// INVALID_ARGUMENT for one that is not known.
pub(crate) fn cause_order(number: i32) -> Result<CauseOrder> {
    match WireOrder::try_from(number) {
        Ok(WireOrder::Unspecified | WireOrder::Open) => Ok(CauseOrder::Open),
        Ok(WireOrder::LatestFirst) => Ok(CauseOrder::LatestFirst),
        Ok(WireOrder::NewestFirst) => Ok(CauseOrder::NewestFirst),
        Err(_) => Err(Error::invalid(
            "order",
            "must be OPEN, LATEST_FIRST or NEWEST_FIRST",
        )),
    }
}

/// A cause as operators see it.
pub(crate) fn cause(cause: Cause) -> v1::DeadLetterCause {
    v1::DeadLetterCause {
        cause_id: cause.id.to_string(),
        queue: cause.queue,
        job_type: cause.job_type,
        error: Some(job_error(cause.error)),
        open: cause.open,
        ignored: cause.ignored,
        replayed: cause.replayed,
        resolved: cause.resolved,
        first_failure_time: Some(timestamp(cause.first_failed_at)),
        last_failure_time: Some(timestamp(cause.last_failed_at)),
        sample_dead_letter_id: cause.sample.to_string(),
    }
}

/// A cause of a preview.
pub(crate) fn cause_count(count: CauseCount) -> v1::DeadLetterCauseCount {
    v1::DeadLetterCauseCount {
        cause_id: count.id.to_string(),
        job_type: count.job_type,
        error: Some(job_error(count.error)),
        matching: count.matching,
    }
}
