//! Workers that are killed, stopped, frozen: no job is lost, none takes effect twice.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_tests::caller::result;
use tenure_tests::{Frozen, JobState, Kind, Sink, Stack, data, wait_until};

const BOUND: Duration = Duration::from_secs(90);

#[tokio::test]
async fn after_a_crash_its_jobs_run_again_elsewhere() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .workers(2)
        .slots(4)
        .lease("10s")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    let mut jobs = Vec::new();
    for key in ["a", "b", "c"] {
        let payload = json!({"url": sink.url(), "key": key});
        jobs.push((key, ann.submit("effect", payload).await));
    }
    for (key, _) in &jobs {
        sink.arrived(key, 1, BOUND).await;
    }
    stack.worker(1).start().await;
    stack.worker(0).kill();
    let killed = Instant::now();
    sink.open(true);
    for (key, job_id) in &jobs {
        sink.arrived(key, 2, Duration::from_secs(30)).await;
        println!(
            "{key} ran again {:.1} s after the kill",
            killed.elapsed().as_secs_f64()
        );
        let job = ann.wait_state(job_id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (2, 2));
        assert_eq!(sink.count(key), 2);
    }
}

#[tokio::test]
async fn an_orderly_stop_drains_what_ends_in_time() {
    let stack = Stack::builder()
        .env("TENURE_SHUTDOWN_GRACE", "30s")
        .start()
        .await;
    let ann = stack.user("ann");
    let mut jobs = Vec::new();
    for _ in 0..8 {
        jobs.push(ann.submit("sleep", json!({"ms": 1500})).await);
    }
    for job_id in &jobs {
        ann.wait_state(job_id, JobState::Running, BOUND).await;
    }
    let status = stack.worker(0).terminate(Duration::from_mins(1)).await;
    assert!(status.success(), "{status}");
    for job_id in &jobs {
        let job = ann.get(job_id).await;
        assert_eq!(
            (job.state(), job.attempt, job.run),
            (JobState::Success, 1, 1)
        );
    }
}

#[tokio::test]
async fn an_orderly_stop_hands_back_what_does_not_end_and_spends_no_attempt() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .workers(2)
        .slots(4)
        .asleep(Kind::Worker)
        .env("TENURE_SHUTDOWN_GRACE", "2s")
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    let mut jobs = Vec::new();
    // Four run, the others wait for a slot or in the queue.
    for n in 0..10 {
        let payload = json!({"url": sink.url(), "key": n.to_string()});
        jobs.push(ann.submit("effect", payload).await);
    }
    wait_until("four running jobs", BOUND, || async {
        let running = (0..10).filter(|n| sink.count(&n.to_string()) > 0).count();
        (running == 4).then_some(())
    })
    .await;
    let status = stack.worker(0).terminate(Duration::from_mins(1)).await;
    assert!(status.success(), "{status}");
    for job_id in &jobs {
        let job = ann.get(job_id).await;
        assert_eq!((job.state(), job.attempt), (JobState::Pending, 0));
    }
    sink.open(true);
    stack.worker(1).start().await;
    for job_id in &jobs {
        let job = ann.wait_state(job_id, JobState::Success, BOUND).await;
        assert_eq!(job.attempt, 1);
    }
    let twice = (0..10).filter(|n| sink.count(&n.to_string()) == 2).count();
    assert_eq!(twice, 4, "only what was stopped has run twice");
}

#[tokio::test]
async fn a_worker_that_was_frozen_past_its_lease_changes_nothing() {
    let frozen = Frozen::begin().await;
    let done = frozen.taken_over().await;
    assert_eq!((done.attempt, done.run), (2, 2));
    frozen.thaw().await;
    let (stack, ann, job_id) = (&frozen.stack, &frozen.owner, &frozen.job_id);
    let after = ann.get(job_id).await;
    assert_eq!(after, done, "the late answer has changed the job");
    assert_eq!(frozen.effects(), 2);
    let ledger: Vec<(String, i32)> =
        sqlx::query_as("select status, run from processed_events where event_id = $1::uuid")
            .bind(job_id)
            .fetch_all(stack.pool())
            .await
            .expect("the ledger");
    assert_eq!(ledger, [("done".to_owned(), 2)]);
    // Both ends are in the history, each with the worker whose run it was.
    let ends = wait_until("the ends of both runs", BOUND, || async {
        let ends: Vec<(i32, String, Option<String>)> = sqlx::query_as(
            "select run, to_state, worker_name from job_history where job_id = $1::uuid order by run, at, entry_id",
        )
        .bind(job_id)
        .fetch_all(stack.pool())
        .await
        .expect("the history");
        (ends.len() >= 3).then_some(ends)
    })
    .await;
    let told: Vec<(i32, &str)> = ends.iter().map(|e| (e.0, e.1.as_str())).collect();
    assert_eq!(told, [(1, "timeout"), (1, "pending"), (2, "success")]);
    assert!(ends[0].2.is_some() && ends[2].2.is_some());
    assert_eq!(ends[0].2, ends[1].2);
    assert_ne!(ends[0].2, ends[2].2, "two workers");
    // And it serves on.
    stack.worker(1).kill();
    let next = ann.submit("noop", json!({})).await;
    ann.wait_state(&next, JobState::Success, BOUND).await;
}

