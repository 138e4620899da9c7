//! Redis: what processes share for a moment. Never the truth: with an emptied Redis nothing
//! is lost.

pub mod rates;

use std::time::Duration;

use redis::Client;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::config::CacheConfig;
use crate::error::{Code, Error, Result};

/// How long a new connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How long an answer may take. Callers wait for less.
const ANSWER: Duration = Duration::from_millis(500);
/// The longest pause between two tries to connect.
const RECONNECT_AT_LEAST_EVERY: Duration = Duration::from_millis(500);

/// Where Redis is.
#[derive(Clone, Debug)]
struct Server {
    client: Client,
}

impl Server {
    /// The server of the configuration; `None`: there is none.
    fn of(config: &CacheConfig) -> Result<Option<Self>> {
        if config.url.is_empty() {
            return Ok(None);
        }
        // What is wrong is a source for the log; the address may hold a password.
        let client = Client::open(config.url.expose()).map_err(|error| {
            Error::new(
                Code::ConfigInvalid,
                "cache.url cannot be used: it must be an address such as redis://:password@host:6379/0",
            )
            .with_source(error)
        })?;
        Ok(Some(Self { client }))
    }

    /// A connection that is made when it is first used, and again when it has broken.
    fn connection(&self) -> Result<ConnectionManager> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_max_delay(RECONNECT_AT_LEAST_EVERY);
        ConnectionManager::new_lazy_with_config(self.client.clone(), config).map_err(|error| {
            Error::new(Code::ConfigInvalid, "cache.url cannot be used").with_source(error)
        })
    }
}
