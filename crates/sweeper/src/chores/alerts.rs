//! Tells operators of dead letters: a cause that was not there before, growth, and an open
//! letter that has waited for too long; and keeps the gauges of the same things.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::config::{AlertsConfig, duration};
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::alerts::{Alert, NewCause, OldestLetter};
use tenure_core::telemetry::metrics::Metrics;

use super::Chore;

/// The most new causes that are told of in one run. What is beyond follows in the next.
const CAUSES_MAX: i64 = 100;

/// The chore.
#[derive(Debug)]
pub struct Alerts {
    store: Store,
    config: AlertsConfig,
    metrics: Arc<Metrics>,
    /// Queues whose gauge is set: one that has no letter any more must not keep its last value.
    queues: HashSet<String>,
}

impl Alerts {
    /// A chore that has not looked yet.
    pub fn new(store: Store, config: AlertsConfig, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            config,
            metrics,
            queues: HashSet::new(),
        }
    }

    async fn raise(&self, alert: Alert, again: bool) -> Result<()> {
        let pause = again.then_some(self.config.repeat);
        if self.store.raise_alert(&alert, pause).await? {
            self.metrics.alerts.inc(alert.kind);
            tracing::warn!(
                kind = alert.kind,
                detail = %alert.detail,
                "alert: look at the dead letters (tenure dead-letters causes)"
            );
        }
        Ok(())
    }

    fn alert(&self, kind: &'static str, key: &str, detail: Value) -> Alert {
        Alert {
            kind,
            key: key.to_owned(),
            webhook: webhook(&self.config.webhook, kind, key, &detail),
            detail,
        }
    }
}

impl Chore for Alerts {
    const NAME: &'static str = "alerts";

    async fn run_once(&mut self) -> Result<bool> {
        let open = self.store.open_letters().await?;
        let mut seen = HashSet::new();
        for queue in &open {
            let label = self.metrics.queue(&queue.queue);
            self.metrics.dead_letters_open.set(label, queue.open);
            seen.insert(queue.queue.clone());
        }
        for queue in self.queues.difference(&seen) {
            let label = self.metrics.queue(queue);
            self.metrics.dead_letters_open.set(label, 0);
        }
        self.queues = seen;

        let oldest = self.store.oldest_letter().await?;
        let age = oldest.map_or(0, |letter| letter.age.as_secs());
        self.metrics
            .dead_letters_oldest
            .set(i64::try_from(age).unwrap_or(i64::MAX));
        if let Some(letter) = oldest.filter(|letter| letter.age >= self.config.oldest_after) {
            let alert = self.alert("oldest", "all", oldest_detail(&letter));
            self.raise(alert, true).await?;
        }

        // Before all are counted, the counts grow by what is old, and old causes look new.
        if self.store.letters_uncounted().await? {
            return Ok(false);
        }
        let counted: i64 = open.iter().map(|queue| queue.open).sum();
        let own = self.store.open_letters_of_alerts().await?;
        let total = (counted - own).max(0);
        let grown = self
            .store
            .letter_growth(total, self.config.growth_window)
            .await?;
        if self.config.growth > 0 && grown >= i64::from(self.config.growth) {
            let detail = json!({
                "open": total, "grown_by": grown,
                "within": duration::format(self.config.growth_window),
            });
            let alert = self.alert("growth", "all", detail);
            self.raise(alert, true).await?;
        }

        let causes = if self.config.new_cause {
            self.store.new_causes(CAUSES_MAX).await?
        } else {
            Vec::new()
        };
        for cause in &causes {
            let alert = self.alert("new_cause", &cause.id.to_string(), cause_detail(cause));
            self.raise(alert, false).await?;
        }
        Ok(causes.len() as i64 == CAUSES_MAX)
    }
}

fn oldest_detail(letter: &OldestLetter) -> Value {
    json!({
        "dead_letter_id": letter.id.to_string(),
        "last_failure_time": letter.last_failed_at.to_rfc3339(),
        "age_seconds": letter.age.as_secs(),
    })
}

fn cause_detail(cause: &NewCause) -> Value {
    json!({
        "cause_id": cause.id.to_string(),
        "queue": cause.queue,
        "job_type": cause.job_type,
        "error_code": cause.error.code,
        "error_class": if cause.error.temporary { "temporary" } else { "permanent" },
        "message": cause.error.message,
        "open": cause.open,
        "sample_dead_letter_id": cause.sample.to_string(),
    })
}

/// The payload of the job that calls; `None`: there is nobody to call.
fn webhook(url: &str, kind: &str, key: &str, detail: &Value) -> Option<Vec<u8>> {
    (!url.is_empty()).then(|| {
        json!({
            "url": url,
            "event": format!("dead_letters.{kind}"),
            "data": detail,
            "key": format!("{kind}/{key}"),
        })
        .to_string()
        .into_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_called_where_there_is_one() {
        assert_eq!(webhook("", "oldest", "all", &json!({})), None);
        let payload = webhook(
            "https://ops.example/hook",
            "growth",
            "all",
            &json!({"open": 7}),
        );
        let payload: Value = serde_json::from_slice(&payload.expect("a payload")).expect("JSON");
        assert_eq!(
            payload,
            json!({
                "url": "https://ops.example/hook", "event": "dead_letters.growth",
                "data": {"open": 7}, "key": "growth/all",
            })
        );
    }
}
