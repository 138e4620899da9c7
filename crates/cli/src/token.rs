//! `tenure token`: signs a bearer token.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use chrono::Utc;
use clap::ValueEnum;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde::Serialize;

use crate::args::TokenArgs;
use crate::errors::{Exit, Failure};
use crate::output::Output;
use crate::values::read_small_file;

/// A role that the services know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Submits jobs and sees its own.
    Submitter,
    /// Acts for users that it names.
    Service,
    /// Sees all jobs, queues and dead letters.
    Operator,
    /// An operator that may change everything.
    Admin,
}

/// The shortest secret that the services take, in bytes (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;

#[derive(Debug, Serialize)]
struct Claims<'a> {
    sub: &'a str,
    roles: Vec<Role>,
    iat: i64,
    exp: i64,
    iss: &'a str,
    aud: &'a str,
}

/// Prints a token.
pub(crate) fn run(args: &TokenArgs, out: &mut Output) -> Result<Exit, Failure> {
    let secret = secret(
        args.secret_file.as_deref(),
        std::env::var_os("TENURE_JWT_SECRET"),
        std::env::var_os("TENURE_JWT_SECRET_FILE"),
    )?;
    let token = sign(args, &secret, Utc::now().timestamp())?;
    out.raw(format!("{token}\n").as_bytes())?;
    Ok(Exit::Ok)
}

/// The secret: of the file that was given, else of the two variables.
fn secret(
    given: Option<&Path>,
    secret: Option<OsString>,
    file: Option<OsString>,
) -> Result<Vec<u8>, Failure> {
    let set_to_nothing = file.as_ref().is_some_and(|name| name.is_empty());
    let (secret, source) = match (given, secret, named_file(file)) {
        (Some(path), _, _) => (secret_from_file(path)?, path.display().to_string()),
        (None, Some(secret), _) if !secret.is_empty() => {
            (secret.into_encoded_bytes(), "TENURE_JWT_SECRET".to_owned())
        }
        (None, _, Some(path)) => (
            secret_from_file(&path)?,
            format!("{} (TENURE_JWT_SECRET_FILE)", path.display()),
        ),
        (None, _, None) => {
            let message = if set_to_nothing {
                "there is no secret to sign with: TENURE_JWT_SECRET_FILE is set, but empty"
            } else {
                "there is no secret to sign with"
            };
            return Err(Failure::usage(message).hint(
                "set TENURE_JWT_SECRET or TENURE_JWT_SECRET_FILE to the secret of the services, or give --secret-file",
            ));
        }
    };
    if secret.len() < MIN_SECRET_BYTES {
        return Err(Failure::usage(format!(
            "the secret in {source} has {} bytes; the services take none under {MIN_SECRET_BYTES}",
            secret.len()
        ))
        .hint("`openssl rand -hex 32` makes one; all services need the same"));
    }
    Ok(secret)
}

/// The file that a variable names. Orchestrators often pass variables that are set to
/// nothing: those count as not set.
fn named_file(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The text of the file without the white space around it, as the services read it.
fn secret_from_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let secret = read_small_file(path)?.trim_ascii().to_vec();
    if secret.is_empty() {
        return Err(Failure::usage(format!(
            "the secret file {} is empty",
            path.display()
        )));
    }
    Ok(secret)
}

fn sign(args: &TokenArgs, secret: &[u8], now: i64) -> Result<String, Failure> {
    if args.user.is_empty() {
        return Err(Failure::usage("--user must not be empty"));
    }
    let mut roles: Vec<Role> = Vec::new();
    for role in &args.roles {
        if !roles.contains(role) {
            roles.push(*role);
        }
    }
    let claims = Claims {
        sub: &args.user,
        roles,
        iat: now,
        exp: expiry(now, args.expires)?,
        iss: &args.issuer,
        aud: &args.audience,
    };
    let key = EncodingKey::from_secret(secret).context("cannot use the secret")?;
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
        .context("cannot sign the token")?;
    Ok(token)
}

