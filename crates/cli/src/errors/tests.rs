use tonic_types::{ErrorDetails, FieldViolation};

use super::hints::{DEAD_LETTER_ADMIN, hint_for};
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
        .set_error_info("FILE_QUOTA_EXCEEDED", "tenure", [])
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
fn at_a_limit_of_zero_nobody_is_told_to_wait() {
    let told = |reason: &str, delay| {
        let mut details = ErrorDetails::new();
        details
            .set_error_info(reason, "tenure", [])
            .set_retry_info(delay);
        let status = Status::with_error_details(Code::ResourceExhausted, "no", details);
        Failure::from_status(&status, &peer())
    };
    for reason in ["TOO_MANY_PENDING_JOBS", "RATE_LIMITED"] {
        let failure = told(reason, Some(Duration::from_secs(1)));
        assert_eq!(failure.exit, Exit::TryLater);
        let failure = told(reason, None);
        assert_eq!(failure.exit, Exit::Failed);
        let text = failure.to_text();
        assert!(text.contains("waiting does not help"), "{text}");
        assert!(
            !text.contains("retry after") && !text.contains("wait as long"),
            "{text}"
        );
    }
    assert_eq!(told("QUEUE_FULL", None).exit, Exit::TryLater);
}

#[test]
fn hints_fit_the_service_and_its_caller() {
    let hint = |peer: &Peer, code| hint_for(code, None, peer).expect("a hint");
    let admin = Peer {
        option: DEAD_LETTER_ADMIN,
        operator: true,
        ..peer()
    };
    assert!(hint(&admin, Code::NotFound).contains("dead-letters list"));
    assert!(hint(&peer(), Code::NotFound).contains("your own"));
    let denied = hint(&peer(), Code::PermissionDenied);
    assert!(
        denied.contains(
            "`--for-user` needs the role `service` (`tenure token --user USER --role service`"
        ),
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

#[test]
fn a_service_that_answers_is_not_looked_for_elsewhere() {
    let admin = Peer {
        name: "the dead-letter admin",
        option: DEAD_LETTER_ADMIN,
        operator: true,
        ..peer()
    };
    for (reason, grpc, part) in [
        (
            "DATABASE_UNAVAILABLE",
            Code::Unavailable,
            "its database does not",
        ),
        (
            "BROKER_UNAVAILABLE",
            Code::Unavailable,
            "its broker does not",
        ),
        (
            "STORE_UNAVAILABLE",
            Code::Unavailable,
            "its object store does not",
        ),
        ("SHUTTING_DOWN", Code::Unavailable, "another one answers"),
        (
            "SCHEMA_MISMATCH",
            Code::Unavailable,
            "tenure-sweeper migrate",
        ),
    ] {
        for peer in [peer(), admin.clone()] {
            let mut details = ErrorDetails::new();
            details.set_error_info(reason, "tenure", []);
            let status = Status::with_error_details(grpc, "no", details);
            let text = Failure::from_status(&status, &peer).to_text();
            assert!(text.contains(part), "{text}");
            assert!(text.contains(peer.name), "{text}");
            assert!(
                !text.contains("is running") && !text.contains(peer.option),
                "{text}"
            );
        }
    }
}

#[test]
fn refusals_of_the_operators_verbs_name_what_to_look_at() {
    for (reason, code, part) in [
        (
            "JOB_STATE_CONFLICT",
            Code::FailedPrecondition,
            "`tenure explain JOB`",
        ),
        (
            "JOB_DAMAGED",
            Code::FailedPrecondition,
            "rows in the database",
        ),
        ("BULK_REPLAY_NOT_FOUND", Code::NotFound, "operations list"),
        (
            "BULK_REPLAY_ENDED",
            Code::FailedPrecondition,
            "operations outcomes",
        ),
        ("DEAD_LETTER_NOT_FOUND", Code::NotFound, "--status any"),
        ("UNKNOWN_JOB_TYPE", Code::InvalidArgument, "`tenure types`"),
        ("PAGE_TOKEN_INVALID", Code::InvalidArgument, "same filters"),
        ("STORAGE_FULL", Code::ResourceExhausted, "make room"),
    ] {
        let hint = hint_for(code, Some(reason), &peer()).expect(reason);
        assert!(hint.contains(part), "{reason}: {hint}");
    }
}

#[test]
fn methods_are_named_as_verbs_and_none_inside_another() {
    for (text, told) in [
        (
            "CancelJobs and CancelJob",
            "`tenure cancel` with filters and `tenure cancel`",
        ),
        ("RetryJobNow", "`tenure retry-now`"),
        ("PreviewBulkReplay", "`tenure dead-letters bulk-replay`"),
        ("ListDeadLetterCauses", "`tenure dead-letters causes`"),
        (
            "ListBulkReplayOutcomes",
            "`tenure dead-letters operations outcomes`",
        ),
        ("ListDeadLetters", "`tenure dead-letters list`"),
    ] {
        assert_eq!(hints::as_verbs(text), told);
    }
}

#[test]
fn a_token_that_ran_out_meanwhile_is_told_in_one_sentence() {
    let status = Status::unauthenticated("the token has expired");
    let failure = Failure::from_status(&status, &peer()).expired_meanwhile("j");
    assert_eq!(
        failure.message,
        "the token expired while the job was followed; the job goes on"
    );
    assert_eq!(failure.exit, Exit::NotAllowed);
    let text = failure.to_text();
    assert!(text.contains("`tenure watch j`"), "{text}");
    let other = Failure::from_status(&Status::not_found("gone"), &peer()).expired_meanwhile("j");
    assert_eq!(other.message, "gone");
}

#[test]
fn an_excerpt_keeps_its_lines() {
    let text = Failure::usage("t.toml: line 2: no")
        .excerpt("2 | a = \u{1b}\n  |     ^\n")
        .to_text();
    assert_eq!(
        text,
        "error: t.toml: line 2: no\n  2 | a = \\u{1b}\n    |     ^\n"
    );
}
