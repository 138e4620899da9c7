//! Workers that die and leases that end: whose fault it was, what it costs, and that
//! nothing runs twice for it.

use std::collections::HashMap;
use std::time::Duration;

use rand::Rng as _;
use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::services::unacknowledged;
use tenure_tests::v1::Job;
use tenure_tests::{Caller, JobState, Kind, Sink, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(2);

/// Submits effects that do not end before the sink opens, and waits until all run.
async fn held_effects(caller: &Caller, sink: &Sink, count: usize) -> Vec<String> {
    let jobs = (0..count).map(|n| {
        let payload = json!({"url": sink.url(), "key": n.to_string()});
        spec("effect", payload)
    });
    // In one call, so that they are published together.
    let ids = caller.submit_all(jobs.collect()).await;
    for n in 0..count {
        arrived(sink, n, 1).await;
    }
    ids
}

/// Waits until an effect has arrived so often.
async fn arrived(sink: &Sink, key: usize, count: usize) {
    let key = key.to_string();
    wait_until(format!("{key} for the {count}. time"), BOUND, || async {
        (sink.count(&key) >= count).then_some(())
    })
    .await;
}

/// The state and attempts of all jobs by id.
async fn all(stack: &Stack) -> HashMap<String, (String, i32)> {
    let rows: Vec<(String, String, i32)> =
        sqlx::query_as("select job_id::text, status, attempt from jobs")
            .fetch_all(stack.pool())
            .await
            .expect("the jobs");
    rows.into_iter()
        .map(|(id, status, attempt)| (id, (status, attempt)))
        .collect()
}

/// A line of history: run, state after it, worker's name.
type Line = (i32, String, Option<String>);

/// The history of a job once it has so many entries.
async fn history(stack: &Stack, job_id: &str, entries: usize) -> Vec<Line> {
    wait_until(format!("{entries} entries of history"), BOUND, || async {
        let lines: Vec<Line> = sqlx::query_as(
            "select run, to_state, worker_name from job_history \
             where job_id = $1::uuid order by run, at, entry_id",
        )
        .bind(job_id)
        .fetch_all(stack.pool())
        .await
        .expect("the history");
        (lines.len() >= entries).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn a_job_that_crashes_its_workers_spares_the_thirty_beside_it() {
    let stack = Stack::builder()
        .workers(2)
        .slots(16)
        .lease("3s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .asleep(Kind::Worker)
        .start()
        .await;
    let ann = stack.user("ann");
    let mut jobs = vec![spec("sleep", json!({"ms": 700})); 30];
    jobs.insert(11, spec("abort", json!({})));
    let mut ids = ann.submit_all(jobs).await;
    let bad = ids.remove(11);
    for worker in stack.workers() {
        worker.spawn();
    }
    let crashes = std::cell::Cell::new(0);
    wait_until("the end of all jobs", Duration::from_mins(5), || async {
        // Whoever watches over the workers starts them again.
        for worker in stack.workers() {
            if !worker.is_running() {
                assert!(!worker.wait_exit(BOUND).await.success());
                crashes.set(crashes.get() + 1);
                worker.spawn();
            }
        }
        let open = "select count(*) from jobs where finished_at is null";
        (stack.number(open).await == 0).then_some(())
    })
    .await;
    let all = all(&stack).await;
    println!("{} crashes: {all:?}", crashes.get());
    for id in &ids {
        let (status, attempt) = &all[id];
        assert_eq!(status, "success", "an innocent");
        assert!(*attempt <= 2, "an innocent lost {} attempts", attempt - 1);
    }
    let job = ann.get(&bad).await;
    assert_eq!(job.state(), JobState::Failed);
    assert_eq!(job.last_error.expect("an error").code, "POISON");
    assert_eq!(crashes.get(), 3);
    let letters: Vec<(String, String)> =
        sqlx::query_as("select job_id::text, error_code from dead_letters")
            .fetch_all(stack.pool())
            .await
            .expect("the letters");
    assert_eq!(letters, [(bad.clone(), "POISON".to_owned())]);
    let story = history(&stack, &bad, 6).await;
    let ends: Vec<(i32, &str)> = story.iter().map(|h| (h.0, h.1.as_str())).collect();
    assert_eq!(
        ends,
        [
            (1, "timeout"),
            (1, "pending"),
            (2, "timeout"),
            (2, "pending"),
            (3, "timeout"),
            (3, "failed")
        ]
    );
}

#[tokio::test]
async fn a_crash_of_a_worker_with_ten_jobs_brings_back_each_once_and_counts_them() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder()
        .workers(2)
        .slots(10)
        .lease("5s")
        .env("TENURE_WORKER__NAME", "the-dead-one")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let ann = stack.user("ann");
    let ids = held_effects(&ann, &sink, 10).await;
    stack.worker(0).kill();
    stack.worker(1).start().await;
    sink.open(true);
    for id in &ids {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (2, 2));
    }
    let metrics = stack.sweeper(0).metrics().await;
    let taken_back = metrics.sum("tenure_wake_total", &[("outcome", "taken_back")]);
    assert!((taken_back - 10.0).abs() < 0.5, "{taken_back}");
    // The dead worker told nobody of its end; its name is known all the same.
    let story = history(&stack, &ids[0], 3).await;
    let told: Vec<(i32, &str, &str)> = story
        .iter()
        .map(|h| (h.0, h.1.as_str(), h.2.as_deref().unwrap_or_default()))
        .collect();
    assert_eq!(
        told,
        [
            (1, "timeout", "the-dead-one"),
            (1, "pending", "the-dead-one"),
            (2, "success", "the-dead-one"),
        ]
    );
}

#[tokio::test]
async fn a_crash_at_any_moment_of_a_start_leaves_no_job_half_taken() {
    let stack = Stack::builder()
        .lease("2s")
        .env("TENURE_SWEEP_INTERVAL", "200ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(ann.submit("noop", json!({})).await);
        // Before the claim, in it, between it and the start, after the end.
        let moment = rand::rng().random_range(0..50_000);
        tokio::time::sleep(Duration::from_micros(moment)).await;
        stack.worker(0).restart().await;
    }
    for id in &ids {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert!(job.attempt <= 2, "{}", job.attempt);
    }
}

#[tokio::test]
async fn a_job_that_outlives_many_leases_runs_once_and_holds_no_message() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder().lease("2s").start().await;
    let ann = stack.user("ann");
    let ids = held_effects(&ann, &sink, 2).await;
    wait_until("ten renewals", BOUND, || async {
        let metrics = stack.worker(0).metrics().await;
        let renewed = metrics.sum("tenure_lease_renewals_total", &[("result", "renewed")]);
        (renewed >= 10.0).then_some(())
    })
    .await;
    // The broker waits for nobody's acknowledgement: it could take no job back for it.
    assert_eq!(unacknowledged(stack.vhost_name()).await, 0);
    // Others go on beside them.
    let quick = ann.submit("noop", json!({})).await;
    ann.wait_state(&quick, JobState::Success, BOUND).await;
    sink.open(true);
    for id in &ids {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (1, 1));
    }
    assert_eq!((sink.count("0"), sink.count("1")), (1, 1));
}

#[tokio::test]
async fn a_holder_whose_renewals_fail_stops_before_the_next_one_starts() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder().lease("3s").start().await;
    let ann = stack.user("ann");
    sqlx::raw_sql(
        "create function refuse_renewal() returns trigger language plpgsql as $$ begin \
         raise exception 'refused' using errcode = '55P03'; end $$; \
         create trigger refuse_renewal before update on jobs for each row \
         when (old.status = 'running' and new.status = 'running' and new.lease_until <> old.lease_until) \
         execute function refuse_renewal()",
    )
    .execute(stack.pool())
    .await
    .expect("the trigger");
    let ids = held_effects(&ann, &sink, 1).await;
    arrived(&sink, 0, 2).await;
    let metrics = stack.worker(0).metrics().await;
    let lost = metrics.sum("tenure_lease_lost_total", &[]);
    assert!(lost >= 1.0, "the first holder had not stopped");
    sink.open(true);
    let job = ann.wait_state(&ids[0], JobState::Success, BOUND).await;
    assert_eq!(job.attempt, job.run);
    let ends = "select count(*) from processed_events where status = 'done'";
    assert_eq!(stack.number(ends).await, 1);
}

