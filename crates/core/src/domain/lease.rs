//! Holding a lease as a type. Every guarded write names it and checks its row count.

use std::time::Duration;

use super::ids::{JobId, SessionId};

/// What fences a worker's writes: a job, the run that was claimed, and the session
/// that claimed it. A write that finds no such running row changes nothing (V3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fence {
    /// The job.
    pub job_id: JobId,
    /// The claimed run.
    pub run: i32,
    /// The worker's session.
    pub session: SessionId,
}

/// How long before its lease ends a handler must have stopped:
/// the larger of one second and a fifth of the lease (PROTOCOL.md §8).
pub fn safety_margin(lease: Duration) -> Duration {
    Duration::from_secs(1).max(lease / 5)
}

/// When handlers must stop, given when the claim or renewal was *sent*, both on a
/// clock that also runs while suspended. The database counts its lease from a later
/// moment, so this is always early.
pub fn stop_at(sent: Duration, lease: Duration) -> Duration {
    sent + lease.saturating_sub(safety_margin(lease))
}

/// From when on a renewal waits for a row that is locked, given when the last one was sent:
/// half of the time that the handler has is over. Before that it comes again shortly, so that
/// one locked row keeps no other waiting; but a row that is locked over and over may be so
/// each time.
pub fn pressing_at(sent: Duration, lease: Duration) -> Duration {
    sent + stop_at(sent, lease).saturating_sub(sent) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_stop_before_the_lease_ends() {
        for secs in [2, 5, 10, 30, 600] {
            let lease = Duration::from_secs(secs);
            let sent = Duration::from_secs(1000);
            let stop = stop_at(sent, lease);
            assert!(stop < sent + lease);
            assert!(stop + Duration::from_secs(1) <= sent + lease);
            let pressing = pressing_at(sent, lease);
            assert!(pressing > sent && pressing < stop);
        }
    }
}