fn expiry(now: i64, expires: Duration) -> Result<i64, Failure> {
    // Whole seconds, rounded up: a token for 500ms is valid for a moment.
    let seconds = expires.as_millis().div_ceil(1000);
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| now.checked_add(seconds))
        .ok_or_else(|| Failure::usage("--expires is too long"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use jsonwebtoken::{DecodingKey, Validation};
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{Cli, Verb};

    fn args(line: &[&str]) -> TokenArgs {
        let line = ["tenure", "token"].iter().chain(line);
        match Cli::try_parse_from(line).expect("parses").verb {
            Verb::Token(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_claims_are_what_the_services_check() {
        let args = args(&[
            "--user",
            "ann",
            "--role",
            "submitter",
            "--role",
            "operator,submitter",
            "--expires",
            "2h",
        ]);
        let now = Utc::now().timestamp();
        let token = sign(&args, b"secret", now).expect("signs");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&["tenure"]);
        validation.set_audience(&["tenure"]);
        let key = DecodingKey::from_secret(b"secret").expect("a key");
        let data = jsonwebtoken::decode::<Value>(&token, &key, &validation).expect("is valid");
        assert_eq!(
            data.claims,
            json!({
                "sub": "ann",
                "roles": ["submitter", "operator"],
                "iat": now,
                "exp": now + 7200,
                "iss": "tenure",
                "aud": "tenure",
            })
        );
        let other = DecodingKey::from_secret(b"another").expect("a key");
        assert!(jsonwebtoken::decode::<Value>(&token, &other, &validation).is_err());
    }

    #[test]
    fn white_space_around_a_secret_is_no_part_of_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        std::fs::write(&path, " s p\r\n").expect("writes");
        assert_eq!(secret_from_file(&path).expect("reads"), b"s p");
        std::fs::write(&path, "\n").expect("writes");
        assert_eq!(
            secret_from_file(&path).expect_err("is empty").exit,
            Exit::Usage
        );
    }

    #[test]
    fn a_variable_that_is_set_to_nothing_names_no_file() {
        assert_eq!(named_file(None), None);
        assert_eq!(named_file(Some(OsString::new())), None);
        assert_eq!(named_file(Some("s".into())), Some(PathBuf::from("s")));
    }

    #[test]
    fn a_secret_is_found_and_long_enough_for_the_services() {
        let long = "x".repeat(32);
        let var = |text: &str| Some(OsString::from(text));
        let found = secret(None, var(&long), None).expect("long enough");
        assert_eq!(found, long.as_bytes());
        let short = secret(None, var(&long[1..]), None).expect_err("too short");
        assert!(
            short.message.contains("TENURE_JWT_SECRET has 31 bytes"),
            "{}",
            short.message
        );
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        std::fs::write(&path, format!("{long}\n")).expect("writes");
        let named = secret(None, None, Some(path.clone().into_os_string()));
        assert_eq!(named.expect("reads"), long.as_bytes());
        std::fs::write(&path, "short\n").expect("writes");
        let short = secret(Some(&path), var(&long), None).expect_err("too short");
        assert_eq!(short.exit, Exit::Usage);
        assert!(short.message.contains("has 5 bytes"), "{}", short.message);
    }

    #[test]
    fn a_variable_that_is_empty_is_named() {
        let empty = secret(None, None, Some(OsString::new())).expect_err("none");
        assert!(
            empty
                .message
                .contains("TENURE_JWT_SECRET_FILE is set, but empty"),
            "{}",
            empty.message
        );
        let none = secret(None, None, None).expect_err("none");
        assert_eq!(none.message, "there is no secret to sign with");
    }

    #[test]
    fn an_endless_token_is_refused() {
        assert!(expiry(i64::MAX, Duration::from_secs(1)).is_err());
        assert_eq!(expiry(10, Duration::from_millis(500)).expect("fits"), 11);
    }
}
