//! What may be called: the address as it is written, and each address that its name leads to.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use tenure_core::config::{Fit, HostPattern, WebhooksConfig};
use tenure_core::error::{Code, Error, Result, clean_text};
use url::Host;

use super::addresses::is_public;
use crate::handler::JobError;

/// The last part of names that never are in the public name system. Under `*` alone they
/// are not even looked up.
const LOCAL_ZONES: &[&str] = &[
    "arpa",
    "corp",
    "example",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "private",
    "test",
];

/// The rules of `[webhooks]`, read.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    hosts: Vec<HostPattern>,
    private: HashSet<SocketAddr>,
    allow_http: bool,
}

/// An address that may be called.
#[derive(Debug)]
pub(super) struct Target {
    /// The address.
    pub(super) url: Url,
    /// Its port.
    pub(super) port: u16,
}

/// The error about what is not called.
pub(super) fn blocked(why: impl Into<String>) -> JobError {
    JobError::permanent(Code::WebhookBlocked.as_str(), why)
}

impl Guard {
    /// Reads the rules.
    ///
    /// # Errors
    /// `CONFIG_INVALID`.
    pub(super) fn new(config: &WebhooksConfig) -> Result<Self> {
        let wrong = |why: String| Error::new(Code::ConfigInvalid, why);
        let hosts: Result<_> = config
            .allowed_hosts
            .iter()
            .map(|text| {
                HostPattern::parse(text)
                    .map_err(|why| wrong(format!("webhooks.allowed_hosts: {why}")))
            })
            .collect();
        let private: Result<_> = config
            .allowed_private
            .iter()
            .map(|text| {
                let address: SocketAddr = text
                    .parse()
                    .map_err(|_| wrong(format!("webhooks.allowed_private: {text:?}")))?;
                Ok(canonical(address))
            })
            .collect();
        Ok(Self {
            hosts: hosts?,
            private: private?,
            allow_http: config.allow_http,
        })
    }

    /// Whether any host may be called.
    pub(super) fn allows_any(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Reads and judges an address. What a name leads to is judged when it is looked up.
    ///
    /// # Errors
    /// Permanent: `WEBHOOK_BLOCKED`, and `PAYLOAD_INVALID` where it is no address. The
    /// message names no more of the address than its host.
    pub(super) fn target(&self, text: &str) -> Result<Target, JobError> {
        let url = Url::parse(text).map_err(|error| JobError::payload(format!("url: {error}")))?;
        let scheme_port = match url.scheme() {
            "https" => 443,
            "http" if self.allow_http => 80,
            "http" => return Err(blocked("url: must begin with https://")),
            _ => return Err(blocked("url: must be an http or https address")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(blocked("url: must not hold a user name or password"));
        }
        let port = url.port().unwrap_or(scheme_port);
        let host = url.host().ok_or_else(|| blocked("url: names no host"))?;
        let fit = self
            .hosts
            .iter()
            .filter_map(|pattern| pattern.fits(&host, port, scheme_port))
            .max()
            .ok_or_else(|| {
                let shown = clean_text(&host.to_string(), 100);
                blocked(format!(
                    "url: the host {shown} with port {port} is not among webhooks.allowed_hosts"
                ))
            })?;
        let allowed = match host {
            Host::Domain(name) => fit == Fit::Named || !is_local(name),
            Host::Ipv4(address) => self.may_connect(address.into(), port),
            Host::Ipv6(address) => self.may_connect(address.into(), port),
        };
        if !allowed {
            return Err(blocked("url: the host is not a public one"));
        }
        Ok(Target { url, port })
    }

    /// Whether a connection to this address may be made.
    pub(super) fn may_connect(&self, address: IpAddr, port: u16) -> bool {
        is_public(address)
            || self
                .private
                .contains(&canonical(SocketAddr::new(address, port)))
    }
}

/// An address of IPv4 in the clothes of IPv6 is that address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether a name is of this machine or this network: of one part, or in a local zone.
fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.rsplit_once('.') {
        Some((_, zone)) => LOCAL_ZONES.contains(&zone),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(hosts: &[&str], private: &[&str], allow_http: bool) -> Guard {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Guard::new(&WebhooksConfig {
            allowed_hosts: texts(hosts),
            allowed_private: texts(private),
            allow_http,
            ..WebhooksConfig::default()
        })
        .expect("rules")
    }

    /// Any host, also with the ports that the cases name.
    fn open() -> Guard {
        guard(&["*", "*:8080", "*:21"], &[], true)
    }

    #[test]
    fn every_target_of_the_list_is_blocked() {
        let list = include_str!("../../../../../tests/data/urls/ssrf_targets.txt");
        let mut count = 0;
        for url in list.lines().filter(|line| !line.trim().is_empty()) {
            let error = open().target(url).expect_err(url);
            assert_eq!(error.code, "WEBHOOK_BLOCKED", "{url}");
            assert!(!error.message.contains("secret"), "{}", error.message);
            count += 1;
        }
        assert_eq!(count, 12);
    }

    #[test]
    fn every_spelling_of_an_inner_address_is_blocked() {
        for url in [
            // 127.0.0.1, 10.0.0.1 and 169.254.169.254 as other numbers.
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.1/",
            "http://0/",
            "http://0x0a000001/",
            "http://012.1/",
            "http://2852039166/",
            "http://0xa9.0xfe.0xa9.0xfe/",
            "http://169.254.43518/",
            "http://127.0.0.1./",
            // Digits of other scripts, full-width dots and letters.
            "http://１２７.０.０.１/",
            "http://127。0。0。1/",
            "http://①②⑦.⓪.⓪.①/",
            "http://ⓛocalhost/",
            // Escaped, upper case, blanks and line ends that readers drop.
            "http://%31%32%37.0.0.1/",
            "http://LOCALHOST/",
            "HTTP://LocalHost:8080/",
            "http://localhost./",
            "http://loc\nalhost/",
            " http://127.0.0.1/ ",
            "http:127.0.0.1/",
            "http:/127.0.0.1/",
            "http:\\\\127.0.0.1\\",
            "http:///127.0.0.1/",
            // IPv6, and IPv4 in it.
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::FFFF:169.254.169.254]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:7f00:1::]/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]/",
            "http://[ff02::1]/",
            // What is said before the host is not the host.
            "http://hooks.example.org@127.0.0.1/",
            "http://hooks.example.org:80@127.0.0.1/",
            "http://user:secret@hooks.example.org/",
            "http://user@hooks.example.org/",
            "http://:secret@hooks.example.org/",
            "http://127.0.0.1#@hooks.example.org/",
            "http://127.0.0.1?@hooks.example.org/",
            "http://127.0.0.1\\@hooks.example.org/",
            // Names of this machine and network.
            "http://intranet/",
            "http://metadata/",
            "http://a.localhost/",
            "http://printer.local/",
            "http://router.lan/",
            "http://vault.corp./",
            "http://metadata.google.INTERNAL/",
            "http://1.0.0.127.in-addr.arpa/",
            // Ports and schemes.
            "http://hooks.example.org:22/",
            "http://hooks.example.org:443/",
            "https://hooks.example.org:80/",
            "https://hooks.example.org:65535/",
            "file:///etc/passwd",
            "ftp://hooks.example.org/",
            "gopher://hooks.example.org/",
            "ws://hooks.example.org/",
            "data:text/plain,x",
            "javascript:alert(1)",
            "unix:/run/docker.sock",
        ] {
            let guard = guard(&["*", "*:8080"], &[], true);
            let error = guard.target(url).expect_err(url);
            assert_eq!(error.code, "WEBHOOK_BLOCKED", "{url}: {}", error.message);
            assert_eq!(error.class.as_str(), "permanent");
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
        for url in [
            "",
            "x",
            "/a",
            "http://",
            "http://[::1",
            "http://a b/",
            "http://a%00b/",
        ] {
            let error = open().target(url).expect_err(url);
            assert_eq!(error.code, "PAYLOAD_INVALID", "{url}: {}", error.message);
        }
    }

