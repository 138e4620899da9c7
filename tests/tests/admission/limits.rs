//! The limit of a user's jobs that wait or run, and the service that sets it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::v1::{
    GetUserLimitsRequest, ListUserLimitsRequest, ResetUserLimitsRequest, SetUserLimitsRequest,
    UserLimits,
};
use tenure_tests::{Refusal, Stack, wait_until, within};
use tokio::sync::Barrier;
use tonic::Code;

use super::{set_limits, submit_all};

const BOUND: Duration = Duration::from_mins(1);
const REASON: &str = "TOO_MANY_PENDING_JOBS";

#[tokio::test]
async fn v9_of_two_hundred_submits_at_once_over_two_gateways_a_hundred_are_accepted() {
    let stack = Stack::builder()
        .gateways(2)
        .workers(0)
        .sweepers(0)
        .env("TENURE_ADMISSION__MAX_JOBS_PER_USER", "100")
        .start()
        .await;
    let barrier = Arc::new(Barrier::new(200));
    let calls = (0..200).map(|n: usize| {
        let caller = stack.caller_on(n % 2, "ann", &["submitter"]);
        let barrier = barrier.clone();
        tokio::spawn(async move {
            barrier.wait().await;
            caller.try_submit(spec("noop", json!({"n": n}))).await
        })
    });
    let answers = within("all answers", BOUND, futures::future::join_all(calls)).await;
    let mut accepted = 0;
    for answer in answers {
        match answer.expect("no panic") {
            Ok(_) => accepted += 1,
            Err(status) => {
                let refusal = Refusal::of(&status);
                assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
                assert!(refusal.retry_after.is_some());
                assert_eq!(refusal.quota, ["user:ann"]);
                assert_eq!(refusal.metadata["limit"], "100");
            }
        }
    }
    assert_eq!(accepted, 100);
    assert_eq!(stack.number("select count(*) from jobs").await, 100);
    // Another user is not refused.
    stack.user("bob").submit("noop", json!({})).await;
    // One gateway alone may have accepted all that the limit allows, and refused nothing.
    let mut refusals = 0.0;
    for gateway in 0..2 {
        refusals += stack.gateway(gateway).metrics().await.sum(
            "tenure_admission_refusals_total",
            &[("reason", "too_many_pending_jobs")],
        );
    }
    assert!((refusals - 100.0).abs() < 0.5, "{refusals}");
}

#[tokio::test]
async fn v9_a_burst_does_not_get_through_the_limit_of_five_round_after_round() {
    let stack = Stack::builder()
        .gateways(2)
        .workers(0)
        .sweepers(0)
        .env("TENURE_ADMISSION__MAX_JOBS_PER_USER", "5")
        .start()
        .await;
    for round in 0..20 {
        // Every fifth round ten users at once.
        let users = if round % 5 == 4 { 10 } else { 1 };
        let calls = (0..50 * users).map(|n: usize| {
            let user = format!("user-{round}-{}", n % users);
            let caller = stack.caller_on(n / users % 2, &user, &["submitter"]);
            tokio::spawn(async move { caller.try_submit(spec("noop", json!({}))).await.is_ok() })
        });
        let answers = within("all answers", BOUND, futures::future::join_all(calls)).await;
        let accepted = answers
            .into_iter()
            .filter(|answer| *answer.as_ref().expect("no panic"))
            .count();
        assert_eq!(accepted, 5 * users, "round {round}");
    }
}

#[tokio::test]
async fn what_ends_makes_room_for_a_caller_that_comes_again() {
    let stack = Stack::builder()
        .env("TENURE_ADMISSION__MAX_JOBS_PER_USER", "3")
        .start()
        .await;
    let ann = stack.user("ann");
    let later = vec![spec("sleep", json!({"ms": 300})); 5];
    let (accepted, refused) = submit_all(&ann, later).await;
    assert_eq!((accepted, refused.len()), (3, 2));
    assert!(refused[0].is(Code::ResourceExhausted, REASON));
    // As the README tells callers to do: wait as long as said, and send it again.
    wait_until("room", BOUND, || async {
        match ann.try_submit(spec("noop", json!({}))).await {
            Ok(_) => Some(()),
            Err(status) => {
                let refusal = Refusal::of(&status);
                assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
                tokio::time::sleep(refusal.retry_after.expect("a delay")).await;
                None
            }
        }
    })
    .await;
}

