//! Tokens for callers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

/// The secret that every stack of this library is started with. It protects nothing:
/// the processes listen on loopback and live as long as a test.
pub const SECRET: &str = "a secret for tests, of more than thirty-two bytes";

/// How long a token is good for: longer than any test.
const LIFE: Duration = Duration::from_hours(1);

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The claims of a good token.
pub fn claims(user: &str, roles: &[&str]) -> Value {
    json!({
        "sub": user,
        "roles": roles,
        "iat": now(),
        "exp": now() + LIFE.as_secs(),
        "iss": "tenure",
        "aud": "tenure",
    })
}

/// Signs any claims with any secret.
///
/// # Panics
/// Where they cannot be signed.
pub fn sign(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes()).expect("a key of these bytes");
    jsonwebtoken::encode(&Header::new(algorithm), claims, &key).expect("claims that can be signed")
}

/// A good token.
pub fn token(user: &str, roles: &[&str]) -> String {
    sign(Algorithm::HS256, SECRET, &claims(user, roles))
}
