//! The protocol on a real PostgreSQL: what claim, renew, finish, wake, cancel, dispatch
//! and submit do to a job, its ledger row and its dead letter. Tests are named after the
//! invariant that they hold (V1 to V12 of the design).

mod act_locks;
mod act_races;
mod acts;
mod admission;
mod audit;
mod cancel;
mod cancel_many;
mod cancel_races;
mod claim;
mod dedupe;
mod dispatch;
mod explain;
mod explain_acts;
mod explain_few;
mod explain_letters;
mod explain_lines;
mod finish;
mod inbox_explain;
mod line_batches;
mod lines;
mod lock_order;
mod pause;
mod plan;
mod random;
mod renew;
mod replay;
mod replay_keys;
mod replay_races;
mod runs;
mod steps;
mod user_loads;
mod waits;
mod wake;
mod world;
