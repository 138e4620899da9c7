//! The handlers of a worker, by job type.

use std::collections::HashMap;
use std::sync::Arc;

use crate::handler::JobHandler;

/// The handlers of a worker.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: Arc<HashMap<&'static str, Arc<dyn JobHandler>>>,
}

impl Registry {
    /// Takes handlers; of two for one job type the later one counts.
    pub fn new(handlers: impl IntoIterator<Item = Arc<dyn JobHandler>>) -> Self {
        Self {
            handlers: Arc::new(handlers.into_iter().map(|h| (h.job_type(), h)).collect()),
        }
    }

    /// The handler of a job type.
    pub fn get(&self, job_type: &str) -> Option<&Arc<dyn JobHandler>> {
        self.handlers.get(job_type)
    }

    /// The job types that are handled, sorted.
    pub fn job_types(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.handlers.keys().copied().collect();
        names.sort_unstable();
        names
    }
}
