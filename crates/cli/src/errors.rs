//! Failures: what went wrong, what to do about it, and the exit code.

use std::error::Error as _;
use std::fmt::Write as _;
use std::ops::{Deref, DerefMut};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use tenure_proto::v1::JobState;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::output::escape;
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
    /// What to do.
    pub(crate) hints: Vec<String>,
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
            hints: Vec::new(),
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
        let no_room = failure.reason.as_deref() == Some(NO_ROOM);
        if no_room {
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
        failure.hints.extend(if no_room {
            Some("`tenure files list --kind upload` shows them, `tenure files delete FILE_ID` removes one".to_owned())
        } else {
            hint_for(status.code(), peer)
        });
        failure
    }

    /// The failure as text for people, with a newline after each line.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("error: {}\n", escape(&self.message));
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

/// The reason of an upload for which there is no room.
const NO_ROOM: &str = "FILE_QUOTA_EXCEEDED";
/// The option that names the dead-letter admin.
const DEAD_LETTER_ADMIN: &str = "--dead-letter-admin";

/// What the services call their methods, and how a person at a terminal gets there.
const VERBS: [(&str, &str); 9] = [
    ("ListJobTypes", "`tenure types`"),
    ("ApplyJobTypes", "`tenure types apply`"),
    ("ListJobs", "`tenure list`"),
    ("GetJob", "`tenure get`"),
    ("WatchJob", "`tenure watch`"),
    ("CancelJob", "`tenure cancel`"),
    ("ListFiles", "`tenure files list`"),
    ("DeleteFile", "`tenure files delete`"),
    ("UploadFile", "`tenure upload`"),
];

/// A service's text with its methods named as verbs.
fn as_verbs(text: &str) -> String {
    let mut text = text.to_owned();
    for (method, verb) in VERBS {
        text = text.replace(method, verb);
    }
    text
}

