//! Filters of letters, in one spelling for each meaning.

use chrono::{DateTime, Utc};
use prost_types::Timestamp;
use tenure_core::domain::ids::{check_name, check_text};
use tenure_core::storage::dead_letters::{DeadLetterFilter, DeadLetterStatus, Order};
use tenure_core::{Error, Result};
use tenure_proto::v1;
use tenure_proto::v1::list_dead_letters_request::Order as WireOrder;

use super::letter::status;
use super::{id, plain};

/// The longest text to look for, in bytes.
const MAX_TEXT: usize = 200;

/// The first and the last second of protobuf's timestamps.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The filter of a list request: each field may stand in `filter`, or, as it was before
/// there was one, beside it.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that cannot match anything, or that is set
/// in both places.
pub(crate) fn list_filter(request: &v1::ListDeadLettersRequest) -> Result<DeadLetterFilter> {
    let inner = request.filter.clone().unwrap_or_default();
    let texts = [
        ("queue", &request.queue, &inner.queue),
        ("job_type", &request.job_type, &inner.job_type),
        ("user_id", &request.user_id, &inner.user_id),
        ("error_code", &request.error_code, &inner.error_code),
    ];
    let twice = texts
        .iter()
        .find(|(_, outer, inner)| !outer.is_empty() && !inner.is_empty())
        .map(|(name, ..)| *name)
        .or((!request.statuses.is_empty() && !inner.statuses.is_empty()).then_some("statuses"));
    if let Some(name) = twice {
        return Err(Error::invalid(
            format!("filter.{name}"),
            format!("is set as {name} as well; set it in one of the two"),
        ));
    }
    let either = |outer: &String, inner: String| {
        if outer.is_empty() {
            inner
        } else {
            outer.clone()
        }
    };
    let outer_statuses = !request.statuses.is_empty();
    let merged = v1::DeadLetterFilter {
        queue: either(&request.queue, inner.queue),
        job_type: either(&request.job_type, inner.job_type),
        user_id: either(&request.user_id, inner.user_id),
        error_code: either(&request.error_code, inner.error_code),
        statuses: if outer_statuses {
            request.statuses.clone()
        } else {
            inner.statuses
        },
        ..inner
    };
    filter(&merged, |name| {
        let outer = match name {
            "queue" => !request.queue.is_empty(),
            "job_type" => !request.job_type.is_empty(),
            "user_id" => !request.user_id.is_empty(),
            "error_code" => !request.error_code.is_empty(),
            _ => name.starts_with("statuses") && outer_statuses,
        };
        if outer {
            name.to_owned()
        } else {
            format!("filter.{name}")
        }
    })
}

/// A filter whose fields have these paths.
///
/// # Errors
/// INVALID_ARGUMENT that names the first field that cannot match anything.
pub(super) fn filter(
    asked: &v1::DeadLetterFilter,
    path: impl Fn(&str) -> String,
) -> Result<DeadLetterFilter> {
    let mut statuses = asked
        .statuses
        .iter()
        .enumerate()
        .map(|(at, number)| {
            status(*number).ok_or_else(|| {
                Error::invalid(
                    path(&format!("statuses[{at}]")),
                    "must be OPEN, IGNORED, REPLAYED or RESOLVED; leave the list empty for all",
                )
            })
        })
        .collect::<Result<Vec<_>>>()?;
    statuses.sort_unstable();
    statuses.dedup();
    if statuses.len() == DeadLetterStatus::ALL.len() {
        statuses.clear();
    }
    let temporary = match v1::ErrorClass::try_from(asked.error_class) {
        Ok(v1::ErrorClass::Unspecified) => None,
        Ok(v1::ErrorClass::Temporary) => Some(true),
        Ok(v1::ErrorClass::Permanent) => Some(false),
        Err(_) => {
            return Err(Error::invalid(
                path("error_class"),
                "must be TEMPORARY or PERMANENT, or unset for both",
            ));
        }
    };
    let failed_from = time(&path("failed_from"), asked.failed_from.as_ref())?;
    let failed_before = time(&path("failed_before"), asked.failed_before.as_ref())?;
    if let (Some(from), Some(before)) = (failed_from, failed_before)
        && from >= before
    {
        return Err(Error::invalid(
            path("failed_before"),
            "must be later than failed_from",
        ));
    }
    let cause = path("cause_id");
    Ok(DeadLetterFilter {
        statuses,
        queue: field(path("queue"), &asked.queue, check_name)?,
        job_type: field(path("job_type"), &asked.job_type, check_name)?,
        user_id: field(path("user_id"), &asked.user_id, check_text)?,
        error_code: field(path("error_code"), &asked.error_code, check_text)?,
        temporary,
        cause_id: (!asked.cause_id.is_empty())
            .then(|| id(&cause, &asked.cause_id))
            .transpose()?,
        failed_from,
        failed_before,
        text: text(&path("text"), &asked.text)?,
    })
}

/// The order of a list.
///
/// # Errors
/// INVALID_ARGUMENT for one that is not known.
pub(crate) fn list_order(number: i32) -> Result<Order> {
    match WireOrder::try_from(number) {
        Ok(WireOrder::Unspecified | WireOrder::LatestFirst) => Ok(Order::LatestFirst),
        Ok(WireOrder::OldestFirst) => Ok(Order::OldestFirst),
        Err(_) => Err(Error::invalid(
            "order",
            "must be LATEST_FIRST or OLDEST_FIRST",
        )),
    }
}

/// A text to filter by; an empty one filters nothing.
pub(super) fn field(
    name: impl Into<String>,
    text: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    check(text).map_err(|wrong| Error::invalid(name, wrong))?;
    Ok(Some(text.to_owned()))
}

