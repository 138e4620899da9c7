//! Failures: what went wrong, what to do about it, and the exit code.

mod hints;

use std::error::Error as _;
use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tenure_proto::v1::JobState;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use self::hints::{as_verbs, hint_for};
use crate::output::{block, escape};
use crate::shell::Line;
use crate::values::{human_duration, millis};

/// How the process ends. Scripts rely on the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It worked.
    Ok = 0,
    /// The call failed, or something on this side did.
    Failed = 1,
    /// The command line or an input file is wrong.
    Usage = 2,
    /// The job that was waited for ended failed.
    JobFailed = 3,
    /// The job that was waited for was cancelled.
    JobCancelled = 4,
    /// Not found.
    NotFound = 5,
    /// Refused for now; a later try may work.
    TryLater = 6,
    /// Not signed in, or not allowed.
    NotAllowed = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Ok,
            Code::NotFound => Self::NotFound,
            Code::ResourceExhausted | Code::Unavailable | Code::DeadlineExceeded => Self::TryLater,
            Code::Unauthenticated | Code::PermissionDenied => Self::NotAllowed,
            _ => Self::Failed,
        }
    }
}

impl From<JobState> for Exit {
    /// The exit code of a wait that ended with this state.
    fn from(state: JobState) -> Self {
        match state {
            JobState::Failed => Self::JobFailed,
            JobState::Cancelled => Self::JobCancelled,
            _ => Self::Ok,
        }
    }
}

/// Why a verb did not do what it was asked to. Boxed, because every result
/// carries its room.
#[derive(Debug)]
pub(crate) struct Failure(Box<Problem>);

impl Deref for Failure {
    type Target = Problem;

