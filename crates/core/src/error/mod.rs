//! The one error type of Tenure and its closed list of codes.
//!
//! A code says three things: a stable reason that clients may match on, whether
//! a later try can help, and the gRPC status that carries it. The line that
//! fails picks the code; nothing further up guesses.
mod advice;
mod codes;
pub mod docs;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use prost::Message as _;
use tonic_types::{ErrorDetails, StatusExt as _};

pub use self::advice::Audience;
pub use self::codes::{Class, Code};

/// The `domain` of every ErrorInfo that Tenure sends.
pub const DOMAIN: &str = "tenure";

/// The delay that a temporary error recommends when it names none.
pub const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest message on the wire, in bytes. A gRPC status travels in HTTP/2
/// headers, of which common clients accept 8 KiB.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The bytes that the field violations may take on the wire, for the same reason.
const MAX_VIOLATION_BYTES: usize = 2048;

/// A result with Tenure's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One field that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, for example `jobs[2].labels`.
    pub field: String,
    /// What is wrong and what would be right.
    pub description: String,
}

/// What went wrong. `Display` gives only this layer's message; the cause is its
/// `source()`, so that a log prints each layer once.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    message: String,
    violations: Vec<Violation>,
    quota: Option<(Cow<'static, str>, String)>,
    retry_after: Option<Duration>,
    /// Waiting does not help, whatever the code.
    lasts: bool,
    meta: Vec<(&'static str, String)>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with this code and a message that tells the reader what to do.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            violations: Vec::new(),
            quota: None,
            retry_after: None,
            lasts: false,
            meta: Vec::new(),
            source: None,
        }))
    }

    /// INVALID_ARGUMENT about one field; the message is `field: description`.
    pub fn invalid(field: impl Into<String>, description: impl Into<String>) -> Self {
        let (field, description) = (field.into(), description.into());
        Self::new(Code::InvalidArgument, format!("{field}: {description}"))
            .with_violation(field, description)
    }

    /// Adds a field that breaks a rule.
    #[must_use]
    pub fn with_violation(
        mut self,
        field: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        self.0.violations.push(Violation {
            field: field.into(),
            description: description.into(),
        });
        self
    }

    /// Names the limit that was reached, by its configuration key or by whom it holds for
    /// (`user:ada`), and what to do.
    #[must_use]
    pub fn with_quota(
        mut self,
        subject: impl Into<Cow<'static, str>>,
        description: impl Into<String>,
    ) -> Self {
        self.0.quota = Some((subject.into(), description.into()));
        self
    }

    /// Says when a retry is worth it.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
        self
    }

    /// Says that no retry is worth it until somebody has changed something, although errors
    /// with this code go by themselves as a rule.
    #[must_use]
    pub fn lasting(mut self) -> Self {
        self.0.lasts = true;
        self
    }

    /// Adds a key to the metadata of the ErrorInfo.
    #[must_use]
    pub fn with_meta(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.0.meta.push((key, value.into()));
        self
    }

    /// Keeps the cause, for the log alone; it never goes to a caller.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same refusal for somebody else, without its cause, which is logged once.
    #[must_use]
    pub fn again(&self) -> Self {
        let inner = &self.0;
        Self(Box::new(Inner {
            code: inner.code,
            message: inner.message.clone(),
            violations: inner.violations.clone(),
            quota: inner.quota.clone(),
            retry_after: inner.retry_after,
            lasts: inner.lasts,
            meta: inner.meta.clone(),
            source: None,
        }))
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message of this layer.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether a later try may succeed.
    pub fn is_temporary(&self) -> bool {
        self.0.code.class() == Class::Temporary
    }

    /// The fields that break a rule.
    pub fn violations(&self) -> &[Violation] {
        &self.0.violations
    }

    /// The metadata of the ErrorInfo.
    pub fn meta(&self) -> &[(&'static str, String)] {
        &self.0.meta
    }

    /// When a retry is worth it, where the failing line named it.
    pub fn named_retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// When a retry is worth it: what was named, else the default of temporary errors.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.0.lasts {
            return None;
        }
        self.0
            .retry_after
            .or_else(|| self.is_temporary().then_some(DEFAULT_RETRY_AFTER))
    }

    /// The same error as a `google.rpc.Status` message.
    pub fn to_rpc_status(&self) -> tenure_proto::rpc::Status {
        let status = self.to_status();
        // The details of a tonic status are an encoded google.rpc.Status.
        tenure_proto::rpc::Status::decode(status.details()).unwrap_or_else(|_| {
            tenure_proto::rpc::Status {
                code: status.code() as i32,
                message: status.message().to_owned(),
                details: Vec::new(),
            }
        })
    }

    /// The same error as a gRPC status with ErrorInfo, BadRequest, QuotaFailure and RetryInfo.
    pub fn to_status(&self) -> tonic::Status {
        let meta: HashMap<String, String> = self
            .0
            .meta
            .iter()
            .map(|(key, value)| ((*key).to_owned(), cut_bytes(value, 256).to_owned()))
            .collect();
        let mut details = ErrorDetails::with_error_info(self.0.code.as_str(), DOMAIN, meta);
        let mut room = MAX_VIOLATION_BYTES;
        for violation in &self.0.violations {
            let field = cut_bytes(&violation.field, 256);
            let description = cut_bytes(&violation.description, 512);
            let Some(left) = room.checked_sub(field.len() + description.len()) else {
                break;
            };
            room = left;
            details.add_bad_request_violation(field, description);
        }
        if let Some((subject, description)) = &self.0.quota {
            details
                .add_quota_failure_violation(cut_bytes(subject, 300), cut_bytes(description, 512));
        }
        if let Some(delay) = self.retry_after() {
            details.set_retry_info(Some(delay));
        }
        let message = cut_bytes(&self.0.message, MAX_MESSAGE_BYTES);
        tonic::Status::with_error_details(self.0.code.grpc(), message, details)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(&**source),
            None => None,
        }
    }
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        error.to_status()
    }
}

/// All messages of an error and its sources, each once, joined by `: `.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        // Some libraries repeat their source in their own message.
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        next = cause.source();
    }
    text
}

/// A text that a database, a terminal and a log can hold: control characters
/// but `\n` and `\t` become U+FFFD, and it ends after `max_chars` characters.
pub fn clean_text(text: &str, max_chars: usize) -> String {
    text.chars()
        .take(max_chars)
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

fn cut_bytes(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod tests;
