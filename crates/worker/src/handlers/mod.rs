//! The handlers that come with Tenure.

mod diagnostics;
mod effect;
mod import_csv;
mod notify;
mod notify_webhook;

use std::sync::Arc;

use tenure_core::error::Result;
use tenure_core::files::FileStore;
use tenure_core::service::Context;
use tenure_core::storage::Store;

use crate::handler::JobHandler;

/// All handlers that come with Tenure. Those for trials (`noop`, `sleep`, `busy`,
/// `fail`, `abort`, `effect`) are among them only with `worker.diagnostics`.
///
/// # Errors
/// `CONFIG_INVALID`.
pub fn built_in(
    store: Store,
    files: FileStore,
    context: &Context,
) -> Result<Vec<Arc<dyn JobHandler>>> {
    let config = &context.config;
    let mut handlers: Vec<Arc<dyn JobHandler>> = vec![
        Arc::new(import_csv::ImportCsv::new(store.clone(), files, config)?),
        Arc::new(notify::Notify::new(store)),
        Arc::new(notify_webhook::NotifyWebhook::new(context)?),
    ];
    if config.worker.diagnostics {
        handlers.push(Arc::new(diagnostics::Noop));
        handlers.push(Arc::new(diagnostics::Sleep));
        handlers.push(Arc::new(diagnostics::Busy));
        handlers.push(Arc::new(diagnostics::Fail));
        handlers.push(Arc::new(diagnostics::Abort));
        handlers.push(Arc::new(effect::Effect));
    }
    Ok(handlers)
}
