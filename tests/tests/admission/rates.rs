//! Submits in a second: shared by Redis, and kept up by each gateway where it is away.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::environment::variable;
use tenure_tests::proxy::{Network, Proxy};
use tenure_tests::v1::{JobSpec, UserLimits};
use tenure_tests::{Caller, Refusal, Stack, StackBuilder, wait_until};
use tonic::Code;

use super::{set_limits, submit_all};

const BOUND: Duration = Duration::from_mins(1);
const REASON: &str = "RATE_LIMITED";

fn gateways(count: usize) -> StackBuilder {
    Stack::builder().gateways(count).workers(0).sweepers(0)
}

fn per_second(rate: f64, burst: i64) -> UserLimits {
    UserLimits {
        submits_per_second: Some(rate),
        submit_burst: Some(burst),
        ..UserLimits::default()
    }
}

/// Submits one after the other until a submit is refused; how many were not.
async fn until_refused(caller: &Caller) -> (usize, Refusal) {
    for count in 0..10_000 {
        if let Err(status) = caller.try_submit(spec("noop", json!({}))).await {
            return (count, Refusal::of(&status));
        }
    }
    panic!("nothing was refused");
}

#[tokio::test]
async fn a_rate_holds_over_two_gateways_and_each_job_of_a_call_counts() {
    // Next to nothing comes in during the test: the burst is what there is.
    let stack = gateways(2)
        .env("TENURE_ADMISSION__SUBMITS_PER_SECOND", "0.01")
        .env("TENURE_ADMISSION__SUBMIT_BURST", "40")
        .start()
        .await;
    let began = Instant::now();
    let mut accepted = 0;
    let mut refusals = Vec::new();
    for gateway in [0, 1, 0, 1] {
        let ann = stack.caller_on(gateway, "ann", &["submitter"]);
        let (count, refused) = submit_all(&ann, vec![spec("noop", json!({})); 15]).await;
        accepted += count;
        refusals.extend(refused);
    }
    let may_have_come = (began.elapsed().as_secs_f64() * 0.01).ceil() as usize;
    assert!(
        (40..=40 + may_have_come).contains(&accepted),
        "{accepted} accepted"
    );
    for refusal in &refusals {
        assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
        assert_eq!(refusal.quota, ["user:ann"]);
        assert!(refusal.retry_after.is_some());
    }
    stack.user("bob").submit("noop", json!({})).await;
    let refused = stack.gateway(1).metrics().await.sum(
        "tenure_admission_refusals_total",
        &[("reason", "rate_limited")],
    );
    assert!(refused > 0.0);
}

#[tokio::test]
async fn a_rate_that_is_set_holds_on_all_gateways_within_two_seconds() {
    let stack = gateways(2).start().await;
    let olga = stack.operator();
    let (here, there) = (stack.user("ann"), stack.caller_on(1, "ann", &["submitter"]));
    submit_all(&here, vec![spec("noop", json!({})); 100]).await;
    set_limits(&olga, "ann", per_second(0.0, 1)).await;
    let status = here.try_submit(spec("noop", json!({}))).await;
    let refusal = Refusal::of(&status.expect_err("the gateway that was told"));
    assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
    assert_eq!(refusal.retry_after, None, "waiting does not help at 0");
    wait_until("the other gateway", BOUND, || async {
        there.try_submit(spec("noop", json!({}))).await.err()
    })
    .await;
    set_limits(&olga, "ann", UserLimits::default()).await;
    wait_until("the other gateway", BOUND, || async {
        there.try_submit(spec("noop", json!({}))).await.ok()
    })
    .await;
    here.submit("noop", json!({})).await;
}

#[tokio::test]
async fn who_repeats_an_accepted_submit_is_told_of_its_job_whatever_the_rate() {
    let stack = gateways(1)
        .env("TENURE_ADMISSION__SUBMITS_PER_SECOND", "0.01")
        .env("TENURE_ADMISSION__SUBMIT_BURST", "3")
        .start()
        .await;
    let ann = stack.user("ann");
    let with_id = |id: &str| JobSpec {
        request_id: id.to_owned(),
        ..spec("noop", json!({}))
    };
    let first = ann.submit_spec(with_id("once")).await;
    until_refused(&ann).await;
    let again = ann.try_submit(with_id("once")).await.expect("its job");
    assert_eq!((again.job_id, again.duplicate), (first.clone(), true));
    let status = ann.try_submit(with_id("new")).await.expect_err("refused");
    assert!(Refusal::of(&status).is(Code::ResourceExhausted, REASON));
    // The id belongs to another request.
    let other = JobSpec {
        request_id: "once".to_owned(),
        ..spec("sleep", json!({"ms": 1}))
    };
    let status = ann.try_submit(other).await.expect_err("refused");
    assert_eq!(Refusal::of(&status).reason, "REQUEST_ID_CONFLICT");
    // In one call, each has its own answer.
    let jobs = vec![with_id("once"), with_id("new"), with_id("once")];
    let (accepted, refused) = submit_all(&ann, jobs).await;
    assert_eq!((accepted, refused.len()), (2, 1));
}

#[tokio::test]
async fn without_redis_each_gateway_limits_by_itself() {
    let stack = gateways(1)
        .env("REDIS_URL", "redis://127.0.0.1:1/0")
        .env("TENURE_ADMISSION__SUBMITS_PER_SECOND", "0.01")
        .env("TENURE_ADMISSION__SUBMIT_BURST", "7")
        .start()
        .await;
    let (count, refusal) = until_refused(&stack.user("ann")).await;
    assert_eq!(count, 7);
    assert!(refusal.is(Code::ResourceExhausted, REASON), "{refusal:?}");
    let shared = stack
        .gateway(0)
        .metrics()
        .await
        .sum("tenure_rates_shared", &[]);
    assert!(shared.abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_silent_or_cut_redis_slows_no_submit_and_rates_are_shared_again_after_it() {
    let url = variable("REDIS_URL");
    let (head, server) = url.rsplit_once('@').expect("an address with a password");
    let (server, database) = server.split_once('/').expect("a database");
    let proxy = Proxy::start(server).await;
    let stack = gateways(1)
        .env("REDIS_URL", &format!("{head}@{}/{database}", proxy.address))
        .env("TENURE_ADMISSION__SUBMITS_PER_SECOND", "100000")
        .start()
        .await;
    let ann = stack.user("ann");
    let is_shared = async || {
        let shared = stack
            .gateway(0)
            .metrics()
            .await
            .sum("tenure_rates_shared", &[]);
        shared > 0.5
    };
    let submits = async || {
        let mut times = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            ann.submit("noop", json!({})).await;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        times[25]
    };
    wait_until("shared rates", BOUND, async || {
        is_shared().await.then_some(())
    })
    .await;
    let quiet = submits().await;
    for network in [Network::Silent, Network::Cut, Network::Silent] {
        proxy.set(network);
        // Nothing is refused, and but for the first ones nobody waits.
        let median = submits().await;
        assert!(
            median < quiet * 5 + Duration::from_millis(20),
            "{network:?}: {median:?}, and {quiet:?} before"
        );
        wait_until("its own limits", BOUND, async || {
            ann.submit("noop", json!({})).await;
            (!is_shared().await).then_some(())
        })
        .await;
        proxy.set(Network::Up);
        wait_until("shared rates again", BOUND, async || {
            is_shared().await.then_some(())
        })
        .await;
    }
}
