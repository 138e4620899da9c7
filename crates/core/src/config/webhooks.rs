//! The forms of the values in `[webhooks]`: patterns of hosts, addresses, the secret.
use std::net::SocketAddr;

use url::Host;

use super::WebhooksConfig;

/// The shortest key of a secret, in bytes (Standard Webhooks).
const MIN_KEY_BYTES: usize = 24;
/// The longest key of a secret, in bytes (Standard Webhooks).
const MAX_KEY_BYTES: usize = 64;
/// What a secret begins with.
const SECRET_PREFIX: &str = "whsec_";

/// A host, or several, that webhooks may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    host: HostPart,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPart {
    /// `*`.
    Any,
    /// `*.example.com`, kept as `.example.com`.
    Below(String),
    /// One name or address.
    Is(Host),
}

/// How closely a pattern names a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The pattern is `*`.
    Any,
    /// The pattern names the host, or the domain that it is in.
    Named,
}

impl HostPattern {
    /// Reads `hooks.example.com`, `*.example.com`, `*`, `192.0.2.7` or `[2001:db8::1]`, each
    /// with `:PORT` or without.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        const HELP: &str = "write `hooks.example.com`, `*.example.com` or `*`, with `:PORT` where it is not the scheme's";
        let wrong = || format!("{:?} is not a host: {HELP}", cut(text));
        let (host, port) = match text.rsplit_once(':') {
            // The last colon of an address in brackets is not that of a port.
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse::<u16>().ok().filter(|port| *port > 0);
                (host, Some(port.ok_or_else(wrong)?))
            }
            _ => (text, None),
        };
        let parse = |name: &str| {
            let host = Host::parse(name.strip_suffix('.').unwrap_or(name)).map_err(|_| wrong())?;
            // A name of ours has no place for these.
            let plain = host.to_string().bytes().all(|b| !b"*/?#@%\\ ".contains(&b));
            plain.then_some(host).ok_or_else(wrong)
        };
        let host = match (host, host.strip_prefix("*.")) {
            ("*", _) => HostPart::Any,
            (_, Some(domain)) => match parse(domain)? {
                Host::Domain(name) => HostPart::Below(format!(".{name}")),
                _ => return Err(wrong()),
            },
            (host, None) => HostPart::Is(parse(host)?),
        };
        Ok(Self { host, port })
    }

    /// How the pattern fits a host and port; `None`: it does not. A pattern without a port
    /// stands for that of the scheme.
    pub fn fits(&self, host: &Host<&str>, port: u16, scheme_port: u16) -> Option<Fit> {
        if port != self.port.unwrap_or(scheme_port) {
            return None;
        }
        match (&self.host, host) {
            (HostPart::Any, _) => Some(Fit::Any),
            (HostPart::Below(domain), Host::Domain(name)) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                // `.example.com` alone has no name before it.
                (name.len() > domain.len() && name.ends_with(domain.as_str())).then_some(Fit::Named)
            }
            (HostPart::Is(Host::Domain(own)), Host::Domain(name)) => {
                (own == name.strip_suffix('.').unwrap_or(name)).then_some(Fit::Named)
            }
            (HostPart::Is(Host::Ipv4(own)), Host::Ipv4(address)) => {
                (own == address).then_some(Fit::Named)
            }
            (HostPart::Is(Host::Ipv6(own)), Host::Ipv6(address)) => {
                (own == address).then_some(Fit::Named)
            }
            _ => None,
        }
    }
}

impl WebhooksConfig {
    /// What is wrong with the values, by key; empty where they can be used.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        for pattern in &self.allowed_hosts {
            if let Err(why) = HostPattern::parse(pattern) {
                problems.push(("webhooks.allowed_hosts", why));
            }
        }
        for address in &self.allowed_private {
            if address.parse::<SocketAddr>().is_err() {
                let why = format!(
                    "{:?} is not an address: write `10.1.2.3:8080` or `[fd00::1]:8080`",
                    cut(address)
                );
                problems.push(("webhooks.allowed_private", why));
            }
        }
        if !self.secret.is_empty() && !is_secret(self.secret.expose()) {
            let why = format!(
                "must be `{SECRET_PREFIX}` and the base64 of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} random bytes; \
                 `echo {SECRET_PREFIX}$(openssl rand -base64 32)` makes one"
            );
            problems.push(("webhooks.secret", why));
        }
        problems
    }
}

