//! Progress as callers see it: forward within a run, whole at success only, and a worker
//! that has lost its job says nothing more.

use std::time::Duration;

use serde_json::json;
use tenure_tests::caller::is_final;
use tenure_tests::v1::Job;
use tenure_tests::{JobState, Kind, Signal, Stack, data, wait_until};

const BOUND: Duration = Duration::from_mins(3);

/// What was seen in one look: run, state, done, total.
type Seen = (i32, JobState, i64, i64);

fn seen(job: &Job) -> Seen {
    let progress = job.progress.clone().unwrap_or_default();
    (job.run, job.state(), progress.done, progress.total)
}

fn is_sound(all: &[Seen]) {
    for pair in all.windows(2) {
        let [
            (run, state, done, total),
            (next_run, _, next_done, next_total),
        ] = pair
        else {
            continue;
        };
        assert!(next_run >= run, "{pair:?}");
        // A run begins anew when it is claimed.
        if run == next_run && total == next_total && *state == JobState::Running {
            assert!(next_done >= done, "progress fell within a run: {pair:?}");
        }
    }
    for look in all {
        let (_, state, done, total) = *look;
        assert!((0..=total.max(0)).contains(&done) || total == 0, "{look:?}");
        let whole = total > 0 && done == total;
        assert!(!whole || state == JobState::Success, "{look:?}");
    }
}

#[tokio::test]
async fn progress_of_an_import_that_is_killed_and_frozen_never_falls_within_a_run() {
    let stack = Stack::builder()
        .workers(3)
        .lease("3s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    let content = data::unpacked("flights_200k.csv.gz");
    let job_id = ann.import("flights.csv", &content, json!({})).await;
    let all = parking_lot::Mutex::new(Vec::new());
    let look = async || {
        let job = ann.get(&job_id).await;
        all.lock().push(seen(&job));
        job
    };
    // Looks until a run has got somewhere.
    let until = async |run: i32, more_than: i64| {
        wait_until(format!("progress of run {run}"), BOUND, || async {
            let job = look().await;
            assert!(!is_final(job.state()), "it ended too soon for this test");
            let (at, _, done, _) = seen(&job);
            (at == run && job.state() == JobState::Running && done > more_than).then_some(done)
        })
        .await
    };
    let first = until(1, 0).await;
    stack.worker(0).kill();
    stack.worker(1).start().await;
    let second = until(2, first).await;
    stack.worker(1).signal(Signal::STOP);
    stack.worker(2).start().await;
    until(3, second).await;
    // The frozen one wakes beside the run that goes on.
    stack.worker(1).signal(Signal::CONT);
    let end = wait_until("the end", BOUND, || async {
        let job = look().await;
        is_final(job.state()).then_some(job)
    })
    .await;
    assert_eq!((end.state(), end.run), (JobState::Success, 3));
    let all = all.into_inner();
    println!("{} looks", all.len());
    is_sound(&all);
    let (_, _, done, total) = seen(&end);
    assert!(
        total > 0 && done == total,
        "whole at success: {done} of {total}"
    );
}
