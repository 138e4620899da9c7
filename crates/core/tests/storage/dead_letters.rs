//! Dead letters: lists page by page, filters, and single letters.

use tenure_core::Code;
use tenure_core::domain::ids::{DeadLetterId, JobId};
use tenure_core::storage::Store;
use tenure_core::storage::dead_letters::{DeadLetterFilter, DeadLetterStatus, Order};
use tenure_core::test_util::TestDb;
use uuid::Uuid;

const LATEST: Order = Order::LatestFirst;

/// Letters of failed jobs: many with the same time, every 50th of another queue.
async fn fill(store: &Store, count: i32) {
    sqlx::query(
        "insert into dead_letters (id, job_id, message_key, queue_name, job_type, user_id, labels, payload, \
         error_code, error_class, error_message, attempts, replayable, status, first_failed_at, last_failed_at) \
         select id, id, id::text, case when n % 50 = 0 then 'rare' else 'default' end, 'noop', 'ada', \
         '{\"team\": \"blue\"}', '{\"n\":1}', case when n % 2 = 0 then 'PANIC' else 'POISON' end, 'permanent', 'no', \
         3, true, 'open', now(), now() - (n / 10) * interval '1 second' \
         from (select n, gen_random_uuid() as id from generate_series(1, $1) n) s",
    )
    .bind(count)
    .execute(store.pool())
    .await
    .expect("inserts");
}

/// All pages: the ids in order, and how many pages there were.
async fn read_all(
    store: &Store,
    filter: &DeadLetterFilter,
    order: Order,
    limit: u32,
    examined: i64,
) -> (Vec<DeadLetterId>, usize) {
    let (mut ids, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store
            .list_dead_letters_bounded(filter, order, after, limit, examined)
            .await
            .expect("a page");
        assert!(page.letters.len() <= limit as usize);
        ids.extend(page.letters.iter().map(|letter| letter.id));
        pages += 1;
        assert!(pages < 1000, "the list does not end");
        match page.next {
            None => return (ids, pages),
            next => {
                assert_ne!(next, after, "the list does not move");
                after = next;
            }
        }
    }
}

async fn expected(store: &Store, condition: &'static str) -> Vec<DeadLetterId> {
    let sql = format!(
        "select id from dead_letters where {condition} order by last_failed_at desc, id desc"
    );
    let ids: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_all(store.pool())
        .await
        .expect("reads");
    ids.into_iter().map(DeadLetterId).collect()
}

#[tokio::test]
async fn pages_hold_every_letter_once_in_order() {
    let db = TestDb::create().await;
    fill(&db.store, 430).await;
    let all = expected(&db.store, "true").await;
    for (limit, pages) in [(7, 62), (43, 10), (200, 3), (430, 1), (1000, 1)] {
        let (ids, count) =
            read_all(&db.store, &DeadLetterFilter::default(), LATEST, limit, 100).await;
        assert_eq!(ids, all, "limit {limit}");
        assert_eq!(count, pages, "limit {limit}");
    }
}

#[tokio::test]
async fn filters_are_joined_and_cost_a_bounded_page() {
    let db = TestDb::create().await;
    fill(&db.store, 430).await;
    sqlx::query("update dead_letters set status = 'ignored' where error_code = 'POISON'")
        .execute(db.store.pool())
        .await
        .expect("updates");
    let rare = DeadLetterFilter {
        queue: Some("rare".to_owned()),
        ..DeadLetterFilter::default()
    };
    let wanted = expected(&db.store, "queue_name = 'rare'").await;
    assert_eq!(wanted.len(), 8);
    // A bound of 50 rows a page: some pages have one letter, and none is skipped.
    let (ids, pages) = read_all(&db.store, &rare, LATEST, 5, 50).await;
    assert_eq!(ids, wanted);
    assert!(pages >= 8, "{pages} pages");
    // With the real bound it is two pages.
    let page = db
        .store
        .list_dead_letters(&rare, Order::LatestFirst, None, 5)
        .await
        .expect("a page");
    assert_eq!(page.letters.len(), 5);
    let last = db
        .store
        .list_dead_letters(&rare, Order::LatestFirst, page.next, 5)
        .await
        .expect("a page");
    assert_eq!((last.letters.len(), last.next), (3, None));

    let both = DeadLetterFilter {
        statuses: vec![DeadLetterStatus::Ignored, DeadLetterStatus::Resolved],
        job_type: Some("noop".to_owned()),
        user_id: Some("ada".to_owned()),
        error_code: Some("POISON".to_owned()),
        queue: Some("default".to_owned()),
        ..DeadLetterFilter::default()
    };
    let wanted = expected(
        &db.store,
        "error_code = 'POISON' and queue_name = 'default'",
    )
    .await;
    assert!(!wanted.is_empty());
    assert_eq!(read_all(&db.store, &both, LATEST, 20, 100).await.0, wanted);

    let none = DeadLetterFilter {
        user_id: Some("bob".to_owned()),
        ..DeadLetterFilter::default()
    };
    assert!(
        read_all(&db.store, &none, LATEST, 20, 100)
            .await
            .0
            .is_empty()
    );
}

