//! Between the wire and the storage.

mod bulk;
mod cause;
mod filter;
mod letter;

use chrono::{DateTime, Utc};
use prost_types::Timestamp;
use tenure_core::storage::dead_letters::Decision;
use tenure_core::{Error, Result};
use uuid::Uuid;

pub(crate) use bulk::{
    bulk_action, bulk_change, bulk_filter, bulk_replay, new_bulk_replay, outcome_filter,
};
pub(crate) use cause::{cause, cause_count, cause_filter, cause_order};
pub(crate) use filter::{list_filter, list_order};
pub(crate) use letter::{action, dead_letter, event, result};

/// The rows of a page where the caller does not say.
const DEFAULT_PAGE: u32 = 50;

/// The most rows of a page; a caller who asks for more gets this many.
const MAX_PAGE: u32 = 200;

/// The letters of one request.
const MAX_IDS: usize = 1_000;

/// The longest reason, in bytes.
const MAX_REASON: usize = 500;

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

/// An id in its one spelling.
///
/// # Errors
/// INVALID_ARGUMENT that names the field.
pub(crate) fn id(field: &str, text: &str) -> Result<Uuid> {
    Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == 36)
        .ok_or_else(|| {
            Error::invalid(
                field,
                "must be an id such as 01890a5d-ac96-774b-bcce-b302099a8057",
            )
        })
}

/// The ids of letters, or of their jobs.
///
/// # Errors
/// INVALID_ARGUMENT that names the first one that is wrong.
pub(crate) fn letter_ids(texts: &[String]) -> Result<Vec<Uuid>> {
    if texts.is_empty() || texts.len() > MAX_IDS {
        return Err(Error::invalid(
            "dead_letter_ids",
            format!("must be 1 to {MAX_IDS} ids; there are {}", texts.len()),
        ));
    }
    texts
        .iter()
        .enumerate()
        .map(|(at, text)| id(&format!("dead_letter_ids[{at}]"), text))
        .collect()
}

/// Who decides, and why.
///
/// # Errors
/// INVALID_ARGUMENT for a reason that is missing, too long, or no text.
pub(crate) fn decision(actor: String, reason: String) -> Result<Decision> {
    if reason.trim().is_empty() {
        return Err(Error::invalid(
            "reason",
            "must say why this is done; it is kept with it",
        ));
    }
    if reason.len() > MAX_REASON {
        return Err(Error::invalid(
            "reason",
            format!("must be at most {MAX_REASON} bytes long"),
        ));
    }
    plain("reason", &reason)?;
    Ok(Decision { actor, reason })
}

/// Refuses what no text column and no terminal can hold.
fn plain(field: &str, text: &str) -> Result<()> {
    if text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t')
    {
        return Err(Error::invalid(
            field,
            "must not contain control characters but line feeds and tabs",
        ));
    }
    Ok(())
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
    fn an_id_has_one_spelling() {
        let known = Uuid::now_v7();
        assert_eq!(id("x", &known.to_string()).ok(), Some(known));
        for text in [
            "",
            "x",
            &known.simple().to_string(),
            &format!("{{{known}}}"),
        ] {
            let error = id("dead_letter_id", text).expect_err(text);
            assert_eq!(error.violations()[0].field, "dead_letter_id");
        }
    }

    #[test]
    fn lists_of_ids_name_what_is_wrong() {
        let good = Uuid::now_v7().to_string();
        assert_eq!(
            letter_ids(std::slice::from_ref(&good))
                .expect("valid")
                .len(),
            1
        );
        assert_eq!(
            letter_ids(&vec![good.clone(); 1000]).expect("valid").len(),
            1000
        );
        for (texts, field) in [
            (vec![], "dead_letter_ids"),
            (vec![good.clone(); 1001], "dead_letter_ids"),
            (vec![good, "x".to_owned()], "dead_letter_ids[1]"),
        ] {
            let error = letter_ids(&texts).expect_err(field);
            assert_eq!(error.code(), Code::InvalidArgument);
            assert_eq!(error.violations()[0].field, field);
        }
    }

    #[test]
    fn a_reason_is_a_text_that_somebody_can_read() {
        let of = |reason: &str| decision("olga".to_owned(), reason.to_owned());
        assert_eq!(
            of("100 % sure;\n'--").expect("valid").reason,
            "100 % sure;\n'--"
        );
        assert!(of(&"x".repeat(500)).is_ok());
        for reason in ["", " \n", "a\0b", "\u{1b}[31m", &"x".repeat(501)] {
            let error = of(reason).expect_err("refused");
            assert_eq!(error.code(), Code::InvalidArgument, "{reason:?}");
            assert_eq!(error.violations()[0].field, "reason");
        }
    }
}
