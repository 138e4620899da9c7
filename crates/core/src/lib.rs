//! What every binary of Tenure shares: errors, configuration, the bootstrap,
//! telemetry, authentication, the domain, storage, the broker and the cache.
pub mod auth;
pub mod broker;
pub mod cache;
pub mod clock;
pub mod config;
pub mod domain;
pub mod error;
pub mod files;
pub mod service;
pub mod storage;
pub mod telemetry;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;

pub use error::{Code, Error, Result};
