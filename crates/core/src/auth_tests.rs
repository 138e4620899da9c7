use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::config::Secret;

const SECRET: &str = "a secret of more than thirty-two bytes";

fn config() -> AuthConfig {
    AuthConfig {
        secret: Secret::new(SECRET),
        ..AuthConfig::default()
    }
}

fn claims() -> Value {
    json!({
        "sub": "ada", "roles": ["submitter", "operator", "astronaut"],
        "iss": "tenure", "aud": "tenure", "exp": get_current_timestamp() + 600,
    })
}

fn changed(key: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[key] = value;
    claims
}

fn sign_with(algorithm: jsonwebtoken::Algorithm, secret: &str, claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes()).expect("key");
    encode(&Header::new(algorithm), claims, &key).expect("signed")
}

fn sign(claims: &Value) -> String {
    sign_with(jsonwebtoken::Algorithm::HS256, SECRET, claims)
}

fn why(token: &str) -> String {
    let error = Authenticator::new(&config())
        .expect("valid")
        .verify(token)
        .expect_err("must be refused");
    assert_eq!(error.code(), Code::Unauthenticated);
    error.to_string()
}

fn metadata(values: &[&str]) -> MetadataMap {
    let mut map = MetadataMap::new();
    for value in values {
        map.append("authorization", value.parse().expect("ASCII"));
    }
    map
}

#[test]
fn a_good_token_names_its_user_and_known_roles() {
    let auth = Authenticator::new(&config()).expect("valid");
    let token = sign(&claims());
    for scheme in ["Bearer", "bearer"] {
        let principal = auth
            .authenticate(&metadata(&[&format!("{scheme} {token}")]))
            .expect("valid");
        assert_eq!(principal.user.as_str(), "ada");
        assert!(principal.has(Role::Submitter) && principal.has(Role::Operator));
        assert!(!principal.has(Role::Service) && !principal.has(Role::Admin));
    }
}

