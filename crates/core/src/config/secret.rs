//! Values that must never reach a log, a dump or an error text.
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

const MASK: &str = "***";

/// A secret text. `Debug` and `Serialize` show `***`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself; call it only where it is used.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { MASK })
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { MASK })
    }
}

/// An address that may hold a password. `Debug`, `Display` and `Serialize`
/// show it with the password masked.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps an address.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The whole address; call it only where a connection is made.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has the form of an address.
    pub fn is_readable(&self) -> bool {
        url::Url::parse(&self.0).is_ok_and(|url| {
            // PostgreSQL and Redis may be reached by a socket in a folder.
            url.scheme() != "amqp" && url.scheme() != "amqps"
                || url.host_str().is_some_and(|host| !host.is_empty())
        })
    }

    /// The scheme, such as `postgres`.
    pub fn scheme(&self) -> Option<&str> {
        self.0.split_once("://").map(|(scheme, _)| scheme)
    }

    /// The address with its password masked.
    pub fn masked(&self) -> String {
        mask_url(&self.0)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.masked())
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.masked())
    }
}

/// Masks the password of an address. What does not look like an address is
/// masked as a whole: it could be a password that was put into the wrong place.
fn mask_url(url: &str) -> String {
    if url.is_empty() {
        return String::new();
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return MASK.to_owned();
    };
    // The last `@` ends the credentials, as a careless password may hold `/`, `?` or `@`.
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    let mut text = format!("{scheme}://");
    if let Some(credentials) = credentials {
        match credentials.split_once(':') {
            Some((user, _)) => text.extend([user, ":", MASK, "@"]),
            None => text.extend([credentials, "@"]),
        }
    }
    match rest.split_once('?') {
        None => text.push_str(rest),
        Some((head, query)) => {
            text.push_str(head);
            let shown: Vec<String> = query.split('&').map(mask_parameter).collect();
            text.push('?');
            text.push_str(&shown.join("&"));
        }
    }
    text
}

fn mask_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((key, _)) if is_secret_parameter(key) => format!("{key}={MASK}"),
        _ => parameter.to_owned(),
    }
}

fn is_secret_parameter(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "secret", "token"]
        .iter()
        .any(|word| key.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_only_when_asked() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(serde_json::to_string(&secret).expect("json"), "\"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn an_address_shows_all_but_its_password() {
        for (url, masked) in [
            ("postgres://u:pw@h:5432/db", "postgres://u:***@h:5432/db"),
            (
                "postgres://u:p/w?@x@h/db?sslmode=require",
                "postgres://u:***@h/db?sslmode=require",
            ),
            (
                "postgres://h/db?user=u&password=pw",
                "postgres://h/db?user=u&password=***",
            ),
            ("redis://:pw@h/0", "redis://:***@h/0"),
            ("amqp://h:5672/%2f", "amqp://h:5672/%2f"),
            ("amqp://u@h", "amqp://u@h"),
            ("hunter2", "***"),
            ("", ""),
        ] {
            assert_eq!(SecretUrl::new(url).masked(), masked);
            assert_eq!(format!("{:?}", SecretUrl::new(url)), format!("{masked:?}"));
        }
    }
}
