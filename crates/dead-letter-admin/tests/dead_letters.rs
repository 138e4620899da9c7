//! The service on a real database: who may call it, and what it answers.

use tenure_core::auth::{Principal, Role, UserId};
use tenure_core::storage::dead_letters::Unreadable;
use tenure_core::test_util::TestDb;
use tenure_dead_letter_admin::DeadLetters;
use tenure_proto::v1;
use tenure_proto::v1::dead_letter_service_server::DeadLetterService as _;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

/// A service, the database behind it, and its answers to an operator.
struct Desk {
    db: TestDb,
    service: DeadLetters,
}

impl Desk {
    async fn open() -> Self {
        let db = TestDb::create().await;
        let service = DeadLetters::new(db.store.clone());
        Self { db, service }
    }

    /// Stores one letter per number, in this order.
    async fn store(&self, queue: &str, count: usize) {
        for n in 0..count {
            let body = format!("message {n}");
            self.db
                .store
                .store_unreadable(
                    queue,
                    body.as_bytes(),
                    None,
                    Unreadable::Unparseable,
                    "no JSON",
                )
                .await
                .expect("stored");
        }
    }

    async fn list(
        &self,
        request: v1::ListDeadLettersRequest,
    ) -> Result<v1::ListDeadLettersResponse, Status> {
        let answer = self
            .service
            .list_dead_letters(called_by(Role::Operator, request))
            .await;
        answer.map(tonic::Response::into_inner)
    }

    async fn get(&self, id: &str) -> Result<v1::DeadLetter, Status> {
        let request = v1::GetDeadLetterRequest {
            dead_letter_id: id.to_owned(),
        };
        let answer = self
            .service
            .get_dead_letter(called_by(Role::Operator, request))
            .await?;
        Ok(answer.into_inner().dead_letter.expect("a letter"))
    }
}

fn called_by<T>(role: Role, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Principal {
        user: UserId::parse("ada").expect("a user"),
        roles: [role].into_iter().collect(),
    });
    request
}

fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    details.error_info().expect("ErrorInfo").reason.clone()
}

#[tokio::test]
async fn only_operators_and_admins_may_look() {
    let desk = Desk::open().await;
    let list = v1::ListDeadLettersRequest::default;
    for role in [Role::Operator, Role::Admin] {
        let answer = desk
            .service
            .list_dead_letters(called_by(role, list()))
            .await;
        assert!(answer.is_ok(), "{role:?}");
    }
    for role in [Role::Submitter, Role::Service] {
        let get = v1::GetDeadLetterRequest::default();
        for status in [
            desk.service
                .list_dead_letters(called_by(role, list()))
                .await
                .expect_err("refused"),
            desk.service
                .get_dead_letter(called_by(role, get))
                .await
                .expect_err("refused"),
        ] {
            assert_eq!(status.code(), Code::PermissionDenied, "{role:?}");
            assert_eq!(reason(&status), "PERMISSION_DENIED");
        }
    }
    let status = desk
        .service
        .list_dead_letters(Request::new(list()))
        .await
        .expect_err("no caller");
    assert_eq!(status.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let desk = Desk::open().await;
    desk.store("default", 12).await;
    desk.store("imports", 3).await;
    let mut request = v1::ListDeadLettersRequest {
        page_size: 5,
        queue: "default".to_owned(),
        ..Default::default()
    };
    let mut letters = Vec::new();
    for _ in 0..3 {
        let page = desk.list(request.clone()).await.expect("a page");
        assert!(page.dead_letters.len() <= 5);
        letters.extend(page.dead_letters);
        request.page_token = page.next_page_token;
    }
    assert_eq!(request.page_token, "", "three pages hold them all");
    assert_eq!(letters.len(), 12);
    assert!(
        letters
            .iter()
            .all(|l| l.queue == "default" && l.payload.is_empty())
    );
    let times: Vec<_> = letters
        .iter()
        .map(|l| l.last_failure_time.map(|t| (t.seconds, t.nanos)))
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "the latest first");
}

#[tokio::test]
async fn a_token_goes_with_its_filters() {
    let desk = Desk::open().await;
    desk.store("default", 3).await;
    let request = v1::ListDeadLettersRequest {
        page_size: 1,
        ..Default::default()
    };
    let page = desk.list(request.clone()).await.expect("a page");
    assert!(!page.next_page_token.is_empty());
    for (token, queue) in [
        (page.next_page_token.as_str(), "default"),
        ("nonsense", ""),
        ("00", ""),
    ] {
        let status = desk
            .list(v1::ListDeadLettersRequest {
                page_token: token.to_owned(),
                queue: queue.to_owned(),
                ..request.clone()
            })
            .await
            .expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(reason(&status), "PAGE_TOKEN_INVALID");
    }
    // The size of the page may change on the way.
    let rest = desk
        .list(v1::ListDeadLettersRequest {
            page_token: page.next_page_token,
            page_size: 100,
            ..request
        })
        .await
        .expect("a page");
    assert_eq!(rest.dead_letters.len(), 2);
}

#[tokio::test]
async fn a_letter_has_its_original_message() {
    let desk = Desk::open().await;
    desk.store("default", 1).await;
    let page = desk
        .list(v1::ListDeadLettersRequest::default())
        .await
        .expect("a page");
    let listed = &page.dead_letters[0];
    let letter = desk.get(&listed.dead_letter_id).await.expect("found");
    assert_eq!(&letter.payload[..], b"message 0");
    assert_eq!(letter.status(), v1::DeadLetterStatus::Open);
    let error = letter.error.expect("an error");
    assert_eq!(error.code, "UNPARSEABLE_MESSAGE");
    assert_eq!(error.error_class(), v1::ErrorClass::Permanent);
    assert_eq!((letter.job_id.as_str(), letter.replayable), ("", false));
    assert_eq!(letter.message_key.len(), 64);
}

