//! What the sweeper takes away of imports, and what it leaves.

use tenure_core::domain::ids::{JobId, UserId};
use tenure_core::domain::lease::Fence;
use tenure_core::error::{Code, Error};
use tenure_core::storage::imports::{
    Sink, WriteError, complete, ended_with_unique, gone_with_rejects, leftovers,
    prune_rejects_step, prune_step, prune_unique_step, write_batch,
};
use tenure_core::storage::{Store, datasets};
use tenure_core::test_util::TestDb;

use crate::import_world::{
    batch, begin, candidate, counts, end_job, imported, into, position, reject, running,
};

/// An import of a row and a reject that still runs.
async fn half(store: &Store, dataset: Option<&str>) -> Fence {
    let fence = running(store).await;
    begin(store, fence, dataset).await.expect("begun");
    let candidates = vec![candidate(2, &["a"])];
    let one = batch(
        fence.job_id,
        position(0, 0, 0),
        &[(2, "{}")],
        vec![reject(3)],
        candidates,
    );
    write_batch(store, fence, one, into(Sink::Rows))
        .await
        .expect("written");
    fence
}

async fn found(store: &Store) -> Vec<JobId> {
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let page = leftovers(store, after, 2).await.expect("a page");
        jobs.extend(page.jobs);
        after = page.last;
        if after.is_none() {
            return jobs;
        }
    }
}

async fn number(store: &Store, sql: &'static str, job_id: JobId) -> i64 {
    sqlx::query_scalar(sql)
        .bind(job_id.uuid())
        .fetch_one(store.pool())
        .await
        .expect(sql)
}

const STATE: &str = "select (select count(*) from import_checkpoints where job_id = $1) \
    + (select count(*) from imports where job_id = $1)";
const UNIQUE: &str = "select count(*) from import_unique where job_id = $1";

#[tokio::test]
async fn what_came_to_nothing_goes_and_what_is_seen_or_can_go_on_stays() {
    let db = TestDb::create().await;
    let store = &db.store;
    let cancelled = half(store, Some("set")).await.job_id;
    end_job(store, cancelled, "cancelled").await;
    let failed = half(store, Some("set")).await.job_id;
    end_job(store, failed, "failed").await;
    let runs = half(store, None).await.job_id;
    let gone = half(store, None).await.job_id;
    // Done, and cancelled too late; done, and its job is no longer there.
    let late = imported(store, "late", 1, false).await.job_id;
    end_job(store, late, "cancelled").await;
    let old = imported(store, "old", 1, false).await.job_id;
    for job in [gone, old] {
        sqlx::query("delete from jobs where job_id = $1")
            .bind(job.uuid())
            .execute(store.pool())
            .await
            .expect("removed");
    }
    let first = imported(store, "set", 2, false).await.job_id;
    imported(store, "set", 2, true).await;
    // The first one's job could still run again, and so it could if it had failed.
    assert_eq!(found(store).await, [cancelled, gone]);
    end_job(store, first, "failed").await;
    assert_eq!(found(store).await, [cancelled, gone]);
    end_job(store, first, "success").await;
    let mut leftover = found(store).await;
    leftover.sort();
    assert_eq!(leftover, [cancelled, gone, first]);

    for job in leftover {
        let mut steps = 0;
        while prune_step(store, job).await.expect("a step") {
            steps += 1;
        }
        assert!(steps > 0);
        assert_eq!(counts(store, job).await, (0, 0));
        assert_eq!(
            number(store, STATE, job).await + number(store, UNIQUE, job).await,
            0
        );
    }
    assert_eq!(found(store).await, []);
    for (job, rows) in [
        (failed, (1, 1)),
        (runs, (1, 1)),
        (late, (1, 0)),
        (old, (1, 0)),
    ] {
        assert_eq!(counts(store, job).await, rows);
    }
}

#[tokio::test]
async fn unique_values_go_when_their_import_has_ended() {
    let db = TestDb::create().await;
    let store = &db.store;
    let runs = half(store, None).await.job_id;
    let failed = half(store, None).await.job_id;
    end_job(store, failed, "failed").await;
    let done = half(store, Some("set")).await;
    complete(store, done, 1, false).await.expect("ended");
    end_job(store, done.job_id, "success").await;
    let judged = half(store, None).await.job_id;
    end_job(store, judged, "success").await;
    let first = ended_with_unique(store, None, 3).await.expect("a page");
    assert_eq!(
        (first.jobs.as_slice(), first.last),
        (&[done.job_id][..], Some(done.job_id))
    );
    let second = ended_with_unique(store, first.last, 3)
        .await
        .expect("a page");
    assert_eq!(
        (second.jobs.as_slice(), second.last),
        (&[judged][..], Some(judged))
    );
    for job in [done.job_id, judged] {
        while prune_unique_step(store, job).await.expect("a step") {}
        assert_eq!(number(store, UNIQUE, job).await, 0);
        assert_eq!(counts(store, job).await, (1, 1));
    }
    for job in [runs, failed] {
        assert_eq!(number(store, UNIQUE, job).await, 1);
    }
}

