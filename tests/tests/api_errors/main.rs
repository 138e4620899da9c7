//! What callers do wrong, and how they are told: the right status and details each.

mod access;
mod fields;
mod limits;
mod schemas;
mod text_as_code;

use std::time::Duration;

const BOUND: Duration = Duration::from_mins(1);