#[tokio::test]
async fn mistakes_are_told() {
    let desk = Desk::open().await;
    let status = desk
        .get("01890a5d-ac96-774b-bcce-b302099a8057")
        .await
        .expect_err("not there");
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(reason(&status), "DEAD_LETTER_NOT_FOUND");
    for id in ["", "42", "01890a5dac96774bbcceb302099a8057"] {
        let status = desk.get(id).await.expect_err("no id");
        assert_eq!(status.code(), Code::InvalidArgument, "{id:?}");
        let details = status.get_error_details();
        let field = &details.bad_request().expect("BadRequest").field_violations[0].field;
        assert_eq!(field, "dead_letter_id");
    }
    let status = desk
        .list(v1::ListDeadLettersRequest {
            page_size: -1,
            ..Default::default()
        })
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_bulk_replay_that_begins_here_is_made_by_the_runner_at_once() {
    let desk = Desk::open().await;
    desk.store("default", 7).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let runner = desk.service.bulk_runner();
    let running = tokio::spawn(runner.run(async {
        let _ = stopped.await;
    }));
    let request = v1::StartBulkReplayRequest {
        all: true,
        reason: "to see".to_owned(),
        rate_per_second: 1000,
        ..Default::default()
    };
    let begun = desk
        .service
        .start_bulk_replay(called_by(Role::Operator, request))
        .await
        .expect("begun")
        .into_inner()
        .bulk_replay
        .expect("a bulk replay");
    assert_eq!((begun.matching, begun.actor.as_str()), (7, "ada"));
    let end = async {
        loop {
            let request = v1::GetBulkReplayRequest {
                bulk_replay_id: begun.bulk_replay_id.clone(),
            };
            let answer = desk
                .service
                .get_bulk_replay(called_by(Role::Operator, request))
                .await;
            let bulk = answer.expect("found").into_inner().bulk_replay;
            let bulk = bulk.expect("a bulk replay");
            if bulk.state() == v1::bulk_replay::State::Done {
                return bulk;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(std::time::Duration::from_secs(30), end)
        .await
        .expect("its end");
    let request = v1::GetBulkReplayRequest {
        bulk_replay_id: begun.bulk_replay_id.clone(),
    };
    let answer = desk
        .service
        .get_bulk_replay(called_by(Role::Operator, request))
        .await;
    let actions = answer.expect("found").into_inner().actions;
    assert_eq!(actions.len(), 1, "{actions:?}");
    let start = &actions[0];
    assert_eq!(
        (
            start.action.as_str(),
            start.actor.as_str(),
            start.reason.as_str()
        ),
        ("start", "ada", "to see")
    );
    assert_eq!(
        (
            start.state_before(),
            start.state_after(),
            start.rate_per_second
        ),
        (
            v1::bulk_replay::State::Unspecified,
            v1::bulk_replay::State::Running,
            1000
        )
    );
    // There are no jobs behind these.
    assert_eq!(
        (done.examined, done.not_replayable, done.replayed),
        (7, 7, 0)
    );
    let mut request = v1::ListBulkReplayOutcomesRequest {
        bulk_replay_id: done.bulk_replay_id,
        page_size: 3,
        ..Default::default()
    };
    let mut seen = 0;
    loop {
        let page = desk
            .service
            .list_bulk_replay_outcomes(called_by(Role::Operator, request.clone()))
            .await
            .expect("a page")
            .into_inner();
        seen += page.results.len();
        for result in page.results {
            assert_eq!(result.outcome(), v1::DeadLetterOutcome::NotReplayable);
            assert_eq!(result.status(), v1::DeadLetterStatus::Open);
            assert!(!result.message.is_empty());
        }
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, 7);
    stop.send(()).expect("it runs");
    running.await.expect("it ends");
}

#[tokio::test]
async fn nobody_else_may_decide_or_replay() {
    let desk = Desk::open().await;
    desk.store("default", 1).await;
    let page = desk.list(v1::ListDeadLettersRequest::default()).await;
    let ids = vec![page.expect("a page").dead_letters[0].dead_letter_id.clone()];
    let ignore = v1::IgnoreDeadLettersRequest {
        dead_letter_ids: ids.clone(),
        reason: "x".to_owned(),
    };
    let replay = v1::ReplayDeadLettersRequest {
        dead_letter_ids: ids.clone(),
        reason: "x".to_owned(),
    };
    let start = v1::StartBulkReplayRequest {
        all: true,
        reason: "x".to_owned(),
        ..Default::default()
    };
    for role in [Role::Submitter, Role::Service] {
        let refused = [
            desk.service
                .ignore_dead_letters(called_by(role, ignore.clone()))
                .await
                .expect_err("refused"),
            desk.service
                .replay_dead_letters(called_by(role, replay.clone()))
                .await
                .expect_err("refused"),
            desk.service
                .start_bulk_replay(called_by(role, start.clone()))
                .await
                .expect_err("refused"),
        ];
        for status in refused {
            assert_eq!(reason(&status), "PERMISSION_DENIED");
        }
    }
    let letter = desk.get(&ids[0]).await.expect("found");
    assert_eq!(letter.status(), v1::DeadLetterStatus::Open);
    let bulk = v1::ListBulkReplaysRequest::default();
    let listed = desk
        .service
        .list_bulk_replays(called_by(Role::Operator, bulk))
        .await
        .expect("a page");
    assert!(listed.into_inner().bulk_replays.is_empty());
}
