//! Collecting what is wrong with a request, so that a caller reads all of it at once.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;

use chrono::{DateTime, Utc};
use prost_types::Timestamp;
use tenure_core::domain::ids::check_text;
use tenure_core::{Code, Error, Result};

/// The most labels of a job.
pub(crate) const MAX_LABELS: usize = 16;
/// The longest key of a label, in bytes.
pub(crate) const MAX_LABEL_KEY: usize = 63;
/// The longest value of a label, in bytes.
pub(crate) const MAX_LABEL_VALUE: usize = 255;

/// The last second of the year 9999, beyond which protobuf's timestamps end.
const LAST_SECOND: i64 = 253_402_300_799;

/// The violations of a request.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    code: Option<Code>,
    list: Vec<(String, String)>,
    meta: Vec<(&'static str, String)>,
}

impl Findings {
    /// Notes a field that breaks a rule.
    pub(crate) fn add(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.list.push((field.into(), description.into()));
    }

    /// Notes one that has a code of its own. The first such code is the request's.
    pub(crate) fn add_as(
        &mut self,
        code: Code,
        field: impl Into<String>,
        description: impl Into<String>,
    ) {
        self.code.get_or_insert(code);
        self.add(field, description);
    }

    /// Adds to the metadata of the error.
    pub(crate) fn note(&mut self, key: &'static str, value: impl Into<String>) {
        self.meta.push((key, value.into()));
    }

    /// Checks a text that may be left out; returns it where it is there.
    pub(crate) fn optional_text(
        &mut self,
        field: impl Into<String>,
        text: String,
    ) -> Option<String> {
        if text.is_empty() {
            return None;
        }
        match check_text(&text) {
            Ok(()) => Some(text),
            Err(why) => {
                self.add(field, why);
                None
            }
        }
    }

    /// Notes the error of a check, if it is one.
    pub(crate) fn check<E: Display>(&mut self, field: impl Into<String>, result: Result<(), E>) {
        if let Err(why) = result {
            self.add(field, why.to_string());
        }
    }

    /// Checks labels.
    pub(crate) fn labels(
        &mut self,
        path: &str,
        labels: HashMap<String, String>,
    ) -> BTreeMap<String, String> {
        if labels.len() > MAX_LABELS {
            self.add(
                path,
                format!("must be at most {MAX_LABELS}; there are {}", labels.len()),
            );
            return BTreeMap::new();
        }
        let labels: BTreeMap<String, String> = labels.into_iter().collect();
        for (key, value) in &labels {
            let shown: String = key.chars().take(MAX_LABEL_KEY).collect();
            let allowed =
                |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-/".contains(&b);
            if key.is_empty() || key.len() > MAX_LABEL_KEY || !key.bytes().all(allowed) {
                let why = format!(
                    "a key must be 1 to {MAX_LABEL_KEY} of a-z, 0-9, '_', '.', '-' and '/'"
                );
                self.add(format!("{path}[{shown:?}]"), why);
            } else if value.len() > MAX_LABEL_VALUE {
                let why = format!("a value must be at most {MAX_LABEL_VALUE} bytes long");
                self.add(format!("{path}[{shown:?}]"), why);
            } else if value.chars().any(char::is_control) {
                self.add(
                    format!("{path}[{shown:?}]"),
                    "a value must not contain control characters",
                );
            }
        }
        labels
    }

    /// Reads a time.
    pub(crate) fn time(&mut self, field: &str, time: Option<&Timestamp>) -> Option<DateTime<Utc>> {
        let time = time?;
        let read = u32::try_from(time.nanos)
            .ok()
            .filter(|_| time.seconds <= LAST_SECOND)
            .and_then(|nanos| DateTime::from_timestamp(time.seconds, nanos));
        if read.is_none() {
            self.add(
                field,
                "is not a valid time: seconds up to the year 9999, nanos 0 to 999,999,999",
            );
        }
        read
    }

    /// `Ok` where nothing was found.
    pub(crate) fn finish(self) -> Result<()> {
        let Some((field, description)) = self.list.first() else {
            return Ok(());
        };
        let mut message = format!("{field}: {description}");
        if self.list.len() > 1 {
            let more = self.list.len() - 1;
            message = format!("{message} (and {more} more; see the violations)");
        }
        let mut error = Error::new(self.code.unwrap_or(Code::InvalidArgument), message);
        for (field, description) in self.list {
            error = error.with_violation(field, description);
        }
        for (key, value) in self.meta {
            error = error.with_meta(key, value);
        }
        Err(error)
    }
}

/// An enum's value as the caller sent it. A number that this version does not know is
/// an error, and never silently the default.
pub(crate) fn known<T: TryFrom<i32>>(
    findings: &mut Findings,
    field: impl Into<String>,
    number: i32,
) -> Option<T> {
    let value = T::try_from(number).ok();
    if value.is_none() {
        findings.add(
            field,
            format!("{number} is not a value that this version knows"),
        );
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let mut findings = Findings::default();
        findings.add("a", "must be b");
        findings.add_as(Code::PayloadTooLarge, "c", "is large");
        findings.add_as(Code::UnknownJobType, "d", "is unknown");
        let error = findings.finish().expect_err("refused");
        assert_eq!(error.code(), Code::PayloadTooLarge);
        let fields: Vec<_> = error
            .violations()
            .iter()
            .map(|v| v.field.as_str())
            .collect();
        assert_eq!(fields, ["a", "c", "d"]);
        assert!(
            error.message().starts_with("a: must be b (and 2 more"),
            "{error}"
        );
        assert!(Findings::default().finish().is_ok());
    }

    #[test]
    fn labels_have_limits() {
        let check = |pairs: Vec<(String, String)>| {
            let mut findings = Findings::default();
            findings.labels("job.labels", pairs.into_iter().collect());
            findings.finish().map_err(|e| e.violations().len())
        };
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(
            check(vec![pair("a/b_c.d-1", "any ✓"), pair("x", "")]),
            Ok(())
        );
        assert_eq!(check(vec![pair(&"k".repeat(63), &"v".repeat(255))]), Ok(()));
        assert_eq!(check(vec![pair(&"k".repeat(64), "v")]), Err(1));
        assert_eq!(
            check(vec![pair("", "v"), pair("A", "v"), pair("ä", "v")]),
            Err(3)
        );
        assert_eq!(
            check(vec![pair("k", &"v".repeat(256)), pair("l", "a\0")]),
            Err(2)
        );
        assert_eq!(
            check((0..17).map(|i| pair(&i.to_string(), "")).collect()),
            Err(1)
        );
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let read = |seconds, nanos| {
            let mut findings = Findings::default();
            let time = findings.time("t", Some(&Timestamp { seconds, nanos }));
            findings.finish().map(|()| time)
        };
        assert!(read(0, 0).is_ok_and(|t| t == DateTime::from_timestamp(0, 0)));
        for (seconds, nanos) in [
            (0, -1),
            (0, 2_000_000_000),
            (i64::MAX, 0),
            (i64::MIN, 0),
            (LAST_SECOND + 1, 0),
        ] {
            assert!(read(seconds, nanos).is_err(), "{seconds} {nanos}");
        }
    }
}
