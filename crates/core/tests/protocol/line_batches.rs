//! The order of a line within a batch (V11): whatever becomes of the batch, jobs of one
//! ordering key get their places in the order of their submits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::NewJob;
use tenure_core::domain::line::Line;
use tenure_core::error::Result;
use tenure_core::storage::admission::JobLimit;
use tenure_core::storage::batch_writer::{SubmitWriter, Submitted, WriterSettings};
use tenure_core::telemetry::metrics::Metrics;
use uuid::Uuid;

use crate::world::{World, job};

fn gateway(world: &World) -> SubmitWriter {
    SubmitWriter::start_limited(
        world.store.clone(),
        WriterSettings {
            writers: 2,
            batch_max: 2000,
            queue_max: 10_000,
            deadline: Duration::from_secs(30),
        },
        Arc::new(JobLimit::new(5000)),
        Arc::new(|_| {}),
        Arc::new(Metrics::default()),
    )
}

fn ordered(user: &str) -> NewJob {
    NewJob {
        line: Some(Line::Ordered {
            key: "k".to_owned(),
            blocks: false,
        }),
        ..job(user)
    }
}

/// A job whose labels no row can hold.
fn bad(user: &str) -> NewJob {
    NewJob {
        labels: BTreeMap::from([("a".to_owned(), "\0".to_owned())]),
        ..job(user)
    }
}

async fn submit(writer: &SubmitWriter, jobs: Vec<NewJob>) -> Vec<Result<Submitted>> {
    let jobs = jobs.into_iter().map(|job| (job, true)).collect();
    writer.submit(jobs).await
}

/// Users whose jobs have been counted before, with this credit.
async fn known(world: &World, writer: &SubmitWriter, users: &[&str], credit: u32) {
    let jobs = users.iter().map(|user| job(user)).collect();
    assert!(submit(writer, jobs).await.iter().all(Result::is_ok));
    world
        .sql(format!("update user_load set credit = {credit}"))
        .await;
}

/// The jobs of the line by their places.
async fn places(world: &World) -> Vec<JobId> {
    let ids: Vec<Uuid> = sqlx::query_scalar(
        "select job_id from jobs where ordering_key = 'o:k' order by abs(order_seq)",
    )
    .fetch_all(world.store.pool())
    .await
    .expect("places");
    ids.into_iter().map(JobId).collect()
}

#[tokio::test]
async fn v11_a_batch_that_is_halved_keeps_the_order_of_a_line() {
    let world = World::new().await;
    let writer = gateway(&world);
    known(&world, &writer, &["ada"], 1).await;
    // The first half has not enough credit, and is counted; the other one has.
    let jobs = vec![ordered("ada"), ordered("ada"), ordered("ada"), bad("ada")];
    let ids: Vec<JobId> = jobs[..3].iter().map(|job| job.job_id).collect();
    let answers = submit(&writer, jobs).await;
    let accepted: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(accepted, [true, true, true, false]);
    assert_eq!(places(&world).await, ids);
}

#[tokio::test]
async fn v11_who_must_be_counted_is_not_passed_by_another_user_of_the_line() {
    let world = World::new().await;
    let writer = gateway(&world);
    known(&world, &writer, &["ada", "bob"], 3).await;
    world
        .sql("update user_load set credit = 1 where user_id = 'ada'")
        .await;
    let users = ["ada", "bob", "ada", "bob"];
    let jobs: Vec<NewJob> = users.iter().map(|user| ordered(user)).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job_id).collect();
    let answers = submit(&writer, jobs).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(places(&world).await, ids);
}

#[tokio::test]
async fn v11_nor_is_one_who_has_too_many_jobs_to_be_counted_beside_others() {
    let world = World::new().await;
    let writer = gateway(&world);
    let many = (0..1500).map(|_| job("zoe")).collect();
    assert!(submit(&writer, many).await.iter().all(Result::is_ok));
    known(&world, &writer, &["ada", "bob"], 0).await;
    let users = ["zoe", "ada", "zoe", "bob", "ada"];
    let mut jobs: Vec<NewJob> = users.iter().map(|user| ordered(user)).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job_id).collect();
    jobs.push(bad("zoe"));
    let answers = submit(&writer, jobs).await;
    let accepted = answers.iter().filter(|answer| answer.is_ok());
    assert_eq!(accepted.count(), users.len(), "{answers:?}");
    assert_eq!(places(&world).await, ids);
}
