//! An inbox costs what its page costs, however many notifications there are.

use sqlx::PgConnection;
use tenure_core::storage::statements;
use tenure_core::test_util::TestDb;

use crate::plan::{explain_analyze, prepare};

/// A user in ten has a full inbox, and reads it; the ids of users are mixed.
const LOAD: &str = "
insert into notifications (id, user_id, template, dedupe_key, data, read_at)
select ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'user-' || (case when n % 2 = 0 then 0 else n % 1000 end),
    't', n::text, '{}', case when n % 4 = 0 and n < 90000 then now() end
from generate_series(1, 100000) n";

/// Settings of each connection, and plans that do not look at the arguments.
const SESSION: &str = "set plan_cache_mode = force_generic_plan; set jit = off";

/// The most pages that a look-up of fifty rows, or a change of a thousand, may touch.
const PAGES_READ: f64 = 200.0;
const PAGES_MARKED: f64 = 30_000.0;

#[tokio::test]
async fn explain_the_inbox() {
    let db = TestDb::create().await;
    let mut connection = db.store.pool().acquire().await.expect("a connection");
    let connection: &mut PgConnection = &mut connection;
    sqlx::query(LOAD)
        .execute(&mut *connection)
        .await
        .expect("rows");
    for statistics in ["none", "fresh"] {
        if statistics == "fresh" {
            sqlx::query("analyze notifications")
                .execute(&mut *connection)
                .await
                .expect("statistics");
        }
        sqlx::raw_sql(SESSION)
            .execute(&mut *connection)
            .await
            .expect("settings");
        let middle = "'018f0000-0000-7000-8000-00000000c350'";
        let newest = "'018f0000-0000-7000-8000-0000000186a0'";
        let ids = "array['018f0000-0000-7000-8000-000000000002', '018f0000-0000-7000-8000-000000000005']::uuid[]";
        for (name, types, arguments, index, pages) in [
            (
                "notifications_page",
                "text, uuid, int8",
                format!("'user-0', {middle}, 51"),
                "notifications_inbox",
                PAGES_READ,
            ),
            (
                "notifications_page_unread",
                "text, uuid, int8",
                format!("'user-0', {middle}, 51"),
                "notifications_unread",
                PAGES_READ,
            ),
            (
                "notifications_page_unread",
                "text, uuid, int8",
                format!("'user-7', {middle}, 51"),
                "notifications_unread",
                PAGES_READ,
            ),
            (
                "notifications_newest_unread",
                "text",
                "'user-0'".to_owned(),
                "notifications_unread",
                PAGES_READ,
            ),
            (
                "notifications_mark",
                "text, uuid[]",
                format!("'user-0', {ids}"),
                "notifications_unread",
                PAGES_READ,
            ),
            (
                "notifications_mark_step",
                "text, uuid, int8",
                format!("'user-0', {newest}, 1000"),
                "notifications_unread",
                PAGES_MARKED,
            ),
        ] {
            let (_, sql) = statements()
                .into_iter()
                .find(|(known, _)| *known == name)
                .expect(name);
            prepare(connection, name, types, sql).await;
            let plan = explain_analyze(connection, name, &arguments).await;
            let what = format!("{name} with {statistics} statistics: {plan:?}");
            assert!(plan.scanned().is_empty(), "{what}");
            // An id alone may be looked up by the primary key as well.
            let found = plan.indexes();
            let by_id = name == "notifications_mark" && found.contains(&"notifications_pkey");
            assert!(by_id || found.contains(&index), "{what}");
            assert!(plan.pages <= pages, "{what}");
        }
    }
}
