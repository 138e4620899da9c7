//! Codes that no other test from outside meets: each is brought about and read as a caller,
//! the owner of a job or an operator reads it.

mod imports;
mod operators;
mod services;

use std::time::Duration;

const BOUND: Duration = Duration::from_mins(1);