/// Whether this is a secret of Standard Webhooks.
fn is_secret(text: &str) -> bool {
    let Some(base64) = text.strip_prefix(SECRET_PREFIX) else {
        return false;
    };
    let padding = base64.bytes().rev().take_while(|b| *b == b'=').count();
    let bytes = (base64.len() / 4 * 3).saturating_sub(padding);
    (MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&bytes) && standardwebhooks::Webhook::new(text).is_ok()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(60)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn fits(pattern: &str, host: &str, port: u16) -> Option<Fit> {
        let host: Host = Host::parse(host).expect("a host");
        let host = match &host {
            Host::Domain(name) => Host::Domain(name.as_str()),
            Host::Ipv4(address) => Host::Ipv4(*address),
            Host::Ipv6(address) => Host::Ipv6(*address),
        };
        HostPattern::parse(pattern)
            .expect(pattern)
            .fits(&host, port, 443)
    }

    #[test]
    fn a_pattern_fits_what_it_names() {
        for (pattern, host, port) in [
            ("hooks.example.com", "hooks.example.com", 443),
            ("hooks.example.com", "HOOKS.example.COM.", 443),
            ("Hooks.Example.com.", "hooks.example.com", 443),
            ("hooks.example.com:8443", "hooks.example.com", 8443),
            ("*.example.com", "a.example.com", 443),
            ("*.example.com", "b.a.example.com.", 443),
            ("*.example.com:8443", "a.example.com", 8443),
            ("bücher.example", "xn--bcher-kva.example", 443),
            ("192.0.2.7", "192.0.2.7", 443),
            ("[2001:db8::1]:99", "[2001:db8:0::1]", 99),
        ] {
            assert_eq!(
                fits(pattern, host, port),
                Some(Fit::Named),
                "{pattern} {host}"
            );
        }
        assert_eq!(fits("*", "anything.example", 443), Some(Fit::Any));
        assert_eq!(fits("*:99", "192.0.2.7", 99), Some(Fit::Any));
        for (pattern, host, port) in [
            ("hooks.example.com", "hooks.example.com", 8443),
            ("hooks.example.com:8443", "hooks.example.com", 443),
            ("hooks.example.com", "hooks.example.com.evil.example", 443),
            ("hooks.example.com", "xhooks.example.com", 443),
            ("*.example.com", "example.com", 443),
            ("*.example.com", ".example.com", 443),
            ("*.example.com", "badexample.com", 443),
            ("*.example.com", "a.example.com", 80),
            ("*", "anything.example", 8443),
            ("*:99", "192.0.2.7", 443),
            ("192.0.2.7", "192.0.2.8", 443),
        ] {
            assert_eq!(fits(pattern, host, port), None, "{pattern} {host}:{port}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in [
            "",
            ":8080",
            "a:0",
            "a:99999",
            "a:b",
            "https://a.example",
            "a.example/path",
            "user@a.example",
            "*.*.example",
            "a*.example",
            "*.10.0.0.1",
            "a b",
            "2001:db8::1",
        ] {
            assert!(HostPattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_checked_and_secrets_not_shown() {
        let mut config = WebhooksConfig {
            allowed_hosts: vec!["*.example.com".to_owned(), "a/b".to_owned()],
            allowed_private: vec!["10.0.0.1:80".to_owned(), "10.0.0.1".to_owned()],
            secret: Secret::new("whsec_c2hvcnQ="),
            ..WebhooksConfig::default()
        };
        let keys: Vec<_> = config.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "webhooks.allowed_hosts",
                "webhooks.allowed_private",
                "webhooks.secret"
            ]
        );
        assert!(
            config
                .problems()
                .iter()
                .all(|(_, why)| !why.contains("c2hvcnQ"))
        );
        config.allowed_hosts.truncate(1);
        config.allowed_private.truncate(1);
        for (secret, good) in [
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa", false),
            ("whsec_!!!!9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
            ("whsec_", false),
        ] {
            config.secret = Secret::new(secret);
            assert_eq!(config.problems().is_empty(), good, "{secret}");
        }
    }
}