    #[test]
    fn what_is_allowed_is_let_through() {
        let guard = guard(
            &[
                "hooks.example.org",
                "*.bücher.example",
                "in.corp:8080",
                "10.1.2.3:8080",
                "[fd00::7]:9",
            ],
            &["10.1.2.3:8080", "[fd00::7]:9"],
            false,
        );
        for (url, port) in [
            ("https://hooks.example.org/a?b=c#d", 443),
            ("HTTPS://HOOKS.EXAMPLE.ORG./", 443),
            ("https://hooks.example.org:443/", 443),
            ("https://x.BÜCHER.example/", 443),
            ("https://x.xn--bcher-kva.example/", 443),
            ("https://in.corp:8080/", 8080),
            ("https://10.1.2.3:8080/", 8080),
            ("https://0x0a010203:8080/", 8080),
            ("https://[fd00::7]:9/", 9),
        ] {
            let target = guard.target(url).expect(url);
            assert_eq!(target.port, port, "{url}");
        }
        for url in [
            "http://hooks.example.org/",
            "https://hooks.example.org:8080/",
            "https://hooks.example.org.evil.example/",
            "https://evil.example/?hooks.example.org",
            "https://bücher.example/",
            "https://10.1.2.3/",
            "https://10.1.2.4:8080/",
            "https://[::ffff:10.1.2.3]:8080/",
        ] {
            let error = guard.target(url).expect_err(url);
            assert_eq!(error.code, "WEBHOOK_BLOCKED", "{url}");
        }
        // The address is what is allowed, not the number alone.
        assert!(guard.may_connect([10, 1, 2, 3].into(), 8080));
        assert!(!guard.may_connect([10, 1, 2, 3].into(), 8081));
        let mapped = "::ffff:10.1.2.3".parse().expect("an address");
        assert!(guard.may_connect(mapped, 8080));
    }

    #[test]
    fn a_message_names_no_more_than_the_host() {
        let error = guard(&["a.example"], &[], false)
            .target("https://b.example/path?token=hunter2#frag")
            .expect_err("blocked");
        assert!(error.message.contains("b.example"), "{}", error.message);
        for hidden in ["hunter2", "path", "frag"] {
            assert!(!error.message.contains(hidden), "{}", error.message);
        }
    }
}
