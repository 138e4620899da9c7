//! Imports that fail are told of as those that succeed: in the inbox, and by their webhook.

use serde_json::{Value, json};
use tenure_tests::v1::{ListNotificationsRequest, ReplayDeadLettersRequest};
use tenure_tests::{Caller, Hook, JobState, wait_until};

use super::{BOUND, webhooks};

/// What the inbox has of this template, the newest first.
async fn told(caller: &Caller, template: &str) -> Vec<Value> {
    let all = caller
        .notifications()
        .list_notifications(ListNotificationsRequest::default())
        .await
        .expect("a list");
    all.into_inner()
        .notifications
        .into_iter()
        .filter(|notification| notification.template == template)
        .map(|notification| serde_json::from_str(&notification.data).expect("JSON"))
        .collect()
}

/// What the webhook was told, once it was called so often.
async fn called(hook: &Hook, times: usize) -> Value {
    let what = format!("the webhook is called {times} times");
    let received = wait_until(&what, BOUND, async || {
        let received = hook.received();
        (received.len() == times).then_some(received)
    })
    .await;
    serde_json::from_slice(&received[times - 1].body).expect("JSON")
}

#[tokio::test]
async fn a_failed_import_tells_inbox_and_webhook_once_for_each_failure() {
    let hook = Hook::start().await;
    let address = hook.address().to_string();
    let stack = webhooks::stack(&address, &address)
        .dead_letter_admin()
        .start()
        .await;
    let ann = stack.user("ann");
    let wishes = json!({
        "dataset": "people",
        "delimiter": ",",
        "columns": [{"name": "age", "type": "integer"}],
        "max_rejected_rows": 0,
        "webhook": format!("http://{address}/hook"),
    });
    let job_id = ann.import("people.csv", b"age\nx\n", wishes).await;
    ann.wait_state(&job_id, JobState::Failed, BOUND).await;

    let news = called(&hook, 1).await;
    assert_eq!(news["type"], "import.failed");
    let data = &news["data"];
    assert_eq!(data["job_id"], json!(job_id));
    assert_eq!(data["code"], "IMPORT_TOO_MANY_REJECTS");
    assert!(!data["message"].as_str().expect("a message").is_empty());
    assert_eq!(
        (&data["dataset"], &data["mode"], &data["rows_rejected"]),
        (&json!("people"), &json!("append"), &json!(1))
    );
    for file in ["report_file_id", "report_html_file_id", "rejects_file_id"] {
        let id = data[file]
            .as_str()
            .unwrap_or_else(|| panic!("{file}: {data}"));
        assert!(!ann.download(id).await.expect("its bytes").is_empty());
    }
    let inbox = wait_until("the inbox has it", BOUND, async || {
        let told = told(&ann, "import_failed").await;
        (told.len() == 1).then_some(told)
    })
    .await;
    assert_eq!(&inbox[0], data);

    // After a replay it is another failure; and a success is no failure.
    let replay = ReplayDeadLettersRequest {
        dead_letter_ids: vec![job_id.clone()],
        reason: "once more".to_owned(),
    };
    let operator = stack.dead_letters();
    operator
        .dead_letters()
        .replay_dead_letters(replay)
        .await
        .expect("is replayed");
    assert_eq!(called(&hook, 2).await["type"], "import.failed");
    let good = ann
        .import("good.csv", b"age\n7\n", json!({"delimiter": ","}))
        .await;
    ann.wait_state(&good, JobState::Success, BOUND).await;
    wait_until("all of it is in the inbox", BOUND, async || {
        let (failed, finished) = (
            told(&ann, "import_failed").await.len(),
            told(&ann, "import_finished").await.len(),
        );
        assert!(failed <= 2 && finished <= 1, "{failed} {finished}");
        (failed == 2 && finished == 1).then_some(())
    })
    .await;
    assert_eq!(stack.number("select count(*) from failed_imports").await, 0);
}
