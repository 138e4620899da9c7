//! The one error type of Tenure and its closed list of codes.
//!
//! A code says three things: a stable reason that clients may match on, whether
//! a later try can help, and the gRPC status that carries it. The line that
//! fails picks the code; nothing further up guesses.
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use prost::Message as _;
use tonic_types::{ErrorDetails, StatusExt as _};

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

/// Whether the same request or job may succeed later, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A later try may succeed.
    Temporary,
    /// No later try will succeed.
    Permanent,
}

impl Class {
    /// `temporary` or `permanent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::Permanent => "permanent",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $class:ident, $grpc:ident;)*) => {
        /// Every reason that Tenure gives for a refusal or a failed job.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of their definition.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The stable reason, in UPPER_SNAKE.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// Whether a later try may succeed.
            pub fn class(self) -> Class {
                match self { $(Code::$name => Class::$class,)* }
            }

            /// The gRPC status that carries this code.
            pub fn grpc(self) -> tonic::Code {
                match self { $(Code::$name => tonic::Code::$grpc,)* }
            }
        }
    };
}

codes! {
    /// No token, or one that is not valid.
    Unauthenticated = "UNAUTHENTICATED", Permanent, Unauthenticated;
    /// The token is valid and its roles do not allow this.
    PermissionDenied = "PERMISSION_DENIED", Permanent, PermissionDenied;
    /// A field of the request breaks a rule; the violations name it.
    InvalidArgument = "INVALID_ARGUMENT", Permanent, InvalidArgument;
    /// The payload is larger than the inline limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", Permanent, InvalidArgument;
    /// No such job type is registered.
    UnknownJobType = "UNKNOWN_JOB_TYPE", Permanent, InvalidArgument;
    /// No such job, or it belongs to someone else.
    JobNotFound = "JOB_NOT_FOUND", Permanent, NotFound;
    /// The job's state does not allow this: it runs, or has ended.
    JobStateConflict = "JOB_STATE_CONFLICT", Permanent, FailedPrecondition;
    /// No such file, or it belongs to someone else.
    FileNotFound = "FILE_NOT_FOUND", Permanent, NotFound;
    /// No such dead letter.
    DeadLetterNotFound = "DEAD_LETTER_NOT_FOUND", Permanent, NotFound;
    /// No such bulk replay.
    BulkReplayNotFound = "BULK_REPLAY_NOT_FOUND", Permanent, NotFound;
    /// The bulk replay has ended, and does not change any more.
    BulkReplayEnded = "BULK_REPLAY_ENDED", Permanent, FailedPrecondition;
    /// The deduplication key is in use with another content.
    DedupeConflict = "DEDUPE_CONFLICT", Permanent, AlreadyExists;
    /// The request id was used with another content.
    RequestIdConflict = "REQUEST_ID_CONFLICT", Permanent, AlreadyExists;
    /// The page token is not one of ours, or the filters changed since.
    PageTokenInvalid = "PAGE_TOKEN_INVALID", Permanent, InvalidArgument;
    /// The file is larger than the limit.
    FileTooLarge = "FILE_TOO_LARGE", Permanent, InvalidArgument;
    /// The user's files take all the room that one user has.
    FileQuotaExceeded = "FILE_QUOTA_EXCEEDED", Permanent, ResourceExhausted;
    /// No such data set, or it belongs to someone else.
    DatasetNotFound = "DATASET_NOT_FOUND", Permanent, NotFound;
    /// The uploaded bytes do not have the checksum that was announced.
    ChecksumMismatch = "CHECKSUM_MISMATCH", Permanent, InvalidArgument;
    /// The uploaded bytes do not have the size that was announced.
    SizeMismatch = "SIZE_MISMATCH", Permanent, InvalidArgument;
    /// PostgreSQL cannot be reached or refuses new work.
    DatabaseUnavailable = "DATABASE_UNAVAILABLE", Temporary, Unavailable;
    /// RabbitMQ cannot be reached or refuses new work.
    BrokerUnavailable = "BROKER_UNAVAILABLE", Temporary, Unavailable;
    /// The object store cannot be reached.
    StoreUnavailable = "STORE_UNAVAILABLE", Temporary, Unavailable;
    /// The object store or the database has no room left.
    StorageFull = "STORAGE_FULL", Temporary, ResourceExhausted;
    /// More work waits than this process accepts.
    Overloaded = "OVERLOADED", Temporary, ResourceExhausted;
    /// The deadline of the call passed first.
    DeadlineExceeded = "DEADLINE_EXCEEDED", Temporary, DeadlineExceeded;
    /// This process is stopping; another one will answer.
    ShuttingDown = "SHUTTING_DOWN", Temporary, Unavailable;
    /// The database's schema is not the one that this version needs.
    SchemaMismatch = "SCHEMA_MISMATCH", Temporary, Unavailable;
    /// This server has no such method.
    Unimplemented = "UNIMPLEMENTED", Permanent, Unimplemented;
    /// The configuration is wrong.
    ConfigInvalid = "CONFIG_INVALID", Permanent, FailedPrecondition;
    /// A defect in Tenure; the log has the cause.
    Internal = "INTERNAL", Permanent, Internal;

    /// The job's start was not reached before its expiry.
    Expired = "EXPIRED", Permanent, FailedPrecondition;
    /// The attempt took longer than the job's time-out.
    ExecutionTimeout = "EXECUTION_TIMEOUT", Temporary, DeadlineExceeded;
    /// The worker stopped renewing the lease.
    LeaseExpired = "LEASE_EXPIRED", Temporary, Aborted;
    /// The job was lost with its worker too many times in a row.
    Poison = "POISON", Permanent, Aborted;
    /// The handler panicked.
    Panic = "PANIC", Temporary, Internal;
    /// The handler put the job off more often than is allowed.
    SnoozeLimit = "SNOOZE_LIMIT", Permanent, FailedPrecondition;
    /// The handler failed with a code that is not 1 to 64 of A-Z, 0-9 and `_`; the message
    /// has what it gave.
    ErrorCodeInvalid = "ERROR_CODE_INVALID", Permanent, Internal;
    /// The job was cancelled.
    Cancelled = "CANCELLED", Permanent, Cancelled;
    /// The message in the queue is not an envelope.
    UnparseableMessage = "UNPARSEABLE_MESSAGE", Permanent, InvalidArgument;
    /// The message names a job that the database does not know.
    OrphanMessage = "ORPHAN_MESSAGE", Permanent, NotFound;
    /// The worker has no handler for this job type; another worker may.
    UnhandledJobType = "UNHANDLED_JOB_TYPE", Temporary, Unimplemented;
    /// The handler cannot read its payload.
    PayloadInvalid = "PAYLOAD_INVALID", Permanent, InvalidArgument;

    /// The CSV file has no row.
    CsvEmpty = "CSV_EMPTY", Permanent, InvalidArgument;
    /// The CSV file is not in the encoding that was declared or detected.
    CsvEncoding = "CSV_ENCODING", Permanent, InvalidArgument;
    /// The CSV file is binary.
    CsvNotText = "CSV_NOT_TEXT", Permanent, InvalidArgument;
    /// Two columns of the header have one name.
    CsvHeaderDuplicate = "CSV_HEADER_DUPLICATE", Permanent, InvalidArgument;
    /// A column of the header has no name.
    CsvHeaderEmpty = "CSV_HEADER_EMPTY", Permanent, InvalidArgument;
    /// A column that the schema asks for is not in the file.
    CsvColumnMissing = "CSV_COLUMN_MISSING", Permanent, InvalidArgument;
    /// The file has more columns than the limit.
    CsvTooManyColumns = "CSV_TOO_MANY_COLUMNS", Permanent, InvalidArgument;
    /// The column schema of the payload is wrong.
    CsvSchemaInvalid = "CSV_SCHEMA_INVALID", Permanent, InvalidArgument;
    /// No delimiter fits the file.
    CsvNoDelimiter = "CSV_NO_DELIMITER", Permanent, InvalidArgument;
    /// The archive is damaged, encrypted, or holds not exactly one file.
    CsvArchive = "CSV_ARCHIVE", Permanent, InvalidArgument;
    /// The text, unpacked, is larger than the limit.
    CsvTooLarge = "CSV_TOO_LARGE", Permanent, InvalidArgument;
    /// More rows were rejected than the import allows.
    ImportTooManyRejects = "IMPORT_TOO_MANY_REJECTS", Permanent, FailedPrecondition;
    /// The table of the import is not allowed, or does not fit its columns.
    ImportTargetInvalid = "IMPORT_TARGET_INVALID", Permanent, FailedPrecondition;

    /// The table of the import is locked or too slow; the import is tried again.
    ImportTargetBusy = "IMPORT_TARGET_BUSY", Temporary, Unavailable;

    /// The address of the webhook is not allowed; it was not contacted.
    WebhookBlocked = "WEBHOOK_BLOCKED", Permanent, PermissionDenied;
    /// The receiver of the webhook refused it for good.
    WebhookRefused = "WEBHOOK_REFUSED", Permanent, FailedPrecondition;
    /// The receiver of the webhook cannot be reached, or asks to come back later.
    WebhookUnavailable = "WEBHOOK_UNAVAILABLE", Temporary, Unavailable;
}

