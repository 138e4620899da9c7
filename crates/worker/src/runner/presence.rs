//! Telling that this worker is there, for people (`workers`). Nothing waits for it.

use std::sync::Arc;

use tenure_core::storage::workers::{TELL_INTERVAL, WorkerReport};
use tokio_util::sync::CancellationToken;

use super::Shared;

/// Tells every few seconds, at once when the worker begins to end, and when it is over
/// takes it off the list.
pub(super) async fn tell(shared: Arc<Shared>, ending: CancellationToken, over: CancellationToken) {
    let mut report = WorkerReport {
        session: shared.session,
        name: shared.name.to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: shared.config.worker.queues.clone(),
        job_types: shared
            .registry
            .job_types()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        slots: i32::try_from(shared.config.worker.slots).unwrap_or(i32::MAX),
        running: 0,
        draining: false,
    };
    loop {
        report.running = i32::try_from(shared.runs.busy()).unwrap_or(i32::MAX);
        report.draining = ending.is_cancelled();
        if let Err(error) = shared.store.tell_worker(&report).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "this worker could not tell that it is there"
            );
        }
        tokio::select! {
            () = over.cancelled() => break,
            () = tokio::time::sleep(TELL_INTERVAL) => {}
            () = ending.cancelled(), if !report.draining => {}
        }
    }
    if let Err(error) = shared.store.leave_worker(shared.session).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "this worker stays on the list until it has been silent for long"
        );
    }
}

/// The configured name, or host name and process id.
pub(super) fn name(configured: &str) -> Arc<str> {
    if !configured.is_empty() {
        return configured.into();
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "worker",
        host => host,
    };
    format!("{host}-{}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn a_worker_has_a_name_that_tells_it_from_others() {
        assert_eq!(&*name("import-7"), "import-7");
        let own = name("");
        let pid = std::process::id().to_string();
        assert!(
            own.ends_with(&format!("-{pid}")) && own.len() > pid.len() + 1,
            "{own}"
        );
    }
}