#[tokio::test]
async fn operators_set_and_take_back_limits_and_all_gateways_know() {
    let stack = Stack::builder()
        .gateways(2)
        .workers(0)
        .sweepers(0)
        .start()
        .await;
    let olga = stack.operator();
    let ann = stack.caller_on(1, "ann", &["submitter"]);
    ann.submit("noop", json!({})).await;
    set_limits(
        &olga,
        "ann",
        UserLimits {
            max_jobs: Some(2),
            weight: Some(3),
            ..UserLimits::default()
        },
    )
    .await;
    // The database decides, so the other gateway knows at once.
    ann.submit("noop", json!({})).await;
    let status = ann.try_submit(spec("noop", json!({}))).await;
    let refusal = Refusal::of(&status.expect_err("refused"));
    assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");

    let get = GetUserLimitsRequest {
        user_id: "ann".to_owned(),
    };
    let got = olga.user_limits().get_user_limits(get.clone()).await;
    let got = got.expect("an answer").into_inner();
    let entry = got.entry.expect("an entry");
    assert_eq!(entry.updated_by, "olga");
    assert_eq!(entry.limits.expect("limits").weight, Some(3));
    let effective = got.effective.expect("limits");
    assert_eq!(
        (effective.max_jobs, effective.submits_per_second),
        (Some(2), None)
    );
    assert_eq!(got.jobs, 2);

    for user in ["bob", "eve"] {
        let weight = UserLimits {
            weight: Some(2),
            ..UserLimits::default()
        };
        set_limits(&olga, user, weight).await;
    }
    let mut users = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListUserLimitsRequest {
            page_size: 2,
            page_token: page_token.clone(),
        };
        let page = olga.user_limits().list_user_limits(request).await;
        let page = page.expect("an answer").into_inner();
        users.extend(page.entries.into_iter().map(|entry| entry.user_id));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    assert_eq!(users, ["ann", "bob", "eve"]);

    let reset = ResetUserLimitsRequest {
        user_id: "ann".to_owned(),
    };
    // Again is the same.
    for _ in 0..2 {
        let answer = olga.user_limits().reset_user_limits(reset.clone()).await;
        answer.expect("reset");
    }
    let got = olga.user_limits().get_user_limits(get).await;
    assert!(got.expect("an answer").into_inner().entry.is_none());
    wait_until("the default", BOUND, || async {
        ann.try_submit(spec("noop", json!({}))).await.ok()
    })
    .await;
}

#[tokio::test]
async fn what_a_set_does_not_name_stays_as_it_is() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let olga = stack.operator();
    let first = UserLimits {
        max_jobs: Some(3),
        submits_per_second: Some(1.5),
        ..UserLimits::default()
    };
    set_limits(&olga, "ann", first).await;
    let set = async |limits: UserLimits, paths: &[&str]| {
        let request = SetUserLimitsRequest {
            user_id: "ann".to_owned(),
            limits: Some(limits),
            update_mask: Some(prost_types::FieldMask {
                paths: paths.iter().map(|&path| path.to_owned()).collect(),
            }),
        };
        let answer = olga.user_limits().set_user_limits(request).await;
        answer.map(|answer| answer.into_inner().entry.expect("an entry").limits)
    };
    // What is given and not named counts for nothing.
    let weight = UserLimits {
        weight: Some(5),
        submit_burst: Some(9),
        ..UserLimits::default()
    };
    let expected = UserLimits {
        weight: Some(5),
        ..first
    };
    assert_eq!(set(weight, &["weight"]).await.expect("set"), Some(expected));
    let none = UserLimits::default();
    let expected = UserLimits {
        max_jobs: None,
        ..expected
    };
    assert_eq!(set(none, &["max_jobs"]).await.expect("set"), Some(expected));
    let refused = set(none, &["speed"]).await.expect_err("refused");
    assert!(Refusal::of(&refused).names("update_mask"));
    // Without a mask all are set, as before there was one.
    set_limits(&olga, "ann", weight).await;
    assert_eq!(set(none, &["max_jobs"]).await.expect("set"), Some(weight));
}

#[tokio::test]
async fn users_read_their_own_limits_and_no_others() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let get = async |user: &str| {
        let request = GetUserLimitsRequest {
            user_id: user.to_owned(),
        };
        let answer = stack
            .user("ann")
            .user_limits()
            .get_user_limits(request)
            .await;
        answer.map(tonic::Response::into_inner)
    };
    let own = get("ann").await.expect("one's own");
    assert!(own.effective.is_some_and(|it| it.max_jobs.is_some()));
    let status = get("bob").await.expect_err("refused");
    assert!(Refusal::of(&status).is(Code::PermissionDenied, "PERMISSION_DENIED"));
}

#[tokio::test]
async fn limits_are_for_operators_and_are_checked() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let request = SetUserLimitsRequest {
        user_id: "ann".to_owned(),
        limits: Some(UserLimits {
            max_jobs: Some(-1),
            submits_per_second: Some(f64::INFINITY),
            ..UserLimits::default()
        }),
        update_mask: None,
    };
    let ann = stack.user("ann");
    let status = ann.user_limits().set_user_limits(request.clone()).await;
    let refusal = Refusal::of(&status.expect_err("refused"));
    assert!(refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"));
    let olga = stack.operator();
    let status = olga.user_limits().set_user_limits(request).await;
    let refusal = Refusal::of(&status.expect_err("refused"));
    assert!(refusal.names("limits.max_jobs") && refusal.names("limits.submits_per_second"));
    let nobody = SetUserLimitsRequest {
        user_id: " ".to_owned(),
        limits: None,
        update_mask: None,
    };
    let status = olga.user_limits().set_user_limits(nobody).await;
    assert!(Refusal::of(&status.expect_err("refused")).names("user_id"));
}
