//! Pauses the queues of a worker whose results are written too late, so that no more jobs
//! start than can be finished (requirement I5). The sweeper ends a pause that nobody
//! confirms any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::boottime;
use tenure_core::config::duration;
use tokio_util::sync::CancellationToken;

use super::Shared;

/// How often is looked.
const LOOK: Duration = Duration::from_secs(1);
/// So many looks in a row must have found results late.
const LOOKS: u32 = 3;
/// Fewer late results are those jobs' own trouble (somebody's lock, a refusing trigger), and
/// no reason to keep all others waiting.
const LATE_LEAST: u64 = 3;

/// What the looks at unwritten results come to.
#[derive(Debug, Default)]
struct Looks {
    late: u32,
}

/// What one look sees.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// For how long the oldest result waits.
    oldest: Duration,
    /// How many have waited for half of the bound or longer.
    late: u64,
    /// How many were written since the look before.
    written: u64,
    /// Whether the database answers: one that is away is no reason to pause, since its
    /// return ends the wait at once.
    answers: bool,
}

impl Looks {
    /// Whether to pause after this look. A pause is kept up until results are half as late.
    /// Where more are written in a second than wait, these few are not behind the others.
    fn pause(&mut self, look: Look, bound: Duration) -> bool {
        let enough = if self.late >= LOOKS { bound / 2 } else { bound };
        let behind = look.late >= LATE_LEAST && look.late >= look.written;
        if look.oldest < enough || !behind || !look.answers {
            self.late = 0;
            return false;
        }
        self.late = (self.late + 1).min(LOOKS);
        self.late >= LOOKS
    }
}

/// Until it is over.
pub(super) async fn watch(shared: Arc<Shared>, over: CancellationToken) {
    let bound = shared.config.worker.results_late_after;
    let (mut looks, mut written_before) = (Looks::default(), shared.runs.written());
    loop {
        tokio::select! {
            () = over.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = boottime();
        let (mut oldest, mut late, mut queues) = (Duration::ZERO, 0, BTreeSet::new());
        for running in shared.runs.all() {
            let Some(age) = running.unwritten_for(now) else {
                continue;
            };
            oldest = oldest.max(age);
            if age >= bound / 2 {
                late += 1;
                queues.insert(running.claimed.queue.clone());
            }
        }
        let seconds = i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX);
        shared.metrics.results_late.set(seconds);
        let answers = oldest >= bound / 2
            && matches!(
                tokio::time::timeout(LOOK, shared.store.ping()).await,
                Ok(Ok(()))
            );
        let written = shared.runs.written();
        let look = Look {
            oldest,
            late,
            written: written.wrapping_sub(std::mem::replace(&mut written_before, written)),
            answers,
        };
        if looks.pause(look, bound) {
            let queues: Vec<String> = queues.into_iter().collect();
            pause(&shared, &queues, oldest).await;
        }
    }
}

async fn pause(shared: &Shared, queues: &[String], oldest: Duration) {
    let reason = format!(
        "worker {} has tried for {} to write results",
        shared.name,
        duration::format(Duration::from_secs(oldest.as_secs()))
    );
    let pausing = shared.store.system_pause(queues, &reason);
    let Ok(paused) = tokio::time::timeout(LOOK, pausing).await else {
        return;
    };
    match paused {
        Ok(paused) if paused.is_empty() => {}
        Ok(paused) => {
            tracing::warn!(queues = ?paused, reason, "queues are paused until results are written again");
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "queues could not be paused although results are late"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_needs_several_looks_and_ends_late() {
        let bound = Duration::from_secs(10);
        let mut looks = Looks::default();
        let mut seen = |seconds, answers| looks.pause(look(seconds, 3, 0, answers), bound);
        assert!(!seen(9, true) && !seen(10, true) && !seen(11, true));
        assert!(seen(12, true) && seen(7, true) && seen(5, true));
        assert!(!seen(4, true));
        // It begins anew, and an outage does not count.
        assert!(!seen(12, true) && !seen(13, true) && !seen(14, false));
        assert!(!seen(15, true) && !seen(16, true) && seen(17, true));
    }

    #[test]
    fn a_few_late_results_beside_many_that_are_written_are_no_reason() {
        let pauses = |late, written| {
            let mut looks = Looks::default();
            let bound = Duration::from_secs(10);
            (0..LOOKS).fold(false, |_, _| {
                looks.pause(look(60, late, written, true), bound)
            })
        };
        // One job whose row is locked, alone or beside others.
        assert!(!pauses(1, 0) && !pauses(2, 0) && !pauses(3, 200));
        // Nothing is written at all, or far too little.
        assert!(pauses(3, 0) && pauses(1000, 200));
    }

    fn look(seconds: u64, late: u64, written: u64, answers: bool) -> Look {
        Look {
            oldest: Duration::from_secs(seconds),
            late,
            written,
            answers,
        }
    }
}
