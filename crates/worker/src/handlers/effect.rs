//! `effect {url, key}`: posts the key to a listener on this machine, so that a trial
//! can count how often an effect happened. Loopback only; for trials.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::{StatusCode, Url, header, redirect};
use serde::Deserialize;
use serde_json::json;

use crate::handler::{JobContext, JobError, JobHandler, Outcome, Success, parse_payload};

/// The longest that the listener may take: trials keep the job running by not answering.
const TIMEOUT: Duration = Duration::from_secs(50);

/// The longest delay that a listener may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    /// Where to: http and a loopback host.
    url: String,
    /// What is posted.
    key: String,
}

/// The handler.
#[derive(Debug)]
pub(super) struct Effect;

#[async_trait]
impl JobHandler for Effect {
    fn job_type(&self) -> &'static str {
        "effect"
    }

    async fn run(&self, _: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        let Payload { url, key } = parse_payload(&payload)?;
        let url = target(&url)?;
        let response = client()?
            .post(url)
            .header(header::CONTENT_TYPE, "text/plain; charset=utf-8")
            .body(key)
            .send()
            .await
            .map_err(|error| {
                let what = if error.is_timeout() {
                    "did not answer in time"
                } else {
                    "cannot be reached"
                };
                JobError::temporary("EFFECT_UNREACHABLE", format!("the listener {what}"))
            })?;
        let status = response.status();
        let delay = retry_after(response.headers());
        verdict(status, delay)
    }
}

/// Takes loopback addresses in literal form and `localhost`, nothing else. The message
/// does not repeat the URL, which may hold a password.
fn target(url: &str) -> Result<Url, JobError> {
    let blocked = |why: &str| JobError::permanent("TARGET_BLOCKED", format!("url: {why}"));
    let url = Url::parse(url).map_err(|error| JobError::payload(format!("url: {error}")))?;
    if url.scheme() != "http" {
        return Err(blocked("must begin with http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(blocked("must not hold a user name or password"));
    }
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = match literal.parse::<IpAddr>() {
        // An IPv4 address in the clothes of IPv6 is not `::1`.
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    };
    if loopback {
        Ok(url)
    } else {
        Err(blocked(
            "must name this machine: 127.0.0.0/8, [::1] or localhost",
        ))
    }
}

fn client() -> Result<reqwest::Client, JobError> {
    reqwest::Client::builder()
        // A proxy would be another target, and so would what a redirect names.
        .no_proxy()
        .redirect(redirect::Policy::none())
        // The name is ours to resolve; port 0 stands for the URL's.
        .resolve("localhost", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| JobError::temporary("EFFECT_UNREACHABLE", format!("no client: {error}")))
}

/// A delay in seconds, if the listener named one.
fn retry_after(headers: &header::HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

fn verdict(status: StatusCode, delay: Option<Duration>) -> Result<Outcome, JobError> {
    let code = format!("HTTP_{}", status.as_u16());
    let message = format!("the listener answered {}", status.as_u16());
    if status.is_success() {
        return Ok(Outcome::Done(Success::with_result(
            &json!({"status": status.as_u16()}),
        )));
    }
    let busy = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if !busy && !status.is_server_error() {
        return Err(JobError::permanent(code, message));
    }
    let error = JobError::temporary(code, message);
    Err(match delay {
        Some(delay) if busy => error.retry_after(delay),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::error::Class;

    #[test]
    fn only_this_machine_is_a_target() {
        for url in [
            "http://127.0.0.1:8080/x",
            "http://127.9.9.9/",
            "http://[::1]:1/",
            "http://localhost:9/a?b",
            "http://LOCALHOST/",
        ] {
            assert!(target(url).is_ok(), "{url}");
        }
        for url in [
            "http://10.0.0.1/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
            "http://example.com/?127.0.0.1",
            "https://127.0.0.1/",
            "file:///etc/passwd",
            "http://user:secret@127.0.0.1/",
            "http://127.0.0.1@example.com/",
            "no url",
        ] {
            let error = target(url).expect_err(url);
            assert_eq!(error.class, Class::Permanent);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }

    #[test]
    fn answers_decide_the_class() {
        let told = |status: u16, delay| {
            let status = StatusCode::from_u16(status).expect("a status");
            verdict(status, delay).map_err(|error| (error.class, error.code, error.retry_after))
        };
        assert!(told(204, None).is_ok());
        let delay = Some(Duration::from_secs(7));
        for status in [429, 503] {
            let code = format!("HTTP_{status}");
            assert_eq!(
                told(status, delay).expect_err("busy"),
                (Class::Temporary, code, delay)
            );
        }
        assert_eq!(told(500, delay).expect_err("broken").0, Class::Temporary);
        for status in [302, 400, 404, 409] {
            assert_eq!(
                told(status, delay).expect_err("refused").0,
                Class::Permanent
            );
        }
        let mut headers = header::HeaderMap::new();
        assert_eq!(retry_after(&headers), None);
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("7"));
        assert_eq!(retry_after(&headers), delay);
        headers.insert(
            header::RETRY_AFTER,
            header::HeaderValue::from_static("99999999999"),
        );
        assert_eq!(retry_after(&headers), Some(MAX_RETRY_AFTER));
    }
}