fn text(name: &str, text: &str) -> Result<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    if text.len() > MAX_TEXT {
        return Err(Error::invalid(
            name,
            format!("must be at most {MAX_TEXT} bytes long"),
        ));
    }
    plain(name, text)?;
    Ok(Some(text.to_owned()))
}

fn time(name: &str, time: Option<&Timestamp>) -> Result<Option<DateTime<Utc>>> {
    let Some(time) = time else {
        return Ok(None);
    };
    let micros = SECONDS
        .contains(&time.seconds)
        .then(|| time.seconds.checked_mul(1_000_000))
        .flatten()
        .filter(|_| (0..1_000_000_000).contains(&time.nanos))
        // The database's times are whole microseconds.
        .and_then(|micros| DateTime::from_timestamp_micros(micros + i64::from(time.nanos / 1000)));
    match micros {
        Some(time) => Ok(Some(time)),
        None => Err(Error::invalid(
            name,
            "must be a time of the years 1 to 9999, with 0 to 999,999,999 nanoseconds",
        )),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::*;

    type Request = v1::ListDeadLettersRequest;

    fn inner(filter: v1::DeadLetterFilter) -> Request {
        Request {
            filter: Some(filter),
            ..Request::default()
        }
    }

    #[test]
    fn filters_name_the_field_that_is_wrong() {
        let none = v1::DeadLetterFilter::default;
        let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
        let cases = [
            (
                "queue",
                Request {
                    queue: "A b".to_owned(),
                    ..Request::default()
                },
            ),
            (
                "job_type",
                Request {
                    job_type: "x".repeat(65),
                    ..Request::default()
                },
            ),
            (
                "user_id",
                Request {
                    user_id: "a\0b".to_owned(),
                    ..Request::default()
                },
            ),
            (
                "error_code",
                Request {
                    error_code: " ".to_owned(),
                    ..Request::default()
                },
            ),
            (
                "statuses[1]",
                Request {
                    statuses: vec![1, 0],
                    ..Request::default()
                },
            ),
            (
                "filter.statuses[0]",
                inner(v1::DeadLetterFilter {
                    statuses: vec![99],
                    ..none()
                }),
            ),
            (
                "filter.queue",
                inner(v1::DeadLetterFilter {
                    queue: "%".to_owned(),
                    ..none()
                }),
            ),
            (
                "filter.text",
                inner(v1::DeadLetterFilter {
                    text: "a\0b".to_owned(),
                    ..none()
                }),
            ),
            (
                "filter.text",
                inner(v1::DeadLetterFilter {
                    text: "x".repeat(201),
                    ..none()
                }),
            ),
            (
                "filter.cause_id",
                inner(v1::DeadLetterFilter {
                    cause_id: "x".to_owned(),
                    ..none()
                }),
            ),
            (
                "filter.error_class",
                inner(v1::DeadLetterFilter {
                    error_class: 9,
                    ..none()
                }),
            ),
            (
                "filter.failed_from",
                inner(v1::DeadLetterFilter {
                    failed_from: at(i64::MAX, 0),
                    ..none()
                }),
            ),
            (
                "filter.failed_before",
                inner(v1::DeadLetterFilter {
                    failed_before: at(0, -1),
                    ..none()
                }),
            ),
            (
                "filter.failed_before",
                inner(v1::DeadLetterFilter {
                    failed_from: at(5, 0),
                    failed_before: at(5, 0),
                    ..none()
                }),
            ),
            (
                "filter.queue",
                Request {
                    queue: "a".to_owned(),
                    ..inner(v1::DeadLetterFilter {
                        queue: "a".to_owned(),
                        ..none()
                    })
                },
            ),
            (
                "filter.statuses",
                Request {
                    statuses: vec![1],
                    ..inner(v1::DeadLetterFilter {
                        statuses: vec![1],
                        ..none()
                    })
                },
            ),
        ];
        for (field, request) in cases {
            let error = list_filter(&request).expect_err(field);
            assert_eq!(error.code(), Code::InvalidArgument);
            assert_eq!(error.violations()[0].field, field);
        }
        assert!(list_filter(&Request::default()).expect("valid").is_empty());
    }

    #[test]
    fn a_field_means_the_same_in_either_place() {
        let outer = Request {
            queue: "a".to_owned(),
            job_type: "b".to_owned(),
            user_id: "c".to_owned(),
            error_code: "D".to_owned(),
            statuses: vec![4, 1, 1],
            ..Request::default()
        };
        let filter = v1::DeadLetterFilter {
            queue: "a".to_owned(),
            job_type: "b".to_owned(),
            user_id: "c".to_owned(),
            error_code: "D".to_owned(),
            statuses: vec![1, 4],
            ..v1::DeadLetterFilter::default()
        };
        assert_eq!(list_filter(&outer).ok(), list_filter(&inner(filter)).ok());
        let mixed = Request {
            filter: Some(v1::DeadLetterFilter {
                text: "%_".to_owned(),
                ..v1::DeadLetterFilter::default()
            }),
            ..outer
        };
        let mixed = list_filter(&mixed).expect("valid");
        assert_eq!(
            (mixed.queue.as_deref(), mixed.text.as_deref()),
            (Some("a"), Some("%_"))
        );
    }

    #[test]
    fn all_statuses_are_no_filter() {
        let all = Request {
            statuses: vec![1, 2, 3, 4],
            ..Request::default()
        };
        assert!(list_filter(&all).expect("valid").is_empty());
    }
}
