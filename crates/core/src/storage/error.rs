//! What a database error means for what comes next (PROTOCOL.md §4).

use std::io::ErrorKind;

use crate::error::{Code, Error};

/// What to do about a database error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DbKind {
    /// Nothing happened; the same statement again may succeed at once.
    Retry,
    /// The connection is gone or useless; whether the statement took effect is not known.
    Lost,
    /// A value cannot be stored; the others of its batch can.
    Data,
    /// No space is left.
    Full,
    /// A check of the protocol failed; nothing was changed.
    Invariant,
    /// A defect of ours.
    Defect,
}

impl DbKind {
    /// The label in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Lost => "lost",
            Self::Data => "data",
            Self::Full => "full",
            Self::Invariant => "invariant",
            Self::Defect => "defect",
        }
    }
}

/// Tells what an error means, by SQLSTATE where there is one. One that condemns its
/// connection makes the pools replace those that are as old.
pub fn classify(error: &sqlx::Error) -> DbKind {
    if condemns(error) {
        super::pool::note_lost();
    }
    kind(error)
}

/// Whether other connections are likely to be as useless as this one: the server has
/// ended it, or may only be read. A call that was not answered in time tells nothing of
/// the others, and neither does one that found no room.
fn condemns(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(db) => db.code().is_some_and(|code| {
            code == "25006" || code.starts_with("57P") || code.starts_with("08")
        }),
        sqlx::Error::Io(io) => matches!(
            io.kind(),
            ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::UnexpectedEof
        ),
        _ => false,
    }
}

fn kind(error: &sqlx::Error) -> DbKind {
    match error {
        sqlx::Error::Database(db) => {
            let code = db.code().unwrap_or_default();
            match code.as_ref() {
                "40001" | "40P01" | "55P03" | "57014" => DbKind::Retry,
                "TN001" => DbKind::Invariant,
                // A failover can leave the pool on a read-only server, and a process that was
                // frozen finds its transaction ended: the connection must go.
                "25006" | "25P02" | "25P03" | "25P04" => DbKind::Lost,
                code if code.starts_with("08") || code.starts_with("57P") => DbKind::Lost,
                // Too many connections, out of memory.
                "53300" | "53200" | "53000" => DbKind::Lost,
                code if code.starts_with("53") => DbKind::Full,
                code if code.starts_with("22") || code.starts_with("23") => DbKind::Data,
                _ => DbKind::Defect,
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => DbKind::Lost,
        _ => DbKind::Defect,
    }
}

/// Turns a database error into ours. Its text is a source for the log and never part
/// of what a caller reads.
pub fn db_error(error: sqlx::Error) -> Error {
    let mapped = match classify(&error) {
        DbKind::Retry | DbKind::Lost => Error::new(
            Code::DatabaseUnavailable,
            "the database cannot be reached now; try again",
        ),
        DbKind::Full => Error::new(
            Code::StorageFull,
            "the database has no space left; try again later",
        ),
        DbKind::Data => Error::new(Code::InvalidArgument, "a value cannot be stored"),
        DbKind::Invariant | DbKind::Defect => {
            Error::new(Code::Internal, "an internal error; see the log")
        }
    };
    mapped.with_source(error)
}
