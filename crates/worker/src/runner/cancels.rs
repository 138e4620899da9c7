//! Hearing of cancels within two seconds, whatever the lease: a task of its own, so that
//! renewal never waits for it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::boottime;
use tenure_core::domain::ids::JobId;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::running::Running;

/// How often it is asked. With [`MIN_AGE`] the first question about a run comes within
/// two seconds of its start.
const INTERVAL: Duration = Duration::from_millis(900);
/// Runs that are younger are not asked about: most end before.
const MIN_AGE: Duration = Duration::from_secs(1);
/// The most runs of one statement.
const BATCH: usize = 1000;

/// Asks until it is over. Nothing is asked while nothing has run for long enough.
pub(super) async fn watch(shared: Arc<Shared>, over: CancellationToken) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = over.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let now = boottime();
        let runs: Vec<Arc<Running>> = shared
            .runs
            .all()
            .into_iter()
            .filter(|r| r.stop_reason().is_none() && now.saturating_sub(r.claimed_at()) >= MIN_AGE)
            .collect();
        for part in runs.chunks(BATCH) {
            ask(&shared, part).await;
        }
    }
}

async fn ask(shared: &Shared, runs: &[Arc<Running>]) {
    let ids: Vec<JobId> = runs.iter().map(|r| r.claimed.job_id).collect();
    match shared.store.cancel_requests(&ids).await {
        Ok(asked) => {
            for running in runs {
                if asked.contains(&running.claimed.job_id) {
                    shared.cancel_seen(running);
                }
            }
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "cancel requests were not read; tried again"
        ),
    }
}
