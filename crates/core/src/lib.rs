//! What every binary of Tenure shares: errors, configuration, the bootstrap,
//! telemetry, authentication, the domain, storage and the broker.
pub mod auth;
pub mod clock;
pub mod config;
pub mod error;

pub use error::{Code, Error, Result};
