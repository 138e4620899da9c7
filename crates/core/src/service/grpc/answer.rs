//! What every answer is: counted, and where it is a refusal of the transport,
//! put into the form that all refusals of Tenure have.
use http::{HeaderMap, Response};
use tonic::body::Body;
use tonic::{Code as Grpc, Status};

use crate::error::{Code, Error};

/// The code of an answer. A stream that opened is OK.
pub(super) fn code_of(headers: &HeaderMap) -> Grpc {
    headers
        .get(Status::GRPC_STATUS)
        .map_or(Grpc::Ok, |value| Grpc::from_bytes(value.as_bytes()))
}

/// The label of a code.
pub(super) fn label(code: Grpc) -> &'static str {
    match code {
        Grpc::Ok => "OK",
        Grpc::Cancelled => "CANCELLED",
        Grpc::Unknown => "UNKNOWN",
        Grpc::InvalidArgument => "INVALID_ARGUMENT",
        Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Grpc::NotFound => "NOT_FOUND",
        Grpc::AlreadyExists => "ALREADY_EXISTS",
        Grpc::PermissionDenied => "PERMISSION_DENIED",
        Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Grpc::FailedPrecondition => "FAILED_PRECONDITION",
        Grpc::Aborted => "ABORTED",
        Grpc::OutOfRange => "OUT_OF_RANGE",
        Grpc::Unimplemented => "UNIMPLEMENTED",
        Grpc::Internal => "INTERNAL",
        Grpc::Unavailable => "UNAVAILABLE",
        Grpc::DataLoss => "DATA_LOSS",
        Grpc::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Gives a refusal of the transport a reason: it knows none, and it answers a
/// request that cannot be decoded with INTERNAL, as if that were our defect.
pub(super) fn explain(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    let code = code_of(headers);
    if code == Grpc::Ok || headers.contains_key(Status::GRPC_STATUS_DETAILS) {
        return response;
    }
    let Some(status) = Status::from_header_map(headers) else {
        return response;
    };
    match explained(&status) {
        Some(error) => error.to_status().into_http(),
        None => response,
    }
}

fn explained(status: &Status) -> Option<Error> {
    let text = status.message();
    match status.code() {
        // Our own INTERNAL has details, so this one is about reading the request,
        // unless it is about writing the answer.
        Grpc::Internal if text.starts_with("Error ") && !text.contains("decoding") => {
            tracing::error!(error = text, "an answer cannot be written");
            Some(Error::new(Code::Internal, "the answer cannot be written"))
        }
        Grpc::Internal => Some(Error::new(
            Code::InvalidArgument,
            format!("the request is not a valid message: {text}"),
        )),
        Grpc::OutOfRange | Grpc::ResourceExhausted => Some(Error::new(
            Code::PayloadTooLarge,
            format!("the request is too large: {text}"),
        )),
        Grpc::Unimplemented if text.is_empty() => Some(Error::new(
            Code::Unimplemented,
            "there is no such method here; server reflection lists what there is",
        )),
        Grpc::Unimplemented => Some(Error::new(Code::Unimplemented, text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    fn explained(status: &Status) -> Status {
        let response = explain(status.clone().into_http());
        Status::from_header_map(response.headers()).expect("a status")
    }

    fn reason(status: &Status) -> String {
        let details = status.get_error_details();
        details.error_info().expect("ErrorInfo").reason.clone()
    }

    #[test]
    fn refusals_of_the_transport_get_a_reason() {
        for (status, code, why) in [
            (
                Status::internal("failed to decode Protobuf message: invalid tag value: 0"),
                Grpc::InvalidArgument,
                "INVALID_ARGUMENT",
            ),
            (
                Status::out_of_range("Error, decoded message length too large: found 5 bytes"),
                Grpc::InvalidArgument,
                "PAYLOAD_TOO_LARGE",
            ),
            (
                Status::unimplemented(""),
                Grpc::Unimplemented,
                "UNIMPLEMENTED",
            ),
            (
                Status::internal("Error encoding: x"),
                Grpc::Internal,
                "INTERNAL",
            ),
        ] {
            let answer = explained(&status);
            assert_eq!(
                (answer.code(), reason(&answer).as_str()),
                (code, why),
                "{status}"
            );
        }
    }

    #[test]
    fn our_own_answers_stay_as_they_are() {
        let ours = Error::new(Code::Internal, "ours").to_status();
        let answer = explained(&ours);
        assert_eq!((answer.code(), answer.message()), (Grpc::Internal, "ours"));
        let response = explain(Response::new(Body::default()));
        assert_eq!(code_of(response.headers()), Grpc::Ok);
    }
}
