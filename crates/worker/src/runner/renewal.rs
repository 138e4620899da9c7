//! Keeping leases (PROTOCOL.md §8): on a thread, a runtime and a connection of its own,
//! so that neither a busy handler nor a slow statement can starve it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::clock::boottime;
use tenure_core::domain::ids::JobId;
use tenure_core::error::{Code, Error, Result};
use tenure_core::storage::Store;
use tenure_core::storage::renew::Renewal;
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
    let mut missing: Vec<(JobId, i32)> = Vec::new();
    for running in due {
        let id = running.claimed.job_id;
        match renewed
            .iter()
            .find(|r| r.job_id == id && r.run == running.claimed.run)
        {
            Some(answer) => {
                running.renewed(sent, shared.lease);
                if answer.cancel_requested {
                    shared.cancel_seen(running);
                }
            }
            None => missing.push((id, running.claimed.run)),
        }
    }
    // Locked just now, finished just now, or lost: only the last is a reason to stop.
    if missing.is_empty() {
        return;
    }
    match store.still_mine(&missing, shared.session).await {
        Ok(mine) => {
            for running in due {
                let id = running.claimed.job_id;
                if missing.iter().any(|(m, _)| *m == id)
                    && !mine.contains(&id)
                    && shared.runs.contains(id, running.claimed.run)
                {
                    running.stop(StopReason::LeaseLost);
                }
            }
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn std::error::Error,
            "leases could not be checked; tried again"
        ),
    }
}
