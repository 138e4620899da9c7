//! How many rows may be rejected before the whole import fails.

use std::fmt::Write as _;

use tenure_core::storage::imports::{Destination, Position, Reject, Sink};

use super::payload::{Payload, shown};

/// Where the rows go, and when it is enough.
pub(super) fn destination(payload: &Payload, sink: Sink) -> Destination {
    Destination {
        sink,
        max_rejected_rows: payload.max_rejected_rows,
    }
}

/// Why an import that has come to its end fails; `None`: it does not. The percentage is of
/// all rows, so it is judged at the end only.
pub(super) fn failure(payload: &Payload, at: &Position) -> Option<String> {
    let rejected = at.rows_rejected;
    let rows = at.rows_accepted + rejected;
    if let Some(most) = payload.max_rejected_rows
        && u64::try_from(rejected).unwrap_or_default() > most
    {
        // At least: the rows of the last batch are not all judged, nor counted.
        return Some(format!(
            "at least {rejected} of the rows up to line {} were rejected, and max_rejected_rows is {most}; the import stopped there",
            at.line_no - 1
        ));
    }
    let most = payload.max_rejected_percent?;
    let percent = rejected as f64 * 100.0 / rows.max(1) as f64;
    (percent > most).then(|| {
        format!(
            "{rejected} of {rows} rows were rejected, which is {percent:.2} %, and max_rejected_percent is {most}"
        )
    })
}

/// The failure with what somebody needs to go on.
pub(super) fn message(failure: &str, first: Option<&Reject>, report: &str) -> String {
    let mut text = failure.to_owned();
    if let Some(Reject {
        line,
        column,
        reason,
        ..
    }) = first
    {
        // Writing to a String cannot fail.
        let _ = match column.as_str() {
            "" => write!(text, "; the first one is in line {line}: {reason}"),
            column => write!(
                text,
                "; the first one is in line {line}, column '{}': {reason}",
                shown(column)
            ),
        };
    }
    let _ = write!(text, "; the report is file {report}");
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::domain::ids::FileId;

    use super::*;

    fn failed(more: &str, value: serde_json::Value, accepted: i64, rejected: i64) -> bool {
        let payload = json!({"file_id": FileId::new(), more: value});
        let payload = Payload::parse(payload.to_string().as_bytes()).expect("a payload");
        let at = Position {
            rows_accepted: accepted,
            rows_rejected: rejected,
            line_no: 2 + accepted + rejected,
            ..Position::default()
        };
        failure(&payload, &at).is_some()
    }

    #[test]
    fn a_limit_may_be_reached_and_not_passed() {
        let rows = "max_rejected_rows";
        assert!(!failed(rows, json!(null), 0, 9));
        assert!(!failed(rows, json!(0), 9, 0));
        assert!(failed(rows, json!(0), 9, 1));
        assert!(!failed(rows, json!(3), 0, 3));
        assert!(failed(rows, json!(3), 9, 4));
        let percent = "max_rejected_percent";
        assert!(!failed(percent, json!(0), 0, 0));
        assert!(failed(percent, json!(0), 1_000_000, 1));
        assert!(!failed(percent, json!(25), 3, 1));
        assert!(failed(percent, json!(24.99), 3, 1));
        assert!(!failed(percent, json!(100), 0, 5));
    }

    #[test]
    fn a_failure_tells_what_is_known() {
        let payload = json!({"file_id": FileId::new(), "max_rejected_rows": 1});
        let payload = Payload::parse(payload.to_string().as_bytes()).expect("a payload");
        // Of a batch that goes beyond the limit no row is stored, and none counts as accepted.
        let at = Position {
            rows_rejected: 2,
            line_no: 6,
            ..Position::default()
        };
        assert_eq!(
            failure(&payload, &at).as_deref(),
            Some(
                "at least 2 of the rows up to line 5 were rejected, and max_rejected_rows is 1; the import stopped there"
            )
        );
    }

    #[test]
    fn a_message_leads_to_the_first_reject_and_the_report() {
        let reject = Reject {
            line: 7,
            column: "born".into(),
            reason: "BAD_DATE".into(),
            message: String::new(),
            value: None,
            original: None,
        };
        assert_eq!(
            message("too many", Some(&reject), "f-1"),
            "too many; the first one is in line 7, column 'born': BAD_DATE; the report is file f-1"
        );
    }
}
