//! For each code: whom it reaches, and what that person does.
use super::Code;

/// Who sees a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// Whoever makes a call: it is the reason of the refusal.
    Caller,
    /// The owner of a job: it is the job's last error, and that of its dead letter.
    Job,
    /// An operator: in a service's log, at its end, or on a dead letter without a job.
    Operator,
}

impl Audience {
    /// `callers`, `jobs` or `operators`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "callers",
            Self::Job => "jobs",
            Self::Operator => "operators",
        }
    }
}

impl Code {
    /// Whom it reaches, the most usual first.
    pub fn reaches(self) -> &'static [Audience] {
        use Audience::{Caller, Job, Operator};
        match self {
            Self::Unauthenticated
            | Self::PermissionDenied
            | Self::InvalidArgument
            | Self::JobNotFound
            | Self::QueueNotFound
            | Self::DeadLetterNotFound
            | Self::BulkReplayNotFound
            | Self::BulkReplayEnded
            | Self::JobStateConflict
            | Self::JobDamaged
            | Self::DedupeConflict
            | Self::RequestIdConflict
            | Self::PageTokenInvalid
            | Self::FileTooLarge
            | Self::FileQuotaExceeded
            | Self::DatasetNotFound
            | Self::ChecksumMismatch
            | Self::SizeMismatch
            | Self::TooManyPendingJobs
            | Self::RateLimited
            | Self::QueueFull
            | Self::DeadlineExceeded
            | Self::Unimplemented => &[Caller],
            Self::PayloadTooLarge
            | Self::UnknownJobType
            | Self::FileNotFound
            | Self::Overloaded => &[Caller, Job],
            Self::DatabaseUnavailable
            | Self::StoreUnavailable
            | Self::StorageFull
            | Self::ShuttingDown => &[Caller, Job, Operator],
            Self::SchemaMismatch => &[Operator, Job],
            Self::BrokerUnavailable
            | Self::ConfigInvalid
            | Self::UnparseableMessage
            | Self::OrphanMessage => &[Operator],
            Self::Internal => &[Caller, Operator],
            Self::Cancelled => &[Job, Caller],
            Self::Expired
            | Self::ExecutionTimeout
            | Self::LeaseExpired
            | Self::Poison
            | Self::Panic
            | Self::SnoozeLimit
            | Self::ErrorCodeInvalid
            | Self::HandlerError
            | Self::UnhandledJobType
            | Self::PayloadInvalid
            | Self::CsvEmpty
            | Self::CsvEncoding
            | Self::CsvNotText
            | Self::CsvHeaderDuplicate
            | Self::CsvHeaderEmpty
            | Self::CsvColumnMissing
            | Self::CsvTooManyColumns
            | Self::CsvSchemaInvalid
            | Self::CsvNoDelimiter
            | Self::CsvArchive
            | Self::CsvTooLarge
            | Self::ImportTooManyRejects
            | Self::DatasetRemoved
            | Self::ImportTargetInvalid
            | Self::ImportTargetBusy
            | Self::WebhookBlocked
            | Self::WebhookRefused
            | Self::WebhookUnavailable => &[Job],
        }
    }

    /// What the person who sees it does.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Unauthenticated => {
                "Get a new token and call again; the message says what is wrong with this one."
            }
            Self::PermissionDenied => {
                "Call with a token that has the role which the message names, or leave out what needs it."
            }
            Self::InvalidArgument => {
                "Mend the fields that the violations name; the same call is refused again."
            }
            Self::PayloadTooLarge => {
                "Upload large data as a file and put its id into the payload, or into a handler's result; the message has the limit."
            }
            Self::UnknownJobType => {
                "Check the spelling; the message has the nearest names, ListJobTypes all of them. On a job, it is the type of a follow-up that is missing."
            }
            Self::JobNotFound => {
                "Check the id and whose token is used; jobs are also removed some time after their end."
            }
            Self::QueueNotFound => "Check the name; ListQueues shows what there is.",
            Self::FileNotFound => {
                "Check the id and whose token is used; files are also removed when they expire: upload it again."
            }
            Self::DeadLetterNotFound => {
                "Check the id; ListDeadLetters shows what there is, in every status."
            }
            Self::BulkReplayNotFound => "Check the id; ListBulkReplays shows what there is.",
            Self::BulkReplayEnded => {
                "Read its outcomes, and begin a new bulk replay for what is still open."
            }
            Self::JobStateConflict => {
                "Read the job: it runs or has ended; a failed one is replayed from its dead letter."
            }
            Self::JobDamaged => {
                "Have an operator look at the database: rows of the ledger or of the dead letters were removed by other means than Tenure's, or come from another backup."
            }
            Self::DedupeConflict => {
                "Use another key for another content, or send the content that the key was used with."
            }
            Self::RequestIdConflict => {
                "Use a new request id for each new request, and the old one only to repeat a call unchanged."
            }
            Self::PageTokenInvalid => {
                "List again from the first page, with the same filters from page to page."
            }
            Self::FileTooLarge => {
                "Split the file or pack it; an operator can raise `files.max_bytes`."
            }
            Self::FileQuotaExceeded => {
                "Delete files that are not needed any more; an operator can raise `files.max_user_bytes`."
            }
            Self::DatasetNotFound => {
                "Check the name and whose token is used; ListDatasets shows what there is."
            }
            Self::ChecksumMismatch => {
                "Send the file again: it was changed on its way, or another checksum was announced."
            }
            Self::SizeMismatch => {
                "Announce the size that is sent, or none; a shorter upload was cut off: send it again."
            }
            Self::DatabaseUnavailable => {
                "Callers try again after the delay, jobs are tried again by themselves; operators look after PostgreSQL."
            }
            Self::BrokerUnavailable => {
                "Look after RabbitMQ; submits are accepted meanwhile, and jobs start when it is back."
            }
            Self::StoreUnavailable => {
                "Callers try again after the delay, jobs are tried again by themselves; operators look after the object store."
            }
            Self::StorageFull => {
                "Make room on the disk of the object store or of the database; then try again."
            }
            Self::Overloaded => {
                "Try again after the delay, with fewer calls at once; operators add gateways or workers if it lasts."
            }
            Self::TooManyPendingJobs => {
                "Wait until some of the user's jobs have ended, at least as long as RetryInfo says, and send the same call again; an operator can set another limit with SetUserLimits. At a limit of 0 there is no RetryInfo, and no wait helps."
            }
            Self::RateLimited => {
                "Wait as long as RetryInfo says, and send the same call again; submit more slowly, or ask an operator for a higher rate (SetUserLimits). At a rate of 0 there is no RetryInfo, and no wait helps."
            }
            Self::QueueFull => {
                "Wait as long as RetryInfo says, and send the same call again; a higher lane is refused later. An operator looks for missing or slow workers, or raises the threshold."
            }
            Self::DeadlineExceeded => {
                "Try again with the same dedupe key or request id, since the call may have had its effect; give it more time."
            }
            Self::ShuttingDown => {
                "Try again at once: another process answers, or this one when it is back."
            }
            Self::SchemaMismatch => {
                "Run `tenure-sweeper migrate` of this release; the services wait for it. Jobs that another version began go on when one of that version takes them."
            }
            Self::Unimplemented => {
                "Check the address and the version of the server; server reflection lists its methods."
            }
            Self::ConfigInvalid => {
                "Mend the keys that the message names; `--check-config` lists everything that is wrong."
            }
            Self::Internal => {
                "Report it with the log's lines of that moment; a caller may try again, a defect rarely goes away."
            }
            Self::Expired => {
                "Submit it again if it is still wanted; look at the backlog if jobs expire often."
            }
            Self::ExecutionTimeout => {
                "Give the job or its type a longer time-out, or less to do in one run."
            }
            Self::LeaseExpired => {
                "Nothing for one job, which runs again; look at the workers' health and the database if it is frequent."
            }
            Self::Poison => {
                "Find out what in this job ends its workers (memory, a crash) before it is replayed."
            }
            Self::Panic => {
                "Mend the handler; the message has what it panicked with, and the worker's log where."
            }
            Self::SnoozeLimit => {
                "See why the handler waits for ever, or raise `retry.max_snoozes`; then replay it."
            }
            Self::ErrorCodeInvalid => {
                "Mend the handler: a code has 1 to 64 of A-Z, 0-9 and `_`; the rest belongs in the message."
            }
            Self::HandlerError => {
                "Mend the handler: give the error a code of its own; the message has the one that it gave."
            }
            Self::Cancelled => {
                "Nothing, if the cancel was wanted; of a call: send it again if the caller did not give it up."
            }
            Self::UnparseableMessage => {
                "Find out who publishes to the queue beside Tenure; ignore or resolve the letter, it cannot be replayed."
            }
            Self::OrphanMessage => {
                "Look for a database that was restored to an older state, or a broker shared by two; resolve the letter."
            }
            Self::UnhandledJobType => {
                "Start a worker with a handler for the type on this queue; `tenure workers` shows what there is."
            }
            Self::PayloadInvalid => {
                "Submit again with a payload that the handler takes; the message says what it missed. A replay fails again."
            }
            Self::CsvEmpty => {
                "Upload a file that has at least a header line, or rows where the import says that it has no header."
            }
            Self::CsvEncoding => {
                "Name the file's encoding in the import, such as `windows-1252`, or save it as UTF-8."
            }
            Self::CsvNotText => "Export the data as CSV; the file is of another kind.",
            Self::CsvHeaderDuplicate => {
                "Rename one of the columns in the header; capitals and blanks make no difference."
            }
            Self::CsvHeaderEmpty => "Give every column of the header a name.",
            Self::CsvColumnMissing => {
                "Add the column to the file, map another one to it, or make it optional in the schema."
            }
            Self::CsvTooManyColumns => {
                "Split the file by columns, or drop those that are not needed."
            }
            Self::CsvSchemaInvalid => {
                "Mend the column schema at the place that the message names, and import again."
            }
            Self::CsvNoDelimiter => {
                "Name the delimiter in the import; a file of one column needs one as well."
            }
            Self::CsvArchive => "Pack exactly one file, without a password, or upload it unpacked.",
            Self::CsvTooLarge => {
                "Split the file; an operator can raise `imports.max_unpacked_bytes`."
            }
            Self::DatasetRemoved => {
                "Submit the import again where its rows are still wanted: they make a new data set of that name."
            }
            Self::ImportTooManyRejects => {
                "Mend the rows that the report lists, or allow more rejected rows."
            }
            Self::ImportTargetInvalid => {
                "Ask an operator to allow the table, or make the columns fit those of the table; the message names them."
            }
            Self::ImportTargetBusy => {
                "Nothing at first, it is tried again; if it ends in the dead letters, ask an operator to look at the table's locks and triggers, and replay it."
            }
            Self::WebhookBlocked => {
                "Ask an operator to allow the address in `webhooks`, or name another one."
            }
            Self::WebhookRefused => {
                "Ask the receiver why it refused: the message has the status of its answer, and nothing else of it is kept. Then replay it."
            }
            Self::WebhookUnavailable => {
                "Nothing at first, it is tried again; if it ends in the dead letters, look after the receiver and replay it."
            }
        }
    }
}