    fn deref(&self) -> &Problem {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Problem {
        &mut self.0
    }
}

/// What a [`Failure`] knows.
#[derive(Debug)]
pub(crate) struct Problem {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// What went wrong.
    pub(crate) message: String,
    /// The gRPC code, where a service answered.
    pub(crate) code: Option<&'static str>,
    /// The stable reason, where the service gave one.
    pub(crate) reason: Option<String>,
    /// The fields that were wrong, with why.
    pub(crate) fields: Vec<(String, String)>,
    /// When to try again.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the call may have done what it was asked to: an answer was lost, or told of
    /// no refusal.
    pub(crate) outcome_unknown: bool,
    /// What to do.
    pub(crate) hints: Vec<String>,
    /// The place in a file that is wrong, on lines of its own; for people only.
    excerpt: Option<String>,
}

impl Failure {
    /// A failure without a service's answer.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self(Box::new(Problem {
            exit,
            message: message.into(),
            code: None,
            reason: None,
            fields: Vec::new(),
            retry_after: None,
            outcome_unknown: false,
            hints: Vec::new(),
            excerpt: None,
        }))
    }

    /// The command line or an input file is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Something on this side failed.
    pub(crate) fn local(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Adds what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Adds the place in a file that is wrong.
    pub(crate) fn excerpt(mut self, lines: impl Into<String>) -> Self {
        self.excerpt = Some(lines.into());
        self
    }

    /// Says of a follower's failure, where it is that, that only the token ran out.
    pub(crate) fn expired_meanwhile(mut self, job_id: &str) -> Self {
        if self.code == Some(code_name(Code::Unauthenticated)) {
            "the token expired while the job was followed; the job goes on"
                .clone_into(&mut self.message);
            self.hints.push(format!(
                "`{}` with a new token follows it",
                Line::new(["watch"]).name(job_id).text()
            ));
        }
        self
    }

    /// The refusal of a service; `peer` says which one and where.
    pub(crate) fn from_status(status: &Status, peer: &Peer) -> Self {
        let mut message = if status.message().is_empty() {
            format!("{} refused the call", peer.name)
        } else {
            as_verbs(status.message())
        };
        // Transport failures keep what happened in their causes.
        let mut cause = status.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.contains(&text) {
                let _ = write!(message, ": {text}");
            }
            cause = error.source();
        }
        let details = status.get_error_details();
        let mut failure = Self::new(status.code().into(), message);
        failure.code = Some(code_name(status.code()));
        failure.retry_after = details.retry_info().and_then(|info| info.retry_delay);
        if let Some(info) = details.error_info() {
            failure.reason = Some(info.reason.clone());
        }
        // A limit of 0 names no delay.
        let shut = failure.retry_after.is_none()
            && failure
                .reason
                .as_deref()
                .is_some_and(|reason| LIMITS.contains(&reason));
        if shut || failure.reason.as_deref() == Some(NO_ROOM) {
            // Waiting does not help.
            failure.exit = Exit::Failed;
        }
        if let Some(bad) = details.bad_request() {
            let violations = bad.field_violations.iter();
            failure.fields = violations
                .map(|v| (v.field.clone(), as_verbs(&v.description)))
                .collect();
        }
        if let Some(quota) = details.quota_failure() {
            let violations = quota.violations.iter();
            let told = violations
                .map(|v| format!("{}: {}", v.subject, as_verbs(&v.description)))
                .filter(|hint| !hint.contains(&failure.message));
            let told: Vec<_> = told.collect();
            failure.hints.extend(told);
        }
        if let Some(help) = details.help() {
            let links = help.links.iter();
            failure
                .hints
                .extend(links.map(|link| format!("{}: {}", link.description, link.url)));
        }
        let hint = if shut {
            Some(SHUT.to_owned())
        } else {
            hint_for(status.code(), failure.reason.as_deref(), peer)
        };
        failure.hints.extend(hint);
        failure
    }

    /// The failure as text for people, with a newline after each line.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("error: {}\n", escape(&self.message));
        text.push_str(&block(self.excerpt.as_deref().unwrap_or_default()));
        match (self.code, &self.reason) {
            (Some(code), Some(reason)) if reason != code => {
                let _ = writeln!(text, "  reason: {} ({code})", escape(reason));
            }
            (Some(code), _) => {
                let _ = writeln!(text, "  reason: {code}");
            }
            (None, _) => {}
        }
        for (field, problem) in &self.fields {
            let _ = writeln!(text, "  field {}: {}", escape(field), escape(problem));
        }
        if let Some(wait) = self.retry_after {
            let _ = writeln!(text, "  retry after: {}", human_duration(wait));
        }
        for hint in &self.hints {
            let _ = writeln!(text, "  hint: {}", escape(hint));
        }
        text
    }

    /// The failure for programs.
    pub(crate) fn to_view(&self) -> FailureView<'_> {
        FailureView {
            error: ErrorView {
                message: &self.message,
                code: self.code,
                reason: self.reason.as_deref(),
                fields: self
                    .fields
                    .iter()
                    .map(|(field, description)| FieldView { field, description })
                    .collect(),
                retry_after_ms: self.retry_after.map(millis),
                hints: &self.hints,
                exit_code: self.exit as u8,
            },
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::local(format!("{error:#}"))
    }
}

/// The document that `-o json` writes to standard error.
#[derive(Debug, Serialize)]
pub(crate) struct FailureView<'a> {
    error: ErrorView<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorView<'a> {
    message: &'a str,
    code: Option<&'static str>,
    reason: Option<&'a str>,
    fields: Vec<FieldView<'a>>,
    retry_after_ms: Option<i64>,
    hints: &'a [String],
    exit_code: u8,
}

#[derive(Debug, Serialize)]
struct FieldView<'a> {
    field: &'a str,
    description: &'a str,
}

/// The reason of an upload for which there is no room.
const NO_ROOM: &str = "FILE_QUOTA_EXCEEDED";

/// The reasons of refusals by the limits of a user.
const LIMITS: [&str; 2] = ["TOO_MANY_PENDING_JOBS", "RATE_LIMITED"];

/// What to do where such a limit is 0.
const SHUT: &str = "waiting does not help; an operator can set another limit: `tenure limits set`";

/// The service that is called.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its name for people.
    pub(crate) name: &'static str,
    /// The option that names its address.
    pub(crate) option: &'static str,
    /// Its address.
    pub(crate) url: String,
    /// Whether the verb is for operators.
    pub(crate) operator: bool,
}

/// The code's name as the gRPC documents write it.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Whether a stream that broke with this may be taken up again.
pub(crate) fn is_broken_stream(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::ResourceExhausted
    )
}

/// When the service wants the next try.
pub(crate) fn retry_delay(status: &Status) -> Option<Duration> {
    status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay)
}

#[cfg(test)]
mod tests;
