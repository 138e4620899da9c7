//! Cancelling by filter: thousands of jobs in all states, and what it refuses.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::v1::{CancelJobsRequest, CancelJobsResponse};
use tenure_tests::{Caller, JobState, Refusal, Stack, wait_until};
use tonic::{Code, Status};

const BOUND: Duration = Duration::from_mins(2);

async fn one(caller: &Caller, request: CancelJobsRequest) -> Result<CancelJobsResponse, Status> {
    Ok(caller.jobs().cancel_jobs(request).await?.into_inner())
}

/// Calls until all were looked at; the sums, and how many calls it took.
async fn all(caller: &Caller, mut request: CancelJobsRequest) -> (i64, i64, i64, usize) {
    let mut sum = (0, 0, 0, 0);
    loop {
        let answer = one(caller, request.clone()).await.expect("an answer");
        assert!(answer.cancelled + answer.requested <= 1000, "{answer:?}");
        sum = (
            sum.0 + answer.cancelled,
            sum.1 + answer.requested,
            sum.2 + answer.already_ended,
            sum.3 + 1,
        );
        if answer.next_page_token.is_empty() {
            return sum;
        }
        request.page_token = answer.next_page_token;
    }
}

#[tokio::test]
async fn bulk_cancel_of_five_thousand_jobs_in_all_states_leaves_nothing_unfinished() {
    let stack = Stack::builder().slots(4).start().await;
    let (ann, bob, olga) = (stack.user("ann"), stack.user("bob"), stack.operator());
    let many = |job_type: &str, payload: serde_json::Value, count: usize| {
        vec![spec(job_type, payload); count]
    };
    let states = async |status: &'static str, count: i64| {
        wait_until(format!("{count} {status}"), BOUND, || async {
            let found: i64 = sqlx::query_scalar(
                "select count(*) from jobs where user_id = 'ann' and status = $1",
            )
            .bind(status)
            .fetch_one(stack.pool())
            .await
            .expect("a count");
            (found == count).then_some(())
        })
        .await;
    };
    ann.submit_all(many("noop", json!({}), 300)).await;
    states("success", 300).await;
    ann.submit_all(many("fail", json!({"class": "permanent"}), 20))
        .await;
    states("failed", 20).await;
    ann.submit_all(many("fail", json!({"delay_ms": 3_600_000}), 50))
        .await;
    states("retrying", 50).await;
    ann.submit_all(many("sleep", json!({"ms": 3_600_000}), 4))
        .await;
    states("running", 4).await;
    ann.submit_all(many("noop", json!({}), 4626)).await;
    let others = bob.submit_all(many("noop", json!({}), 10)).await;

    let of_ann = CancelJobsRequest {
        user_id: "ann".to_owned(),
        reason: "enough".to_owned(),
        ..CancelJobsRequest::default()
    };
    let counted = all(
        &olga,
        CancelJobsRequest {
            dry_run: true,
            ..of_ann.clone()
        },
    )
    .await;
    assert_eq!((counted.0, counted.1, counted.2), (4676, 4, 0));
    let actions = "select count(*) from job_actions";
    assert_eq!(stack.number(actions).await, 0, "counting leaves no record");
    let (cancelled, requested, ended, calls) = all(&olga, of_ann).await;
    assert_eq!((cancelled, requested, ended), (4676, 4, 0));
    assert!(calls >= 5, "{calls} calls for 4,680 jobs");
    assert_eq!(stack.number(actions).await, calls as i64);
    // The running ones hear of it; nothing is left, and nothing is what it should not be.
    states("cancelled", 4680).await;
    let unfinished = "select count(*) from jobs where user_id = 'ann' and finished_at is null";
    assert_eq!(stack.number(unfinished).await, 0);
    let disagree = "select count(*) from jobs j left join processed_events p on p.event_id = j.job_id \
         where j.status = 'cancelled' and not case when j.started_at is null then p.event_id is null \
         else p.status = 'cancelled' end";
    assert_eq!(stack.number(disagree).await, 0);
    assert_eq!(stack.number("select count(*) from dead_letters").await, 20);
    // The slots are free, and the jobs of others run.
    for id in &others {
        bob.wait_state(id, JobState::Success, BOUND).await;
    }
}

#[tokio::test]
async fn a_cancel_by_filter_is_for_ones_own_jobs_and_says_what_it_cannot_do() {
    let stack = Stack::builder().workers(0).sweepers(0).start().await;
    let (ann, bob, olga) = (stack.user("ann"), stack.user("bob"), stack.operator());
    let of = |job_type: &str| CancelJobsRequest {
        job_type: job_type.to_owned(),
        ..CancelJobsRequest::default()
    };
    let job_id = ann.submit("noop", json!({})).await;
    let other = bob.submit("noop", json!({})).await;
    for caller in [&ann, &olga] {
        let refused = one(caller, CancelJobsRequest::default()).await;
        let refusal = Refusal::of(&refused.expect_err("no filter"));
        assert!(
            refusal.names("states") && refusal.names("labels"),
            "{refusal:?}"
        );
    }
    for (field, request) in [
        (
            "states[0]",
            CancelJobsRequest {
                states: vec![JobState::Success.into()],
                ..CancelJobsRequest::default()
            },
        ),
        (
            "states[1]",
            CancelJobsRequest {
                states: vec![JobState::Pending.into(), 99],
                ..CancelJobsRequest::default()
            },
        ),
        ("job_type", of("No Such")),
        (
            "reason",
            CancelJobsRequest {
                reason: "a\0".to_owned(),
                ..of("noop")
            },
        ),
        (
            "user_id",
            CancelJobsRequest {
                user_id: "x".repeat(256),
                ..of("noop")
            },
        ),
    ] {
        let refused = one(&olga, request).await;
        let refusal = Refusal::of(&refused.expect_err(field));
        assert!(refusal.names(field), "{field}: {refusal:?}");
    }
    let of_bob = CancelJobsRequest {
        user_id: "bob".to_owned(),
        ..CancelJobsRequest::default()
    };
    let refusal = Refusal::of(&one(&ann, of_bob).await.expect_err("of another"));
    assert!(
        refusal.is(Code::PermissionDenied, "PERMISSION_DENIED"),
        "{refusal:?}"
    );
    let token = CancelJobsRequest {
        page_token: "00".to_owned(),
        ..of("noop")
    };
    let refusal = Refusal::of(&one(&ann, token).await.expect_err("no token"));
    assert!(
        refusal.is(Code::InvalidArgument, "PAGE_TOKEN_INVALID"),
        "{refusal:?}"
    );

    // Its own jobs alone, whatever else matches.
    let answer = one(&ann, of("noop")).await.expect("an answer");
    assert_eq!((answer.cancelled, answer.next_page_token.as_str()), (1, ""));
    let job = ann.get(&job_id).await;
    assert_eq!(job.state(), JobState::Cancelled);
    assert_eq!(
        job.last_error.expect("why").message,
        "cancelled by its owner"
    );
    assert_eq!(bob.get(&other).await.state(), JobState::Pending);
    let answer = one(&olga, of("noop")).await.expect("an answer");
    assert_eq!(answer.cancelled, 1);
    let job = bob.get(&other).await;
    assert_eq!(job.last_error.expect("why").message, "cancelled by olga");
}
