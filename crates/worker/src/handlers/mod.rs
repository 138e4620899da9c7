//! The handlers that come with Tenure.

mod diagnostics;
mod effect;
mod import_csv;
mod notify;

use std::sync::Arc;

use tenure_core::config::Config;
use tenure_core::files::FileStore;
use tenure_core::storage::Store;

use crate::handler::JobHandler;

/// All handlers that come with Tenure. Those for trials (`noop`, `sleep`, `busy`,
/// `fail`, `abort`, `effect`) are among them only with `worker.diagnostics`.
pub fn built_in(store: Store, files: FileStore, config: &Config) -> Vec<Arc<dyn JobHandler>> {
    let mut handlers: Vec<Arc<dyn JobHandler>> = vec![
        Arc::new(import_csv::ImportCsv::new(
            store.clone(),
            files,
            config.imports.max_unpacked_bytes,
        )),
        Arc::new(notify::Notify::new(store)),
    ];
    if config.worker.diagnostics {
        handlers.push(Arc::new(diagnostics::Noop));
        handlers.push(Arc::new(diagnostics::Sleep));
        handlers.push(Arc::new(diagnostics::Busy));
        handlers.push(Arc::new(diagnostics::Fail));
        handlers.push(Arc::new(diagnostics::Abort));
        handlers.push(Arc::new(effect::Effect));
    }
    handlers
}