#[tokio::test]
async fn rejected_rows_go_after_their_job_and_the_rows_of_a_data_set_stay() {
    let db = TestDb::create().await;
    let store = &db.store;
    let mut done = Vec::new();
    for _ in 0..2 {
        let fence = half(store, Some("set")).await;
        complete(store, fence, 1, false).await.expect("ended");
        end_job(store, fence.job_id, "success").await;
        done.push(fence.job_id);
    }
    let first = gone_with_rejects(store, None, 10).await.expect("a page");
    assert_eq!((first.jobs.len(), first.last), (0, Some(done[1])));
    sqlx::query("delete from jobs where job_id = $1")
        .bind(done[0].uuid())
        .execute(store.pool())
        .await
        .expect("removed");
    let page = gone_with_rejects(store, None, 10).await.expect("a page");
    assert_eq!(page.jobs, [done[0]]);
    while prune_rejects_step(store, done[0]).await.expect("a step") {}
    assert_eq!(counts(store, done[0]).await, (1, 0));
    assert_eq!(counts(store, done[1]).await, (1, 1));
    assert_eq!(found(store).await, []);
}

#[tokio::test]
async fn several_sweepers_remove_a_large_import_in_small_steps() {
    let db = TestDb::create().await;
    let store = &db.store;
    let fence = half(store, Some("set")).await;
    sqlx::query("insert into import_rows select $1, g, '{}' from generate_series(10, 22009) g")
        .bind(fence.job_id.uuid())
        .execute(store.pool())
        .await
        .expect("rows");
    end_job(store, fence.job_id, "cancelled").await;
    let sweep = || async {
        let mut steps = 0;
        while prune_step(store, fence.job_id).await.expect("a step") {
            steps += 1;
        }
        steps
    };
    let (one, two, three) = tokio::join!(sweep(), sweep(), sweep());
    assert!(one + two + three >= 5, "{one} {two} {three}");
    sweep().await;
    assert_eq!(counts(store, fence.job_id).await, (0, 0));
    assert_eq!(number(store, STATE, fence.job_id).await, 0);
}

#[tokio::test]
async fn of_a_removed_data_set_nothing_is_seen_and_nothing_is_left() {
    let db = TestDb::create().await;
    let store = &db.store;
    let (ada, bob) = (
        UserId::from_stored("ada".into()),
        UserId::from_stored("bob".into()),
    );
    let remove = async |user: &UserId| datasets::remove(store, user, "set").await.expect("asked");
    assert!(!remove(&ada).await, "there is none yet");
    let first = imported(store, "set", 3, false).await;
    end_job(store, first.job_id, "success").await;
    let writing = half(store, Some("set")).await;
    assert!(!remove(&bob).await, "it is ada's");
    assert!(remove(&ada).await);
    assert!(!remove(&ada).await, "it is gone");
    let seen = async || {
        let page = datasets::list(store, &ada, None, 10).await.expect("a page");
        let told = page.datasets.into_iter();
        told.map(|set| (set.name, set.rows)).collect::<Vec<_>>()
    };
    assert_eq!(seen().await, []);
    let found_id = datasets::find(store, &ada, "set").await.expect("asked");
    assert_eq!(found_id, None);

    // Its name is another one's now, which the import that began before does not write to.
    let next = imported(store, "set", 2, false).await;
    let ended = complete(store, writing, 1, false).await;
    let Err(error @ WriteError::Removed) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(Error::from(error).code(), Code::DatasetRemoved);
    assert_eq!(seen().await, [("set".to_owned(), 2)]);

    // The first one may go at once, and the other one when its job has failed.
    assert_eq!(found(store).await, [first.job_id]);
    end_job(store, writing.job_id, "failed").await;
    assert_eq!(datasets::prune(store, 10).await.expect("a step"), 0);
    for job in found(store).await {
        while prune_step(store, job).await.expect("a step") {}
    }
    assert_eq!(datasets::prune(store, 10).await.expect("a step"), 1);
    let rows = "select count(*) from import_rows where job_id <> $1 union all select count(*) from datasets";
    let left: Vec<i64> = sqlx::query_scalar(rows)
        .bind(next.job_id.uuid())
        .fetch_all(store.pool())
        .await
        .expect("counts");
    assert_eq!(left, [0, 1]);
    assert_eq!(found(store).await, []);
}
