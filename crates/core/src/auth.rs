//! Who calls: JSON web tokens with a pinned algorithm, issuer and audience.
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, JwkSet};
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, get_current_timestamp};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tonic::metadata::MetadataMap;

use crate::config::{Algorithm, AuthConfig};
pub use crate::domain::ids::UserId;
use crate::error::{Code, Error, Result};

/// The longest token that is looked at, in bytes.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// The shortest secret that HS256 is safe with, in bytes (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Submits jobs and sees own ones.
    Submitter,
    /// Acts for a named user.
    Service,
    /// Looks after all jobs, queues and dead letters.
    Operator,
    /// Changes what is registered.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Submitter, Self::Service, Self::Operator, Self::Admin];

    /// The name in the `roles` of a token.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitter => "submitter",
            Self::Service => "service",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Whether the role is in the set.
    pub fn contains(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |bits, role| bits | role.bit()))
    }
}

/// A caller whose token was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The user.
    pub user: UserId,
    /// What the user may do.
    pub roles: Roles,
}

impl Principal {
    /// Whether the caller has this role.
    pub fn has(&self, role: Role) -> bool {
        self.roles.contains(role)
    }

    /// PERMISSION_DENIED unless the caller has one of the roles.
    pub fn require(&self, any_of: &[Role]) -> Result<()> {
        if any_of.iter().any(|role| self.has(*role)) {
            return Ok(());
        }
        let names: Vec<&str> = any_of.iter().map(|role| role.as_str()).collect();
        let names = names.join(" or ");
        Err(Error::new(
            Code::PermissionDenied,
            format!("this call needs the role {names}; ask for a token with it"),
        )
        .with_meta("roles", names))
    }

    /// The user that a call is for: the caller itself, or whom a service names.
    pub fn acting_for(&self, requested_user: &str) -> Result<UserId> {
        if requested_user.is_empty() || requested_user == self.user.as_str() {
            return Ok(self.user.clone());
        }
        let user = UserId::parse(requested_user).map_err(|why| Error::invalid("user", why))?;
        if self.has(Role::Service) {
            return Ok(user);
        }
        Err(Error::new(
            Code::PermissionDenied,
            "only the role service may act for another user; leave the user out",
        ))
    }

    /// Whether the caller may see what belongs to this user.
    pub fn may_see(&self, user: &str) -> bool {
        self.user.as_str() == user
            || [Role::Service, Role::Operator, Role::Admin]
                .iter()
                .any(|role| self.has(*role))
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    roles: Vec<String>,
    exp: u64,
}

enum Keys {
    Shared(DecodingKey),
    /// By key id; a key without one is under the empty text.
    Public(HashMap<String, DecodingKey>),
}

#[derive(Clone)]
struct Verified {
    principal: Arc<Principal>,
    /// Seconds since 1970 at which the token ends.
    ends: u64,
}

/// Verifies tokens. Verified ones are remembered, by their digest, until they end.
pub struct Authenticator {
    keys: Keys,
    validation: Validation,
    leeway: Duration,
    cache: moka::sync::Cache<[u8; 32], Verified>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

fn unauthenticated(message: impl Into<String>) -> Error {
    Error::new(Code::Unauthenticated, message)
}

impl Authenticator {
    /// Reads the keys. CONFIG_INVALID if there are none, or too weak ones.
    pub fn new(config: &AuthConfig) -> Result<Self> {
        let algorithm = match config.algorithm {
            Algorithm::HS256 => jsonwebtoken::Algorithm::HS256,
            Algorithm::RS256 => jsonwebtoken::Algorithm::RS256,
            Algorithm::ES256 => jsonwebtoken::Algorithm::ES256,
            Algorithm::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        };
        let keys = if config.algorithm == Algorithm::HS256 {
            let secret = config.secret.expose().as_bytes();
            if secret.len() < MIN_SECRET_BYTES {
                return Err(Error::new(
                    Code::ConfigInvalid,
                    format!("auth.secret must be {MIN_SECRET_BYTES} bytes or more"),
                ));
            }
            Keys::Shared(DecodingKey::from_secret(secret).map_err(|error| {
                Error::new(Code::ConfigInvalid, "auth.secret cannot be used").with_source(error)
            })?)
        } else {
            Keys::Public(public_keys(config, algorithm)?)
        };
        let mut validation = Validation::new(algorithm);
        validation.leeway = config.leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.set_required_spec_claims(&["exp", "sub", "iss", "aud"]);
        Ok(Self {
            keys,
            validation,
            leeway: config.leeway,
            cache: moka::sync::Cache::new(config.cache_entries),
        })
    }

