//! What every call goes through: what its caller may do, and how a refusal is answered.
//! The token and the deadline were looked at before, by the port.

use std::future::Future;

use http::Extensions;
use tenure_core::auth::{Principal, Role};
use tenure_core::domain::ids::{UserId, check_text};
use tenure_core::{Code, Error, Result};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Who may submit.
pub(crate) const SUBMITTERS: &[Role] = &[Role::Submitter, Role::Service, Role::Admin];
/// Who may look at jobs and files.
pub(crate) const READERS: &[Role] = &[Role::Submitter, Role::Service, Role::Operator, Role::Admin];
/// Who may look at the queues and change the catalogue.
pub(crate) const OPERATORS: &[Role] = &[Role::Operator, Role::Admin];

/// A call that was let in.
pub(crate) struct Caller {
    /// Who calls.
    pub(crate) principal: Principal,
    /// The caller's W3C `traceparent`, if it sent a valid one.
    pub(crate) trace_parent: Option<String>,
}

/// Runs a call with one request and one answer for a caller that has one of these
/// roles; none: any valid token will do.
pub(crate) async fn unary<T, R, F>(
    method: &'static str,
    any_of: &[Role],
    request: Request<T>,
    run: impl FnOnce(Caller, T) -> F,
) -> Result<Response<R>, Status>
where
    F: Future<Output = Result<R>>,
{
    let result = match Caller::of(&request, any_of) {
        Ok(caller) => run(caller, request.into_inner()).await,
        Err(error) => Err(error),
    };
    result
        .map(Response::new)
        .map_err(|error| refusal(method, error))
}

impl Caller {
    /// The caller of a request, where it has one of these roles; none: any role.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`.
    pub(crate) fn of<T>(request: &Request<T>, any_of: &[Role]) -> Result<Self> {
        let principal = principal(request.extensions())?;
        if !any_of.is_empty() {
            principal.require(any_of)?;
        }
        Ok(Self {
            principal,
            trace_parent: trace_parent(request.metadata()),
        })
    }

    /// The owner that a request names, and the caller's name where that is another.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the path, `PERMISSION_DENIED`.
    pub(crate) fn acting_for(
        &self,
        path: &str,
        requested: &str,
    ) -> Result<(UserId, Option<String>)> {
        let own = self.principal.user.as_str();
        if !requested.is_empty() {
            check_text(requested).map_err(|why| Error::invalid(path, why))?;
        }
        let owner = self.principal.acting_for(requested)?;
        let submitted_by = (owner.as_str() != own).then(|| own.to_owned());
        Ok((UserId::from_stored(owner.as_str().to_owned()), submitted_by))
    }

    /// Whether the caller may see what belongs to this user.
    pub(crate) fn may_see(&self, owner: &UserId) -> bool {
        self.principal.may_see(owner.as_str())
    }
}

/// The answer to a call that was refused. What an operator should know is logged here,
/// once, with its causes; a caller's mistake is not.
pub(crate) fn refusal(method: &'static str, error: Error) -> Status {
    if error.code() == Code::Internal {
        tracing::error!(
            method,
            error = &error as &dyn std::error::Error,
            "a call failed by a defect"
        );
    } else if error.is_temporary() && std::error::Error::source(&error).is_some() {
        tracing::warn!(
            method,
            code = error.code().as_str(),
            error = &error as &dyn std::error::Error,
            "a call failed"
        );
    }
    error.into()
}

fn principal(extensions: &Extensions) -> Result<Principal> {
    // The port lets no call in without it.
    extensions
        .get::<Principal>()
        .cloned()
        .ok_or_else(|| Error::new(Code::Internal, "the call came in without its caller"))
}

/// The `traceparent` of W3C Trace Context, where it is valid. Of later versions the part
/// that version 00 has is kept.
fn trace_parent(metadata: &MetadataMap) -> Option<String> {
    const LENGTHS: [usize; 4] = [2, 32, 16, 2];
    let text = metadata.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| {
        part.bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let valid = parts.len() >= 4
        && parts
            .iter()
            .zip(LENGTHS)
            .all(|(part, length)| part.len() == length && hex(part))
        && parts[0] != "ff"
        && (parts[0] != "00" || parts.len() == 4)
        && [parts[1], parts[2]]
            .iter()
            .all(|id| id.bytes().any(|b| b != b'0'));
    valid.then(|| parts[..4].join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(key: &'static str, value: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert(key, value.parse().expect("ASCII"));
        metadata
    }

    #[test]
    fn only_a_valid_traceparent_is_kept() {
        let read = |text: &str| trace_parent(&metadata("traceparent", text));
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        let later = format!("cc{}-what-ever", &good[2..]);
        assert_eq!(read(&later), Some(format!("cc{}", &good[2..])));
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
