//! PostgreSQL, the truth. All SQL of Tenure is in this folder.
//!
//! Every statement is a named constant of its module and is listed in [`STATEMENTS`];
//! a test prepares each of them against the migrated schema. The lock order is
//! PROTOCOL.md §4: existing jobs by id, then the ledger, then dead letters, then keys.

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
pub mod retention;
mod retention_letters;
mod scarce;
pub mod sent;
pub mod submit;
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
        retention::STATEMENTS,
        retention_letters::STATEMENTS,
        sent::STATEMENTS,
        submit::STATEMENTS,
        sweepers::STATEMENTS,
        timeline::STATEMENTS,
        user_limits::STATEMENTS,
        waits::STATEMENTS,
        wake::STATEMENTS,
        workers::STATEMENTS,
    ]
    .concat()
}
