//! What end-to-end tests and measurements start from: a whole Tenure of real processes,
//! on a database, a virtual host, a key prefix and a folder of its own.
//!
//! ```no_run
//! # async fn example() {
//! use serde_json::json;
//! use std::time::Duration;
//! use tenure_tests::{JobState, Stack};
//!
//! let stack = Stack::builder().workers(2).lease("10s").start().await;
//! let ann = stack.user("ann");
//! let job = ann.submit("noop", json!({})).await;
//! ann.wait_state(&job, JobState::Success, Duration::from_secs(30)).await;
//! # }
//! ```
//!
//! Panics are the way to fail here: a test whose processes do not run has nothing to say.

pub mod amqp;
pub mod caller;
pub mod data;
pub mod environment;
pub mod frozen;
pub mod hook;
pub mod imports;
pub mod metrics;
pub mod process;
pub mod proxy;
pub mod refusal;
pub mod services;
pub mod sink;
pub mod stack;
pub mod submits;
pub mod token;
pub mod wait;

pub use caller::Caller;
pub use frozen::Frozen;
pub use hook::{Answer, Ear, Hook};
pub use process::{Kind, Process, Signal};
pub use refusal::Refusal;
pub use sink::Sink;
pub use stack::{Stack, StackBuilder};
pub use tenure_proto::v1::{self, JobState};
pub use wait::{wait_until, within};
