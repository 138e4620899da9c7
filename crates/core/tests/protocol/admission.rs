//! The limit of a user's jobs (PROTOCOL.md §5c): exact at any interleaving, and counted only
//! where it has to be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::Code;
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::NewJob;
use tenure_core::error::Result;
use tenure_core::storage::admission::JobLimit;
use tenure_core::storage::batch_writer::{SubmitWriter, Submitted, WriterSettings};
use tenure_core::storage::dead_letters::Decision;
use tenure_core::storage::finish::{Goal, NewFollowUp};
use tenure_core::storage::user_limits::UserLimits;
use tenure_core::telemetry::metrics::Metrics;

use crate::world::{World, failed, job, keyed, success};

/// A gateway with this default limit.
pub(crate) fn gateway(world: &World, limit: i64) -> SubmitWriter {
    SubmitWriter::start_limited(
        world.store.clone(),
        WriterSettings {
            writers: 2,
            batch_max: 100,
            queue_max: 10_000,
            deadline: Duration::from_secs(30),
        },
        Arc::new(JobLimit::new(limit)),
        Arc::new(|_| {}),
        Arc::new(Metrics::default()),
    )
}

async fn one(writer: &SubmitWriter, job: NewJob) -> Result<Submitted> {
    writer.submit(vec![(job, true)]).await.remove(0)
}

/// Submits until the answer is something else than a refusal of a moment ago.
async fn when_asked_again(writer: &SubmitWriter, make: impl Fn() -> NewJob) -> Result<Submitted> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = one(writer, make()).await;
        let refused = answer
            .as_ref()
            .is_err_and(|error| error.code() == Code::TooManyPendingJobs);
        if !refused || Instant::now() > end {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Limit − live ≥ credit, for everybody (PROTOCOL.md §5c).
async fn credit_holds(world: &World) {
    let broken = world
        .count(
            "select count(*) from user_load l where l.credit > greatest(l.job_limit - \
             (select count(*) from jobs j where j.user_id = l.user_id and j.finished_at is null), 0)",
        )
        .await;
    assert_eq!(broken, 0, "more was promised than there is");
}

async fn live(world: &World) -> i64 {
    world
        .count("select count(*) from jobs where finished_at is null")
        .await
}

#[tokio::test]
async fn v9_exactly_the_limit_is_taken_of_parallel_submits() {
    let world = World::new().await;
    let gateways = [gateway(&world, 5), gateway(&world, 5)];
    for round in 0..10 {
        let calls = (0..50).map(|n: usize| {
            let writer = gateways[n % 2].clone();
            // Some of them with keys: a transaction of its own.
            let job = if n.is_multiple_of(3) {
                keyed(&format!("user-{round}"), &format!("key-{n}"), 1)
            } else {
                job(&format!("user-{round}"))
            };
            tokio::spawn(async move { one(&writer, job).await })
        });
        let answers = futures::future::join_all(calls).await;
        let mut accepted = 0;
        for answer in answers {
            match answer.expect("no panic") {
                Ok(_) => accepted += 1,
                Err(error) => assert_eq!(error.code(), Code::TooManyPendingJobs, "{error}"),
            }
        }
        assert_eq!(accepted, 5, "round {round}");
        assert_eq!(live(&world).await, 5 * (round + 1));
        credit_holds(&world).await;
    }
    // A refused job leaves no key behind.
    let bound = "select count(*) from job_dedupe d where not exists (select 1 from jobs j where j.job_id = d.job_id)";
    assert_eq!(world.count(bound).await, 0);
}

#[tokio::test]
async fn v9_many_users_of_one_call_have_their_own_limits() {
    let world = World::new().await;
    let writer = gateway(&world, 3);
    let jobs = (0..60).map(|n| (job(&format!("user-{}", n % 12)), true));
    let answers = writer.submit(jobs.collect()).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 36);
    let most = "select max(n) from (select count(*) n from jobs group by user_id) x";
    assert_eq!(world.count(most).await, 3);
    credit_holds(&world).await;
}

