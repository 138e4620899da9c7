//! Ignoring, resolving and reopening letters, and the audit of it.

use tenure_core::storage::dead_letters::{DeadLetterStatus, Outcome, Unreadable, Verb};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::letters_world::{count, decision, failed_jobs, sql};

async fn decide(db: &TestDb, verb: Verb, ids: &[Uuid]) -> Vec<Outcome> {
    let results = db
        .store
        .decide_dead_letters(verb, ids, &decision("because"))
        .await
        .expect("decided");
    assert_eq!(results.iter().map(|r| r.id).collect::<Vec<_>>(), ids);
    results.into_iter().map(|result| result.outcome).collect()
}

async fn status(db: &TestDb, id: Uuid) -> DeadLetterStatus {
    db.store.get_dead_letter(id).await.expect("found").status
}

#[tokio::test]
async fn each_verb_takes_the_letters_that_allow_it() {
    use DeadLetterStatus::{Ignored, Open, Replayed, Resolved};
    let db = TestDb::create().await;
    let letters = failed_jobs(&db, 4, "no ").await;
    let table = [
        (
            Verb::Ignore,
            [
                Outcome::Done,
                Outcome::AlreadyDone,
                Outcome::Changed,
                Outcome::Changed,
            ],
            Ignored,
        ),
        (
            Verb::Resolve,
            [
                Outcome::Done,
                Outcome::Done,
                Outcome::Changed,
                Outcome::AlreadyDone,
            ],
            Resolved,
        ),
        (
            Verb::Reopen,
            [
                Outcome::AlreadyDone,
                Outcome::Done,
                Outcome::Changed,
                Outcome::Done,
            ],
            Open,
        ),
    ];
    for (verb, outcomes, after) in table {
        for (letter, status) in letters.iter().zip([Open, Ignored, Replayed, Resolved]) {
            sql(
                &db,
                &format!(
                    "update dead_letters set status = '{}' where id = '{letter}'",
                    status.as_str()
                ),
            )
            .await;
        }
        assert_eq!(decide(&db, verb, &letters).await, outcomes, "{verb:?}");
        for (letter, outcome) in letters.iter().zip(outcomes) {
            if outcome == Outcome::Done {
                assert_eq!(status(&db, *letter).await, after, "{verb:?}");
            }
        }
        assert_eq!(status(&db, letters[2]).await, Replayed);
    }
}

#[tokio::test]
async fn who_did_what_and_why_is_kept() {
    let db = TestDb::create().await;
    let letter = failed_jobs(&db, 1, "no ").await[0];
    for verb in [Verb::Ignore, Verb::Reopen, Verb::Resolve, Verb::Resolve] {
        decide(&db, verb, &[letter]).await;
    }
    let story = db.store.dead_letter_story(letter).await.expect("a story");
    let told: Vec<_> = story
        .actions
        .iter()
        .map(|a| (a.action.as_str(), a.before.as_str(), a.after.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("ignore", "open", "ignored"),
            ("reopen", "ignored", "open"),
            ("resolve", "open", "resolved"),
        ],
        "what changed nothing is no action"
    );
    for action in &story.actions {
        assert_eq!(action.actor.as_deref(), Some("olga"));
        assert_eq!(action.user_id.as_deref(), Some("ada"));
        assert_eq!(action.reason, "because");
        assert_eq!(action.id.get_version_num(), 7);
        assert!(action.replay_id.is_none() && action.bulk_replay_id.is_none());
    }
    assert_eq!(story.letter.status_changed_at, story.actions[2].at);
}

#[tokio::test]
async fn unreadable_messages_are_ignored_resolved_and_reopened() {
    let db = TestDb::create().await;
    let store = || async {
        let stored =
            db.store
                .store_unreadable("default", b"x", None, Unreadable::Unparseable, "no JSON");
        stored.await.expect("stored").id.uuid()
    };
    let letter = store().await;
    for verb in [
        Verb::Ignore,
        Verb::Reopen,
        Verb::Resolve,
        Verb::Reopen,
        Verb::Resolve,
    ] {
        assert_eq!(
            decide(&db, verb, &[letter]).await,
            [Outcome::Done],
            "{verb:?}"
        );
    }
    // The same message again opens it, and says so; once more is nothing new.
    assert_eq!(store().await, letter);
    assert_eq!(store().await, letter);
    let story = db.store.dead_letter_story(letter).await.expect("a story");
    assert_eq!(story.letter.status, DeadLetterStatus::Open);
    assert_eq!(story.letter.failures, 3);
    let last = story.actions.last().expect("an action");
    assert_eq!(
        (last.action.as_str(), last.actor.as_deref()),
        ("failed_again", None)
    );
    assert_eq!(
        (last.before.as_str(), last.after.as_str()),
        ("resolved", "open")
    );
    assert_eq!(story.actions.len(), 6);
}

#[tokio::test]
async fn a_thousand_at_once_by_either_id_and_each_once() {
    let db = TestDb::create().await;
    let mut ids = failed_jobs(&db, 998, "no ").await;
    // Another id of a letter that is there, and one of none.
    sql(
        &db,
        &format!(
            "update dead_letters set id = '{}' where id = '{}'",
            Uuid::nil(),
            ids[0]
        ),
    )
    .await;
    ids.push(Uuid::nil());
    ids.push(Uuid::now_v7());
    let outcomes = decide(&db, Verb::Ignore, &ids).await;
    assert_eq!(
        outcomes.iter().filter(|o| **o == Outcome::Done).count(),
        999
    );
    assert_eq!(outcomes[999], Outcome::NotFound);
    assert_eq!(
        count(&db, "select count(*) from dead_letter_actions").await,
        998
    );
    assert_eq!(
        count(
            &db,
            "select count(*) from dead_letters where status = 'ignored'"
        )
        .await,
        998
    );
}
