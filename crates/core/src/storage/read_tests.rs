//! Reading jobs, lists and queues from a real database.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::ids::{JobId, UserId};
use crate::domain::job::Lane;
use crate::domain::job_type::JobType;
use crate::domain::state::JobState;
use crate::storage::Store;
use crate::storage::job_types::Catalogue;
use crate::storage::list::{JobFilter, JobPage, SCAN_LIMIT};
use crate::storage::queues::{COUNT_CAP, LaneStatus};
use crate::test_util::TestDb;

/// Inserts a job of `user`, with more columns and their values, and returns its id.
async fn insert(store: &Store, user: &str, columns: &str, values: &str) -> JobId {
    let id = JobId::new();
    let sql = format!(
        "insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, labels{columns}) \
         values ('{id}', '{user}', 'default', 2, 'noop', '{{}}', 5, 60000, '{{\"k\":\"v\"}}'{values})"
    );
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(store.pool())
        .await
        .expect("a row");
    id
}

const PARKED: (&str, &str) = (", parked, wake_at", ", true, now() + interval '1 day'");
const SENT: (&str, &str) = (", wake_at", ", now() + interval '5 s'");
const FAILED: (&str, &str) = (", status, finished_at", ", 'failed', now()");
const RUNNING: (&str, &str) = (
    ", status, locked_by, locked_at, lease_until, wake_at",
    ", 'running', gen_random_uuid(), now(), now(), now() + interval '30 s'",
);

async fn page(store: &Store, filter: &JobFilter, after: Option<JobId>, limit: usize) -> JobPage {
    store.list_jobs(filter, after, limit).await.expect("a page")
}

fn of(user: &str) -> JobFilter {
    JobFilter {
        user_id: Some(UserId::from_stored(user.into())),
        ..JobFilter::default()
    }
}

#[tokio::test]
async fn a_job_is_read_with_its_payload_only_when_asked() {
    let db = TestDb::create().await;
    let id = insert(&db.store, "ada", PARKED.0, PARKED.1).await;
    let job = db
        .store
        .get_job(id, false)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(
        (job.state, job.lane, job.revision),
        (JobState::Pending, Lane::Normal, 1)
    );
    assert_eq!(
        job.labels,
        BTreeMap::from([("k".to_owned(), "v".to_owned())])
    );
    assert!(job.payload.is_none() && job.last_error.is_none() && !job.cancel_requested);
    let job = db
        .store
        .get_job(id, true)
        .await
        .expect("read")
        .expect("there");
    assert_eq!(job.payload.as_deref(), Some(&b"{}"[..]));
    assert!(
        db.store
            .get_job(JobId::new(), true)
            .await
            .expect("read")
            .is_none()
    );
}

#[tokio::test]
async fn only_jobs_with_another_revision_come_back() {
    let db = TestDb::create().await;
    let (same, other) = (
        insert(&db.store, "ada", PARKED.0, PARKED.1).await,
        insert(&db.store, "ada", FAILED.0, FAILED.1).await,
    );
    let known = [(same, 1), (other, 0), (JobId::new(), 0)];
    let changed = db.store.changed_jobs(&known).await.expect("a look");
    let ids: Vec<_> = changed
        .iter()
        .map(|job| (job.job_id, job.revision))
        .collect();
    assert_eq!(ids, [(other, 1)]);
    assert!(db.store.changed_jobs(&[]).await.expect("a look").is_empty());
}

