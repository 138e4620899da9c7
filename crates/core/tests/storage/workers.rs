//! The list of workers, and the names that it gives to the history of jobs.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::storage::history::{HistoryEntry, HistoryWriter};
use tenure_core::storage::workers::WorkerReport;
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::test_util::TestDb;

fn report(name: &str) -> WorkerReport {
    WorkerReport {
        session: SessionId::new(),
        name: name.to_owned(),
        version: "1.2.3".to_owned(),
        queues: vec!["default".to_owned(), "imports".to_owned()],
        job_types: vec!["noop".to_owned()],
        slots: 8,
        running: 3,
        draining: false,
    }
}

async fn age(db: &TestDb, session: SessionId, interval: &str) {
    sqlx::query(
        "update workers set last_contact_at = now() - $2::text::interval where session = $1",
    )
    .bind(session.uuid())
    .bind(interval)
    .execute(db.store.pool())
    .await
    .expect("moves");
}

#[tokio::test]
async fn workers_are_listed_while_they_tell_of_themselves() {
    let db = TestDb::create().await;
    let (left, right) = (report("b"), report("a\0"));
    for worker in [&left, &right] {
        db.store.tell_worker(worker).await.expect("tells");
    }
    let listed = db.store.live_workers().await.expect("lists");
    let names: Vec<_> = listed.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["a\u{fffd}", "b"], "by name, and storable");
    assert_eq!(listed[1].session(), left.session);
    assert_eq!(listed[1].queues, left.queues);
    assert_eq!((listed[1].slots, listed[1].running), (8, 3));

    // It tells again, as one row.
    let ending = WorkerReport {
        running: 0,
        draining: true,
        ..left.clone()
    };
    db.store.tell_worker(&ending).await.expect("tells");
    let listed = db.store.live_workers().await.expect("lists");
    assert_eq!((listed.len(), listed[1].running), (2, 0));
    assert!(listed[1].draining && listed[1].last_contact_at >= listed[1].started_at);

    // Silent for half a minute: not listed, and kept for the names in the history.
    age(&db, left.session, "31 seconds").await;
    let listed = db.store.live_workers().await.expect("lists");
    assert_eq!(listed.len(), 1);
    assert_eq!(db.store.prune_workers().await.expect("prunes"), 0);
    age(&db, left.session, "25 hours").await;
    assert_eq!(db.store.prune_workers().await.expect("prunes"), 1);

    db.store.leave_worker(right.session).await.expect("leaves");
    assert!(db.store.live_workers().await.expect("lists").is_empty());
}

#[tokio::test]
async fn the_history_names_the_worker_whoever_writes_it() {
    let db = TestDb::create().await;
    let worker = report("import-7");
    db.store.tell_worker(&worker).await.expect("tells");
    let writer = HistoryWriter::start(db.store.clone(), Arc::new(Metrics::default()));
    let job_id = JobId::new();
    for (run, session, name) in [
        // Its own words, those of a sweeper that knows the session, and of one that does not.
        (1, worker.session, Some("own-name".into())),
        (2, worker.session, None),
        (3, SessionId::new(), None),
    ] {
        writer.history(HistoryEntry {
            job_id,
            run,
            at: Utc::now(),
            from: "running",
            to: "timeout".to_owned(),
            attempt: 1,
            started_at: None,
            worker: Some(session),
            worker_name: name,
            code: None,
            class: None,
            message: None,
        });
    }
    writer.flush(Duration::from_secs(30)).await;
    let lines = db.store.history_of(job_id, 10).await.expect("reads");
    let names: Vec<_> = lines.iter().map(|l| l.worker_name.as_deref()).collect();
    assert_eq!(names, [Some("own-name"), Some("import-7"), None]);
}