#[tokio::test]
async fn restarts_of_gateway_and_sweeper_start_nothing_that_runs_again() {
    let sink = Sink::start(false).await;
    let stack = Stack::builder().lease("3s").start().await;
    let ann = stack.user("ann");
    let ids = held_effects(&ann, &sink, 5).await;
    for _ in 0..2 {
        stack.gateway(0).restart().await;
        stack.sweeper(0).restart().await;
    }
    // The new sweeper works, and has had its time to trust the clock.
    wait_until("leases looked at", BOUND, || async {
        let metrics = stack.sweeper(0).metrics().await;
        let seen = metrics.sum("tenure_wake_total", &[("outcome", "still_running")]);
        (seen >= 5.0).then_some(())
    })
    .await;
    sink.open(true);
    // The gateway has a new port.
    let ann = stack.user("ann");
    for (n, id) in ids.iter().enumerate() {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (1, 1));
        assert_eq!(sink.count(&n.to_string()), 1);
    }
}

#[tokio::test]
async fn jobs_that_compute_without_yielding_keep_their_leases_and_their_neighbours() {
    let stack = Stack::builder().slots(4).lease("3s").start().await;
    let ann = stack.user("ann");
    let busy = ann
        .submit_all(vec![spec("busy", json!({"ms": 9000})); 2])
        .await;
    for id in &busy {
        ann.wait_state(id, JobState::Running, BOUND).await;
    }
    let quick = ann.submit_all(vec![spec("noop", json!({})); 10]).await;
    for id in &quick {
        ann.wait_state(id, JobState::Success, BOUND).await;
    }
    let running: Vec<Job> = futures::future::join_all(busy.iter().map(|id| ann.get(id))).await;
    for job in running {
        assert_eq!(job.state(), JobState::Running, "they had to wait for it");
    }
    for id in &busy {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        assert_eq!((job.attempt, job.run), (1, 1));
    }
    let metrics = stack.worker(0).metrics().await;
    assert!(metrics.sum("tenure_lease_lost_total", &[]) < 0.5);
}

