//! Rates that several gateways share: a bucket of tokens for each user, from which they take
//! small portions.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::ConnectionManager;
use redis::{RedisResult, Script};
use uuid::Uuid;

use super::Server;
use crate::config::CacheConfig;
use crate::error::Result;

/// How fast tokens come, and how many there are at most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// In a second; more than 0.
    pub per_second: f64,
    /// The most that a bucket holds; 1 or more.
    pub burst: f64,
}

/// What was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Tokens.
    pub granted: usize,
    /// Until there is another one, where there were fewer than wanted.
    pub wait: Duration,
}

/// The buckets on Redis.
#[derive(Debug)]
pub struct SharedRates {
    server: Server,
    connection: Mutex<ConnectionManager>,
    prefix: String,
    lease: Script,
    present: Script,
}

impl SharedRates {
    /// The buckets of the configured Redis; `None`: there is none. Connects when first used.
    ///
    /// # Errors
    /// CONFIG_INVALID.
    pub fn open(config: &CacheConfig) -> Result<Option<Self>> {
        let Some(server) = Server::of(config)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            connection: Mutex::new(server.connection()?),
            server,
            prefix: config.key_prefix.clone(),
            lease: Script::new(include_str!("lua/lease.lua")),
            present: Script::new(include_str!("lua/present.lua")),
        }))
    }

    /// Takes up to `want` tokens of a user. May be given up on at any time.
    ///
    /// # Errors
    /// Whatever Redis says.
    pub async fn lease(&self, user: &str, rate: Rate, want: usize) -> RedisResult<Lease> {
        let mut connection = self.connection.lock().clone();
        let (granted, wait): (usize, u64) = self
            .lease
            .key(format!("{}rate:v1:{user}", self.prefix))
            .arg(rate.per_second)
            .arg(rate.burst)
            .arg(want)
            .invoke_async(&mut connection)
            .await?;
        Ok(Lease {
            granted,
            wait: Duration::from_micros(wait),
        })
    }

    /// Says that a gateway is there; answers how many were within this time.
    ///
    /// # Errors
    /// Whatever Redis says.
    pub async fn present(&self, gateway: Uuid, within: Duration) -> RedisResult<u64> {
        let mut connection = self.connection.lock().clone();
        self.present
            .key(format!("{}gateways:v1", self.prefix))
            .arg(gateway.to_string())
            .arg(within.as_millis() as u64)
            .invoke_async(&mut connection)
            .await
    }

    /// Leaves a connection on which nothing is answered: it may be dead without knowing.
    pub fn reconnect(&self) {
        if let Ok(connection) = self.server.connection() {
            *self.connection.lock() = connection;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SecretUrl;

    fn shared() -> SharedRates {
        let config = CacheConfig {
            url: SecretUrl::new(std::env::var("REDIS_URL").expect("REDIS_URL: run `make test`")),
            key_prefix: format!("test-{}:", Uuid::new_v4().simple()),
            ..CacheConfig::default()
        };
        SharedRates::open(&config)
            .expect("an address")
            .expect("a server")
    }

    #[tokio::test]
    async fn a_bucket_gives_its_burst_and_then_what_comes_in() {
        let shared = shared();
        let rate = Rate {
            per_second: 0.5,
            burst: 10.0,
        };
        let first = shared.lease("ada", rate, 7).await.expect("an answer");
        assert_eq!((first.granted, first.wait), (7, Duration::ZERO));
        let second = shared.lease("ada", rate, 7).await.expect("an answer");
        assert_eq!(second.granted, 3);
        // Another token takes two seconds, less what has passed since the first call.
        assert!(
            second.wait > Duration::ZERO && second.wait <= Duration::from_secs(2),
            "{second:?}"
        );
        let other = shared.lease("bob", rate, 1).await.expect("an answer");
        assert_eq!(other.granted, 1, "each user has a bucket");
    }

    #[tokio::test]
    async fn gateways_count_each_other() {
        let shared = shared();
        let within = Duration::from_mins(1);
        let (one, two) = (Uuid::now_v7(), Uuid::now_v7());
        assert_eq!(shared.present(one, within).await.expect("an answer"), 1);
        assert_eq!(shared.present(two, within).await.expect("an answer"), 2);
        assert_eq!(shared.present(one, within).await.expect("an answer"), 2);
    }
}
