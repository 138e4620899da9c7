//! How runs end and what that costs: any error can be written down, outages and snoozes
//! spend no attempt and have their bounds, and each end tells who worked on it.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_tests::caller::spec;
use tenure_tests::v1::{ErrorClass, Job, JobSpec};
use tenure_tests::{JobState, Kind, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(1);

/// A line of history: run, state after it, attempt, worker's name, code.
type Line = (i32, String, i32, Option<String>, Option<String>);

/// A job of the diagnostic type that fails as it is told.
fn failing(max_attempts: i32, payload: Value) -> JobSpec {
    JobSpec {
        max_attempts,
        ..spec("fail", payload)
    }
}

fn error(job: &Job) -> (&str, ErrorClass, &str) {
    let error = job.last_error.as_ref().expect("an error");
    (&error.code, error.error_class(), &error.message)
}

#[tokio::test]
async fn whatever_a_handler_fails_with_can_be_written_down() {
    let stack = Stack::builder()
        .env("TENURE_BACKOFF_BASE", "50ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let messages = [
        ("a NUL", json!({"message_hex": "610062"}), "a\u{fffd}b"),
        (
            "broken UTF-8",
            json!({"message_hex": "61ff80c3"}),
            "a\u{fffd}",
        ),
        (
            "five megabytes",
            json!({"message": "long ", "repeat": 1_000_000}),
            "long long",
        ),
        (
            "wide characters",
            json!({"message": "😀", "repeat": 100_000}),
            "😀😀",
        ),
        (
            "a forged line",
            json!({"message": "x\r\n\u{1b}[31mERROR"}),
            "x\u{fffd}\n\u{fffd}[31m",
        ),
        ("nothing", json!({"message": ""}), ""),
    ];
    for (what, message, begins) in messages {
        for (class, attempts) in [("temporary", 2), ("permanent", 1)] {
            let mut payload = message.clone();
            payload["class"] = json!(class);
            let job_id = ann.submit_spec(failing(2, payload)).await;
            let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
            let (code, _, text) = error(&job);
            assert_eq!(
                (code, job.attempt),
                ("FAILED_ON_PURPOSE", attempts),
                "{what}"
            );
            assert!(text.starts_with(begins), "{what}: {text:.40}");
            assert!(text.chars().count() <= 2000, "{what}");
        }
    }
    let letters = "select count(*) from dead_letters where char_length(error_message) <= 2000";
    assert_eq!(stack.number(letters).await, 12);

    // A code that breaks the form would be of no use to a program.
    for bad in ["", "not found", "lower_case", "É", &"A".repeat(65)] {
        let payload = json!({"class": "permanent", "code": bad, "message": "what it said"});
        let job_id = ann.submit_spec(failing(1, payload)).await;
        let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        let (code, class, text) = error(&job);
        assert_eq!((code, class), ("ERROR_CODE_INVALID", ErrorClass::Permanent));
        assert!(text.contains("what it said"), "{text}");
        assert!(text.contains(bad.get(..9).unwrap_or(bad)), "{text}");
    }

    // What Tenure decides itself is not a handler's to say.
    for (code, class) in [
        ("POISON", ErrorClass::Permanent),
        ("CANCELLED", ErrorClass::Permanent),
        ("LEASE_EXPIRED", ErrorClass::Temporary),
    ] {
        let class_name = if class == ErrorClass::Temporary {
            "temporary"
        } else {
            "permanent"
        };
        let payload = json!({"class": class_name, "code": code, "message": "what it said"});
        let job_id = ann.submit_spec(failing(1, payload)).await;
        let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        let (told, kept, text) = error(&job);
        assert_eq!((told, kept, job.attempt), ("HANDLER_ERROR", class, 1));
        assert!(
            text.contains(code) && text.contains("what it said"),
            "{text}"
        );
    }

    // A panic is a temporary error with a code of its own.
    let payload = json!({"class": "panic", "message": "no such index"});
    let job_id = ann.submit_spec(failing(2, payload)).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    let (code, class, text) = error(&job);
    assert_eq!(
        (code, class, job.attempt),
        ("PANIC", ErrorClass::Temporary, 2)
    );
    assert!(text.contains("no such index"), "{text}");
}

#[tokio::test]
async fn a_delay_that_the_downstream_names_is_kept() {
    let stack = Stack::builder()
        .env("TENURE_BACKOFF_BASE", "10ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let payload = json!({"times": 1, "delay_ms": 1500});
    let job_id = ann.submit_spec(failing(2, payload)).await;
    let job = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    let (start, end) = (
        job.start_time.expect("a start"),
        job.finish_time.expect("an end"),
    );
    let millis =
        (end.seconds - start.seconds) * 1000 + i64::from(end.nanos - start.nanos) / 1_000_000;
    assert!(millis >= 1500, "{millis} ms");
    assert_eq!(job.attempt, 2);
}

#[tokio::test]
async fn snoozes_spend_no_attempt_and_end_at_their_limit() {
    let stack = Stack::builder()
        .env("TENURE_RETRY__MAX_SNOOZES", "4")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let payload = json!({"class": "snooze", "delay_ms": 20});
    let job_id = ann.submit_spec(failing(1, payload)).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!(error(&job).0, "SNOOZE_LIMIT");
    assert_eq!((job.attempt, job.max_attempts, job.run), (1, 1, 5));
    let letters = "select count(*) from dead_letters where error_code = 'SNOOZE_LIMIT'";
    assert_eq!(stack.number(letters).await, 1);
}

#[tokio::test]
async fn a_handler_that_meets_our_own_trouble_spends_no_attempt_until_patience_is_over() {
    let stack = Stack::builder()
        .env("TENURE_RETRY__OUTAGE_PATIENCE", "3s")
        .env("TENURE_BACKOFF_BASE", "50ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let mut jobs = Vec::new();
    for code in [
        "DATABASE_UNAVAILABLE",
        "STORE_UNAVAILABLE",
        "BROKER_UNAVAILABLE",
    ] {
        jobs.push((
            code,
            ann.submit_spec(failing(2, json!({"code": code}))).await,
        ));
    }
    for (code, job_id) in &jobs {
        let job = ann.wait_end(job_id, BOUND).await;
        assert_eq!(job.state(), JobState::Failed);
        assert_eq!(error(&job).0, *code);
        assert_eq!(job.attempt, 2);
        assert!(
            job.run > 4,
            "{code}: only {} runs in three seconds",
            job.run
        );
    }
    let metrics = stack.worker(0).metrics().await;
    let returned = metrics.sum("tenure_attempts_returned_total", &[("kind", "outage")]);
    assert!(returned >= 9.0, "{returned}");
    // An error of somebody else's counts at once.
    let other = failing(2, json!({"code": "DOWNSTREAM_UNAVAILABLE"}));
    let job_id = ann.submit_spec(other).await;
    let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    assert_eq!((job.attempt, job.run), (2, 2));
}

#[tokio::test]
async fn each_unhappy_end_of_a_run_is_told_with_the_worker_that_made_it() {
    let stack = Stack::builder()
        .env("TENURE_WORKER__NAME", "import-7")
        .env("TENURE_BACKOFF_BASE", "50ms")
        .env("TENURE_SWEEP_INTERVAL", "100ms")
        .start()
        .await;
    let ann = stack.user("ann");
    let mended = ann
        .submit("fail", json!({"times": 2, "code": "DOWN"}))
        .await;
    ann.wait_state(&mended, JobState::Success, BOUND).await;
    let broken = ann.submit("fail", json!({"class": "permanent"})).await;
    ann.wait_state(&broken, JobState::Failed, BOUND).await;
    let sleeping = ann.submit("sleep", json!({"ms": 3_600_000})).await;
    ann.wait_state(&sleeping, JobState::Running, BOUND).await;
    ann.cancel(&sleeping, "").await.expect("noted");
    ann.wait_state(&sleeping, JobState::Cancelled, BOUND).await;
    let told = async |job_id: &str, entries: usize| {
        let what = format!("{entries} entries of history");
        wait_until(what, BOUND, || async {
            let lines: Vec<Line> = sqlx::query_as(
                "select run, to_state, attempt, worker_name, error_code from job_history \
                 where job_id = $1::uuid and worker is not null order by run",
            )
            .bind(job_id)
            .fetch_all(stack.pool())
            .await
            .expect("the history");
            (lines.len() >= entries).then_some(lines)
        })
        .await
    };
    let line = |run: i32, to: &str, code: Option<&str>| {
        let name = Some("import-7".to_owned());
        (run, to.to_owned(), run, name, code.map(str::to_owned))
    };
    assert_eq!(
        told(&mended, 3).await,
        [
            line(1, "retrying", Some("DOWN")),
            line(2, "retrying", Some("DOWN")),
            line(3, "success", None),
        ]
    );
    let failed = [line(1, "failed", Some("FAILED_ON_PURPOSE"))];
    assert_eq!(told(&broken, 1).await, failed);
    assert_eq!(told(&sleeping, 1).await, [line(1, "cancelled", None)]);
}

#[tokio::test]
async fn workers_are_listed_from_their_start_to_their_orderly_end() {
    let stack = Stack::builder()
        .workers(2)
        .slots(7)
        .env("TENURE_SHUTDOWN_GRACE", "30s")
        .asleep(Kind::Worker)
        .start()
        .await;
    stack.worker(0).start().await;
    let listed = async |count: i64, what: &str| {
        wait_until(what, BOUND, || async {
            let listed = stack.number("select count(*) from workers").await;
            (listed == count).then_some(())
        })
        .await;
    };
    listed(1, "one worker").await;
    stack.worker(1).start().await;
    listed(2, "two workers").await;
    let rows: Vec<(String, i32, Vec<String>, bool, bool)> = sqlx::query_as(
        "select name, slots, queues, 'noop' = any(job_types), draining from workers order by name",
    )
    .fetch_all(stack.pool())
    .await
    .expect("the workers");
    for (name, slots, queues, noop, draining) in &rows {
        assert!(name.contains('-'), "{name}");
        assert_eq!((*slots, queues.len()), (7, 2));
        assert!(*noop && !draining);
    }
    assert_ne!(rows[0].0, rows[1].0);

    // What it runs is told, and that it takes no more.
    let ann = stack.user("ann");
    let job_id = ann.submit("sleep", json!({"ms": 12_000})).await;
    ann.wait_state(&job_id, JobState::Running, BOUND).await;
    wait_until("a running job told", BOUND, || async {
        (stack.number("select sum(running) from workers").await == 1).then_some(())
    })
    .await;
    for worker in stack.workers() {
        worker.signal(tenure_tests::Signal::TERM);
    }
    wait_until("a draining worker", BOUND, || async {
        let draining = "select count(*) from workers where draining and running = 1";
        (stack.number(draining).await == 1).then_some(())
    })
    .await;
    for worker in stack.workers() {
        assert!(worker.wait_exit(BOUND).await.success());
    }
    listed(0, "no worker").await;
    // One that is killed stays until it has been silent for long.
    stack.worker(0).start().await;
    listed(1, "one worker again").await;
    stack.worker(0).kill();
    assert_eq!(stack.number("select count(*) from workers").await, 1);
}
