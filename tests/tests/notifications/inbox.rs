//! A user's inbox: listed, read, and nobody else's.

use serde_json::{Value, json};
use tenure_tests::v1::{
    ListNotificationsRequest, ListNotificationsResponse, MarkNotificationsReadRequest, Notification,
};
use tenure_tests::{Caller, JobState, Refusal, Stack};
use tonic::{Code, Status};

use super::BOUND;

async fn notify(caller: &Caller, template: &str, key: &str, data: Value) {
    let payload = json!({"template": template, "key": key, "data": data});
    let job_id = caller.submit("notify", payload).await;
    caller.wait_state(&job_id, JobState::Success, BOUND).await;
}

async fn list(
    caller: &Caller,
    request: ListNotificationsRequest,
) -> Result<ListNotificationsResponse, Status> {
    let answer = caller.notifications().list_notifications(request).await?;
    Ok(answer.into_inner())
}

async fn all(caller: &Caller, unread_only: bool) -> Vec<Notification> {
    let request = ListNotificationsRequest {
        unread_only,
        ..ListNotificationsRequest::default()
    };
    list(caller, request).await.expect("a list").notifications
}

async fn mark(caller: &Caller, ids: &[&str], user: &str) -> Result<i32, Status> {
    let request = MarkNotificationsReadRequest {
        notification_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        user_id: user.to_owned(),
    };
    let answer = caller
        .notifications()
        .mark_notifications_read(request)
        .await?;
    Ok(answer.into_inner().marked)
}

fn keys(notifications: &[Notification]) -> Vec<&str> {
    notifications.iter().map(|it| it.key.as_str()).collect()
}

#[tokio::test]
async fn an_inbox_is_listed_and_read() {
    let stack = Stack::builder().start().await;
    let (ann, bob) = (stack.user("ann"), stack.user("bob"));
    let (operator, robot) = (stack.operator(), stack.caller("robot", &["service"]));
    for key in ["k1", "k2", "k3"] {
        notify(
            &ann,
            "import_finished",
            key,
            json!({"rows": 1.10, "of": key}),
        )
        .await;
    }
    notify(&bob, "import_finished", "k1", json!({})).await;
    // Once for each template and key.
    notify(&ann, "import_finished", "k3", json!({"again": true})).await;

    let inbox = all(&ann, false).await;
    assert_eq!(keys(&inbox), ["k3", "k2", "k1"]);
    let newest = &inbox[0];
    assert_eq!(
        (newest.user_id.as_str(), newest.template.as_str()),
        ("ann", "import_finished")
    );
    let data: Value = serde_json::from_str(&newest.data).expect("JSON");
    assert_eq!(data, json!({"rows": 1.10, "of": "k3"}));
    assert!(!newest.job_id.is_empty() && newest.create_time.is_some());
    assert_eq!(newest.read_time, None);

    // Pages go on where the one before ended, for the same question only.
    let first = ListNotificationsRequest {
        page_size: 2,
        ..ListNotificationsRequest::default()
    };
    let page = list(&ann, first.clone()).await.expect("a page");
    assert_eq!(keys(&page.notifications), ["k3", "k2"]);
    let next = ListNotificationsRequest {
        page_token: page.next_page_token.clone(),
        ..first.clone()
    };
    let page = list(&ann, next.clone()).await.expect("the next page");
    assert_eq!(
        (keys(&page.notifications), page.next_page_token.as_str()),
        (vec!["k1"], "")
    );
    let other = ListNotificationsRequest {
        unread_only: true,
        ..next.clone()
    };
    for status in [
        list(&ann, other).await.expect_err("another filter"),
        list(&bob, next).await.expect_err("another caller"),
    ] {
        let refusal = Refusal::of(&status);
        assert!(
            refusal.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID"),
            "{refusal:?}"
        );
    }

    // Reading: one's own alone, each once.
    let bobs = all(&bob, false).await[0].notification_id.clone();
    let read = [inbox[1].notification_id.as_str(), bobs.as_str()];
    assert_eq!(mark(&ann, &read, "").await.expect("marked"), 1);
    assert_eq!(mark(&ann, &read, "").await.expect("marked"), 0);
    assert_eq!(keys(&all(&ann, true).await), ["k3", "k1"]);
    assert!(all(&ann, false).await[1].read_time.is_some());
    assert_eq!(all(&bob, true).await.len(), 1);

    // Who may name another.
    let of_bob = ListNotificationsRequest {
        user_id: "bob".to_owned(),
        ..ListNotificationsRequest::default()
    };
    for caller in [&operator, &robot] {
        let page = list(caller, of_bob.clone()).await.expect("a list");
        assert_eq!(page.notifications.len(), 1);
    }
    for status in [
        list(&ann, of_bob).await.expect_err("not hers"),
        mark(&ann, &[], "bob").await.expect_err("not hers"),
        mark(&operator, &[], "bob")
            .await
            .expect_err("not an operator's"),
    ] {
        assert!(
            Refusal::of(&status).is(Code::PermissionDenied, "PERMISSION_DENIED"),
            "{status:?}"
        );
    }
    assert_eq!(mark(&robot, &[], "bob").await.expect("marked"), 1);
    assert!(all(&bob, true).await.is_empty());

    // Wrong calls.
    let many = vec![bobs.as_str(); 1001];
    let status = mark(&ann, &many, "").await.expect_err("too many");
    assert!(Refusal::of(&status).names("notification_ids"));
    let status = mark(&ann, &[&bobs, "x"], "").await.expect_err("no id");
    assert!(Refusal::of(&status).names("notification_ids[1]"));
    let negative = ListNotificationsRequest {
        page_size: -1,
        ..ListNotificationsRequest::default()
    };
    let status = list(&ann, negative).await.expect_err("a strange page");
    assert!(Refusal::of(&status).names("page_size"));
}

#[tokio::test]
async fn all_of_a_full_inbox_is_marked_in_steps() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    sqlx::query(
        "insert into notifications (id, user_id, template, dedupe_key, data) \
         select ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, \
             case when n % 10 = 0 then 'bob' else 'ann' end, 't', n::text, '{}' from generate_series(1, 3000) n",
    )
    .execute(stack.pool())
    .await
    .expect("rows");
    let ann = stack.user("ann");
    assert_eq!(mark(&ann, &[], "").await.expect("marked"), 2700);
    assert_eq!(mark(&ann, &[], "").await.expect("marked"), 0);
    assert!(all(&ann, true).await.is_empty());
    assert_eq!(all(&stack.user("bob"), true).await.len(), 50);
    let left = "select count(*) from notifications where read_at is null";
    assert_eq!(stack.number(left).await, 300);
}