#[tokio::test]
async fn v9_an_end_makes_room_and_a_user_with_many_jobs_is_counted_alone() {
    let world = World::new().await;
    let writer = gateway(&world, 1500);
    let jobs = |user: &str, n: usize| (0..n).map(|_| (job(user), true)).collect::<Vec<_>>();
    let first = writer.submit(jobs("ada", 1500)).await;
    assert!(first.iter().all(Result::is_ok));
    // Beside another user, whose first jobs are counted in the same statement.
    let mut both = jobs("ada", 2);
    both.extend(jobs("bob", 2));
    let answers = writer.submit(both).await;
    let accepted: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [false, false, true, true]);
    let error = answers[0].as_ref().expect_err("refused");
    assert_eq!(error.code(), Code::TooManyPendingJobs);
    assert!(error.message().contains("1500"), "{error}");
    assert!(error.retry_after().is_some());
    credit_holds(&world).await;

    let session = SessionId::new();
    let id = first[7].as_ref().expect("accepted").job_id;
    assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
    assert!(world.finish(id, 1, success(), session).await);
    let answer = when_asked_again(&writer, || job("ada")).await;
    assert!(answer.is_ok(), "{answer:?}");
    assert!(one(&writer, job("ada")).await.is_err());
    credit_holds(&world).await;
}

#[tokio::test]
async fn v9_every_end_makes_room() {
    let world = World::new().await;
    let writer = gateway(&world, 4);
    let session = SessionId::new();
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(one(&writer, job("ada")).await.expect("accepted").job_id);
    }
    assert!(one(&writer, job("ada")).await.is_err());
    for (id, goal) in ids.iter().zip([success(), failed(), Goal::Cancelled]) {
        assert_eq!(world.claim(&[(*id, 1)], session).await.len(), 1);
        assert!(world.finish(*id, 1, goal, session).await);
    }
    // The fourth runs out of leases.
    for run in 1..=3 {
        assert_eq!(world.claim(&[(ids[3], run)], session).await.len(), 1);
        world.let_time_pass(&[ids[3]]).await;
        world.wake(&[ids[3]]).await;
    }
    assert_eq!(live(&world).await, 0);
    for _ in 0..4 {
        let answer = when_asked_again(&writer, || job("ada")).await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    assert!(one(&writer, job("ada")).await.is_err());
    credit_holds(&world).await;
}

#[tokio::test]
async fn a_repeat_at_the_limit_is_answered_with_its_job() {
    let world = World::new().await;
    let writer = gateway(&world, 1);
    let first = one(&writer, keyed("ada", "k", 1)).await.expect("accepted");
    // Now, and a moment after a refusal.
    for _ in 0..2 {
        let again = one(&writer, keyed("ada", "k", 1)).await.expect("a repeat");
        assert_eq!((again.job_id, again.duplicate), (first.job_id, true));
        let other = one(&writer, keyed("ada", "k", 2)).await.expect_err("other");
        assert_eq!(other.code(), Code::DedupeConflict);
        let more = one(&writer, keyed("ada", "l", 1)).await.expect_err("full");
        assert_eq!(more.code(), Code::TooManyPendingJobs);
    }
    assert_eq!(world.count("select count(*) from job_dedupe").await, 1);
}

#[tokio::test]
async fn a_written_job_that_is_written_again_is_accepted_though_the_limit_is_reached() {
    let world = World::new().await;
    let writer = gateway(&world, 2);
    let (plain, with_key) = (job("ada"), keyed("ada", "k", 1));
    for job in [&plain, &with_key] {
        one(&writer, job.clone()).await.expect("accepted");
    }
    // The same ids, as after a commit whose answer was lost.
    for job in [&plain, &with_key, &plain] {
        let again = one(&writer, job.clone()).await.expect("its own job");
        assert_eq!((again.job_id, again.duplicate), (job.job_id, false));
    }
    assert_eq!(live(&world).await, 2);
    assert_eq!(world.count("select count(*) from job_dedupe").await, 1);
    credit_holds(&world).await;
}

#[tokio::test]
async fn v9_a_limit_that_changes_holds_at_once() {
    let world = World::new().await;
    let writer = gateway(&world, 100);
    let set = |max_jobs| UserLimits {
        max_jobs,
        ..UserLimits::default()
    };
    for _ in 0..3 {
        one(&writer, job("ada")).await.expect("accepted");
    }
    let stored = world
        .store
        .set_user_limits("ada", set(Some(4)), "olga")
        .await
        .expect("set");
    assert_eq!(stored.updated_by.as_deref(), Some("olga"));
    one(&writer, job("ada")).await.expect("the fourth");
    assert!(one(&writer, job("ada")).await.is_err());
    credit_holds(&world).await;
    world
        .store
        .set_user_limits("ada", set(Some(0)), "olga")
        .await
        .expect("set");
    world
        .store
        .set_user_limits("new", set(Some(0)), "olga")
        .await
        .expect("set");
    assert!(one(&writer, job("new")).await.is_err());
    one(&writer, job("bob")).await.expect("another user");
    world
        .store
        .set_user_limits("ada", set(None), "olga")
        .await
        .expect("reset");
    when_asked_again(&writer, || job("ada"))
        .await
        .expect("the default holds again");
    assert_eq!(
        world
            .store
            .list_user_limits("", 10)
            .await
            .expect("a list")
            .len(),
        1,
        "what was taken back is not listed"
    );
    credit_holds(&world).await;
}

