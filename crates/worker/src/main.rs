//! The worker with the handlers that come with Tenure.

use tenure_core::files::FileStore;
use tenure_core::service;
use tenure_worker::handlers;

fn main() -> std::process::ExitCode {
    service::run("tenure-worker", env!("CARGO_PKG_VERSION"), |context| {
        tenure_worker::run(context, |store, context| {
            let files = FileStore::local(&context.config.files.root)?;
            handlers::built_in(store.clone(), files, context)
        })
    })
}
