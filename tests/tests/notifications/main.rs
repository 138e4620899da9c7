//! How people and other systems are told: the inbox, and webhooks.

mod imports;
mod inbox;
mod webhooks;

use std::time::Duration;

const BOUND: Duration = Duration::from_mins(1);