#[tokio::test]
async fn v9_a_lower_default_makes_what_was_promised_void() {
    let world = World::new().await;
    let before = gateway(&world, 100);
    one(&before, job("ada")).await.expect("accepted");
    let limit = JobLimit::new(1);
    world
        .store
        .apply_default_job_limit(&limit)
        .await
        .expect("applied");
    let after = gateway(&world, 1);
    let error = one(&after, job("ada")).await.expect_err("full");
    assert_eq!(error.code(), Code::TooManyPendingJobs);
}

#[tokio::test]
async fn v9_follow_ups_and_replays_count_and_are_never_refused() {
    let world = World::new().await;
    let writer = gateway(&world, 2);
    let session = SessionId::new();
    let run = async |goal: Goal| {
        let id = one(&writer, job("ada")).await.expect("accepted").job_id;
        assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
        assert!(world.finish(id, 1, goal, session).await);
        id
    };
    let letter = run(failed()).await;
    let follow_up = |n| NewFollowUp {
        job_id: JobId::new(),
        job_type: "noop".to_owned(),
        payload: format!("{{\"n\":{n}}}").into_bytes(),
    };
    // The world's own writer knows no limit, so there is credit that they must take.
    world
        .store
        .set_user_limits("ada", UserLimits::default(), "olga")
        .await
        .expect("set");
    run(Goal::Success {
        result: None,
        follow_ups: (0..3).map(follow_up).collect(),
    })
    .await;
    assert_eq!(live(&world).await, 3, "above the limit");
    credit_holds(&world).await;
    let decision = Decision {
        actor: "olga".to_owned(),
        reason: "again".to_owned(),
    };
    let results = world
        .store
        .replay_dead_letters(&[letter.uuid()], &decision)
        .await
        .expect("a replay");
    assert_eq!(results.len(), 1);
    assert_eq!(live(&world).await, 4);
    credit_holds(&world).await;
    assert!(one(&writer, job("ada")).await.is_err());
}

#[tokio::test]
async fn v9_a_replay_takes_the_credit_that_is_left() {
    let world = World::new().await;
    let writer = gateway(&world, 3);
    let session = SessionId::new();
    let id = one(&writer, job("ada")).await.expect("accepted").job_id;
    assert_eq!(world.claim(&[(id, 1)], session).await.len(), 1);
    assert!(world.finish(id, 1, failed(), session).await);
    let decision = Decision {
        actor: "olga".to_owned(),
        reason: "again".to_owned(),
    };
    // Two are promised still, and one of the three has ended: one more than promised.
    let results = world
        .store
        .replay_dead_letters(&[id.uuid()], &decision)
        .await;
    assert_eq!(results.expect("a replay").len(), 1);
    credit_holds(&world).await;
    one(&writer, job("ada")).await.expect("the second");
    one(&writer, job("ada")).await.expect("the third");
    assert!(one(&writer, job("ada")).await.is_err());
    assert_eq!(live(&world).await, 3);
}

#[tokio::test]
async fn users_far_below_their_limit_are_not_counted() {
    let world = World::new().await;
    let writer = gateway(&world, 1000);
    one(&writer, job("ada")).await.expect("accepted");
    // Whoever counted would find these, which nobody has debited.
    world
        .sql(
            "insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, wake_at) \
             select gen_random_uuid(), 'ada', 'default', 2, 'noop', '{}', 1, 1000, now() + interval '1 hour' \
             from generate_series(1, 1000)",
        )
        .await;
    for _ in 0..20 {
        one(&writer, job("ada")).await.expect("by credit alone");
    }
    let credit = "select credit::bigint from user_load where user_id = 'ada'";
    assert_eq!(world.count(credit).await, 979);
}
