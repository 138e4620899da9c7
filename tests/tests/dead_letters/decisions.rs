//! Causes, filters and decisions, as an operator meets them.

use tenure_tests::v1::{
    DeadLetterFilter, DeadLetterOutcome, DeadLetterStatus, IgnoreDeadLettersRequest,
    ListDeadLetterCausesRequest, ListDeadLettersRequest, ReopenDeadLettersRequest,
    ReplayDeadLettersRequest, ResolveDeadLettersRequest,
};
use tenure_tests::{JobState, Refusal, Stack, wait_until};

use crate::{BOUND, failed_jobs, letter};

#[tokio::test]
async fn causes_are_counted_by_the_sweeper_and_lead_to_their_letters() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let (ann, operator) = (stack.user("ann"), stack.dead_letters());
    for (count, message) in [(3, "row 1 of 2 is bad"), (2, "no answer from \"b\"")] {
        for _ in 0..count {
            let payload =
                serde_json::json!({"class": "permanent", "code": "BAD", "message": message});
            let job_id = ann.submit("fail", payload).await;
            ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        }
    }
    wait_until("the counts", BOUND, || async {
        let counted = "select coalesce(sum(open), 0)::bigint from dead_letter_causes";
        (stack.number(counted).await == 5).then_some(())
    })
    .await;
    let request = ListDeadLetterCausesRequest {
        error_code: "BAD".to_owned(),
        ..ListDeadLetterCausesRequest::default()
    };
    let answer = operator
        .dead_letters()
        .list_dead_letter_causes(request)
        .await;
    let causes = answer.expect("causes").into_inner().causes;
    assert_eq!(
        causes.iter().map(|cause| cause.open).collect::<Vec<_>>(),
        [3, 2]
    );
    let of_cause = ListDeadLettersRequest {
        filter: Some(DeadLetterFilter {
            cause_id: causes[0].cause_id.clone(),
            text: "1 OF".to_owned(),
            ..DeadLetterFilter::default()
        }),
        ..ListDeadLettersRequest::default()
    };
    let listed = operator.dead_letters().list_dead_letters(of_cause).await;
    let letters = listed.expect("a list").into_inner().dead_letters;
    assert_eq!(letters.len(), 3);
    let sample = letter(&operator, &causes[0].sample_dead_letter_id).await;
    assert_eq!(sample.cause_id, causes[0].cause_id);
    assert!(
        letters
            .iter()
            .any(|letter| letter.dead_letter_id == sample.dead_letter_id)
    );
}

#[tokio::test]
async fn letters_are_ignored_resolved_and_reopened_with_a_reason() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let operator = stack.dead_letters();
    let ids: Vec<String> = failed_jobs(&stack, 3, "noop", "{}")
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    let request = IgnoreDeadLettersRequest {
        dead_letter_ids: ids.clone(),
        reason: "known; '%_\\' \u{1F600}".to_owned(),
    };
    let answer = operator.dead_letters().ignore_dead_letters(request).await;
    let results = answer.expect("ignored").into_inner().results;
    for (id, result) in ids.iter().zip(&results) {
        assert_eq!(
            (&result.dead_letter_id, result.outcome()),
            (id, DeadLetterOutcome::Done)
        );
        assert_eq!(result.status(), DeadLetterStatus::Ignored);
    }
    let request = ResolveDeadLettersRequest {
        dead_letter_ids: ids[..2].to_vec(),
        reason: "mended".to_owned(),
    };
    let answer = operator.dead_letters().resolve_dead_letters(request).await;
    assert_eq!(answer.expect("resolved").into_inner().results.len(), 2);
    let request = ReopenDeadLettersRequest {
        dead_letter_ids: ids.clone(),
        reason: "not mended".to_owned(),
    };
    let answer = operator.dead_letters().reopen_dead_letters(request).await;
    for result in answer.expect("reopened").into_inner().results {
        assert_eq!(result.status(), DeadLetterStatus::Open, "{result:?}");
    }
    let story = crate::story(&operator, &ids[0]).await;
    let told: Vec<_> = story
        .actions
        .iter()
        .map(|a| (a.action.as_str(), a.actor.as_str(), a.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("ignore", "olga", "known; '%_\\' \u{1F600}"),
            ("resolve", "olga", "mended"),
            ("reopen", "olga", "not mended"),
        ]
    );
}

#[tokio::test]
async fn v10_mistakes_of_an_operator_are_named() {
    let stack = Stack::builder().dead_letter_admin().start().await;
    let operator = stack.dead_letters();
    let id = failed_jobs(&stack, 1, "noop", "{}").await[0].to_string();
    let cases = [
        (vec![id.clone()], String::new(), "reason"),
        (vec![id.clone()], "a\0b".to_owned(), "reason"),
        (vec![id.clone()], "x".repeat(501), "reason"),
        (Vec::new(), "x".to_owned(), "dead_letter_ids"),
        (vec![id.clone(); 1001], "x".to_owned(), "dead_letter_ids"),
        (
            vec![id.clone(), "../x".to_owned()],
            "x".to_owned(),
            "dead_letter_ids[1]",
        ),
    ];
    for (dead_letter_ids, reason, field) in cases {
        let request = ReplayDeadLettersRequest {
            dead_letter_ids,
            reason,
        };
        let refused = operator.dead_letters().replay_dead_letters(request).await;
        let refusal = Refusal::of(&refused.expect_err(field));
        assert_eq!(refusal.reason, "INVALID_ARGUMENT", "{field}");
        assert_eq!(refusal.fields, [field.to_owned()]);
    }
    assert_eq!(
        letter(&operator, &id).await.status(),
        DeadLetterStatus::Open
    );
}
