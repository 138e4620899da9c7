//! The schema: made once, by however many; checked at start; job types that stay as
//! their operators want them.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Code;
use tenure_core::storage::Store;
use tenure_core::storage::migrate::{BINARY, REQUIRED_SCHEMA};
use tenure_core::test_util::{TestDb, somebody_waits};

#[tokio::test]
async fn a_second_migration_finds_nothing_to_do() {
    let db = TestDb::create_empty().await;
    let first = db.store.migrate().await.expect("migrates");
    assert_eq!(first.applied.first(), Some(&1));
    assert!(first.version >= REQUIRED_SCHEMA);
    let second = db.store.migrate().await.expect("migrates again");
    assert_eq!(second.applied, Vec::<i64>::new());
    assert_eq!(second.version, first.version);
}

#[tokio::test]
async fn four_at_once_apply_each_migration_once() {
    let db = TestDb::create_empty().await;
    // A store each, as four pods have.
    let pods: Vec<Store> = (0..4)
        .map(|_| Store::new(&db.config(), "tenure-test", Duration::from_secs(30)).expect("a store"))
        .collect();
    let one = |store: Store| async move {
        let report = store.migrate().await.expect("migrates");
        let types = store.apply_shipped_job_types(true).await.expect("applies");
        (report.applied, types.created)
    };
    let results =
        futures::future::join_all(pods.into_iter().map(|store| tokio::spawn(one(store)))).await;
    let (mut applied, mut created) = (Vec::new(), Vec::new());
    for result in results {
        let (migrations, types) = result.expect("no panic");
        applied.extend(migrations);
        created.extend(types);
    }
    let (migrations, types) = (
        applied.iter().collect::<BTreeSet<_>>(),
        created.iter().collect::<BTreeSet<_>>(),
    );
    assert!(!applied.is_empty() && !created.is_empty());
    assert_eq!(migrations.len(), applied.len(), "{applied:?}");
    assert_eq!(types.len(), created.len(), "{created:?}");
}

#[tokio::test]
async fn a_locked_table_is_waited_for() {
    let db = TestDb::create_empty().await;
    // What the first statement of a migration needs is held by somebody else.
    let mut other = db.store.pool().begin().await.expect("a transaction");
    sqlx::query("create function tenure_fail(what text) returns bigint language sql as 'select 1'")
        .execute(&mut *other)
        .await
        .expect("creates");
    let store = db.store.clone();
    let migration = tokio::spawn(async move { store.migrate().await });
    somebody_waits(&db.store).await;
    other.rollback().await.expect("rolls back");
    let report = migration.await.expect("no panic").expect("migrates");
    assert_eq!(report.applied.first(), Some(&1));
}

#[tokio::test]
async fn a_start_is_refused_with_what_to_do() {
    let db = TestDb::create_empty().await;
    let refusal = |store: Store| async move { store.check_schema().await.expect_err("refused") };

    let error = refusal(db.store.clone()).await;
    assert_eq!(error.code(), Code::SchemaMismatch);
    assert!(
        error.message().contains("tenure-sweeper migrate"),
        "{error}"
    );

    db.store.migrate().await.expect("migrates");
    db.store.check_schema().await.expect("fits");

    // A later release was rolled out: an old process may restart while it is served.
    set_schema(&db, REQUIRED_SCHEMA + 1, BINARY).await;
    db.store.check_schema().await.expect("fits");
    set_schema(&db, REQUIRED_SCHEMA + 1, BINARY + 1).await;
    let error = refusal(db.store.clone()).await;
    assert_eq!(error.code(), Code::SchemaMismatch);
    assert!(error.message().contains("newer release"), "{error}");
}

async fn set_schema(db: &TestDb, version: i32, min_binary: i32) {
    sqlx::query("update schema_info set version = $1, min_binary = $2")
        .bind(version)
        .bind(min_binary)
        .execute(db.store.pool())
        .await
        .expect("updates");
}