#[tokio::test]
async fn a_job_that_crashes_its_workers_becomes_a_dead_letter_and_spares_the_others() {
    let stack = Stack::builder()
        .workers(1)
        .lease("2s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let bad = ann.submit("abort", json!({})).await;
    let mut crashes = 0;
    let failed = wait_until(
        "the poisonous job failed",
        Duration::from_mins(2),
        || async {
            let job = ann.try_get(&bad).await.ok()?;
            (job.state() == JobState::Failed).then_some(job)
        },
    );
    tokio::pin!(failed);
    // Its worker is started again by whoever watches over processes.
    let job = loop {
        let ended = stack.worker(0).wait_exit(Duration::from_mins(2));
        tokio::select! {
            job = &mut failed => break job,
            status = ended => {
                assert!(!status.success());
                crashes += 1;
                stack.worker(0).start().await;
            }
        }
    };
    assert_eq!(
        job.last_error.as_ref().map(|e| e.code.as_str()),
        Some("POISON")
    );
    assert_eq!(crashes, 3);
    let good = ann.submit("noop", json!({})).await;
    ann.wait_state(&good, JobState::Success, BOUND).await;
}

const ROWS: i64 = 200_000;

#[tokio::test]
async fn a_large_import_survives_two_crashes_with_every_row_once() {
    let stack = Stack::builder().lease("4s").start().await;
    let ann = stack.user("ann");
    let content = data::unpacked("flights_200k.csv.gz");
    let job_id = ann.import("flights.csv", &content, json!({})).await;
    let mut peak = 0;
    let mut begun = None;
    for (crash, batches) in [(1, 15), (2, 45)] {
        let (offset, batch_no, plan) = wait_until("enough batches", BOUND, || async {
            let at = checkpoint(&stack).await?;
            (at.1 >= batches).then_some(at)
        })
        .await;
        peak = peak.max(stack.worker(0).peak_memory_bytes());
        stack.worker(0).kill();
        let (kept, kept_no, _) = checkpoint(&stack).await.expect("a checkpoint");
        println!(
            "crash {crash} at byte {kept} of {}, batch {kept_no}",
            content.len()
        );
        assert!(kept >= offset && kept_no >= batch_no);
        assert!(
            kept < content.len() as i64,
            "it had ended before it was killed"
        );
        let rows = stack.number("select count(*) from import_rows").await;
        assert_eq!(
            rows,
            i64::from(kept_no) * 2000,
            "rows without their checkpoint"
        );
        // One import, begun once: a run that starts anew would make another plan.
        assert_eq!(*begun.get_or_insert(plan.clone()), plan);
        stack.worker(0).start().await;
        wait_until("the next run", BOUND, || async {
            let job = ann.try_get(&job_id).await.ok()?;
            (job.run > crash).then_some(())
        })
        .await;
        let (resumed, ..) = checkpoint(&stack).await.expect("a checkpoint");
        assert!(
            resumed >= kept,
            "the import has gone back to byte {resumed}"
        );
    }
    let job = ann.wait_state(&job_id, JobState::Success, BOUND * 2).await;
    peak = peak.max(stack.worker(0).peak_memory_bytes());
    println!("the worker's memory: {} MiB at most", peak >> 20);
    // The first batch after a loss gives its attempt back: the import moves on.
    assert_eq!((job.attempt, job.run), (1, 3));
    let result = result(&job);
    assert_eq!(result["rows_accepted"], ROWS);
    assert_eq!(result["rows_rejected"], 0);
    let (offset, batch_no, plan) = checkpoint(&stack).await.expect("a checkpoint");
    assert_eq!(offset, content.len() as i64);
    assert_eq!(i64::from(batch_no), ROWS / 2000);
    assert_eq!(Some(plan), begun);
    assert_eq!(stack.number("select count(*) from import_rows").await, ROWS);
    let lines =
        "select count(distinct line_no) from import_rows where line_no between 2 and 200001";
    assert_eq!(stack.number(lines).await, ROWS);
    assert!(peak < 150 << 20, "{peak} bytes of memory");
}

/// Offset, batch and plan of the only import.
async fn checkpoint(stack: &Stack) -> Option<(i64, i32, String)> {
    sqlx::query_as("select byte_offset, batch_no, plan::text from import_checkpoints")
        .fetch_optional(stack.pool())
        .await
        .expect("the checkpoints")
}
