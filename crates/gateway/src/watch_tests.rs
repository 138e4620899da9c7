//! Watchers without a database: the looks are made by hand.

use futures::{FutureExt as _, StreamExt as _};
use tenure_core::domain::state::JobState;

use super::*;
use crate::convert::tests::sample_job;

fn hub() -> Hub {
    Hub {
        shared: Arc::new(Shared {
            watched: Mutex::default(),
            added: Notify::new(),
            stop: CancellationToken::new(),
        }),
    }
}

fn job(id: JobId, revision: i64, state: JobState) -> Told {
    Told {
        job: Job {
            revision,
            state,
            ..sample_job(id)
        },
        wait: None,
    }
}

fn revision(item: Option<Result<v1::WatchJobResponse, Status>>) -> i64 {
    item.expect("an item")
        .expect("no error")
        .job
        .expect("a job")
        .revision
}

#[tokio::test]
async fn a_slow_watcher_gets_the_latest_state_and_then_the_end() {
    let (hub, id) = (hub(), JobId::new());
    let mut changes = Box::pin(
        hub.watch("ada", job(id, 1, JobState::Pending), 0, None)
            .expect("a seat"),
    );
    assert_eq!(revision(changes.next().await), 1);
    for (revision, state) in [
        (2, JobState::Running),
        (3, JobState::Running),
        (4, JobState::Success),
    ] {
        hub.shared.tell(vec![job(id, revision, state)]);
    }
    assert_eq!(revision(changes.next().await), 4);
    assert!(changes.next().await.is_none());
    drop(changes);
    assert_eq!(hub.shared.watched.lock().watchers, 0);
    assert!(
        hub.shared.watched.lock().slots.is_empty() && hub.shared.watched.lock().callers.is_empty()
    );
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_revision() {
    let (hub, id) = (hub(), JobId::new());
    let mut changes = Box::pin(
        hub.watch("ada", job(id, 5, JobState::Running), 5, None)
            .expect("a seat"),
    );
    assert!(
        changes.next().now_or_never().is_none(),
        "revision 5 was told before"
    );
    hub.shared.tell(vec![job(id, 6, JobState::Running)]);
    assert_eq!(revision(changes.next().await), 6);
    // The end was seen before: there is nothing to tell.
    let mut ended = Box::pin(
        hub.watch("ada", job(id, 7, JobState::Failed), 7, None)
            .expect("a seat"),
    );
    assert!(ended.next().await.is_none());
    // A revision from nowhere: the end is told all the same.
    let mut odd = Box::pin(
        hub.watch("ada", job(id, 7, JobState::Failed), 99, None)
            .expect("a seat"),
    );
    assert_eq!(revision(odd.next().await), 7);
    assert!(odd.next().await.is_none());
}

#[tokio::test]
async fn a_late_watcher_sees_what_another_one_knows() {
    let (hub, id) = (hub(), JobId::new());
    let _first = hub
        .watch("ada", job(id, 1, JobState::Pending), 0, None)
        .expect("a seat");
    hub.shared.tell(vec![job(id, 3, JobState::Running)]);
    // This one read revision 2 before the look that found 3.
    let mut late = Box::pin(
        hub.watch("bob", job(id, 2, JobState::Running), 2, None)
            .expect("a seat"),
    );
    assert_eq!(revision(late.next().await), 3);
}

#[tokio::test]
async fn watchers_are_bounded_per_caller() {
    let (hub, id) = (hub(), JobId::new());
    let pending = || job(id, 1, JobState::Pending);
    let mut seats: Vec<_> = (0..MAX_WATCHERS_OF_ONE)
        .map(|_| hub.watch("ada", pending(), 0, None).expect("a seat"))
        .collect();
    let error = hub
        .watch("ada", pending(), 0, None)
        .err()
        .expect("one too many");
    assert_eq!(error.code(), Code::Overloaded);
    assert!(hub.watch("bob", pending(), 0, None).is_ok());
    seats.pop();
    assert!(hub.watch("ada", pending(), 0, None).is_ok());
}

#[tokio::test]
async fn watchers_are_sent_away_when_the_gateway_stops_or_sees_nothing() {
    let (hub, id) = (hub(), JobId::new());
    let mut changes = Box::pin(
        hub.watch("ada", job(id, 1, JobState::Pending), 1, None)
            .expect("a seat"),
    );
    hub.shared.tell_blind();
    let status = changes.next().await.expect("an item").expect_err("blind");
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(changes.next().await.is_none());
    drop(changes);
    let mut changes = Box::pin(
        hub.watch("ada", job(id, 1, JobState::Pending), 1, None)
            .expect("a seat"),
    );
    hub.shared.stop.cancel();
    let status = changes
        .next()
        .await
        .expect("an item")
        .expect_err("stopping");
    assert_eq!(status.code(), tonic::Code::Unavailable);
}
