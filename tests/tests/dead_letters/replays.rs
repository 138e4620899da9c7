//! One job through failures and replays, with a receiver that counts effects.

use serde_json::json;
use tenure_tests::caller::spec;
use tenure_tests::v1::{
    DeadLetterOutcome, DeadLetterStatus, ErrorClass, JobSpec, SubmitJobRequest,
};
use tenure_tests::{Answer, Hook, JobState, Stack};

use crate::{BOUND, failures, letter, replay, replay_done, story};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn effect(hook: &Hook) -> JobSpec {
    spec(
        "effect",
        json!({"url": format!("http://{}/", hook.address()), "key": "k"}),
    )
}

#[tokio::test]
async fn v4_v12_each_replay_starts_a_run_until_it_succeeds() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, operator) = (stack.user("ann"), stack.dead_letters());
    let hook = Hook::start().await;
    for _ in 0..2 {
        hook.next(Answer::Status(422, None));
    }
    let job_id = ann.submit_spec(effect(&hook)).await;
    let first = failures(&operator, &job_id, 1).await;
    assert_eq!(first.status(), DeadLetterStatus::Open);
    let failed = ann.get(&job_id).await;
    assert_eq!((failed.state(), failed.run), (JobState::Failed, 1));

    let one = replay_done(&operator, &job_id).await;
    let again = failures(&operator, &job_id, 2).await;
    assert_eq!(again.error.expect("an error").code, "HTTP_422");
    let two = replay_done(&operator, &job_id).await;
    assert_ne!(one, two);
    let done = ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!((done.run, done.attempt), (3, 1));
    assert!(done.revision > failed.revision);
    assert_eq!(hook.received().len(), 3, "each run has called once");

    let story = story(&operator, &job_id).await;
    let letter = story.dead_letter.expect("a letter");
    assert_eq!(letter.status(), DeadLetterStatus::Resolved);
    assert_eq!(letter.message_key, job_id, "the event keeps its id");
    assert_eq!(letter.replay_id, two);
    let told: Vec<_> = story
        .actions
        .iter()
        .map(|a| (a.action.as_str(), a.actor.as_str(), a.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("replay", "olga", "the receiver is back"),
            ("failed_again", "", ""),
            ("replay", "olga", "the receiver is back"),
            ("succeeded", "", ""),
        ]
    );
    // There is nothing left to replay, and nothing more happens.
    let late = replay(&operator, &job_id).await;
    assert_eq!(late.outcome(), DeadLetterOutcome::AlreadyDone);
    assert_eq!(hook.received().len(), 3);
}

#[tokio::test]
async fn a_newcomer_can_see_a_replay_succeed() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, operator) = (stack.user("ann"), stack.dead_letters());
    let payload = json!({"class": "permanent", "recovers_after_replay": true});
    let job_id = ann.submit_spec(spec("fail", payload)).await;
    failures(&operator, &job_id, 1).await;
    replay_done(&operator, &job_id).await;
    ann.wait_state(&job_id, JobState::Success, BOUND).await;
    assert_eq!(
        letter(&operator, &job_id).await.status(),
        DeadLetterStatus::Resolved
    );
}

#[tokio::test]
async fn v7_a_fresh_submit_says_which_job_has_the_key() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, operator) = (stack.user("ann"), stack.dead_letters());
    let hook = Hook::start().await;
    hook.next(Answer::Status(404, None));
    let keyed = JobSpec {
        dedupe_key: "order-7".to_owned(),
        ..effect(&hook)
    };
    let old = ann.submit_spec(keyed.clone()).await;
    failures(&operator, &old, 1).await;
    // The key is bound for a day: the submit is told of the job that failed.
    let told = ann.try_submit(keyed.clone()).await.expect("told");
    assert_eq!((told.job_id.as_str(), told.duplicate), (old.as_str(), true));
    sqlx::query("update job_dedupe set bound_until = now() - interval '1 s', after_end = null")
        .execute(stack.pool())
        .await
        .expect("time passes");
    let fresh = ann.try_submit(keyed).await.expect("accepted");
    assert!(!fresh.duplicate);
    ann.wait_state(&fresh.job_id, JobState::Success, BOUND)
        .await;
    let result = replay(&operator, &old).await;
    assert_eq!(result.outcome(), DeadLetterOutcome::AlreadyDone);
    assert!(result.message.contains(&fresh.job_id), "{result:?}");
    assert_eq!(
        letter(&operator, &old).await.status(),
        DeadLetterStatus::Open
    );
    assert_eq!(hook.received().len(), 2, "no effect happened twice");
}

#[tokio::test]
async fn a_letter_keeps_the_context_of_all_its_attempts() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, operator) = (stack.user("ann"), stack.dead_letters());
    let hook = Hook::start().await;
    for status in [429, 503, 503, 503] {
        hook.next(Answer::Status(
            status,
            Some(("retry-after", "0".to_owned())),
        ));
    }
    let job = JobSpec {
        max_attempts: 4,
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        ..effect(&hook)
    };
    let payload = job.payload.clone();
    let mut request = tonic::Request::new(SubmitJobRequest { job: Some(job) });
    request
        .metadata_mut()
        .insert("traceparent", TRACE.parse().expect("ASCII"));
    let accepted = ann.jobs().submit_job(request).await.expect("accepted");
    let job_id = accepted.into_inner().job_id;
    ann.wait_state(&job_id, JobState::Failed, BOUND).await;
    // History is written a little later than the state.
    let story = tenure_tests::wait_until("the history", BOUND, || async {
        let story = story(&operator, &job_id).await;
        // The submit, four starts and four ends.
        (story.timeline.len() >= 9).then_some(story)
    })
    .await;
    let letter = story.dead_letter.expect("a letter");
    assert_eq!((letter.attempts, letter.failures), (4, 1));
    assert_eq!(letter.payload, payload);
    assert_eq!((letter.user_id.as_str(), &letter.job_id), ("ann", &job_id));
    let letter_job = letter.job_id;
    assert_eq!(letter.labels["team"], "blue");
    assert_eq!(letter.trace_parent, TRACE);
    assert!(letter.replayable && letter.first_failure_time.is_some());
    assert_eq!(letter.last_failure_time, letter.first_failure_time);
    let error = letter.error.expect("an error");
    assert_eq!(error.code, "HTTP_503");
    assert_eq!(error.error_class(), ErrorClass::Temporary);
    let codes: Vec<_> = story
        .timeline
        .iter()
        .filter_map(|event| Some(event.error.as_ref()?.code.as_str()))
        .collect();
    assert_eq!(codes.first(), Some(&"HTTP_429"), "{:?}", story.timeline);
    assert!(codes.contains(&"HTTP_503"), "{:?}", story.timeline);
    assert!(story.timeline.iter().all(|event| event.time.is_some()));
    for event in story.timeline.iter().filter(|e| e.error.is_some()) {
        let error = event.error.as_ref().expect("an error");
        assert_eq!(error.error_class(), ErrorClass::Temporary, "{event:?}");
    }
    // An owner's explanation tells the same.
    let (_, explained) = ann.timeline(&letter_job).await;
    assert_eq!(story.timeline, explained);
    assert_eq!(stack.number("select count(*) from dead_letters").await, 1);
}
