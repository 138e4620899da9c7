//! `notify`: puts a notification into a user's inbox, once per user, template and key.

use async_trait::async_trait;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_core::domain::ids::check_text;
use tenure_core::error::Code;
use tenure_core::storage::notifications::Notified;
use tenure_core::storage::{self, Store};

use crate::handler::{JobContext, JobError, JobHandler, Outcome, Success, parse_payload};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    /// Which notification it is.
    template: String,
    /// What makes it one of a kind for its user and template.
    key: String,
    /// What the template is filled with.
    #[serde(default)]
    data: Map<String, Value>,
}

impl Payload {
    fn parse(payload: &[u8]) -> Result<Self, JobError> {
        let payload: Self = parse_payload(payload)?;
        for (field, text) in [("template", &payload.template), ("key", &payload.key)] {
            check_text(text).map_err(|why| JobError::payload(format!("{field}: {why}")))?;
        }
        Ok(payload)
    }
}

/// The handler.
#[derive(Debug)]
pub(super) struct Notify {
    store: Store,
}

impl Notify {
    /// Notifies through this database.
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

#[async_trait]
impl JobHandler for Notify {
    fn job_type(&self) -> &'static str {
        "notify"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        let Payload {
            template,
            key,
            data,
        } = Payload::parse(&payload)?;
        let (store, fence, user) = (
            self.store.clone(),
            context.fence(),
            context.user_id().clone(),
        );
        // In a task of its own: when this handler is dropped the statement still ends.
        let write = tokio::spawn(async move {
            let data = Value::Object(data);
            storage::notifications::insert(&store, fence, &user, &template, &key, &data).await
        });
        let notified = write.await.map_err(|error| {
            JobError::temporary(
                Code::DatabaseUnavailable.as_str(),
                format!("the write broke off: {error}"),
            )
        })??;
        match notified {
            Notified::Created => Ok(Outcome::Done(Success::with_result(
                &json!({"created": true}),
            ))),
            Notified::AlreadyThere => Ok(Outcome::Done(Success::with_result(
                &json!({"created": false}),
            ))),
            Notified::LeaseLost => Err(JobError::temporary(
                Code::LeaseExpired.as_str(),
                "the lease was lost before the notification was written",
            )
            .by_tenure()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Payload;

    #[test]
    fn the_payload_is_checked() {
        let parse = |text: &str| {
            Payload::parse(text.as_bytes()).map_err(|error| (error.code, error.message))
        };
        assert!(parse(r#"{"template":"t","key":"k"}"#).is_ok());
        assert!(parse(r#"{"template":"t","key":"k","data":{"a":[1]}}"#).is_ok());
        for (text, field) in [
            (r#"{"template":"t"}"#, "key"),
            (r#"{"template":"","key":"k"}"#, "template"),
            (r#"{"template":"t","key":"a\u0007"}"#, "key"),
            (r#"{"template":"t","key":"k","extra":1}"#, "extra"),
            (r#"{"template":"t","key":"k","data":[]}"#, "sequence"),
        ] {
            let (code, message) = parse(text).expect_err(text);
            assert_eq!(code, "PAYLOAD_INVALID");
            assert!(message.contains(field), "{message}");
        }
    }
}
