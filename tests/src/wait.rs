//! Waiting on facts, never for a fixed time, and never without a bound.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

pub use tenure_core::test_util::wait_until;

/// Runs something that ends by itself, and returns what it gave.
///
/// # Panics
/// Where it has not ended after `bound`.
pub async fn within<T>(what: impl Display, bound: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(bound, work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {bound:?}"))
}
