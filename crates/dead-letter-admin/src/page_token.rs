//! Page tokens: a place in a list, bound to the list, its filters and its order.
//!
//! A token is no secret and grants nothing. The digest is there so that a token which was
//! cut, mixed up or used with other filters is refused and does not silently lead to
//! another list.

use serde::Serialize;
use sha2::{Digest, Sha256};
use tenure_core::{Code, Error, Result};
use uuid::Uuid;

/// Raised when the content changes, so that an older token is refused.
const FORM: u8 = 2;

const NUMBER: usize = 8;
const ID: usize = 16;
const DIGEST: usize = 8;
const LENGTH: usize = 1 + NUMBER + ID + DIGEST;

/// A place: the number that the list goes by, and the id that tells equals apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) number: i64,
    pub(crate) id: Uuid,
}

/// What a token is bound to: the name of a list with what was asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Binding(Vec<u8>);

impl Binding {
    /// Of this list with these filters, and whatever else makes it another one.
    ///
    /// # Errors
    /// INTERNAL where they cannot be serialised, which is a defect.
    pub(crate) fn new(list: &str, asked: &impl Serialize) -> Result<Self> {
        serde_json::to_vec(&(list, asked))
            .map(Self)
            .map_err(|error| {
                Error::new(Code::Internal, "a filter cannot be serialised").with_source(error)
            })
    }

    /// The token of the page after this place.
    pub(crate) fn encode(&self, place: Place) -> String {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.push(FORM);
        bytes.extend(place.number.to_be_bytes());
        bytes.extend(place.id.as_bytes());
        let digest = self.digest(&bytes);
        bytes.extend(digest);
        hex::encode(bytes)
    }

    /// The place that a token names; an empty one is the first page.
    ///
    /// # Errors
    /// PAGE_TOKEN_INVALID where it was not made by [`Binding::encode`] of the same list.
    pub(crate) fn decode(&self, token: &str) -> Result<Option<Place>> {
        if token.is_empty() {
            return Ok(None);
        }
        self.read(token).map(Some).ok_or_else(|| {
            Error::new(
                Code::PageTokenInvalid,
                "page_token: must be the next_page_token of this list with the same filters and order; \
                 leave it empty for the first page",
            )
            .with_violation("page_token", "is not a token of this list")
        })
    }

    fn read(&self, token: &str) -> Option<Place> {
        if token.len() != 2 * LENGTH {
            return None;
        }
        let bytes = hex::decode(token).ok()?;
        let (place, given) = bytes.split_at_checked(LENGTH - DIGEST)?;
        if self.digest(place) != given || place.first() != Some(&FORM) {
            return None;
        }
        let (number, id) = place.get(1..)?.split_at_checked(NUMBER)?;
        Some(Place {
            number: i64::from_be_bytes(number.try_into().ok()?),
            id: Uuid::from_slice(id).ok()?,
        })
    }

    fn digest(&self, place: &[u8]) -> [u8; DIGEST] {
        // A place has one length, so the two cannot run into each other.
        let full: [u8; 32] = Sha256::new()
            .chain_update(place)
            .chain_update(&self.0)
            .finalize()
            .into();
        let mut short = [0; DIGEST];
        short.copy_from_slice(&full[..DIGEST]);
        short
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tenure_core::storage::dead_letters::{DeadLetterFilter, DeadLetterStatus};

    use super::*;

    fn place() -> Place {
        Place {
            number: 1_700_000_000_123_456,
            id: Uuid::now_v7(),
        }
    }

    fn binding(filter: &DeadLetterFilter, order: u8) -> Binding {
        Binding::new("letters", &(filter, order)).expect("serialises")
    }

    #[test]
    fn a_token_leads_back_to_its_place() {
        let binding = binding(&DeadLetterFilter::default(), 0);
        let place = place();
        let token = binding.encode(place);
        assert_eq!(binding.decode(&token).expect("valid"), Some(place));
        assert_eq!(binding.decode("").expect("valid"), None);
    }

    #[test]
    fn another_list_filter_order_or_text_is_refused() {
        let none = DeadLetterFilter::default();
        let token = binding(&none, 0).encode(place());
        let by = |queue: Option<&str>, job_type: Option<&str>| DeadLetterFilter {
            queue: queue.map(str::to_owned),
            job_type: job_type.map(str::to_owned),
            ..none.clone()
        };
        let others = [
            binding(&by(Some("a"), None), 0),
            binding(&by(None, Some("a")), 0),
            binding(
                &DeadLetterFilter {
                    statuses: vec![DeadLetterStatus::Open],
                    ..none.clone()
                },
                0,
            ),
            binding(&none, 1),
            Binding::new("causes", &(&none, 0)).expect("serialises"),
        ];
        for other in &others {
            let error = other.decode(&token).expect_err("refused");
            assert_eq!(error.code(), Code::PageTokenInvalid);
        }
        // The same text under another field is another filter.
        assert!(others[1].decode(&others[0].encode(place())).is_err());
        let own = binding(&none, 0);
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).expect("text");
            assert!(own.decode(&changed).is_err(), "position {at}");
        }
        assert!(own.decode(&token[2..]).is_err());
    }

    proptest! {
        #[test]
        fn no_text_crashes_it(token in "\\PC{0,80}") {
            let _ = binding(&DeadLetterFilter::default(), 0).decode(&token);
        }
    }
}
