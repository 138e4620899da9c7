//! `notify_webhook`: tells another system by a signed call (Standard Webhooks).

mod addresses;
mod guard;
mod resolver;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use parking_lot::Mutex;
use reqwest::{Response, StatusCode, header, redirect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};
use tenure_core::config::WebhooksConfig;
use tenure_core::domain::ids::check_text;
use tenure_core::error::{Class, Code, Error};
use tenure_core::service::Context;
use tenure_core::telemetry::metrics::Metrics;
use uuid::Uuid;

use self::guard::{Guard, Target, blocked};
use self::resolver::{GuardedResolver, LeadsInside};
use crate::handler::{JobContext, JobError, JobHandler, Outcome, Success, parse_payload};

/// How long a connection may take, with its look-up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// So much of an answer is read, and dropped.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The longest delay that a receiver may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    /// Where to.
    url: String,
    /// What happened, such as `import.finished`.
    event: String,
    /// What there is to tell, an object. Kept as it was written, so no number loses a digit.
    data: Box<RawValue>,
    /// What the receiver can tell repeats of different jobs by.
    #[serde(default)]
    key: Option<String>,
}

impl Payload {
    fn parse(payload: &[u8]) -> Result<Self, JobError> {
        let payload: Self = parse_payload(payload)?;
        let texts = [
            ("event", Some(&payload.event)),
            ("key", payload.key.as_ref()),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                check_text(text).map_err(|why| JobError::payload(format!("{field}: {why}")))?;
            }
        }
        if !payload.data.get().starts_with('{') {
            return Err(JobError::payload("data: must be an object"));
        }
        Ok(payload)
    }
}

/// The body of a call.
#[derive(Debug, Serialize)]
struct Message<'a> {
    #[serde(rename = "type")]
    event: &'a str,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    data: &'a RawValue,
}

/// The handler.
pub(super) struct NotifyWebhook {
    guard: Arc<Guard>,
    signer: Option<Webhook>,
    timeout: Duration,
    user_agent: String,
    metrics: Arc<Metrics>,
    /// By port, since what may be connected to depends on it. The ports are those of the
    /// two schemes and of the allowed hosts.
    clients: Mutex<HashMap<u16, reqwest::Client>>,
}

impl NotifyWebhook {
    /// Calls as the configuration of the worker allows.
    ///
    /// # Errors
    /// `CONFIG_INVALID`.
    pub(super) fn new(context: &Context) -> Result<Self, Error> {
        let config: &WebhooksConfig = &context.config.webhooks;
        let signer = if config.secret.is_empty() {
            None
        } else {
            // Not the cause: it could show a part of the secret.
            let signer = Webhook::new(config.secret.expose())
                .map_err(|_| Error::new(Code::ConfigInvalid, "webhooks.secret: is not a secret"))?;
            Some(signer)
        };
        Ok(Self {
            guard: Arc::new(Guard::new(config)?),
            signer,
            timeout: config.timeout,
            user_agent: format!("tenure/{}", context.version),
            metrics: context.metrics.clone(),
            clients: Mutex::default(),
        })
    }

    fn signer(&self) -> Result<&Webhook, JobError> {
        if !self.guard.allows_any() {
            return Err(blocked(
                "webhooks are not set up: name the receivers in webhooks.allowed_hosts",
            ));
        }
        self.signer.as_ref().ok_or_else(|| {
            blocked("webhooks are not set up: set webhooks.secret, which signs the calls")
        })
    }

