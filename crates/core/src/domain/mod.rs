//! The pure rules: identifiers, states, leases, retries. Imports nothing else of ours.

pub mod ids;
pub mod job;
pub mod job_type;
pub mod lease;
pub mod line;
pub mod payload;
pub mod payload_schema;
pub mod retry;
pub mod state;
pub mod timeline;
pub mod wait;