#[test]
fn a_call_without_one_bearer_token_is_refused() {
    let auth = Authenticator::new(&config()).expect("valid");
    let token = format!("Bearer {}", sign(&claims()));
    for (values, part) in [
        (vec![], "no token"),
        (vec!["Basic YTpi"], "must be `Bearer TOKEN`"),
        (vec!["Bearer"], "must be `Bearer TOKEN`"),
        (vec!["Bearer x"], "malformed"),
        (vec![token.as_str(), token.as_str()], "more than one"),
    ] {
        let error = auth.authenticate(&metadata(&values)).expect_err(part);
        assert_eq!(error.code(), Code::Unauthenticated);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_token_is_named() {
    let other = "another secret of more than thirty-two bytes";
    assert!(
        why(&sign_with(jsonwebtoken::Algorithm::HS256, other, &claims())).contains("signature")
    );
    assert!(
        why(&sign_with(
            jsonwebtoken::Algorithm::HS512,
            SECRET,
            &claims()
        ))
        .contains("algorithm")
    );
    assert!(why(&sign(&changed("iss", json!("else")))).contains("issuer"));
    assert!(why(&sign(&changed("aud", json!("else")))).contains("audience"));
    assert!(why(&sign(&changed("exp", json!(get_current_timestamp() - 60)))).contains("ended"));
    assert!(
        why(&sign(&changed("nbf", json!(get_current_timestamp() + 60)))).contains("not valid yet")
    );
    assert!(why(&sign(&changed("sub", json!("")))).contains("`sub`"));
    assert!(why(&sign(&changed("sub", json!("a\nb")))).contains("`sub`"));
    assert!(why(&sign(&changed("sub", json!("x".repeat(256))))).contains("`sub`"));
    for missing in ["sub", "iss", "aud", "exp"] {
        let mut claims = claims();
        claims.as_object_mut().expect("object").remove(missing);
        why(&sign(&claims));
    }
    assert!(why(&"x".repeat(MAX_TOKEN_BYTES + 1)).contains("longer than"));
    for garbage in ["", ".", "..", "a.b", "a.b.c", "é.é.é", "eyJ.eyJ."] {
        assert!(why(garbage).contains("malformed"), "{garbage}");
    }
}

#[test]
fn a_token_without_a_signature_is_refused() {
    // {"alg":"none"} with the claims and the signature of a good token, and without one.
    let good = sign(&claims());
    let (message, signature) = good.rsplit_once('.').expect("three parts");
    let (_, body) = message.split_once('.').expect("three parts");
    why(&format!("eyJhbGciOiJub25lIn0.{body}.{signature}"));
    why(&format!("eyJhbGciOiJub25lIn0.{body}."));
    assert!(why(&format!("{message}.")).contains("signature"));
}

#[test]
fn a_remembered_token_ends_all_the_same() {
    let config = AuthConfig {
        leeway: Duration::ZERO,
        ..config()
    };
    let auth = Authenticator::new(&config).expect("valid");
    let token = sign(&changed("exp", json!(get_current_timestamp() + 2)));
    let mut good = 0;
    // Waits on the fact that the token ends, which the clock brings about.
    let error = loop {
        match auth.verify(&token) {
            Ok(_) => good += 1,
            Err(error) => break error,
        }
        std::thread::yield_now();
    };
    assert!(good > 0);
    assert!(error.to_string().contains("ended"), "{error}");
}

#[test]
fn a_weak_secret_is_refused() {
    let config = AuthConfig {
        secret: Secret::new("x".repeat(MIN_SECRET_BYTES - 1)),
        ..AuthConfig::default()
    };
    let error = Authenticator::new(&config).expect_err("refused");
    assert_eq!(error.code(), Code::ConfigInvalid);
}

/// An Ed25519 key in its PKCS#8 form, made from a seed.
fn ed_key(seed: u8) -> EncodingKey {
    let mut der = hex::decode("302e020100300506032b657004220420").expect("hex");
    der.extend([seed; 32]);
    EncodingKey::from_ed_der(&der)
}

fn ed_token(kid: Option<&str>, key: &EncodingKey) -> String {
    let mut header = Header::new(jsonwebtoken::Algorithm::EdDSA);
    header.kid = kid.map(ToOwned::to_owned);
    encode(&header, &claims(), key).expect("signed")
}

fn with_jwks<T>(keys: &[(&str, u8)], test: impl FnOnce(&AuthConfig) -> T) -> T {
    let mut set: Vec<Jwk> = keys
        .iter()
        .map(|(kid, seed)| {
            let mut jwk = Jwk::from_encoding_key(&ed_key(*seed), jsonwebtoken::Algorithm::EdDSA)
                .expect("public key");
            jwk.common.key_id = Some((*kid).to_owned());
            jwk
        })
        .collect();
    // A shared secret in a set of public keys must not be used.
    let secret = EncodingKey::from_secret(SECRET.as_bytes()).expect("key");
    set.push(Jwk::from_encoding_key(&secret, jsonwebtoken::Algorithm::HS256).expect("key"));
    let path = std::env::temp_dir().join(format!("tenure-jwks-{}", uuid::Uuid::now_v7()));
    let text = serde_json::to_vec(&JwkSet { keys: set }).expect("json");
    std::fs::write(&path, text).expect("written");
    let config = AuthConfig {
        algorithm: Algorithm::EdDsa,
        jwks_file: Some(path.clone()),
        ..AuthConfig::default()
    };
    let result = test(&config);
    let _ = std::fs::remove_file(path);
    result
}

#[test]
fn public_keys_are_chosen_by_their_id() {
    with_jwks(&[("one", 1), ("two", 2)], |config| {
        let auth = Authenticator::new(config).expect("valid");
        assert!(auth.verify(&ed_token(Some("one"), &ed_key(1))).is_ok());
        assert!(auth.verify(&ed_token(Some("two"), &ed_key(2))).is_ok());
        for (token, part) in [
            (ed_token(Some("two"), &ed_key(1)), "signature"),
            (ed_token(Some("three"), &ed_key(1)), "kid"),
            (ed_token(None, &ed_key(1)), "kid"),
            (sign(&claims()), "kid"),
        ] {
            let error = auth.verify(&token).expect_err(part);
            assert_eq!(error.code(), Code::Unauthenticated);
            assert!(error.to_string().contains(part), "{error}");
        }
    });
    with_jwks(&[("one", 1)], |config| {
        let auth = Authenticator::new(config).expect("valid");
        assert!(auth.verify(&ed_token(None, &ed_key(1))).is_ok());
        // The only public key is not taken for a shared secret.
        let error = auth.verify(&sign(&claims())).expect_err("refused");
        assert!(error.to_string().contains("algorithm"), "{error}");
    });
}

#[test]
fn a_set_without_a_usable_key_is_refused() {
    for keys in [&[][..], &[("one", 1), ("one", 2)][..]] {
        let error = with_jwks(keys, |config| {
            Authenticator::new(config).expect_err("refused")
        });
        assert_eq!(error.code(), Code::ConfigInvalid);
        assert!(error.to_string().contains("auth.jwks_file"), "{error}");
    }
    let config = AuthConfig {
        algorithm: Algorithm::RS256,
        jwks_file: Some("/no/such/file".into()),
        ..AuthConfig::default()
    };
    assert_eq!(
        Authenticator::new(&config).expect_err("refused").code(),
        Code::ConfigInvalid
    );
}

#[test]
fn roles_decide_who_acts_for_whom() {
    let with = |roles: &[Role]| Principal {
        user: UserId::parse("ada").expect("valid"),
        roles: roles.iter().copied().collect(),
    };
    let submitter = with(&[Role::Submitter]);
    assert_eq!(submitter.acting_for("").expect("self"), submitter.user);
    assert_eq!(submitter.acting_for("ada").expect("self"), submitter.user);
    let denied = submitter.acting_for("bob").expect_err("denied");
    assert_eq!(denied.code(), Code::PermissionDenied);
    let service = with(&[Role::Service]);
    assert_eq!(service.acting_for("bob").expect("service").as_str(), "bob");
    let wrong = service.acting_for("a\0b").expect_err("invalid");
    assert_eq!(wrong.violations()[0].field, "user");
    assert!(submitter.may_see("ada") && !submitter.may_see("bob"));
    for role in [Role::Service, Role::Operator, Role::Admin] {
        assert!(with(&[role]).may_see("bob"));
    }
    assert!(
        submitter
            .require(&[Role::Operator, Role::Submitter])
            .is_ok()
    );
    let missing = submitter
        .require(&[Role::Operator, Role::Admin])
        .expect_err("denied");
    assert!(
        missing.to_string().contains("operator or admin"),
        "{missing}"
    );
}
