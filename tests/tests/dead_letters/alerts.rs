//! Operators are told of what is new, by a signed call that is made once.

use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::{Hook, JobState, Stack, wait_until};

use crate::BOUND;

fn body(received: &tenure_tests::hook::Received) -> Value {
    serde_json::from_slice(&received.body).expect("a JSON body")
}

#[tokio::test]
async fn a_new_cause_is_told_of_once() {
    let hook = Hook::start().await;
    let address = hook.address().to_string();
    let stack = Stack::builder()
        .sweepers(2)
        .env("TENURE_ALERTS__WEBHOOK", &format!("http://{address}/ops"))
        .env("TENURE_ALERTS__INTERVAL", "200ms")
        .env("TENURE_WEBHOOKS__ALLOWED_HOSTS", &address)
        .env("TENURE_WEBHOOKS__ALLOWED_PRIVATE", &address)
        .env("TENURE_WEBHOOKS__ALLOW_HTTP", "true")
        .env(
            "TENURE_WEBHOOKS__SECRET",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        )
        .start()
        .await;
    let ann = stack.user("ann");
    // Two of one cause (numbers do not count), one of another.
    for text in ["disk 7 is full", "disk 9 is full", "no such bucket"] {
        let fail = json!({"times": 1, "class": "permanent", "message": text});
        let job_id = ann.submit_spec(spec("fail", fail)).await;
        ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    }
    let calls = wait_until("two calls", BOUND, async || {
        let calls = hook.received();
        (calls.len() >= 2).then_some(calls)
    })
    .await;
    let mut told: Vec<_> = calls
        .iter()
        .map(|call| {
            let body = body(call);
            assert_eq!(body["type"], "dead_letters.new_cause", "{body}");
            assert_eq!(body["data"]["job_type"], "fail", "{body}");
            body["data"]["message"]
                .as_str()
                .unwrap_or_default()
                .replace(['7', '9'], "#")
        })
        .collect();
    told.sort();
    assert_eq!(told, ["disk # is full", "no such bucket"]);
    // Looked at again and again since, by each of two sweepers, and told of no more.
    for number in 0..2 {
        let looks = async || {
            let metrics = stack.sweeper(number).metrics().await;
            metrics.sum(
                "tenure_chore_runs_total",
                &[("chore", "alerts"), ("result", "ok")],
            )
        };
        let before = looks().await;
        wait_until("three more looks", BOUND, async || {
            (looks().await >= before + 3.0).then_some(())
        })
        .await;
        wait_until("the gauge", BOUND, async || {
            let metrics = stack.sweeper(number).metrics().await;
            let open = metrics.sum("tenure_dead_letters_open", &[("queue", "default")]);
            (open > 2.5 && open < 3.5).then_some(())
        })
        .await;
    }
    assert_eq!(hook.received().len(), 2);
}
