//! Lets lines go on in which a job of this worker has ended: at once, and to a slot here
//! where one is free. What is missed here a sweeper finds.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::storage::lines::{LineKey, Turned};
use tokio::sync::{Notify, mpsc};

use super::Shared;

/// The lines that wait to go on.
pub(super) struct Lines {
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    lines: Mutex<BTreeSet<LineKey>>,
    wake: Notify,
}

impl Lines {
    /// Starts the task that gives turns.
    pub(super) fn start(shared: Arc<Shared>, turned: mpsc::Sender<Turned>) -> Self {
        let waiting = Arc::<Waiting>::default();
        tokio::spawn(give(shared, waiting.clone(), turned));
        Self { waiting }
    }

    /// Lines in which a place has become free.
    pub(super) fn go_on(&self, lines: BTreeSet<LineKey>) {
        if !lines.is_empty() {
            self.waiting.lines.lock().extend(lines);
            self.waiting.wake.notify_one();
        }
    }
}

async fn give(shared: Arc<Shared>, waiting: Arc<Waiting>, turned: mpsc::Sender<Turned>) {
    loop {
        waiting.wake.notified().await;
        let lines = std::mem::take(&mut *waiting.lines.lock());
        match shared.store.give_turns(&lines).await {
            Ok(next) => {
                for job in next {
                    let mine = job.due
                        && shared.registry.get(&job.job_type).is_some()
                        && shared.config.worker.queues.contains(&job.queue);
                    // Full: it lies in the backlog, and is dispatched like anything else.
                    if mine && turned.try_send(job).is_err() {
                        break;
                    }
                }
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "lines could not go on; a sweeper sees to them"
            ),
        }
    }
}