    fn client(&self, port: u16) -> Result<reqwest::Client, JobError> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&port) {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            // A proxy would be another target, and so would what a redirect names.
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(&self.user_agent)
            .dns_resolver(GuardedResolver::new(self.guard.clone(), port))
            // Each call is looked up and judged anew.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT.min(self.timeout))
            .timeout(self.timeout)
            .build()
            .map_err(|_| unavailable("no client could be made"))?;
        clients.insert(port, client.clone());
        Ok(client)
    }

    async fn call(&self, context: &JobContext, payload: &[u8]) -> Result<StatusCode, JobError> {
        let payload = Payload::parse(payload)?;
        let signer = self.signer()?;
        let Target { url, port } = self.guard.target(&payload.url)?;
        let event_id = context.event_id();
        let body = body(&payload, created_at(event_id))?;
        let id = format!("msg_{event_id}");
        let now = Utc::now().timestamp();
        let signature = signer
            .sign(&id, now, body.as_bytes())
            .map_err(|_| JobError::payload("data: cannot be signed"))?;
        let mut request = self
            .client(port)?
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(HEADER_WEBHOOK_ID, id)
            .header(HEADER_WEBHOOK_TIMESTAMP, now)
            .header(HEADER_WEBHOOK_SIGNATURE, signature);
        if let Some(parent) = context.trace_parent() {
            request = request.header("traceparent", parent);
        }
        let response = request
            .body(body)
            .send()
            .await
            .map_err(|error| failure(&error))?;
        let (status, delay) = (
            response.status(),
            retry_after(response.headers(), Utc::now()),
        );
        drop_answer(response).await;
        verdict(status, delay)
    }
}

#[async_trait]
impl JobHandler for NotifyWebhook {
    fn job_type(&self) -> &'static str {
        "notify_webhook"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        let result = self.call(&context, &payload).await;
        self.metrics.webhooks.inc(match &result {
            Ok(_) => "sent",
            Err(error) if error.code == Code::WebhookBlocked.as_str() => "blocked",
            Err(error) if error.class == Class::Temporary => "unavailable",
            Err(_) => "refused",
        });
        let status = result?;
        Ok(Outcome::Done(Success::with_result(
            &json!({"status": status.as_u16()}),
        )))
    }
}

/// When the job was made: its id has the time in it, so each try tells the same.
fn created_at(event_id: Uuid) -> DateTime<Utc> {
    event_id
        .get_timestamp()
        .map(|time| time.to_unix())
        .and_then(|(seconds, nanos)| DateTime::from_timestamp(seconds as i64, nanos))
        .unwrap_or_else(Utc::now)
}

fn body(payload: &Payload, created_at: DateTime<Utc>) -> Result<String, JobError> {
    let message = Message {
        event: &payload.event,
        timestamp: created_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        key: payload.key.as_deref(),
        data: &payload.data,
    };
    serde_json::to_string(&message).map_err(JobError::payload)
}

fn unavailable(why: impl Into<String>) -> JobError {
    JobError::temporary(Code::WebhookUnavailable.as_str(), why)
}

/// What a call without an answer means. The message tells nothing of how far it came.
fn failure(error: &reqwest::Error) -> JobError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(layer) = cause {
        if layer.is::<LeadsInside>() {
            return blocked("url: the host's name leads to no address that may be called");
        }
        cause = layer.source();
    }
    unavailable("the receiver cannot be reached, or did not answer in time")
}

/// Reads the answer to its end, or to the bound: a receiver that is cut off may think that
/// it was not heard. What it says is not kept.
async fn drop_answer(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read >= MAX_ANSWER_BYTES {
            return;
        }
    }
}

fn verdict(status: StatusCode, delay: Option<Duration>) -> Result<StatusCode, JobError> {
    if status.is_success() {
        return Ok(status);
    }
    let message = format!("the receiver answered {}", status.as_u16());
    let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    if !again {
        return Err(JobError::permanent(Code::WebhookRefused.as_str(), message));
    }
    let error = unavailable(message);
    Err(match delay {
        Some(delay) => error.retry_after(delay),
        None => error,
    })
}