#[tokio::test]
async fn a_result_that_comes_while_the_sweeper_takes_its_job_back_is_final_or_dropped() {
    let stack = Stack::builder()
        .slots(50)
        .env("TENURE_SWEEP_INTERVAL", "50ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let ids = ann
        .submit_all(vec![spec("sleep", json!({"ms": 300})); 100])
        .await;
    // The leases of first runs end at some moment of theirs, the last one among them.
    let expire = "update jobs set lease_until = now() - interval '1 s', wake_at = now() \
        where job_id = (select job_id from jobs where status = 'running' and run = 1 order by random() limit 1) \
        and status = 'running' and run = 1";
    wait_until("the end of all first runs", BOUND, async || {
        sqlx::query(expire)
            .execute(stack.pool())
            .await
            .expect("expires");
        let first = "select count(*) from jobs where run = 1 and finished_at is null";
        (stack.number(first).await == 0).then_some(())
    })
    .await;
    let mut taken_back = 0;
    for id in &ids {
        let job = ann.wait_state(id, JobState::Success, BOUND).await;
        taken_back += job.run - 1;
        assert_eq!(job.attempt, job.run, "no attempt but those of its runs");
    }
    println!("{taken_back} were taken back");
    for (wrong, statement) in [
        (
            "a run went on after the success",
            "select count(*) from jobs j join job_history h using (job_id) \
             where h.run > j.run or (h.run = j.run and h.to_state <> 'success')",
        ),
        (
            "the ledger knows another end",
            "select count(*) from jobs j join processed_events p on p.event_id = j.job_id \
             where p.status <> 'done' or p.run <> j.run",
        ),
        ("a letter", "select count(*) from dead_letters"),
    ] {
        assert_eq!(stack.number(statement).await, 0, "{wrong}");
    }
}

/// Locks a job's row again and again, as the batches of an import do that are committed one
/// after the other, until it is aborted.
async fn lock_over_and_over(stack: &Stack, job_id: &str) -> tokio::task::JoinHandle<()> {
    let held = format!(
        "begin; select 1 from jobs where job_id = '{job_id}' for share; select pg_sleep(0.05); commit"
    );
    let mut connection = stack.pool().acquire().await.expect("a connection");
    tokio::spawn(async move {
        loop {
            sqlx::raw_sql(sqlx::AssertSqlSafe(held.as_str()))
                .execute(&mut *connection)
                .await
                .expect("locked");
        }
    })
}

#[tokio::test]
async fn v2_a_lease_is_kept_though_its_row_is_locked_each_time_that_somebody_looks() {
    let stack = Stack::builder().lease("6s").start().await;
    let ann = stack.user("ann");
    let job_id = ann.submit("sleep", json!({"ms": 20_000})).await;
    ann.wait_state(&job_id, JobState::Running, BOUND).await;
    let locker = lock_over_and_over(&stack, &job_id).await;
    let job = ann.wait_end(&job_id, BOUND).await;
    locker.abort();
    assert_eq!((job.state(), job.run), (JobState::Success, 1));
}