    /// The caller of a request with this metadata, or UNAUTHENTICATED.
    pub fn authenticate(&self, metadata: &MetadataMap) -> Result<Principal> {
        let mut values = metadata.get_all("authorization").iter();
        let header = values.next().ok_or_else(|| {
            unauthenticated(
                "the call has no token; send the metadata `authorization: Bearer TOKEN`",
            )
        })?;
        if values.next().is_some() {
            return Err(unauthenticated(
                "the call has more than one `authorization`",
            ));
        }
        let header = header
            .to_str()
            .map_err(|_| unauthenticated("`authorization` is not ASCII"))?;
        let token = match header.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(unauthenticated("`authorization` must be `Bearer TOKEN`")),
        };
        self.verify(token)
    }

    /// The caller that a token names, or UNAUTHENTICATED.
    pub fn verify(&self, token: &str) -> Result<Principal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(unauthenticated(format!(
                "the token is longer than {MAX_TOKEN_BYTES} bytes"
            )));
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.cache.get(&digest) {
            if get_current_timestamp() < known.ends.saturating_add(self.leeway.as_secs()) {
                return Ok(Principal::clone(&known.principal));
            }
            self.cache.invalidate(&digest);
        }
        let verified = self.verify_signature(token)?;
        let principal = Principal::clone(&verified.principal);
        self.cache.insert(digest, verified);
        Ok(principal)
    }

    fn verify_signature(&self, token: &str) -> Result<Verified> {
        let key = match &self.keys {
            Keys::Shared(key) => key,
            Keys::Public(keys) => {
                let header = decode_header(token).map_err(|error| refused(&error))?;
                match header.kid {
                    Some(kid) => keys.get(&kid),
                    // Without a key id there is no choice only where there is one key.
                    None if keys.len() == 1 => keys.values().next(),
                    None => None,
                }
                .ok_or_else(|| {
                    unauthenticated("the token names no key (`kid`) that is known here")
                })?
            }
        };
        let claims = decode::<Claims>(token, key, &self.validation)
            .map_err(|error| refused(&error))?
            .claims;
        let user = UserId::parse(&claims.sub)
            .map_err(|why| unauthenticated(format!("the token's `sub` {why}")))?;
        // A role that this version does not know gives nothing.
        let roles = claims.roles.iter().filter_map(|name| Role::parse(name));
        Ok(Verified {
            principal: Arc::new(Principal {
                user,
                roles: roles.collect(),
            }),
            ends: claims.exp,
        })
    }
}

fn public_keys(
    config: &AuthConfig,
    algorithm: jsonwebtoken::Algorithm,
) -> Result<HashMap<String, DecodingKey>> {
    let wrong = |why: String| Error::new(Code::ConfigInvalid, format!("auth.jwks_file {why}"));
    let path = config
        .jwks_file
        .as_ref()
        .ok_or_else(|| wrong("is required with this auth.algorithm".to_owned()))?;
    let text = std::fs::read(path)
        .map_err(|error| wrong(format!("{} cannot be read", path.display())).with_source(error))?;
    let set: JwkSet = serde_json::from_slice(&text).map_err(|error| {
        wrong(format!("{} is not a JSON web key set", path.display())).with_source(error)
    })?;
    let mut keys = HashMap::new();
    for jwk in &set.keys {
        // A set may hold keys of other algorithms, and a shared secret is never a public key.
        let other = jwk
            .common
            .key_algorithm
            .is_some_and(|named| named.to_string() != format!("{algorithm:?}"));
        if other || matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)) {
            continue;
        }
        let Ok(key) = DecodingKey::from_jwk(jwk) else {
            continue;
        };
        if !algorithm_fits(&key, algorithm) {
            continue;
        }
        let kid = jwk.common.key_id.clone().unwrap_or_default();
        if keys.insert(kid.clone(), key).is_some() {
            return Err(wrong(format!(
                "has two keys with the id `{}`",
                kid.escape_debug()
            )));
        }
    }
    if keys.is_empty() {
        return Err(wrong(format!(
            "{} has no key for {algorithm:?}",
            path.display()
        )));
    }
    Ok(keys)
}

fn algorithm_fits(key: &DecodingKey, algorithm: jsonwebtoken::Algorithm) -> bool {
    key.family().algorithms().contains(&algorithm)
}

/// Says what is wrong with a token, so far as that helps its rightful owner.
fn refused(error: &jsonwebtoken::errors::Error) -> Error {
    unauthenticated(match error.kind() {
        ErrorKind::ExpiredSignature => "the token has ended; get a new one".to_owned(),
        ErrorKind::ImmatureSignature => "the token is not valid yet".to_owned(),
        ErrorKind::InvalidIssuer => "the token is of another issuer".to_owned(),
        ErrorKind::InvalidAudience => "the token is for another audience".to_owned(),
        ErrorKind::InvalidSignature => "the token's signature is wrong".to_owned(),
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => {
            "the token's algorithm is not accepted here".to_owned()
        }
        ErrorKind::MissingRequiredClaim(claim) => {
            format!("the token lacks `{}`", claim.escape_debug())
        }
        _ => "the token is malformed".to_owned(),
    })
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
