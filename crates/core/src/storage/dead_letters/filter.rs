//! Which letters: the filter of lists, previews and bulk replays.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::DeadLetterStatus;

/// Which letters; everything that is set must match. It is stored with a bulk replay.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadLetterFilter {
    /// Any of these; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<DeadLetterStatus>,
    /// This queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// This job type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    /// This owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// This error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Whether a retry could have helped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary: Option<bool>,
    /// This cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause_id: Option<Uuid>,
    /// The last failure not before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_from: Option<DateTime<Utc>>,
    /// The last failure before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<DateTime<Utc>>,
    /// The error's message holds this, whatever the case. No character is special.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl DeadLetterFilter {
    /// Whether every letter matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same for open letters alone.
    #[must_use]
    pub fn open(&self) -> Self {
        Self {
            statuses: vec![DeadLetterStatus::Open],
            ..self.clone()
        }
    }

    /// What the index does not find by itself when it is driven by `driver`.
    pub(super) fn rest(&self, driver: Driver) -> Self {
        let mut rest = Self {
            failed_from: None,
            failed_before: None,
            ..self.clone()
        };
        match driver {
            Driver::Cause => rest.cause_id = None,
            Driver::User => rest.user_id = None,
            Driver::Type => rest.job_type = None,
            Driver::Open => rest.statuses.clear(),
            Driver::All => {}
        }
        rest
    }
}

/// The index that a scan goes along: the one that is likely to have the fewest letters
/// beside those that match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Driver {
    Cause,
    User,
    Type,
    Open,
    All,
}

impl Driver {
    pub(super) fn of(filter: &DeadLetterFilter) -> Self {
        if filter.cause_id.is_some() {
            Self::Cause
        } else if filter.user_id.is_some() {
            Self::User
        } else if filter.job_type.is_some() {
            Self::Type
        } else if filter.statuses == [DeadLetterStatus::Open] {
            Self::Open
        } else {
            Self::All
        }
    }

    /// The value that it looks for.
    pub(super) fn value(self, filter: &DeadLetterFilter) -> Option<String> {
        match self {
            Self::Cause => filter.cause_id.map(|id| id.to_string()),
            Self::User => filter.user_id.clone(),
            Self::Type => filter.job_type.clone(),
            Self::Open | Self::All => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_stored_and_read_as_it_was() {
        let filter = DeadLetterFilter {
            statuses: vec![DeadLetterStatus::Open],
            queue: Some("a".to_owned()),
            temporary: Some(false),
            cause_id: Some(Uuid::now_v7()),
            failed_from: DateTime::from_timestamp_micros(1_700_000_000_123_456),
            text: Some("100 %".to_owned()),
            ..DeadLetterFilter::default()
        };
        let text = serde_json::to_string(&filter).expect("serialises");
        assert_eq!(
            serde_json::from_str::<DeadLetterFilter>(&text).expect("reads"),
            filter
        );
        let none: DeadLetterFilter = serde_json::from_str("{}").expect("reads");
        assert!(none.is_empty());
    }

    #[test]
    fn what_the_index_finds_is_no_rest() {
        let filter = DeadLetterFilter {
            cause_id: Some(Uuid::now_v7()),
            user_id: Some("ada".to_owned()),
            ..DeadLetterFilter::default()
        };
        let driver = Driver::of(&filter);
        assert_eq!(driver, Driver::Cause);
        assert!(!filter.rest(driver).is_empty());
        let open = DeadLetterFilter::default().open();
        assert_eq!(Driver::of(&open), Driver::Open);
        assert!(open.rest(Driver::Open).is_empty());
    }
}