#[tokio::test]
async fn pages_are_newest_first_and_miss_nothing() {
    let db = TestDb::create().await;
    let mut ids = Vec::new();
    for user in ["ada", "bob", "ada", "ada", "bob", "ada", "ada"] {
        let (columns, values) = if ids.len() % 2 == 0 { PARKED } else { FAILED };
        ids.push((user, insert(&db.store, user, columns, values).await));
    }
    ids.reverse();
    for (filter, user) in [(of("ada"), Some("ada")), (JobFilter::default(), None)] {
        let wanted: Vec<_> = ids
            .iter()
            .filter(|(u, _)| user.is_none_or(|user| user == *u))
            .map(|(_, id)| *id)
            .collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = page(&db.store, &filter, after, 2).await;
            assert!(page.jobs.len() <= 2);
            seen.extend(page.jobs.iter().map(|job| job.job_id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, wanted);
    }
    let failed = JobFilter {
        states: vec![JobState::Failed],
        ..of("ada")
    };
    let found = page(&db.store, &failed, None, 50).await;
    assert!(found.next.is_none() && !found.jobs.is_empty());
    assert!(
        found
            .jobs
            .iter()
            .all(|job| job.state == JobState::Failed && job.user_id.as_str() == "ada")
    );
    let labelled = JobFilter {
        labels: BTreeMap::from([("k".into(), "v".into())]),
        ..of("bob")
    };
    assert_eq!(page(&db.store, &labelled, None, 50).await.jobs.len(), 2);
    for none in [
        JobFilter {
            labels: BTreeMap::from([("k".into(), "w".into())]),
            ..of("ada")
        },
        JobFilter {
            queue: Some("imports".into()),
            ..of("ada")
        },
        JobFilter {
            job_type: Some("notify".into()),
            ..of("ada")
        },
        of("eve"),
    ] {
        let found = page(&db.store, &none, None, 50).await;
        assert!(found.jobs.is_empty() && found.next.is_none(), "{none:?}");
    }
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_number_of_rows_and_says_where_to_go_on() {
    let db = TestDb::create().await;
    let wanted = insert(&db.store, "ada", FAILED.0, FAILED.1).await;
    // Newer ones than the wanted one, more than a page looks at.
    sqlx::query(
        "insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, status, finished_at) \
         select overlay(overlay(gen_random_uuid()::text placing 'f' from 1) placing '7' from 15)::uuid, 'ada', 'default', 2, \
         'noop', '{}', 5, 60000, 'success', now() from generate_series(1, $1)",
    )
    .bind(SCAN_LIMIT + 5)
    .execute(db.store.pool())
    .await
    .expect("rows");
    for filter in [of("ada"), JobFilter::default()] {
        let filter = JobFilter {
            states: vec![JobState::Failed],
            ..filter
        };
        let first = page(&db.store, &filter, None, 10).await;
        assert!(first.jobs.is_empty());
        let second = page(&db.store, &filter, Some(first.next.expect("more")), 10).await;
        assert_eq!(
            second.jobs.iter().map(|job| job.job_id).collect::<Vec<_>>(),
            [wanted]
        );
        assert!(second.next.is_none());
    }
}

#[tokio::test]
async fn queues_tell_what_waits_runs_and_is_due_later() {
    let db = TestDb::create().await;
    let waits = [
        PARKED,
        (
            ", parked, wake_at, run_at",
            ", true, now() + interval '1 day', now() - interval '90 s'",
        ),
        SENT,
        RUNNING,
        RUNNING,
        FAILED,
        (
            ", wake_at, run_at",
            ", now() + interval '1 minute', now() + interval '1 minute'",
        ),
        (
            ", wake_at, run_at",
            ", now() + interval '20 hours', now() + interval '20 hours'",
        ),
        (
            ", wake_at, run_at",
            ", now() + interval '300 days', now() + interval '300 days'",
        ),
        (
            ", status, wake_at, run_at",
            ", 'retrying', now() + interval '10 s', now() + interval '10 s'",
        ),
    ];
    for (columns, values) in waits {
        insert(&db.store, "ada", columns, values).await;
    }
    let queues = db.store.list_queues().await.expect("queues");
    let default = queues
        .iter()
        .find(|queue| queue.name == "default")
        .expect("the queue");
    assert_eq!(
        default
            .lanes
            .iter()
            .map(|lane| lane.lane)
            .collect::<Vec<_>>(),
        Lane::ALL
    );
    let LaneStatus {
        waiting,
        running,
        scheduled,
        oldest_age,
        ..
    } = default.lanes[1].clone();
    assert_eq!((waiting, running, scheduled), (3, 2, 4));
    assert!(oldest_age.is_some());
    assert_eq!(default.lanes[0].waiting + default.lanes[2].waiting, 0);
    assert!(default.lanes[0].oldest_age.is_none());
}

#[tokio::test]
async fn a_deep_backlog_is_counted_up_to_the_cap() {
    let db = TestDb::create().await;
    sqlx::query(
        "insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, parked, wake_at, run_at) \
         select gen_random_uuid(), 'u' || g % 7, 'default', 3, 'noop', '{}', 5, 60000, true, now() + interval '1 day', \
         now() - interval '2 hours' from generate_series(1, $1) g",
    )
    .bind(COUNT_CAP + 5)
    .execute(db.store.pool())
    .await
    .expect("rows");
    let queues = db.store.list_queues().await.expect("queues");
    let low = &queues
        .iter()
        .find(|queue| queue.name == "default")
        .expect("the queue")
        .lanes[2];
    assert_eq!((low.waiting, low.running), (COUNT_CAP, 0));
    let age = low.oldest_age.expect("an age");
    assert!(
        age >= Duration::from_hours(2) && age < Duration::from_mins(150),
        "{age:?}"
    );
}

#[tokio::test]
async fn job_types_are_applied_all_or_none() {
    let db = TestDb::create().await;
    let mut new = JobType {
        queue: "reports".into(),
        lane: Lane::Low,
        ..JobType::new("report.daily")
    };
    let shipped = db.store.list_job_types().await.expect("types");
    let noop = shipped
        .iter()
        .find(|t| t.job_type.name == "noop")
        .expect("noop")
        .job_type
        .clone();
    let both = || vec![new.clone(), noop.clone()];
    let told = db.store.apply_job_types(both(), true).await.expect("told");
    assert_eq!(
        (told.created.as_slice(), told.unchanged.as_slice()),
        (&["report.daily".to_owned()][..], &["noop".to_owned()][..])
    );
    assert_eq!(told.created_queues, ["reports"]);
    assert_eq!(
        db.store.list_job_types().await.expect("types").len(),
        shipped.len()
    );
    assert_eq!(
        db.store
            .apply_job_types(both(), false)
            .await
            .expect("applied"),
        told
    );
    let again = db
        .store
        .apply_job_types(both(), false)
        .await
        .expect("applied");
    assert_eq!(again.unchanged, ["noop", "report.daily"]);
    let queues = db.store.list_queues().await.expect("queues");
    let reports = queues
        .iter()
        .find(|queue| queue.name == "reports")
        .expect("the new queue");
    assert_eq!(reports.lanes.len(), 3);

    // A type that the database refuses takes the others with it.
    new.max_attempts = 7;
    let broken = JobType {
        max_attempts: 0,
        ..JobType::new("zz.broken")
    };
    assert!(
        db.store
            .apply_job_types(vec![new.clone(), broken], false)
            .await
            .is_err()
    );
    let stored = db.store.list_job_types().await.expect("types");
    let kept = stored
        .iter()
        .find(|t| t.job_type.name == "report.daily")
        .expect("kept");
    assert_eq!(kept.job_type.max_attempts, 5);
    assert_eq!(
        db.store
            .apply_job_types(vec![new], false)
            .await
            .expect("applied")
            .updated,
        ["report.daily"]
    );
}

#[tokio::test]
async fn the_catalogue_finds_a_type_that_was_added_after_its_copy() {
    let db = TestDb::create().await;
    let catalogue = Catalogue::start(db.store.clone(), tokio_util::sync::CancellationToken::new());
    assert!(catalogue.get("noop").await.expect("read").is_some());
    assert!(catalogue.get("later").await.expect("read").is_none());
    db.store
        .apply_job_types(vec![JobType::new("later")], false)
        .await
        .expect("applied");
    catalogue.refresh(Duration::ZERO).await.expect("read");
    assert_eq!(catalogue.cached("later").expect("known").name, "later");

    // What is as it was stays what it is, with its schema; a change brings a new one.
    let noop = catalogue.cached("noop").expect("known");
    assert!(noop.schema().await.expect("none").is_none());
    let sleep = catalogue.cached("sleep").expect("known");
    let schema = sleep.schema().await.expect("compiles").expect("a schema");
    catalogue.refresh(Duration::ZERO).await.expect("read");
    let again = catalogue.cached("sleep").expect("known");
    let same = again.schema().await.expect("compiles").expect("a schema");
    assert!(std::sync::Arc::ptr_eq(&schema, &same), "compiled once");
    let changed = JobType {
        payload_schema: Some("{}".into()),
        ..(**again).clone()
    };
    db.store
        .apply_job_types(vec![changed], false)
        .await
        .expect("applied");
    catalogue.refresh(Duration::ZERO).await.expect("read");
    let changed = catalogue.cached("sleep").expect("known");
    let other = changed.schema().await.expect("compiles").expect("a schema");
    assert!(!std::sync::Arc::ptr_eq(&schema, &other), "compiled anew");
    assert!(catalogue.all().contains_key("notify"));
}
