//! Dead letters through the running product: what broke, what is done about it, and that
//! a replay is one run whoever dies.

mod alerts;
mod bulk;
mod decisions;
mod kills;
mod replays;

use std::time::Duration;

use tenure_tests::v1::{
    DeadLetter, DeadLetterOutcome, DeadLetterResult, GetDeadLetterRequest, GetDeadLetterResponse,
    ReplayDeadLettersRequest,
};
use tenure_tests::{Caller, Stack, wait_until};
use uuid::Uuid;

/// The longest that any wait here may take.
const BOUND: Duration = Duration::from_secs(90);

/// A letter with its story, by its own id or its job's.
async fn story(operator: &Caller, id: &str) -> GetDeadLetterResponse {
    let request = GetDeadLetterRequest {
        dead_letter_id: id.to_owned(),
    };
    let answer = operator.dead_letters().get_dead_letter(request).await;
    answer.expect("a letter").into_inner()
}

async fn letter(operator: &Caller, id: &str) -> DeadLetter {
    story(operator, id).await.dead_letter.expect("a letter")
}

/// Replays one letter.
async fn replay(operator: &Caller, id: &str) -> DeadLetterResult {
    let request = ReplayDeadLettersRequest {
        dead_letter_ids: vec![id.to_owned()],
        reason: "the receiver is back".to_owned(),
    };
    let answer = operator.dead_letters().replay_dead_letters(request).await;
    answer.expect("an answer").into_inner().results.remove(0)
}

async fn replay_done(operator: &Caller, id: &str) -> String {
    let result = replay(operator, id).await;
    assert_eq!(result.outcome(), DeadLetterOutcome::Done, "{result:?}");
    assert!(!result.replay_id.is_empty());
    result.replay_id
}

/// Waits until a letter has come in so often.
async fn failures(operator: &Caller, id: &str, count: i32) -> DeadLetter {
    wait_until(format!("failure {count} of {id}"), BOUND, || async {
        let request = GetDeadLetterRequest {
            dead_letter_id: id.to_owned(),
        };
        let answer = operator.dead_letters().get_dead_letter(request).await;
        let letter = answer.ok()?.into_inner().dead_letter?;
        (letter.failures >= count).then_some(letter)
    })
    .await
}

/// Failed jobs of a type with their letters, as they are left by the protocol; the first
/// failed first.
async fn failed_jobs(stack: &Stack, count: i32, job_type: &str, payload: &str) -> Vec<Uuid> {
    sqlx::query_scalar(
        "with n as materialized (select n, tenure_uuid7() as id, now() - ($1 - n + 1) * interval '1 second' as at \
         from generate_series(1, $1) n), \
         j as (insert into jobs (job_id, status, run, attempt, max_attempts, lane, created_at, started_at, finished_at, \
         timeout_ms, user_id, queue, job_type, payload) \
         select id, 'failed', 1, 1, 1, lane, at, at, at, timeout_ms, 'ann', queue, name, convert_to($3, 'UTF8') \
         from n, job_types where name = $2), \
         p as (insert into processed_events (event_id, run, status) select id, 1, 'failed' from n), \
         d as (insert into dead_letters (id, job_id, message_key, queue_name, job_type, user_id, payload, error_code, \
         error_class, error_message, attempts, replayable, status, first_failed_at, last_failed_at) \
         select id, id, id::text, queue, name, 'ann', convert_to($3, 'UTF8'), 'DOWNSTREAM', 'permanent', 'row ' || n, 1, true, \
         'open', at, at from n, job_types where name = $2) \
         select id from n order by n",
    )
    .bind(count)
    .bind(job_type)
    .bind(payload)
    .fetch_all(stack.pool())
    .await
    .expect("inserts")
}