#[tokio::test]
async fn a_letter_is_found_by_its_id_and_by_its_jobs() {
    let db = TestDb::create().await;
    fill(&db.store, 3).await;
    let stored = expected(&db.store, "true").await[1];
    let job = JobId::new();
    sqlx::query("update dead_letters set job_id = $2 where id = $1")
        .bind(stored.uuid())
        .bind(job.uuid())
        .execute(db.store.pool())
        .await
        .expect("updates");
    for id in [stored.uuid(), job.uuid()] {
        let letter = db.store.get_dead_letter(id).await.expect("found");
        assert_eq!((letter.id, letter.job_id), (stored, Some(job)));
        assert_eq!(letter.payload.as_deref(), Some(&b"{\"n\":1}"[..]));
        assert_eq!(letter.labels["team"], "blue");
        assert_eq!(letter.status, DeadLetterStatus::Open);
        assert!(!letter.replayable, "its job is not there");
    }
    let error = db
        .store
        .get_dead_letter(Uuid::now_v7())
        .await
        .expect_err("not found");
    assert_eq!(error.code(), Code::DeadLetterNotFound);
}

#[tokio::test]
async fn every_filter_finds_its_letters_and_nothing_else_in_both_orders() {
    let db = TestDb::create().await;
    fill(&db.store, 400).await;
    sqlx::query(
        "update dead_letters set error_class = case when error_code = 'PANIC' then 'temporary' else 'permanent' end, \
         job_type = case when queue_name = 'rare' then 'import_csv' else 'noop' end, \
         user_id = case when substr(id::text, 1, 1) < '4' then 'bob' else 'ada' end, \
         status = case when substr(id::text, 2, 1) < '8' then 'open' else 'ignored' end, \
         error_message = case when substr(id::text, 3, 1) < '8' then 'Straße 100%_\\ done' else '100 percent' end",
    )
    .execute(db.store.pool())
    .await
    .expect("updates");
    while db
        .store
        .fold_causes(150, 500)
        .await
        .expect("a fold")
        .is_some_and(|folded| folded.notes > 0)
    {}
    let cause: Uuid = sqlx::query_scalar("select cause_id from dead_letters order by id limit 1")
        .fetch_one(db.store.pool())
        .await
        .expect("a cause");
    let middle: chrono::DateTime<chrono::Utc> = sqlx::query_scalar(
        "select last_failed_at from dead_letters order by last_failed_at, id offset 200 limit 1",
    )
    .fetch_one(db.store.pool())
    .await
    .expect("a time");
    let none = DeadLetterFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let at = middle.to_rfc3339();
    let cases = [
        (
            DeadLetterFilter {
                statuses: vec![DeadLetterStatus::Open],
                ..none()
            },
            "status = 'open'".to_owned(),
        ),
        (
            DeadLetterFilter {
                job_type: text("import_csv"),
                ..none()
            },
            "job_type = 'import_csv'".to_owned(),
        ),
        (
            DeadLetterFilter {
                user_id: text("bob"),
                ..none()
            },
            "user_id = 'bob'".to_owned(),
        ),
        (
            DeadLetterFilter {
                temporary: Some(true),
                ..none()
            },
            "error_class = 'temporary'".to_owned(),
        ),
        (
            DeadLetterFilter {
                cause_id: Some(cause),
                ..none()
            },
            format!("cause_id = '{cause}'"),
        ),
        (
            DeadLetterFilter {
                failed_from: Some(middle),
                ..none()
            },
            format!("last_failed_at >= '{at}'"),
        ),
        (
            DeadLetterFilter {
                failed_before: Some(middle),
                ..none()
            },
            format!("last_failed_at < '{at}'"),
        ),
        (
            DeadLetterFilter {
                text: text("%_\\"),
                ..none()
            },
            "error_message like 'Stra%'".to_owned(),
        ),
        (
            DeadLetterFilter {
                text: text("STRA\u{df}E 100%"),
                ..none()
            },
            "error_message like 'Stra%'".to_owned(),
        ),
        (
            DeadLetterFilter {
                text: text("100"),
                ..none()
            },
            "true".to_owned(),
        ),
        (
            DeadLetterFilter {
                text: text("1_0"),
                ..none()
            },
            "false".to_owned(),
        ),
        (
            DeadLetterFilter {
                text: text("%"),
                ..none()
            },
            "error_message like 'Stra%'".to_owned(),
        ),
        (
            DeadLetterFilter {
                statuses: vec![DeadLetterStatus::Open],
                user_id: text("ada"),
                text: text("percent"),
                failed_before: Some(middle),
                ..none()
            },
            format!(
                "status = 'open' and user_id = 'ada' and error_message = '100 percent' and last_failed_at < '{at}'"
            ),
        ),
    ];
    for (filter, condition) in cases {
        let sql = format!(
            "select id from dead_letters where {condition} order by last_failed_at desc, id desc"
        );
        let ids: Vec<Uuid> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(db.store.pool())
            .await
            .expect("reads");
        let mut wanted: Vec<DeadLetterId> = ids.into_iter().map(DeadLetterId).collect();
        assert!(
            wanted.len() < 400 || condition == "true",
            "{condition}: chooses nothing"
        );
        assert_eq!(
            read_all(&db.store, &filter, LATEST, 30, 70).await.0,
            wanted,
            "{condition}"
        );
        wanted.reverse();
        let oldest = read_all(&db.store, &filter, Order::OldestFirst, 30, 70).await;
        assert_eq!(oldest.0, wanted, "{condition}, the oldest first");
    }
}
