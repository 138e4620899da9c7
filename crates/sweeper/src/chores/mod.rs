//! The chores: each a `run_once` and a pure decision.

pub mod alerts;
pub mod backlog;
pub mod dead_letters;
pub mod dispatch;
pub mod end_pauses;
pub mod failed_imports;
pub mod lines;
mod pace;
pub mod prune_files;
pub mod prune_imports;
pub mod prune_rows;
pub mod topology;
pub mod wake;

use tenure_core::error::Result;

/// Work that is done again and again at an interval. Each step of it is a transaction of its
/// own, so that it can be dropped at any await.
pub trait Chore: Send + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// Does a bounded amount; `true`: there is more to do at once.
    ///
    /// # Errors
    /// What keeps it from its work; the next run goes on.
    fn run_once(&mut self) -> impl Future<Output = Result<bool>> + Send;
}
