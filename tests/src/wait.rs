//! Waiting on facts, never for a fixed time, and never without a bound.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// How often a fact is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Looks until there is something, and returns it.
///
/// # Panics
/// Where there is nothing after `bound`; `what` says what was waited for.
pub async fn wait_until<T, F>(what: impl Display, bound: Duration, look: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + bound;
    loop {
        match tokio::time::timeout_at(end, look()).await {
            Ok(Some(found)) => return found,
            Ok(None) if Instant::now() < end => tokio::time::sleep(POLL).await,
            Ok(None) | Err(_) => panic!("{what}: not within {bound:?}"),
        }
    }
}

/// Runs something that ends by itself, and returns what it gave.
///
/// # Panics
/// Where it has not ended after `bound`.
pub async fn within<T>(what: impl Display, bound: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(bound, work)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {bound:?}"))
}
