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

/// What the looks at unwritten results come to.
#[derive(Debug, Default)]
struct Looks {
    late: u32,
}

impl Looks {
    /// Whether to pause after this look at the oldest result. `answers`: the database does;
    /// one that is away is no reason to pause, since its return ends the wait at once.
    /// A pause is kept up until results are half as late.
    fn pause(&mut self, oldest: Duration, bound: Duration, answers: bool) -> bool {
        let enough = if self.late >= LOOKS { bound / 2 } else { bound };
        if oldest < enough || !answers {
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
    let mut looks = Looks::default();
    loop {
        tokio::select! {
            () = over.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let now = boottime();
        let (mut oldest, mut queues) = (Duration::ZERO, BTreeSet::new());
        for running in shared.runs.all() {
            let Some(age) = running.unwritten_for(now) else {
                continue;
            };
            oldest = oldest.max(age);
            if age >= bound / 2 {
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
        if looks.pause(oldest, bound, answers) {
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
    match shared.store.system_pause(queues, &reason).await {
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
        let look = |looks: &mut Looks, seconds, answers| {
            looks.pause(Duration::from_secs(seconds), bound, answers)
        };
        let mut looks = Looks::default();
        let mut seen = |seconds, answers| look(&mut looks, seconds, answers);
        assert!(!seen(9, true) && !seen(10, true) && !seen(11, true));
        assert!(seen(12, true) && seen(7, true) && seen(5, true));
        assert!(!seen(4, true));
        // It begins anew, and an outage does not count.
        assert!(!seen(12, true) && !seen(13, true) && !seen(14, false));
        assert!(!seen(15, true) && !seen(16, true) && seen(17, true));
    }
}
