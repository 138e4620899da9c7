//! Keeping leases (PROTOCOL.md §8): on a thread, a runtime and a connection of its own,
//! so that neither a busy handler nor a slow statement can starve it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::boottime;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::lease;
use tenure_core::error::{Code, Error, Result};
use tenure_core::storage::Store;
use tenure_core::storage::renew::{Renewal, Renewed};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::running::{Running, StopReason};

/// How often the leases are looked at.
const TICK: Duration = Duration::from_millis(200);
/// Progress is written within about this time.
const ATTENTION: Duration = Duration::from_secs(1);

/// The renewal thread.
pub(super) struct Renewer {
    stop: CancellationToken,
}

impl Renewer {
    /// Ends the thread.
    pub(super) fn stop(self) {
        self.stop.cancel();
    }
}

/// Starts the thread.
pub(super) fn start(shared: Arc<Shared>) -> Result<Renewer> {
    let failed = |e: std::io::Error| {
        Error::new(Code::Internal, "the renewal thread cannot be started").with_source(e)
    };
    let stop = CancellationToken::new();
    let token = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    std::thread::Builder::new()
        .name("renewal".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let store = shared.store.dedicated(shared.lease / 6);
                let watch = watch_leases(&shared);
                tokio::select! {
                    () = token.cancelled() => {}
                    () = watch => {}
                    () = renew_for_ever(&shared, &store) => {}
                }
            });
        })
        .map_err(failed)?;
    Ok(Renewer { stop })
}

/// Stops handlers whose leases end, whatever the database does meanwhile. Ends the
/// process when every slot is taken by a handler that does not listen: it looks alive
/// and does nothing.
async fn watch_leases(shared: &Shared) {
    let mut deaf_since = None;
    loop {
        tokio::time::sleep(TICK.min(shared.lease / 20)).await;
        let stopped = shared.runs.stop_overdue();
        if stopped > 0 {
            tracing::warn!(stopped, "leases could not be renewed in time");
        }
        let now = boottime();
        if !shared.runs.all_deaf(now, shared.lease) {
            deaf_since = None;
        } else if now.saturating_sub(*deaf_since.get_or_insert(now)) > shared.lease {
            tracing::error!("every slot is taken by a handler that does not stop; the worker ends");
            shared.deaf.cancel();
            return;
        }
    }
}

async fn renew_for_ever(shared: &Shared, store: &Store) {
    let mut attended = Duration::ZERO;
    loop {
        tokio::time::sleep(TICK).await;
        let now = boottime();
        let attend = now.saturating_sub(attended) >= ATTENTION;
        let due: Vec<Arc<Running>> = shared
            .runs
            .all()
            .into_iter()
            .filter(|r| r.stop_reason() != Some(StopReason::LeaseLost) && r.may_renew(now))
            .filter(|r| {
                now.saturating_sub(r.renewed_at()) >= shared.lease / 3
                    || (attend && r.has_dirty_progress())
            })
            .collect();
        for part in due.chunks(1000) {
            renew(shared, store, part).await;
        }
        if attend {
            attended = now;
        }
    }
}

async fn renew(shared: &Shared, store: &Store, due: &[Arc<Running>]) {
    let items: Vec<Renewal> = due
        .iter()
        .map(|r| Renewal {
            job_id: r.claimed.job_id,
            run: r.claimed.run,
            progress: r.take_dirty_progress(),
        })
        .collect();
    let sent = boottime();
    let renewed = match store.renew(&items, shared.session, shared.lease).await {
        Ok(renewed) => renewed,
        Err(error) => {
            shared
                .metrics
                .lease_renewals
                .inc_by("failed", items.len() as u64);
            for running in due {
                running.keep_progress_dirty();
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "leases were not renewed; tried again"
            );
            return;
        }
    };
    shared
        .metrics
        .lease_renewals
        .inc_by("renewed", renewed.len() as u64);
    let mut missing = Vec::new();
    for (running, item) in due.iter().zip(&items) {
        let (id, run) = (running.claimed.job_id, running.claimed.run);
        if let Some(answer) = renewed.iter().find(|r| r.job_id == id && r.run == run) {
            note(shared, running, sent, *answer);
            continue;
        }
        if item.progress.is_some() {
            running.keep_progress_dirty();
        }
        missing.push(running);
    }
    // Locked just now, finished just now, or lost: only the last is a reason to stop.
    if missing.is_empty() {
        return;
    }
    let runs: Vec<(JobId, i32)> = missing
        .iter()
        .map(|running| (running.claimed.job_id, running.claimed.run))
        .collect();
    let mine = match store.still_mine(&runs, shared.session).await {
        Ok(mine) => mine,
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "leases could not be checked; tried again"
            );
            return;
        }
    };
    let (locked, gone): (Vec<_>, Vec<_>) = missing
        .into_iter()
        .partition(|running| mine.contains(&running.claimed.job_id));
    for running in gone {
        if shared
            .runs
            .contains(running.claimed.job_id, running.claimed.run)
        {
            running.stop(StopReason::LeaseLost);
        }
    }
    renew_locked(shared, store, locked).await;
}

/// Notes a renewal.
fn note(shared: &Shared, running: &Running, sent: Duration, answer: Renewed) {
    running.renewed(sent, shared.lease);
    if answer.cancel_requested {
        shared.cancel_seen(running);
    }
}

/// Renews leases whose rows are locked each time that somebody looks, as by an import that
/// commits one batch after the other: where it presses, waiting for the row. One by one, the
/// oldest first, and for a bounded time, since the other leases are to be kept as well.
async fn renew_locked(shared: &Shared, store: &Store, mut locked: Vec<&Arc<Running>>) {
    locked.sort_by_key(|running| running.renewed_at());
    let began = boottime();
    for running in locked {
        let sent = boottime();
        let pressing = lease::pressing_at(running.renewed_at(), shared.lease);
        if sent < pressing || sent.saturating_sub(began) > shared.lease / 6 {
            return;
        }
        let item = Renewal {
            job_id: running.claimed.job_id,
            run: running.claimed.run,
            progress: running.take_dirty_progress(),
        };
        let renewed = store
            .renew_waiting(&item, shared.session, shared.lease)
            .await;
        if let Ok(Some(answer)) = renewed {
            shared.metrics.lease_renewals.inc_by("renewed", 1);
            note(shared, running, sent, answer);
            continue;
        }
        if item.progress.is_some() {
            running.keep_progress_dirty();
        }
        if let Err(error) = renewed {
            shared.metrics.lease_renewals.inc_by("failed", 1);
            tracing::warn!(
                job = %item.job_id,
                error = &error as &dyn std::error::Error,
                "a lease was not renewed; tried again"
            );
        }
    }
}