impl Code {
    /// Whether it tells of an outage or a stop of Tenure's own parts, which is no fault of
    /// the job: a run that ends so spends no attempt, for a time that is bounded.
    pub fn is_own_outage(self) -> bool {
        matches!(
            self,
            Self::DatabaseUnavailable
                | Self::StoreUnavailable
                | Self::BrokerUnavailable
                | Self::ShuttingDown
                | Self::LeaseExpired
                | Self::SchemaMismatch
                | Self::UnhandledJobType
        )
    }

    /// The code with this reason, if there is one.
    pub fn parse(reason: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.as_str() == reason)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
    quota: Option<(&'static str, String)>,
    retry_after: Option<Duration>,
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

    /// Names the limit that was reached, by its configuration key, and what to do.
    #[must_use]
    pub fn with_quota(mut self, limit: &'static str, description: impl Into<String>) -> Self {
        self.0.quota = Some((limit, description.into()));
        self
    }

    /// Says when a retry is worth it.
    #[must_use]
    pub fn with_retry_after(mut self, delay: Duration) -> Self {
        self.0.retry_after = Some(delay);
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
        if let Some((limit, description)) = &self.0.quota {
            details.add_quota_failure_violation(*limit, cut_bytes(description, 512));
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
#[path = "error_tests.rs"]
mod tests;
