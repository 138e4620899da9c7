//! Looks up the names of receivers. An address that must not be called never reaches the
//! connection, whatever the name led to a moment before.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::Guard;

/// How long a look-up may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The most addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

type Found = io::Result<Vec<SocketAddr>>;
type Lookup = dyn Fn(String) -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync;

/// A resolver for one port.
pub(super) struct GuardedResolver {
    guard: Arc<Guard>,
    port: u16,
    timeout: Duration,
    lookup: Arc<Lookup>,
}

/// Every address of a name is one that must not be called.
#[derive(Debug)]
pub(super) struct LeadsInside;

impl fmt::Display for LeadsInside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name leads to no address that may be called")
    }
}

impl std::error::Error for LeadsInside {}

impl GuardedResolver {
    /// Asks the system's resolver.
    pub(super) fn new(guard: Arc<Guard>, port: u16) -> Self {
        Self {
            guard,
            port,
            timeout: TIMEOUT,
            lookup: Arc::new(|name| {
                Box::pin(async move {
                    // The port is put in by who connects.
                    Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect())
                })
            }),
        }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, port, timeout) = (self.guard.clone(), self.port, self.timeout);
        let looking = (self.lookup)(name.as_str().to_owned());
        Box::pin(async move {
            let found = tokio::time::timeout(timeout, looking)
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            let had_any = !found.is_empty();
            let allowed: Vec<SocketAddr> = found
                .into_iter()
                .filter(|address| guard.may_connect(address.ip(), port))
                .take(MAX_ADDRESSES)
                .collect();
            if allowed.is_empty() && had_any {
                return Err(LeadsInside.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::config::WebhooksConfig;

    use super::*;

    fn resolver(answer: &'static [&'static str]) -> GuardedResolver {
        let config = WebhooksConfig {
            allowed_hosts: vec!["*".to_owned()],
            allowed_private: vec!["10.1.2.3:8080".to_owned()],
            ..WebhooksConfig::default()
        };
        GuardedResolver {
            guard: Arc::new(Guard::new(&config).expect("rules")),
            port: 8080,
            timeout: TIMEOUT,
            lookup: Arc::new(move |_| {
                Box::pin(async move {
                    let addresses = answer.iter().map(|text| text.parse().expect("an address"));
                    Ok(addresses.map(|ip| SocketAddr::new(ip, 0)).collect())
                })
            }),
        }
    }

    async fn resolved(answer: &'static [&'static str]) -> Result<Vec<String>, bool> {
        let name = "hooks.example.org".parse().expect("a name");
        match resolver(answer).resolve(name).await {
            Ok(addresses) => Ok(addresses.map(|address| address.ip().to_string()).collect()),
            Err(error) => Err(error.downcast_ref::<LeadsInside>().is_some()),
        }
    }

    #[tokio::test]
    async fn inner_addresses_of_a_name_are_dropped() {
        assert_eq!(
            resolved(&[
                "127.0.0.1",
                "8.8.8.8",
                "fd00::1",
                "::ffff:10.0.0.1",
                "2a00::1"
            ])
            .await,
            Ok(vec!["8.8.8.8".to_owned(), "2a00::1".to_owned()])
        );
        assert_eq!(
            resolved(&["10.1.2.3", "10.1.2.4"]).await,
            Ok(vec!["10.1.2.3".to_owned()])
        );
        assert_eq!(resolved(&["169.254.169.254", "::1"]).await, Err(true));
        assert_eq!(resolved(&[]).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_look_up_has_a_bound() {
        let mut resolver = resolver(&[]);
        resolver.timeout = Duration::from_millis(10);
        resolver.lookup = Arc::new(|_| Box::pin(std::future::pending()));
        let name = "hooks.example.org".parse().expect("a name");
        assert!(resolver.resolve(name).await.is_err());
    }
}
