//! The whole process but its bootstrap: it waits for the schema, answers those who show
//! a token, and stops when asked.

use std::net::SocketAddr;
use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;
use tenure_core::config::{Config, Secret, SecretUrl};
use tenure_core::service::Context;
use tenure_core::test_util::TestDb;
use tenure_proto::v1::ListDeadLettersRequest;
use tenure_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

const SECRET: &str = "a secret of these tests, long enough";
const PATIENCE: Duration = Duration::from_secs(30);

fn token(role: &str) -> String {
    let claims = json!({
        "sub": "ada", "roles": [role], "iss": "tenure", "aud": "tenure",
        "exp": get_current_timestamp() + 600,
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("a key");
    encode(&Header::default(), &claims, &key).expect("a token")
}

fn listing(token: Option<String>) -> Request<ListDeadLettersRequest> {
    let mut request = Request::new(ListDeadLettersRequest::default());
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().expect("ASCII");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// The address that the process announces.
async fn announced(file: &std::path::Path) -> SocketAddr {
    let wait = async {
        loop {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("grpc="));
            if let Some(address) = line {
                return address.parse().expect("an address");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("an address")
}

/// Returns once the report on the readiness holds this text.
async fn reports(context: &Context, text: &str) {
    let wait = async {
        while !context.health.report().1.contains(text) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "{}", context.health.report().1);
}

#[tokio::test]
async fn it_waits_for_the_schema_answers_and_stops() {
    let db = TestDb::create_empty().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("addresses");
    let mut config = Config::default();
    config.database.url = SecretUrl::new(&db.url);
    config.auth.secret = Secret::new(SECRET);
    config.dead_letter_admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.service.address_file = Some(file.clone());
    let context = Context::new("tenure-dead-letter-admin", "0", config);
    let serving = tokio::spawn(tenure_dead_letter_admin::serve(context.clone()));

    // What is missing is said where operators look.
    reports(&context, "tenure-sweeper migrate").await;
    assert!(!context.health.is_ready() && !file.exists());
    db.store.migrate().await.expect("migrates");

    let address = announced(&file).await;
    reports(&context, "\"ready\":true").await;
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .timeout(PATIENCE)
        .connect()
        .await
        .expect("connects");
    let mut client = DeadLetterServiceClient::new(channel);
    let answer = client
        .list_dead_letters(listing(Some(token("operator"))))
        .await;
    assert!(answer.expect("a page").into_inner().dead_letters.is_empty());
    for (token, code) in [
        (None, Code::Unauthenticated),
        (Some("x.y.z".to_owned()), Code::Unauthenticated),
        (Some(token("submitter")), Code::PermissionDenied),
    ] {
        let status = client
            .list_dead_letters(listing(token))
            .await
            .expect_err("refused");
        assert_eq!(status.code(), code);
    }

    drop(client);
    context.shutdown.trigger();
    tokio::time::timeout(PATIENCE, serving)
        .await
        .expect("ends")
        .expect("no panic")
        .expect("in order");
}
