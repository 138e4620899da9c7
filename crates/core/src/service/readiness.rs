//! The database as a component of the readiness, and the wait for its schema.
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::Context;
use crate::error::{Code, Error, Result, chain};
use crate::storage::Store;

/// The pause between two looks at the database.
const PAUSE: Duration = Duration::from_secs(1);
/// How long one look may take.
const LOOK: Duration = Duration::from_secs(5);
/// One failed look may be a full pool; so many in a row are an outage.
const FAILURES: u32 = 2;

/// Follows whether the database answers, as the component `database`.
pub fn watch_database(context: &Context, store: &Store) {
    let component = context.health.component("database");
    let (context, store) = (context.clone(), store.clone());
    tokio::spawn(async move {
        let mut failures = 0;
        while !context.shutdown.is_triggered() {
            match timeout(LOOK, store.ping()).await {
                Ok(Ok(())) => {
                    failures = 0;
                    component.up();
                }
                Ok(Err(error)) => {
                    failures += 1;
                    if failures >= FAILURES {
                        component.down(chain(&error));
                    }
                }
                Err(_) => {
                    failures += 1;
                    if failures >= FAILURES {
                        component.down("the database does not answer");
                    }
                }
            }
            pause(&context).await;
        }
    });
}

/// Waits until the database has the schema that this version needs, as the
/// component `schema`. SHUTTING_DOWN if the stop is asked for first.
pub async fn wait_for_schema(context: &Context, store: &Store) -> Result<()> {
    let component = context.health.component("schema");
    let mut last = String::new();
    while !context.shutdown.is_triggered() {
        let look = tokio::select! {
            () = context.shutdown.triggered() => break,
            look = timeout(LOOK, store.check_schema()) => look,
        };
        let error = match look {
            Ok(Ok(())) => {
                component.up();
                return Ok(());
            }
            Ok(Err(error)) => chain(&error),
            Err(_) => "the database does not answer".to_owned(),
        };
        component.down(error.clone());
        if error != last {
            tracing::warn!(error, "waiting for the database and its schema");
            last = error;
        }
        pause(context).await;
    }
    Err(Error::new(
        Code::ShuttingDown,
        "the stop was asked for before the database was ready",
    ))
}

async fn pause(context: &Context) {
    tokio::select! {
        () = context.shutdown.triggered() => {}
        () = sleep(PAUSE) => {}
    }
}
