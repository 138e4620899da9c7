//! PostgreSQL, the truth. All SQL of Tenure is in this folder.
//!
//! Every statement is a named constant of its module and is listed in [`STATEMENTS`];
//! a test prepares each of them against the migrated schema.
//!
//! # The order of locks (PROTOCOL.md §4)
//!
//! Whoever waits for a lock holds only such as come before it:
//!
//! 1. the locks of lines, sorted ([`lines`]);
//! 2. existing jobs, by id;
//! 3. the ledger, dead letters and `blocked_lines`: of jobs that are locked, so nobody waits
//!    here for somebody who waits for a job. Whoever has not locked the job skips what is
//!    locked (the count of causes, retention, [`Store::unblock_lines`]);
//! 4. `job_dedupe`, by user, scope and key;
//! 5. `user_limits`, then `user_load`, by user, in one statement of a transaction.
//!
//! | writer | order |
//! |---|---|
//! | submit | 1, 4, 5, new jobs; then it gives turns, and skips jobs that are locked |
//! | finish | 2, 3, 5 (follow-ups), and of 3 the letters of its own jobs |
//! | cancel, wake, expiry | 2 (waking skips what is locked), 3 |
//! | replay | 2 and letters of all, 4, 3, 5 at the end |
//! | turns | 1, 2 (skips what is locked) |
//!
//! `line_turns` is in none of it: a note is a row of its own that nobody waits for, and only
//! the holder of its line's lock removes it.

pub mod admission;
pub mod alerts;
pub mod backlog;
mod batch_parts;
pub mod batch_writer;
pub mod cancel;
pub mod cancel_many;
pub mod claim;
pub mod datasets;
pub mod dead_letters;
pub mod dispatch;
pub mod dispatch_known;
mod error;
mod fairness;
pub mod files;
pub mod finish;
pub mod history;
pub mod imports;
pub mod job_actions;
pub mod job_types;
pub mod jobs;
pub mod lane_hints;
pub mod lines;
pub mod list;
pub mod migrate;
pub mod notifications;
mod pool;
pub mod queue_pause;
pub mod queues;
pub mod renew;
mod repeats;
pub mod retention;
mod retention_letters;
mod retention_loads;
mod scarce;
pub mod sent;
pub mod submit;
mod submit_keys;
mod submit_lines;
mod sweepers;
pub mod timeline;
pub mod user_limits;
pub mod waits;
pub mod wake;
pub mod workers;

pub use error::{DbKind, classify, db_error};
pub use pool::Store;

/// Every statement with its name, for the test that prepares them all.
pub fn statements() -> Vec<(&'static str, &'static str)> {
    [
        admission::STATEMENTS,
        alerts::STATEMENTS,
        backlog::STATEMENTS,
        cancel::STATEMENTS,
        cancel_many::STATEMENTS,
        claim::STATEMENTS,
        datasets::STATEMENTS,
        &dead_letters::statements(),
        dispatch::STATEMENTS,
        files::STATEMENTS,
        files::list::STATEMENTS,
        files::prune::STATEMENTS,
        files::uploads::STATEMENTS,
        finish::STATEMENTS,
        history::STATEMENTS,
        imports::catalog::STATEMENTS,
        imports::checkpoint::STATEMENTS,
        imports::end::STATEMENTS,
        imports::failed::STATEMENTS,
        imports::prune::STATEMENTS,
        imports::rejects::STATEMENTS,
        imports::unique::STATEMENTS,
        imports::write::STATEMENTS,
        job_actions::STATEMENTS,
        job_types::STATEMENTS,
        lines::STATEMENTS,
        jobs::STATEMENTS,
        list::STATEMENTS,
        migrate::STATEMENTS,
        notifications::STATEMENTS,
        queue_pause::STATEMENTS,
        queues::STATEMENTS,
        renew::STATEMENTS,
        repeats::STATEMENTS,
        retention::STATEMENTS,
        retention_letters::STATEMENTS,
        retention_loads::STATEMENTS,
        sent::STATEMENTS,
        submit::STATEMENTS,
        submit_keys::STATEMENTS,
        sweepers::STATEMENTS,
        timeline::STATEMENTS,
        user_limits::STATEMENTS,
        waits::STATEMENTS,
        wake::STATEMENTS,
        workers::STATEMENTS,
    ]
    .concat()
}
