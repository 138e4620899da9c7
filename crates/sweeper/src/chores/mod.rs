//! The chores: each a `run_once` and a pure decision.

pub mod dispatch;
pub mod prune_files;
pub mod prune_imports;
pub mod prune_rows;
pub mod topology;
pub mod wake;
