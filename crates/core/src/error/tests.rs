use std::collections::HashSet;

use super::*;

#[test]
fn every_code_is_unique_and_not_ok() {
    let mut seen = HashSet::new();
    for code in Code::ALL {
        assert!(seen.insert(code.as_str()), "{code} twice");
        assert_ne!(code.grpc(), tonic::Code::Ok, "{code}");
        assert_eq!(Code::parse(code.as_str()), Some(*code));
        assert!(
            code.as_str()
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_'),
            "{code}"
        );
    }
    assert_eq!(Code::parse("NO_SUCH"), None);
}

#[test]
fn every_status_has_its_reason_and_temporary_ones_a_delay() {
    for code in Code::ALL {
        let status = tonic::Status::from(Error::new(*code, "text"));
        assert_eq!(status.code(), code.grpc());
        let details = status.get_error_details();
        let info = details.error_info().expect("ErrorInfo");
        assert_eq!(
            (info.reason.as_str(), info.domain.as_str()),
            (code.as_str(), DOMAIN)
        );
        let retry = details.retry_info().and_then(|r| r.retry_delay);
        let want = (code.class() == Class::Temporary).then_some(DEFAULT_RETRY_AFTER);
        assert_eq!(retry, want, "{code}");
    }
}

#[test]
fn details_carry_fields_metadata_and_a_named_delay() {
    let error = Error::invalid("job.lane", "must be high, normal or low")
        .with_violation("job.labels", "at most 16")
        .with_meta("limit", "16")
        .with_retry_after(Duration::from_secs(7));
    assert_eq!(error.to_string(), "job.lane: must be high, normal or low");
    let details = error.to_status().get_error_details();
    let fields: Vec<_> = details
        .bad_request()
        .expect("BadRequest")
        .field_violations
        .iter()
        .map(|v| v.field.clone())
        .collect();
    assert_eq!(fields, ["job.lane", "job.labels"]);
    assert_eq!(details.error_info().expect("info").metadata["limit"], "16");
    assert_eq!(
        details.retry_info().and_then(|r| r.retry_delay),
        Some(Duration::from_secs(7))
    );
}

#[test]
fn the_rpc_status_says_the_same() {
    let error = Error::invalid("a", "b");
    let rpc = error.to_rpc_status();
    assert_eq!(rpc.code, tonic::Code::InvalidArgument as i32);
    assert_eq!(rpc.message, "a: b");
    assert_eq!(rpc.details.len(), 2);
}

#[test]
fn a_status_fits_into_headers_whatever_the_caller_sent() {
    let mut error = Error::new(Code::InvalidArgument, "é".repeat(100_000));
    for i in 0..1000 {
        error = error.with_violation(format!("jobs[{i}]"), "ü".repeat(5000));
    }
    let status = error.to_status();
    assert!(status.message().len() <= MAX_MESSAGE_BYTES);
    assert!(status.details().len() < 4096, "{}", status.details().len());
}

#[test]
fn the_chain_names_each_layer_once() {
    let cause = std::io::Error::other("disk on fire");
    let error = Error::new(Code::StoreUnavailable, "cannot store the file").with_source(cause);
    assert_eq!(error.to_string(), "cannot store the file");
    assert_eq!(chain(&error), "cannot store the file: disk on fire");
}

#[test]
fn clean_text_keeps_lines_and_drops_controls() {
    assert_eq!(
        clean_text("a\0b\u{1b}[1m\n\tc", 100),
        "a\u{fffd}b\u{fffd}[1m\n\tc"
    );
    assert_eq!(clean_text("äöü", 2), "äö");
}
