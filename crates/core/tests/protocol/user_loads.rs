//! What is kept of users goes with their last job, and no limit is exceeded by it (V9).

use tenure_core::Code;
use tenure_core::domain::ids::JobId;

use crate::admission::gateway;
use crate::world::{World, job};

const LIMIT: i64 = 3;

/// A whole walk, in steps of two; how many rows it removed.
async fn prune(world: &World) -> u64 {
    let (mut after, mut removed) = (None, 0);
    loop {
        let step = world.store.prune_user_loads(after.as_deref(), 2).await;
        let step = step.expect("a step");
        removed += step.removed;
        after = step.next;
        if after.is_none() {
            return removed;
        }
    }
}

async fn known(world: &World) -> i64 {
    world.count("select count(*) from user_load").await
}

#[tokio::test]
async fn a_user_is_forgotten_with_the_last_job() {
    let world = World::new().await;
    let writer = gateway(&world, LIMIT);
    let mut ids: Vec<JobId> = Vec::new();
    for user in ["ada", "bob", "cyd", "dan", "eve"] {
        let done = writer.submit(vec![(job(user), true)]).await.remove(0);
        ids.push(done.expect("accepted").job_id);
    }
    assert_eq!(prune(&world).await, 0);
    // An ended job is still known of; one that retention has removed is not.
    world.store.cancel(ids[0], "enough").await.expect("asked");
    for id in &ids[1..4] {
        world
            .sql(format!("delete from jobs where job_id = '{id}'"))
            .await;
    }
    // Somebody is just about to submit for one of them.
    let mut tx = world.store.pool().begin().await.expect("begins");
    sqlx::query("update user_load set credit = credit - 1 where user_id = 'cyd'")
        .execute(&mut *tx)
        .await
        .expect("debits");
    assert_eq!(prune(&world).await, 2);
    tx.commit().await.expect("commits");
    assert_eq!(known(&world).await, 3);
    assert_eq!(prune(&world).await, 1);
    // Who comes back is counted.
    for place in 0..=LIMIT {
        let answer = writer.submit(vec![(job("bob"), true)]).await.remove(0);
        assert_eq!(answer.is_ok(), place < LIMIT, "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v9_a_limit_is_kept_while_users_are_forgotten() {
    let world = World::new().await;
    let gateways = [gateway(&world, LIMIT), gateway(&world, LIMIT)];
    let submits = async {
        for round in 0..20 {
            let user = format!("user-{round}");
            let calls = (0..12).map(|n: usize| {
                let writer = gateways[n % 2].clone();
                let job = job(&user);
                async move { writer.submit(vec![(job, true)]).await.remove(0) }
            });
            let mut accepted = 0;
            for answer in futures::future::join_all(calls).await {
                match answer {
                    Ok(_) => accepted += 1,
                    Err(error) => assert_eq!(error.code(), Code::TooManyPendingJobs, "{error}"),
                }
            }
            assert_eq!(accepted, LIMIT, "round {round}");
        }
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    let forgets = async {
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            prune(&world).await;
        }
    };
    let submits = async {
        submits.await;
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(submits, forgets);
    let broken = "select count(*) from user_load l where l.credit > greatest(l.job_limit - \
         (select count(*) from jobs j where j.user_id = l.user_id and j.finished_at is null), 0)";
    assert_eq!(
        world.count(broken).await,
        0,
        "more was promised than there is"
    );
}
