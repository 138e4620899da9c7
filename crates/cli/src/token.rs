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
    let file = args
        .secret_file
        .clone()
        .or_else(|| named_file(std::env::var_os("TENURE_JWT_SECRET_FILE")));
    let secret = match (
        &args.secret_file,
        std::env::var("TENURE_JWT_SECRET").ok(),
        file,
    ) {
        (Some(file), _, _) => secret_from_file(file)?,
        (None, Some(secret), _) if !secret.is_empty() => secret.into_bytes(),
        (None, _, Some(file)) => secret_from_file(&file)?,
        _ => {
            return Err(Failure::usage("there is no secret to sign with").hint(
                "set TENURE_JWT_SECRET or TENURE_JWT_SECRET_FILE to the secret of the services, or give --secret-file",
            ));
        }
    };
    let token = sign(args, &secret, Utc::now().timestamp())?;
    out.raw(format!("{token}\n").as_bytes())?;
    Ok(Exit::Ok)
}

/// The file that a variable names. Orchestrators often pass variables that are set to
/// nothing: those count as not set.
fn named_file(variable: Option<OsString>) -> Option<PathBuf> {
    variable.filter(|name| !name.is_empty()).map(PathBuf::from)
}

fn secret_from_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut secret = read_small_file(path)?;
    // Editors and `echo` end a file with a newline that is not part of it.
    while matches!(secret.last(), Some(b'\n' | b'\r')) {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(Failure::usage(format!("{} is empty", path.display())));
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
    fn a_secret_file_may_end_with_a_newline() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("secret");
        std::fs::write(&path, "s p\n").expect("writes");
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
    fn an_endless_token_is_refused() {
        assert!(expiry(i64::MAX, Duration::from_secs(1)).is_err());
        assert_eq!(expiry(10, Duration::from_millis(500)).expect("fits"), 11);
    }
}
