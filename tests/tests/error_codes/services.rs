//! Processes that are busy, stop, or miss what they need.

use futures::StreamExt as _;
use serde_json::json;
use tenure_core::broker::topology::declare;
use tenure_core::config::{BrokerConfig, SecretUrl};
use tenure_tests::v1::upload_file_request::{Header, Part};
use tenure_tests::v1::{ListDeadLettersRequest, UploadFileRequest};
use tenure_tests::{Refusal, Signal, Stack, wait_until, within};
use tonic::Code;

use super::BOUND;

#[tokio::test]
async fn a_method_that_is_not_here_is_said_to_be_none() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    // The gateway does not serve dead letters.
    let mut letters = stack.operator().dead_letters();
    let status = letters
        .list_dead_letters(ListDeadLettersRequest::default())
        .await
        .expect_err("is served elsewhere");
    let refusal = Refusal::of(&status);
    assert!(
        refusal.is(Code::Unimplemented, "UNIMPLEMENTED"),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn a_gateway_that_stops_sends_its_watchers_elsewhere() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let ann = stack.user("ann");
    let job_id = ann.submit("noop", json!({})).await;
    let mut changes = ann.watch(&job_id, 0).await.expect("a stream");
    let first = within("the state", BOUND, changes.message()).await;
    assert!(first.expect("a change").is_some());
    stack.gateway(0).signal(Signal::TERM);
    let ended = async {
        loop {
            match changes.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a word"),
                Err(status) => return status,
            }
        }
    };
    let refusal = Refusal::of(&within("the end of the stream", BOUND, ended).await);
    assert!(
        refusal.is(Code::Unavailable, "SHUTTING_DOWN"),
        "{refusal:?}"
    );
    assert!(refusal.retry_after.is_some(), "{refusal:?}");
}

#[tokio::test]
async fn a_gateway_with_its_hands_full_of_uploads_takes_no_more() {
    let stack = Stack::builder()
        .workers(0)
        .sweepers(0)
        .env("TENURE_FILES__UPLOAD_IDLE_TIMEOUT", "5m")
        .start()
        .await;
    // Uploads that begin and do not go on, one more than there are places; each on a
    // connection of its own, so that it is the gateway that counts them. Of five users, none
    // of whom has more than one may have.
    let idle: Vec<_> = (0..65)
        .map(|number| {
            let mut files = stack.user(&format!("user-{}", number % 5)).files();
            tokio::spawn(async move {
                let header = Part::Header(Header {
                    name: "slow.csv".to_owned(),
                    ..Header::default()
                });
                let header = UploadFileRequest { part: Some(header) };
                let sent = futures::stream::iter([header]).chain(futures::stream::pending());
                files.upload_file(sent).await
            })
        })
        .collect();
    let first = futures::future::select_all(idle);
    let (ended, _, others) = within("a refused upload", BOUND, first).await;
    let refused = ended.expect("no panic").expect_err("it never ends well");
    let refusal = Refusal::of(&refused);
    assert!(
        refusal.is(Code::ResourceExhausted, "OVERLOADED"),
        "{refusal:?}"
    );
    assert!(refusal.retry_after.is_some(), "{refusal:?}");
    assert!(refusal.message.contains("64"), "{}", refusal.message);
    for upload in others {
        upload.abort();
    }
    // The places come back with the callers' going.
    let bob = stack.user("bob");
    wait_until("a free place", BOUND, || async {
        bob.try_upload("b.csv", b"a,b\n1,2\n").await.ok()
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_nobody_reaches_has_its_code() {
    let config = BrokerConfig {
        // Nobody listens on port 1.
        url: SecretUrl::new("amqp://guest:guest@127.0.0.1:1/%2f"),
        ..BrokerConfig::default()
    };
    let declared = within(
        "an answer",
        BOUND,
        declare(&config, &["default".to_owned()]),
    )
    .await;
    let error = declared.expect_err("nobody is there");
    assert_eq!(error.code().as_str(), "BROKER_UNAVAILABLE");
    assert!(error.is_temporary());
}
