//! Every statement fits the migrated schema.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};
use tenure_core::storage::statements;
use tenure_core::test_util::TestDb;

#[tokio::test]
async fn every_statement_can_be_prepared() {
    let db = TestDb::create().await;
    let mut connection = db.store.pool().acquire().await.expect("a connection");
    let mut names = BTreeSet::new();
    let mut broken = Vec::new();
    for (name, sql) in statements() {
        assert!(names.insert(name), "two statements are named {name}");
        if let Err(error) = (*connection)
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await
        {
            broken.push(format!("{name}: {error}"));
        }
    }
    assert!(!names.is_empty());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
