//! Between the wire and the storage.

use chrono::{DateTime, Utc};
use prost_types::Timestamp;
use tenure_core::domain::ids::{check_name, check_text};
use tenure_core::storage::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterStatus};
use tenure_core::{Error, Result};
use tenure_proto::v1;
use uuid::Uuid;

/// The letters of a page where the caller does not say.
const DEFAULT_PAGE: u32 = 50;

/// The most letters of a page; a caller who asks for more gets this many.
const MAX_PAGE: u32 = 200;

/// The size of a page.
///
/// # Errors
/// INVALID_ARGUMENT for a negative one.
pub(crate) fn page_size(asked: i32) -> Result<u32> {
    match u32::try_from(asked) {
        Ok(0) => Ok(DEFAULT_PAGE),
        Ok(size) => Ok(size.min(MAX_PAGE)),
        Err(_) => Err(Error::invalid(
            "page_size",
            format!("must be 0 (for {DEFAULT_PAGE}) to {MAX_PAGE}"),
        )),
    }
}

/// The filter of a list request, in one spelling for each meaning.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that cannot match anything.
pub(crate) fn filter(request: &v1::ListDeadLettersRequest) -> Result<DeadLetterFilter> {
    let mut statuses = request
        .statuses
        .iter()
        .enumerate()
        .map(|(at, number)| {
            status(*number).ok_or_else(|| {
                Error::invalid(
                    format!("statuses[{at}]"),
                    "must be OPEN, IGNORED, REPLAYED or RESOLVED; leave the list empty for all",
                )
            })
        })
        .collect::<Result<Vec<_>>>()?;
    statuses.sort_unstable();
    statuses.dedup();
    Ok(DeadLetterFilter {
        statuses,
        queue: field("queue", &request.queue, check_name)?,
        job_type: field("job_type", &request.job_type, check_name)?,
        user_id: field("user_id", &request.user_id, check_text)?,
        error_code: field("error_code", &request.error_code, check_text)?,
    })
}

/// A text to filter by; an empty one filters nothing.
fn field(
    name: &str,
    text: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    check(text).map_err(|wrong| Error::invalid(name, wrong))?;
    Ok(Some(text.to_owned()))
}

/// The id of a get request: a letter's or a job's.
///
/// # Errors
/// INVALID_ARGUMENT where it is no id.
pub(crate) fn letter_id(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == 36)
        .ok_or_else(|| {
            Error::invalid(
                "dead_letter_id",
                "must be the id of a dead letter or a job, such as 01890a5d-ac96-774b-bcce-b302099a8057",
            )
        })
}

/// A letter as operators see it.
pub(crate) fn dead_letter(letter: DeadLetter) -> v1::DeadLetter {
    let class = if letter.error.temporary {
        v1::ErrorClass::Temporary
    } else {
        v1::ErrorClass::Permanent
    };
    v1::DeadLetter {
        dead_letter_id: letter.id.to_string(),
        job_id: letter.job_id.map(|id| id.to_string()).unwrap_or_default(),
        message_key: letter.message_key,
        queue: letter.queue,
        job_type: letter.job_type.unwrap_or_default(),
        user_id: letter
            .user_id
            .map(|user| user.as_str().to_owned())
            .unwrap_or_default(),
        error: Some(v1::JobError {
            code: letter.error.code,
            error_class: class.into(),
            message: letter.error.message,
        }),
        attempts: letter.attempts,
        failures: letter.failures,
        replayable: letter.replayable,
        status: status_on_wire(letter.status).into(),
        first_failure_time: Some(timestamp(letter.first_failed_at)),
        last_failure_time: Some(timestamp(letter.last_failed_at)),
        payload: letter.payload.unwrap_or_default().into(),
        labels: letter.labels.into_iter().collect(),
    }
}

fn status(number: i32) -> Option<DeadLetterStatus> {
    match v1::DeadLetterStatus::try_from(number).ok()? {
        v1::DeadLetterStatus::Unspecified => None,
        v1::DeadLetterStatus::Open => Some(DeadLetterStatus::Open),
        v1::DeadLetterStatus::Ignored => Some(DeadLetterStatus::Ignored),
        v1::DeadLetterStatus::Replayed => Some(DeadLetterStatus::Replayed),
        v1::DeadLetterStatus::Resolved => Some(DeadLetterStatus::Resolved),
    }
}

fn status_on_wire(status: DeadLetterStatus) -> v1::DeadLetterStatus {
    match status {
        DeadLetterStatus::Open => v1::DeadLetterStatus::Open,
        DeadLetterStatus::Ignored => v1::DeadLetterStatus::Ignored,
        DeadLetterStatus::Replayed => v1::DeadLetterStatus::Replayed,
        DeadLetterStatus::Resolved => v1::DeadLetterStatus::Resolved,
    }
}

fn timestamp(time: DateTime<Utc>) -> Timestamp {
    Timestamp {
        seconds: time.timestamp(),
        // A leap second is more than a second's nanoseconds, which the wire forbids.
        nanos: time.timestamp_subsec_nanos().min(999_999_999) as i32,
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::*;

    #[test]
    fn page_sizes_are_bounded() {
        assert_eq!(page_size(0).ok(), Some(50));
        assert_eq!(page_size(7).ok(), Some(7));
        assert_eq!(page_size(i32::MAX).ok(), Some(200));
        assert_eq!(
            page_size(-1).map_err(|e| e.code()),
            Err(Code::InvalidArgument)
        );
    }

    #[test]
    fn filters_name_the_field_that_is_wrong() {
        let base = v1::ListDeadLettersRequest::default();
        let cases = [
            (
                "queue",
                v1::ListDeadLettersRequest {
                    queue: "A b".to_owned(),
                    ..base.clone()
                },
            ),
            (
                "job_type",
                v1::ListDeadLettersRequest {
                    job_type: "x".repeat(65),
                    ..base.clone()
                },
            ),
            (
                "user_id",
                v1::ListDeadLettersRequest {
                    user_id: "a\0b".to_owned(),
                    ..base.clone()
                },
            ),
            (
                "error_code",
                v1::ListDeadLettersRequest {
                    error_code: " ".to_owned(),
                    ..base.clone()
                },
            ),
            (
                "statuses[1]",
                v1::ListDeadLettersRequest {
                    statuses: vec![1, 0],
                    ..base.clone()
                },
            ),
            (
                "statuses[0]",
                v1::ListDeadLettersRequest {
                    statuses: vec![99],
                    ..base.clone()
                },
            ),
        ];
        for (field, request) in cases {
            let error = filter(&request).expect_err(field);
            assert_eq!(error.code(), Code::InvalidArgument);
            assert_eq!(error.violations()[0].field, field);
        }
        assert!(filter(&base).expect("valid").is_empty());
    }

    #[test]
    fn the_order_of_statuses_means_nothing() {
        let of = |statuses: Vec<i32>| {
            filter(&v1::ListDeadLettersRequest {
                statuses,
                ..Default::default()
            })
            .expect("valid")
        };
        assert_eq!(of(vec![4, 1, 1]), of(vec![1, 4]));
    }

    #[test]
    fn every_status_goes_there_and_back() {
        for one in DeadLetterStatus::ALL {
            assert_eq!(status(status_on_wire(one).into()), Some(one));
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = Uuid::now_v7();
        assert_eq!(letter_id(&id.to_string()).ok(), Some(id));
        for text in ["", "x", &id.simple().to_string(), &format!("{{{id}}}")] {
            assert_eq!(
                letter_id(text).map_err(|e| e.code()),
                Err(Code::InvalidArgument),
                "{text}"
            );
        }
    }
}