/// The delay that a receiver asks for: seconds, or a date.
fn retry_after(headers: &header::HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = if let Ok(seconds) = text.parse::<u64>() {
        Duration::from_secs(seconds)
    } else {
        let at = DateTime::parse_from_rfc2822(text).ok()?;
        // One that has passed asks for no delay of its own.
        (at.with_timezone(&Utc) - now).to_std().ok()?
    };
    Some(delay.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_checked_and_keeps_its_digits() {
        let parse = |text: &str| Payload::parse(text.as_bytes());
        let payload = parse(
            r#"{"url":"https://a.example/","event":"e","data":{"n":12345678901234567890.10},"key":"k"}"#,
        )
        .expect("a payload");
        let at = DateTime::from_timestamp(1_700_000_000, 123_000_000).expect("a time");
        assert_eq!(
            body(&payload, at).expect("a body"),
            r#"{"type":"e","timestamp":"2023-11-14T22:13:20.123Z","key":"k","data":{"n":12345678901234567890.10}}"#
        );
        for (text, field) in [
            (r#"{"url":"u","event":"e"}"#, "data"),
            (r#"{"url":"u","event":"e","data":[]}"#, "data"),
            (r#"{"url":"u","event":"e","data":null}"#, "data"),
            (r#"{"url":"u","event":"","data":{}}"#, "event"),
            (r#"{"url":"u","event":"e","data":{},"key":" "}"#, "key"),
            (r#"{"url":"u","event":"e","data":{},"x":1}"#, "x"),
            (r#"{"event":"e","data":{}}"#, "url"),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.code, "PAYLOAD_INVALID", "{text}");
            assert!(error.message.contains(field), "{}", error.message);
        }
    }

    #[test]
    fn without_a_set_up_it_says_which_key_to_set() {
        let missing = |hosts: &[&str], secret: &str| {
            let mut config = tenure_core::config::Config::default();
            config.webhooks.allowed_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            config.webhooks.secret = tenure_core::config::Secret::new(secret);
            let context = Context::new("tenure-worker", "1.2.3", config);
            let handler = NotifyWebhook::new(&context).expect("a handler");
            handler
                .signer()
                .err()
                .map(|error| (error.code, error.message))
        };
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        assert_eq!(missing(&["*"], secret), None);
        for (hosts, secret, key) in [
            (&[][..], secret, "webhooks.allowed_hosts"),
            (&["*"][..], "", "webhooks.secret"),
        ] {
            let (code, message) = missing(hosts, secret).expect("blocked");
            assert_eq!(code, "WEBHOOK_BLOCKED");
            assert!(message.contains(key), "{message}");
        }
    }

    #[test]
    fn each_try_tells_the_same_time() {
        let id = Uuid::now_v7();
        assert_eq!(created_at(id), created_at(id));
        assert!((Utc::now() - created_at(id)).num_seconds().abs() < 60);
    }

    #[test]
    fn answers_decide_what_follows() {
        let told = |status: u16, delay| {
            let status = StatusCode::from_u16(status).expect("a status");
            verdict(status, delay).map_err(|error| (error.class, error.code, error.retry_after))
        };
        for status in [200, 202, 204, 299] {
            assert!(told(status, None).is_ok(), "{status}");
        }
        let delay = Some(Duration::from_secs(7));
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            assert_eq!(
                told(status, delay).expect_err("later"),
                (Class::Temporary, "WEBHOOK_UNAVAILABLE".to_owned(), delay)
            );
        }
        for status in [301, 302, 304, 307, 308, 400, 401, 404, 409, 410, 422] {
            let (class, code, _) = told(status, delay).expect_err("for good");
            assert_eq!(
                (class, code.as_str()),
                (Class::Permanent, "WEBHOOK_REFUSED")
            );
        }
    }

    #[test]
    fn a_delay_is_read_in_both_forms_and_bounded() {
        let now = DateTime::from_timestamp(1_445_412_420, 0).expect("a time");
        let read = |text: &str| {
            let mut headers = header::HeaderMap::new();
            headers.insert(header::RETRY_AFTER, text.parse().expect("a header"));
            retry_after(&headers, now)
        };
        assert_eq!(read("120"), Some(Duration::from_mins(2)));
        assert_eq!(read("0"), Some(Duration::ZERO));
        assert_eq!(read("99999999999"), Some(MAX_RETRY_AFTER));
        assert_eq!(
            read("Wed, 21 Oct 2015 07:28:00 GMT"),
            Some(Duration::from_mins(1))
        );
        assert_eq!(read("Wed, 21 Oct 2099 07:28:00 GMT"), Some(MAX_RETRY_AFTER));
        for text in ["Wed, 21 Oct 2005 07:28:00 GMT", "soon", "-1", "1.5", ""] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(retry_after(&header::HeaderMap::new(), now), None);
    }
}