#[tokio::test]
async fn a_later_migration_does_not_stop_an_older_release() {
    let db = TestDb::create().await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
         values (9999, 'of a later release', true, '\\x00', 0)",
    )
    .execute(db.store.pool())
    .await
    .expect("inserts");
    assert!(
        db.store
            .migrate()
            .await
            .expect("migrates")
            .applied
            .is_empty()
    );
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let db = TestDb::create().await;
    sqlx::query("update _sqlx_migrations set checksum = '\\x00' where version = 1")
        .execute(db.store.pool())
        .await
        .expect("updates");
    let error = db.store.migrate().await.expect_err("refused");
    assert_eq!(error.code(), Code::SchemaMismatch);
    // The refusal left no lock behind.
    let error = db.store.migrate().await.expect_err("refused");
    assert_eq!(error.code(), Code::SchemaMismatch);
}

#[tokio::test]
async fn an_operators_change_to_a_shipped_type_stays() {
    let db = TestDb::create_empty().await;
    db.store.migrate().await.expect("migrates");
    let first = db
        .store
        .apply_shipped_job_types(false)
        .await
        .expect("applies");
    assert!(
        first.created.contains(&"import_csv".to_owned()),
        "{first:?}"
    );
    assert!(!first.created.contains(&"noop".to_owned()), "{first:?}");
    let lanes: Vec<(String, i64)> =
        sqlx::query_as("select queue, count(*) from lanes group by queue order by queue")
            .fetch_all(db.store.pool())
            .await
            .expect("reads");
    assert_eq!(
        lanes,
        [("default".to_owned(), 3), ("imports".to_owned(), 3)]
    );

    sqlx::query("update job_types set max_attempts = 9 where name = 'import_csv'")
        .execute(db.store.pool())
        .await
        .expect("updates");
    let second = db
        .store
        .apply_shipped_job_types(true)
        .await
        .expect("applies");
    assert!(second.kept.contains(&"import_csv".to_owned()), "{second:?}");
    assert!(second.created.contains(&"noop".to_owned()), "{second:?}");
    let (attempts,): (i32,) =
        sqlx::query_as("select max_attempts from job_types where name = 'import_csv'")
            .fetch_one(db.store.pool())
            .await
            .expect("reads");
    assert_eq!(attempts, 9);
}

type Schemas = (Option<String>, Option<String>);

async fn schemas(db: &TestDb, name: &str) -> Schemas {
    sqlx::query_as("select payload_schema, payload_schema_shipped from job_types where name = $1")
        .bind(name)
        .fetch_one(db.store.pool())
        .await
        .expect("reads")
}

async fn set(db: &TestDb, assignments: &'static str) {
    let sql = format!("update job_types set {assignments} where name = 'import_csv'");
    sqlx::query(sqlx::AssertSqlSafe(sql))
        .execute(db.store.pool())
        .await
        .expect("updates");
}

/// Whether `migrate` gave the type its schema.
async fn gets_its_schema(db: &TestDb) -> bool {
    let report = db.store.apply_shipped_job_types(false).await;
    let report = report.expect("applies");
    assert!(report.created.is_empty(), "{report:?}");
    let names: Vec<&str> = report.schemas.iter().map(String::as_str).collect();
    assert!(names.is_empty() || names == ["import_csv"], "{report:?}");
    !names.is_empty()
}

#[tokio::test]
async fn a_shipped_type_gets_its_schema_unless_an_operator_decided() {
    let db = TestDb::create().await;
    let (current, shipped) = schemas(&db, "import_csv").await;
    assert!(current.is_some() && current == shipped);
    assert!(!gets_its_schema(&db).await, "it has it already");

    // From before there were schemas, and as it was shipped.
    set(
        &db,
        "payload_schema = null, payload_schema_shipped = null, description = 'of an older release'",
    )
    .await;
    assert!(gets_its_schema(&db).await);
    assert_eq!(
        schemas(&db, "import_csv").await,
        (current.clone(), current.clone())
    );

    // The one of an older release.
    set(
        &db,
        "payload_schema = '{}', payload_schema_shipped = '{}', max_attempts = 9",
    )
    .await;
    assert!(gets_its_schema(&db).await);
    assert_eq!(
        schemas(&db, "import_csv").await,
        (current.clone(), current.clone())
    );

    // What an operator has set, taken away, or made their own, stays.
    for assignments in [
        "payload_schema = '{}'",
        "payload_schema = null",
        "payload_schema = null, payload_schema_shipped = null, max_attempts = 9",
    ] {
        set(&db, assignments).await;
        assert!(!gets_its_schema(&db).await, "{assignments}");
        let (kept, _) = schemas(&db, "import_csv").await;
        assert_ne!(kept, current, "{assignments}");
    }
}
