//! Messages that nobody should send, straight into a work queue: they become dead
//! letters with their bytes, and what is behind them runs.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};
use serde_json::{Value, json};
use tenure_tests::amqp::{Broker, envelope, queue_name};
use tenure_tests::v1::{DeadLetter, GetDeadLetterRequest, ListDeadLettersRequest};
use tenure_tests::{Caller, JobState, Stack, data, wait_until};

const BOUND: Duration = Duration::from_secs(90);
const GOOD_JOBS: usize = 20;

async fn letters(operator: &Caller, code: &str) -> Vec<DeadLetter> {
    let request = ListDeadLettersRequest {
        error_code: code.to_owned(),
        ..ListDeadLettersRequest::default()
    };
    let answer = operator.dead_letters().list_dead_letters(request).await;
    answer.expect("a list").into_inner().dead_letters
}

async fn letter(operator: &Caller, id: &str) -> DeadLetter {
    let request = GetDeadLetterRequest {
        dead_letter_id: id.to_owned(),
    };
    let answer = operator.dead_letters().get_dead_letter(request).await;
    answer
        .expect("a letter")
        .into_inner()
        .dead_letter
        .expect("a letter")
}

/// Waits until every message of the queue was delivered and acknowledged.
async fn settled(stack: &Stack, broker: &Broker, queue: &str) {
    wait_until(format!("{queue} empty"), BOUND, || async {
        (broker.ready(queue).await == 0).then_some(())
    })
    .await;
    // What was delivered and not acknowledged comes back to a new consumer.
    stack.worker(0).restart().await;
    wait_until(format!("{queue} still empty"), BOUND, || async {
        (broker.ready(queue).await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn bad_messages_become_dead_letters_and_the_jobs_behind_them_run() {
    let stack = Stack::builder()
        .dead_letter_admin()
        .lease("5s")
        .start()
        .await;
    let ann = stack.user("ann");
    let operator = stack.dead_letters();
    let broker = stack.broker().await;
    let queue = queue_name("default", "normal");
    let names = [
        "not_json.bin",
        "empty_body.bin",
        "missing_job_id.json",
        "unknown_job_id.json",
        "wrong_types.json",
        "two_MB_body.json",
    ];
    let deep = data::bytes("json/deep_objects_10000.json");
    let mut bodies: Vec<Vec<u8>> = names
        .iter()
        .map(|name| data::bytes(&format!("amqp/{name}")))
        .collect();
    bodies.push(deep);
    let mut headers = FieldTable::default();
    headers.insert("x-from".into(), AMQPValue::LongString("a script".into()));
    headers.insert("x-try".into(), AMQPValue::LongInt(7));
    for body in &bodies {
        // Twice: the same message is one letter.
        broker.send(&queue, body, headers.clone()).await;
        broker.send(&queue, body, headers.clone()).await;
    }
    let mut jobs = Vec::new();
    for _ in 0..GOOD_JOBS {
        jobs.push(ann.submit("noop", json!({})).await);
    }
    for job_id in &jobs {
        let job = ann.wait_state(job_id, JobState::Success, BOUND).await;
        assert_eq!(job.attempt, 1);
    }

    let found = wait_until("a letter for each body", BOUND, || async {
        let found = letters(&operator, "UNPARSEABLE_MESSAGE").await;
        let whole = found.len() == bodies.len() && found.iter().all(|l| l.failures == 2);
        whole.then_some(found)
    })
    .await;
    let mut kept = Vec::new();
    for summary in &found {
        assert!(summary.payload.is_empty(), "a list without payloads");
        let letter = letter(&operator, &summary.dead_letter_id).await;
        let error = letter.error.expect("an error");
        assert!(!error.message.is_empty() && error.message.len() < 2000);
        assert_eq!((letter.job_id.as_str(), letter.replayable), ("", false));
        assert_eq!(letter.queue, "default");
        let properties: Value =
            serde_json::from_str(&letter.message_properties).expect("what it had beside its body");
        assert_eq!(
            properties,
            json!({
                "content_type": "application/json", "delivery_mode": 2,
                "headers": {"x-from": "a script", "x-try": 7},
            })
        );
        kept.push(letter.payload.to_vec());
    }
    for body in &bodies {
        let expected = &body[..body.len().min(1024 * 1024)];
        assert!(
            kept.iter().any(|payload| payload == expected),
            "a body of {} bytes is not kept",
            body.len()
        );
    }
    settled(&stack, &broker, &queue).await;
    assert_eq!(
        stack.number("select count(*) from jobs").await,
        GOOD_JOBS as i64,
        "a message has made a job"
    );
    assert_eq!(
        letters(&operator, "UNPARSEABLE_MESSAGE").await.len(),
        bodies.len()
    );
    let log = stack.worker(0).log();
    let longest = log.lines().map(str::len).max().unwrap_or_default();
    assert!(longest < 16 * 1024, "a log line of {longest} bytes");
    let memory = stack.worker(0).peak_memory_bytes();
    assert!(memory < 150 << 20, "{memory} bytes of memory");
}

#[tokio::test]
async fn a_message_for_no_job_is_an_orphan_and_makes_none() {
    let stack = Stack::builder()
        .dead_letter_admin()
        .lease("5s")
        .start()
        .await;
    let operator = stack.dead_letters();
    let broker = stack.broker().await;
    let queue = queue_name("default", "normal");
    let id = "00000000-0000-4000-8000-000000000000";
    for _ in 0..3 {
        let body = envelope(id, 1, "noop", "ann");
        broker.send(&queue, &body, FieldTable::default()).await;
    }
    let orphan = wait_until("the orphan's letter", BOUND, || async {
        letters(&operator, "ORPHAN_MESSAGE").await.pop()
    })
    .await;
    let orphan = letter(&operator, &orphan.dead_letter_id).await;
    let text = String::from_utf8_lossy(&orphan.payload).into_owned();
    assert!(text.contains(id), "{text}");
    settled(&stack, &broker, &queue).await;
    assert_eq!(letters(&operator, "").await.len(), 1);
    assert_eq!(stack.number("select count(*) from jobs").await, 0);
    assert_eq!(
        stack.number("select count(*) from processed_events").await,
        0
    );
}

#[tokio::test]
async fn a_message_of_a_newer_release_is_put_off_and_no_letter() {
    let stack = Stack::builder().lease("5s").start().await;
    let ann = stack.user("ann");
    let broker = stack.broker().await;
    let queue = queue_name("default", "normal");
    let body = json!({"schema": 99, "jobs": [{"what": "ever"}]}).to_string();
    broker
        .send(&queue, body.as_bytes(), FieldTable::default())
        .await;
    let job = ann.submit("noop", json!({})).await;
    ann.wait_state(&job, JobState::Success, BOUND).await;
    settled(&stack, &broker, &queue).await;
    assert_eq!(stack.number("select count(*) from dead_letters").await, 0);
}