fn hint_for(code: Code, peer: &Peer) -> Option<String> {
    let Peer {
        name,
        option,
        url,
        operator,
    } = peer;
    let role = if *operator { "operator" } else { "submitter" };
    let variable = if *operator {
        "TENURE_OPERATOR_TOKEN"
    } else {
        "TENURE_TOKEN"
    };
    Some(match code {
        Code::Unavailable => format!(
            "is {name} running at {url}? `make up` starts a local one; {option} names another address"
        ),
        Code::Unauthenticated => format!(
            "`tenure token --user USER --role {role}` makes a token; put it into {variable}"
        ),
        Code::PermissionDenied if *operator => {
            "this needs the role `operator`; put such a token into TENURE_OPERATOR_TOKEN".to_owned()
        }
        Code::PermissionDenied => {
            "the token's roles do not allow this; `--for-user` needs the role `service`, `--user` needs `service` or `operator`".to_owned()
        }
        Code::NotFound if *option == DEAD_LETTER_ADMIN => {
            "check the id; `tenure dead-letters list` shows what there is".to_owned()
        }
        Code::NotFound if *operator => "check the id".to_owned(),
        Code::NotFound => "check the id; without the role `operator` you see what is your own only".to_owned(),
        Code::ResourceExhausted => "wait a little and try again".to_owned(),
        Code::DeadlineExceeded => format!("{name} took too long; `--call-timeout` gives it more time"),
        Code::Unimplemented => {
            format!("{url} does not know this call; is it {name}, and of this version? See {option}")
        }
        Code::Internal => format!("this is a fault of {name}; its log says more"),
        _ => return None,
    })
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
mod tests {
    use tonic_types::{ErrorDetails, FieldViolation};

    use super::*;

    fn peer() -> Peer {
        Peer {
            name: "the gateway",
            option: "--gateway",
            url: "http://127.0.0.1:1".to_owned(),
            operator: false,
        }
    }

    #[test]
    fn codes_map_to_exit_codes() {
        for (code, exit) in [
            (Code::InvalidArgument, 1),
            (Code::Internal, 1),
            (Code::AlreadyExists, 1),
            (Code::NotFound, 5),
            (Code::ResourceExhausted, 6),
            (Code::Unavailable, 6),
            (Code::DeadlineExceeded, 6),
            (Code::Unauthenticated, 7),
            (Code::PermissionDenied, 7),
        ] {
            assert_eq!(Exit::from(code) as u8, exit, "{code:?}");
        }
        assert_eq!(Exit::from(JobState::Success) as u8, 0);
        assert_eq!(Exit::from(JobState::Failed) as u8, 3);
        assert_eq!(Exit::from(JobState::Cancelled) as u8, 4);
        assert_eq!(Failure::usage("x").exit as u8, 2);
        assert_eq!(Exit::Interrupted as u8, 130);
    }

    #[test]
    fn details_are_told() {
        let mut details = ErrorDetails::new();
        details
            .set_error_info("PAYLOAD_INVALID", "tenure", [("a".into(), "b".into())])
            .set_retry_info(Some(Duration::from_secs(2)))
            .set_bad_request(vec![FieldViolation::new(
                "job.payload",
                "must be an \u{1b}[31mobject",
            )]);
        let status = Status::with_error_details(Code::ResourceExhausted, "no", details);
        let failure = Failure::from_status(&status, &peer());
        let text = failure.to_text();
        assert!(text.starts_with("error: no\n"), "{text}");
        assert!(
            text.contains("reason: PAYLOAD_INVALID (RESOURCE_EXHAUSTED)"),
            "{text}"
        );
        assert!(
            text.contains(r"field job.payload: must be an \u{1b}[31mobject"),
            "{text}"
        );
        assert!(text.contains("retry after: 2s"), "{text}");
        let json = serde_json::to_value(failure.to_view()).expect("serialises");
        assert_eq!(json["error"]["reason"], "PAYLOAD_INVALID");
        assert_eq!(json["error"]["retry_after_ms"], 2000);
        assert_eq!(json["error"]["exit_code"], 6);
        assert_eq!(json["error"]["fields"][0]["field"], "job.payload");
    }

    #[test]
    fn what_a_service_says_is_told_in_verbs_and_once() {
        let mut details = ErrorDetails::new();
        let what = "no room; ListFiles shows them, DeleteFile removes one";
        details
            .set_error_info(NO_ROOM, "tenure", [])
            .add_quota_failure_violation("files.max_user_bytes", what);
        let status = Status::with_error_details(Code::ResourceExhausted, what, details);
        let failure = Failure::from_status(&status, &peer());
        assert_eq!(failure.exit, Exit::Failed);
        let text = failure.to_text();
        assert!(
            text.starts_with("error: no room; `tenure files list` shows them"),
            "{text}"
        );
        assert_eq!(text.matches("no room").count(), 1, "{text}");
        assert!(text.contains("`tenure files delete FILE_ID`"), "{text}");

        let mut details = ErrorDetails::new();
        details
            .set_error_info("INVALID_ARGUMENT", "tenure", [])
            .add_bad_request_violation("job.job_type", "ListJobTypes tells the known ones");
        let status = Status::with_error_details(Code::InvalidArgument, "no", details);
        let text = Failure::from_status(&status, &peer()).to_text();
        assert!(text.contains("  reason: INVALID_ARGUMENT\n"), "{text}");
        assert!(text.contains("`tenure types` tells"), "{text}");
    }

    #[test]
    fn hints_fit_the_service_and_its_caller() {
        let hint = |peer: &Peer, code| hint_for(code, peer).expect("a hint");
        let admin = Peer {
            option: DEAD_LETTER_ADMIN,
            operator: true,
            ..peer()
        };
        assert!(hint(&admin, Code::NotFound).contains("dead-letters list"));
        assert!(hint(&peer(), Code::NotFound).contains("your own"));
        let denied = hint(&peer(), Code::PermissionDenied);
        assert!(
            denied.contains("`--for-user` needs the role `service`,"),
            "{denied}"
        );
    }

    #[test]
    fn an_unreachable_gateway_is_named_with_what_to_do() {
        let text = Failure::from_status(&Status::unavailable("down"), &peer()).to_text();
        assert!(
            text.contains("is the gateway running at http://127.0.0.1:1?"),
            "{text}"
        );
        assert!(text.contains("make up"), "{text}");
    }
}
