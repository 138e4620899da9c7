//! Page tokens: a place in the list, bound to the filters that it was made with.
//!
//! A token is no secret and grants nothing. The digest is there so that a token which was
//! cut, mixed up or used with other filters is refused and does not silently lead to
//! another list.

use chrono::DateTime;
use sha2::{Digest, Sha256};
use tenure_core::domain::ids::DeadLetterId;
use tenure_core::storage::dead_letters::{DeadLetterCursor, DeadLetterFilter};
use tenure_core::{Code, Error, Result};
use uuid::Uuid;

/// Raised when the content changes, so that an older token is refused.
const FORM: u8 = 1;

const TIME: usize = 8;
const ID: usize = 16;
const DIGEST: usize = 8;
const LENGTH: usize = 1 + TIME + ID + DIGEST;

/// The token of the page after `cursor`.
pub(crate) fn encode(cursor: DeadLetterCursor, filter: &DeadLetterFilter) -> String {
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.push(FORM);
    bytes.extend(cursor.last_failed_at.timestamp_micros().to_be_bytes());
    bytes.extend(cursor.id.uuid().as_bytes());
    let digest = digest(&bytes, filter);
    bytes.extend(digest);
    hex::encode(bytes)
}

/// The place that a token names; an empty one is the first page.
///
/// # Errors
/// PAGE_TOKEN_INVALID where it was not made by [`encode`] with the same filters.
pub(crate) fn decode(token: &str, filter: &DeadLetterFilter) -> Result<Option<DeadLetterCursor>> {
    if token.is_empty() {
        return Ok(None);
    }
    read(token, filter).map(Some).ok_or_else(|| {
        Error::new(
            Code::PageTokenInvalid,
            "page_token: must be the next_page_token of a list with the same filters; leave it empty for the first page",
        )
        .with_violation("page_token", "is not a token of this list")
    })
}

fn read(token: &str, filter: &DeadLetterFilter) -> Option<DeadLetterCursor> {
    if token.len() != 2 * LENGTH {
        return None;
    }
    let bytes = hex::decode(token).ok()?;
    let (place, given) = bytes.split_at_checked(LENGTH - DIGEST)?;
    if digest(place, filter) != given || place.first() != Some(&FORM) {
        return None;
    }
    let (time, id) = place.get(1..)?.split_at_checked(TIME)?;
    Some(DeadLetterCursor {
        last_failed_at: DateTime::from_timestamp_micros(i64::from_be_bytes(time.try_into().ok()?))?,
        id: DeadLetterId(Uuid::from_slice(id).ok()?),
    })
}

fn digest(place: &[u8], filter: &DeadLetterFilter) -> [u8; DIGEST] {
    let mut hash = Sha256::new();
    hash.update(place);
    for status in &filter.statuses {
        hash.update(status.as_str());
        hash.update([0]);
    }
    for text in [
        &filter.queue,
        &filter.job_type,
        &filter.user_id,
        &filter.error_code,
    ] {
        // The length tells where one ends, and a missing one from an empty one.
        hash.update(
            text.as_ref()
                .map_or(u64::MAX, |text| text.len() as u64)
                .to_be_bytes(),
        );
        hash.update(text.as_deref().unwrap_or_default());
    }
    let full: [u8; 32] = hash.finalize().into();
    let mut short = [0; DIGEST];
    short.copy_from_slice(&full[..DIGEST]);
    short
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use proptest::prelude::*;
    use tenure_core::storage::dead_letters::DeadLetterStatus;

    use super::*;

    fn cursor() -> DeadLetterCursor {
        DeadLetterCursor {
            last_failed_at: DateTime::<Utc>::from_timestamp_micros(1_700_000_000_123_456)
                .expect("a time"),
            id: DeadLetterId::new(),
        }
    }

    #[test]
    fn a_token_leads_back_to_its_place() {
        let filter = DeadLetterFilter {
            statuses: vec![DeadLetterStatus::Open],
            queue: Some("imports".to_owned()),
            ..DeadLetterFilter::default()
        };
        let cursor = cursor();
        let token = encode(cursor, &filter);
        assert_eq!(decode(&token, &filter).expect("valid"), Some(cursor));
        assert_eq!(decode("", &filter).expect("valid"), None);
    }

    #[test]
    fn other_filters_or_another_text_are_refused() {
        let none = DeadLetterFilter::default();
        let token = encode(cursor(), &none);
        let others = [
            DeadLetterFilter {
                queue: Some("a".to_owned()),
                ..none.clone()
            },
            DeadLetterFilter {
                job_type: Some("a".to_owned()),
                ..none.clone()
            },
            DeadLetterFilter {
                statuses: vec![DeadLetterStatus::Open],
                ..none.clone()
            },
        ];
        for other in &others {
            let error = decode(&token, other).expect_err("refused");
            assert_eq!(error.code(), Code::PageTokenInvalid);
        }
        // The same text under another field is another filter.
        let by_queue = encode(cursor(), &others[0]);
        assert!(decode(&by_queue, &others[1]).is_err());
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).expect("text");
            assert!(decode(&changed, &none).is_err(), "position {at}");
        }
        assert!(decode(&token[2..], &none).is_err());
    }

    proptest! {
        #[test]
        fn no_text_crashes_it(token in "\\PC{0,80}") {
            let _ = decode(&token, &DeadLetterFilter::default());
        }
    }
}
