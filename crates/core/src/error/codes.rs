//! The closed list of codes. docs/ERRORS.md is generated from it and from `advice`.
use std::fmt;

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
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $class:ident, $grpc:ident;)*) => {
        /// Every reason that Tenure gives for a refusal or a failed job.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of their definition.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The stable reason, in UPPER_SNAKE.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// What it means, in a sentence or two.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),*).trim_ascii(),)* }
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
    /// No such queue.
    QueueNotFound = "QUEUE_NOT_FOUND", Permanent, NotFound;
    /// The job's state does not allow this: it runs, or has ended.
    JobStateConflict = "JOB_STATE_CONFLICT", Permanent, FailedPrecondition;
    /// The job's rows contradict each other, so that nothing may end it.
    JobDamaged = "JOB_DAMAGED", Permanent, FailedPrecondition;
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
    /// The user has as many jobs that wait or run as one user may have.
    TooManyPendingJobs = "TOO_MANY_PENDING_JOBS", Temporary, ResourceExhausted;
    /// The user has submitted more jobs in a second than one user may.
    RateLimited = "RATE_LIMITED", Temporary, ResourceExhausted;
    /// More jobs wait in the queue, or in all, than may; low priorities are refused first.
    QueueFull = "QUEUE_FULL", Temporary, ResourceExhausted;
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
    /// The handler failed with a code that Tenure keeps for what it decides itself; the
    /// message has the code and what the handler said.
    HandlerError = "HANDLER_ERROR", Permanent, Internal;
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

    /// The CSV file is empty: it has no header line or, where it is to have none, no row.
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
    /// The data set was removed while the import wrote to it.
    DatasetRemoved = "DATASET_REMOVED", Permanent, FailedPrecondition;
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

    /// Whether it tells what Tenure itself has decided about a job or a message. A handler
    /// that gave it would be taken for that.
    pub fn is_verdict(self) -> bool {
        matches!(
            self,
            Self::Expired
                | Self::ExecutionTimeout
                | Self::LeaseExpired
                | Self::Poison
                | Self::Panic
                | Self::SnoozeLimit
                | Self::ErrorCodeInvalid
                | Self::HandlerError
                | Self::Cancelled
                | Self::UnparseableMessage
                | Self::OrphanMessage
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
