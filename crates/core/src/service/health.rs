//! What the process needs to do its work, and whether it has it.
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::watch;

/// The state of one component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct State {
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug)]
struct Inner {
    components: Mutex<BTreeMap<&'static str, State>>,
    draining: Mutex<bool>,
    ready: watch::Sender<bool>,
}

/// The readiness of the process: every component up, and no stop asked for.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

/// What `/readyz` tells.
#[derive(Debug, Serialize)]
struct Report<'a> {
    ready: bool,
    draining: bool,
    components: &'a BTreeMap<&'static str, State>,
}

impl Default for Health {
    fn default() -> Self {
        Self(Arc::new(Inner {
            components: Mutex::default(),
            draining: Mutex::new(false),
            ready: watch::Sender::new(false),
        }))
    }
}

impl Health {
    /// A component that the work needs. It is down until it is said to be up;
    /// a process without any component is not ready.
    pub fn component(&self, name: &'static str) -> Component {
        self.0
            .components
            .lock()
            .entry(name)
            .or_insert_with(|| State {
                up: false,
                reason: Some("starting".to_owned()),
            });
        self.update();
        Component {
            health: self.clone(),
            name,
        }
    }

    /// Whether the process can do its work.
    pub fn is_ready(&self) -> bool {
        let components = self.0.components.lock();
        !*self.0.draining.lock() && !components.is_empty() && components.values().all(|s| s.up)
    }

    /// Follows the readiness.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }

    /// From now on the process is not ready, whatever its components say.
    pub(super) fn drain(&self) {
        *self.0.draining.lock() = true;
        self.update();
    }

    /// The readiness and its reasons as JSON.
    pub fn report(&self) -> (bool, String) {
        let ready = self.is_ready();
        let components = self.0.components.lock();
        let report = Report {
            ready,
            draining: *self.0.draining.lock(),
            components: &components,
        };
        (ready, serde_json::to_string(&report).unwrap_or_default())
    }

    fn update(&self) {
        let ready = self.is_ready();
        self.0
            .ready
            .send_if_modified(|old| std::mem::replace(old, ready) != ready);
    }

    fn set(&self, name: &'static str, state: State) {
        let before = self.0.components.lock().insert(name, state.clone());
        if before.as_ref().map(|old| old.up) != Some(state.up) {
            match &state.reason {
                None => tracing::info!(component = name, "component is up"),
                Some(reason) => tracing::warn!(component = name, reason, "component is down"),
            }
        }
        self.update();
    }
}

/// One component of a [`Health`].
#[derive(Clone, Debug)]
pub struct Component {
    health: Health,
    name: &'static str,
}

impl Component {
    /// It works.
    pub fn up(&self) {
        self.health.set(
            self.name,
            State {
                up: true,
                reason: None,
            },
        );
    }

    /// It does not work. The reason is shown to operators; no secrets in it.
    pub fn down(&self, reason: impl Into<String>) {
        self.health.set(
            self.name,
            State {
                up: false,
                reason: Some(reason.into()),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_that_all_components_are_up() {
        let health = Health::default();
        assert!(!health.is_ready(), "nothing has started yet");
        let (database, broker) = (health.component("database"), health.component("broker"));
        let watch = health.watch();
        database.up();
        assert!(!health.is_ready());
        broker.up();
        assert!(health.is_ready() && *watch.borrow());
        database.down("connection refused");
        let (ready, text) = health.report();
        assert!(!ready && !*watch.borrow());
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            report["components"]["database"]["reason"],
            "connection refused"
        );
        assert_eq!(report["components"]["broker"]["up"], true);
        database.up();
        assert!(health.is_ready());
        health.drain();
        assert!(!health.is_ready() && !*watch.borrow());
    }

    #[test]
    fn asking_for_a_component_again_changes_nothing() {
        let health = Health::default();
        health.component("database").up();
        let _again = health.component("database");
        assert!(health.is_ready());
    }
}
