//! A refused call as a caller reads it: the status with its google.rpc details.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// What a status says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC code.
    pub code: Code,
    /// The stable reason of the ErrorInfo; empty where there is none.
    pub reason: String,
    /// The domain of the ErrorInfo.
    pub domain: String,
    /// The metadata of the ErrorInfo.
    pub metadata: HashMap<String, String>,
    /// The paths of the fields of the BadRequest, sorted.
    pub fields: Vec<String>,
    /// The subjects of the QuotaFailure.
    pub quota: Vec<String>,
    /// What the RetryInfo recommends.
    pub retry_after: Option<Duration>,
    /// The message.
    pub message: String,
}

impl Refusal {
    /// Reads a status.
    pub fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let mut fields: Vec<String> = details
            .bad_request()
            .map(|bad| {
                bad.field_violations
                    .iter()
                    .map(|v| v.field.clone())
                    .collect()
            })
            .unwrap_or_default();
        fields.sort();
        let quota = details.quota_failure().map(|quota| {
            let violations = quota.violations.iter();
            violations.map(|v| v.subject.clone()).collect()
        });
        Self {
            quota: quota.unwrap_or_default(),
            code: status.code(),
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            domain: info.map(|info| info.domain.clone()).unwrap_or_default(),
            metadata: info.map(|info| info.metadata.clone()).unwrap_or_default(),
            fields,
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
            message: status.message().to_owned(),
        }
    }

    /// Whether this is a well-formed refusal with this code and reason.
    pub fn is(&self, code: Code, reason: &str) -> bool {
        self.code == code && self.reason == reason && self.domain == "tenure"
    }

    /// Whether it is an INVALID_ARGUMENT that names this field.
    pub fn names(&self, field: &str) -> bool {
        self.is(Code::InvalidArgument, "INVALID_ARGUMENT") && self.fields.iter().any(|f| f == field)
    }
}
