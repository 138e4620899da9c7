//! What happens around every call, before its body is read: who calls, how long
//! it may take, what it is counted as, and that a panic stays within it.
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use http::{HeaderMap, Request, Response};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tower::{Layer, Service};

use super::answer::{code_of, explain, label};
use super::methods::{self, Method};
use crate::auth::Authenticator;
use crate::error::{Code, Error, Result};
use crate::telemetry::labels::MethodCode;
use crate::telemetry::metrics::Metrics;

/// When the caller stops waiting, or the server's own limit; in the extensions
/// of a request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub tokio::time::Instant);

#[derive(Debug)]
struct Shared {
    authenticator: Arc<Authenticator>,
    metrics: Arc<Metrics>,
    max_deadline: Duration,
}

/// The layer of [`CallService`].
#[derive(Clone, Debug)]
pub(super) struct CallLayer(Arc<Shared>);

impl CallLayer {
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        metrics: Arc<Metrics>,
        max_deadline: Duration,
    ) -> Self {
        Self(Arc::new(Shared {
            authenticator,
            metrics,
            max_deadline,
        }))
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService {
            inner,
            shared: Arc::clone(&self.0),
        }
    }
}

/// Wraps all services of a port.
#[derive(Clone, Debug)]
pub(super) struct CallService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for CallService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let method = methods::find(request.uri().path());
        let call = Call::new(&self.shared, method);
        if let Err(error) = self.shared.identify(&mut request, method) {
            return Box::pin(async move { Ok(call.answer(error.to_status().into_http())) });
        }
        let limit = self.shared.limit(request.headers(), method);
        let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);
        if let Some(deadline) = deadline {
            request.extensions_mut().insert(Deadline(deadline));
        }
        let inner = AssertUnwindSafe(self.inner.call(request)).catch_unwind();
        Box::pin(async move {
            let done = match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline, inner).await,
                None => Ok(inner.await),
            };
            let response = match done {
                Ok(Ok(Ok(response))) => explain(response),
                Ok(Ok(Err(never))) => match never {},
                // The hook has logged the panic.
                Ok(Err(_)) => {
                    Error::new(Code::Internal, "the call failed by a defect of the server")
                        .to_status()
                        .into_http()
                }
                Err(_) => Error::new(
                    Code::DeadlineExceeded,
                    "the deadline passed before the answer was known; ask again",
                )
                .to_status()
                .into_http(),
            };
            Ok(call.answer(response))
        })
    }
}

impl Shared {
    /// Verifies the token and leaves the caller's `Principal` in the extensions.
    fn identify(&self, request: &mut Request<Body>, method: Method) -> Result<()> {
        if method.open {
            return Ok(());
        }
        // Taken and put back, as the verifier works on metadata.
        let metadata = MetadataMap::from_headers(std::mem::take(request.headers_mut()));
        let principal = self.authenticator.authenticate(&metadata);
        *request.headers_mut() = metadata.into_headers();
        request.extensions_mut().insert(principal?);
        Ok(())
    }

    /// How long the call may take.
    fn limit(&self, headers: &HeaderMap, method: Method) -> Option<Duration> {
        let asked = headers
            .get("grpc-timeout")
            .and_then(|value| parse_timeout(value.to_str().ok()?));
        match (asked, method.limited) {
            (Some(asked), true) => Some(asked.min(self.max_deadline)),
            (Some(asked), false) => Some(asked),
            (None, true) => Some(self.max_deadline),
            (None, false) => None,
        }
    }
}

/// Counts a call once, also where the caller goes away before the answer.
struct Call {
    metrics: Arc<Metrics>,
    method: &'static str,
    start: Instant,
    code: &'static str,
}

impl Call {
    fn new(shared: &Shared, method: Method) -> Self {
        Self {
            metrics: Arc::clone(&shared.metrics),
            method: method.label,
            start: Instant::now(),
            code: label(tonic::Code::Cancelled),
        }
    }

    fn answer(mut self, response: Response<Body>) -> Response<Body> {
        self.code = label(code_of(response.headers()));
        response
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let (method, code) = (self.method, self.code);
        let elapsed = self.start.elapsed();
        self.metrics.grpc_requests.inc(MethodCode { method, code });
        self.metrics
            .grpc_duration
            .observe(method, elapsed.as_secs_f64());
        tracing::debug!(method, code, micros = elapsed.as_micros() as u64, "call");
    }
}

/// Reads `grpc-timeout`: up to eight digits and a unit. What is malformed sets no limit.
fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_hours(count)),
        "M" => Some(Duration::from_mins(count)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_says() {
        assert_eq!(parse_timeout("10S"), Some(Duration::from_secs(10)));
        assert_eq!(parse_timeout("1H"), Some(Duration::from_hours(1)));
        assert_eq!(
            parse_timeout("99999999n"),
            Some(Duration::from_nanos(99_999_999))
        );
        for wrong in ["", "S", "10", "123456789S", "-1S", "1x", "1é"] {
            assert_eq!(parse_timeout(wrong), None, "{wrong}");
        }
    }
}
