//! Rows that go to a table of their own, and those that it refuses.

use std::sync::Arc;

use tenure_core::domain::lease::Fence;
use tenure_core::error::Code;
use tenure_core::storage::Store;
use tenure_core::storage::imports::{
    Destination, Position, Sink, Table, TableField, TableInfo, TableSpec, WriteError, describe,
    rejects_after, write_batch,
};
use tenure_core::test_util::TestDb;

use crate::import_world::{batch, begin, candidate, position, rejected, running};

const CONTACTS: &str = "
create schema crm;
create domain crm.amount as numeric(8,2) check (value >= 0);
create table crm.contacts (
    \"e mail\" varchar(9) not null,
    n int4 check (n <> 13),
    paid crm.amount default 0,
    seen timestamptz,
    owner text not null,
    made timestamptz not null default now(),
    twice int generated always as (n * 2) stored,
    constraint contacts_key primary key (owner, \"e mail\"));
create unique index contacts_n on crm.contacts (n) where n > 100;";

async fn run(store: &Store, sql: &'static str) {
    sqlx::raw_sql(sql).execute(store.pool()).await.expect(sql);
}

async fn info(store: &Store) -> TableInfo {
    let found = describe(store, "crm", "contacts").await.expect("read");
    found.expect("a table")
}

/// The table with all columns that an import fills.
async fn table(store: &Store, key: &[&str]) -> Table {
    let info = info(store).await;
    let field = |from: &str, to: &str| {
        let column = info
            .columns
            .iter()
            .find(|c| c.name == to)
            .expect("a column");
        TableField {
            from: from.into(),
            to: to.into(),
            type_schema: column.type_schema.clone(),
            type_name: column.type_name.clone(),
            scale: column.scale(),
        }
    };
    Table::new(TableSpec {
        schema: "crm".into(),
        table: "contacts".into(),
        fields: vec![
            field("it's", "e mail"),
            field("n", "n"),
            field("paid", "paid"),
        ],
        user: Some(("owner".into(), "ada".into())),
        key: key.iter().map(|&k| k.to_owned()).collect(),
    })
}

fn into_table(table: Table, max_rejected_rows: Option<u64>) -> Arc<Destination> {
    Arc::new(Destination {
        sink: Sink::Table(table),
        max_rejected_rows,
    })
}

async fn begun(store: &Store) -> Fence {
    let fence = running(store).await;
    begin(store, fence, None).await.expect("begun");
    fence
}

/// What ada has in the table.
async fn stored(store: &Store) -> Vec<(String, Option<i32>, Option<String>)> {
    sqlx::query_as(
        "select \"e mail\", n, paid::text from crm.contacts where owner = 'ada' order by 1",
    )
    .fetch_all(store.pool())
    .await
    .expect("rows")
}

fn row(mail: &str, n: i64, paid: &str) -> String {
    format!(r#"{{"it's":"{mail}","n":{n},"paid":{paid}}}"#)
}

async fn write(
    store: &Store,
    fence: Fence,
    from: Position,
    rows: &[(i64, String)],
    to: &Arc<Destination>,
) -> Result<Position, WriteError> {
    let rows: Vec<(i64, &str)> = rows.iter().map(|(l, j)| (*l, j.as_str())).collect();
    let candidates = rows.iter().map(|(line, _)| candidate(*line, &[])).collect();
    let batch = batch(fence.job_id, from, &rows, vec![], candidates);
    write_batch(store, fence, batch, to.clone()).await
}

#[tokio::test]
async fn a_table_is_described_by_the_catalog() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    let info = info(store).await;
    let told: Vec<_> = info
        .columns
        .iter()
        .map(|c| {
            (
                c.name.as_str(),
                c.type_name.as_str(),
                c.not_null,
                c.has_default,
                c.generated,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("e mail", "varchar", true, false, false),
            ("n", "int4", false, false, false),
            ("paid", "numeric", false, true, false),
            ("seen", "timestamptz", false, false, false),
            ("owner", "text", true, false, false),
            ("made", "timestamptz", true, true, false),
            ("twice", "int4", false, true, true),
        ]
    );
    // The type below the domain, with the domain's scale.
    assert_eq!(info.columns[2].type_schema, "pg_catalog");
    assert_eq!(info.columns[2].scale(), Some(2));
    assert_eq!(info.columns[1].scale(), None);
    assert!(!info.has_rules);
    // The index with a condition is no key.
    assert_eq!(info.keys, [["owner", "e mail"]]);
    assert!(info.may_insert && info.may_update);
    run(store, "create view crm.v as select 1 as a").await;
    for name in ["v", "contacts_key", "CONTACTS", "x"] {
        assert_eq!(
            describe(store, "crm", name).await.expect("read"),
            None,
            "{name}"
        );
    }
}

#[tokio::test]
async fn rows_that_a_table_refuses_are_rejected_and_the_others_go_in() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    let to = into_table(table(store, &[]).await, None);
    let fence = begun(store).await;
    let rows = [
        (2, row("a", 1, "1.50")),
        (3, row("a", 2, "null")),
        (4, row("much too long", 3, "0")),
        (5, row("b", 13, "0")),
        (6, row("c", 3_000_000_000, "0")),
        (7, row("d", 4, "-1")),
        (8, row("e", 5, "123456789")),
        (9, r#"{"it's":null,"n":6,"paid":0}"#.to_owned()),
        (10, row("f", 7, "null")),
    ];
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (2, 7));
    assert_eq!(
        stored(store).await,
        [
            ("a".into(), Some(1), Some("1.50".into())),
            ("f".into(), Some(7), None)
        ]
    );
    let rejects = rejects_after(store, fence.job_id, 0, 99)
        .await
        .expect("read");
    let told: Vec<(i64, &str, &str)> = rejects
        .iter()
        .map(|r| {
            (
                r.line,
                r.column.as_str(),
                r.message
                    .strip_prefix("the table refused it: ")
                    .expect("a refusal"),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (
                3,
                "",
                "a row with the same key is there already (rule 'contacts_key')"
            ),
            (4, "", "a text is too long for its column"),
            (
                5,
                "",
                "the row breaks a condition of the table (rule 'contacts_n_check')"
            ),
            (6, "", "a number is out of the range of its column"),
            (
                7,
                "",
                "the row breaks a condition of the table (rule 'amount_check')"
            ),
            (8, "", "a number is out of the range of its column"),
            (
                9,
                "it's",
                "a column that must have a value has none (column 'e mail')"
            ),
        ]
    );
    assert!(
        rejects
            .iter()
            .all(|r| r.reason == "TABLE_REFUSED" && r.original.is_some())
    );
    // What was written is not written again.
    let again = write(store, fence, position(0, 0, 0), &rows, &to).await;
    assert_eq!(again.expect("known to be written"), at);
    assert_eq!(stored(store).await.len(), 2);
}

#[tokio::test]
async fn an_upsert_changes_the_users_own_rows_and_the_last_line_counts() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    run(store, "insert into crm.contacts (\"e mail\", n, owner) values ('a', 1, 'bob'), ('a', 1, 'ada'), ('z', 9, 'ada')").await;
    let to = into_table(table(store, &["owner", "e mail"]).await, None);
    let fence = begun(store).await;
    let rows = [
        (2, row("a", 2, "1")),
        (3, row("b", 3, "1")),
        (4, row("a", 4, "2")),
        // Refused: so the row before it counts.
        (5, row("a", 13, "3")),
        (6, row("b", 5, "null")),
    ];
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (4, 1));
    let at = write(store, fence, at, &[(7, row("c", 6, "0"))], &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (5, 1));
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(
        stored(store).await,
        [
            ("a".into(), Some(4), text("2.00")),
            ("b".into(), Some(5), None),
            ("c".into(), Some(6), text("0.00")),
            ("z".into(), Some(9), text("0.00")),
        ]
    );
    let bobs: Vec<(String, i32)> =
        sqlx::query_as("select \"e mail\", n from crm.contacts where owner = 'bob'")
            .fetch_all(store.pool())
            .await
            .expect("rows");
    assert_eq!(bobs, [("a".into(), 1)]);
    let line = rejected(store, fence.job_id).await.remove(0).0;
    assert_eq!(line, 5);
}

#[tokio::test]
async fn a_refused_row_leaves_its_unique_value_to_the_next() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    let to = into_table(table(store, &[]).await, None);
    let fence = begun(store).await;
    let rows = [row("a", 13, "0"), row("b", 1, "0"), row("c", 2, "0")];
    let rows: Vec<(i64, &str)> = (2..).zip(rows.iter().map(String::as_str)).collect();
    let candidates = (2..5).map(|line| candidate(line, &["same"])).collect();
    let one = batch(fence.job_id, position(0, 0, 0), &rows, vec![], candidates);
    let at = write_batch(store, fence, one, to).await.expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (1, 2));
    assert_eq!(
        stored(store).await,
        [("b".into(), Some(1), Some("0.00".into()))]
    );
    let told = rejected(store, fence.job_id).await;
    assert_eq!(
        told,
        [
            (2, String::new(), "TABLE_REFUSED".into()),
            (4, "c0".into(), "DUPLICATE_VALUE".into()),
        ]
    );
}

#[tokio::test]
async fn a_row_that_comes_in_late_does_not_overwrite_those_behind_it() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    let to = into_table(table(store, &["owner", "e mail"]).await, None);
    let fence = begun(store).await;
    // Line 3 may have the value only when line 2 is refused, and line 5 then may not.
    let rows = [
        row("a", 13, "0"),
        row("k", 1, "0"),
        row("k", 2, "0"),
        row("b", 3, "0"),
    ];
    let rows: Vec<(i64, &str)> = (2..).zip(rows.iter().map(String::as_str)).collect();
    let candidates = vec![
        candidate(2, &["same"]),
        candidate(3, &["same"]),
        candidate(4, &["other"]),
        candidate(5, &["same"]),
    ];
    let one = batch(fence.job_id, position(0, 0, 0), &rows, vec![], candidates);
    let at = write_batch(store, fence, one, to).await.expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (2, 2));
    assert_eq!(
        stored(store).await,
        [("k".into(), Some(2), Some("0.00".into()))]
    );
    let told = rejected(store, fence.job_id).await;
    assert_eq!(
        told,
        [
            (2, String::new(), "TABLE_REFUSED".into()),
            (5, "c0".into(), "DUPLICATE_VALUE".into()),
        ]
    );
}

#[tokio::test]
async fn a_batch_beyond_the_limit_leaves_nothing_in_the_table() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    let to = into_table(table(store, &[]).await, Some(0));
    let fence = begun(store).await;
    let rows = [(2, row("a", 1, "0")), (3, row("a", 1, "0"))];
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert!(to.is_exceeded(at.rows_rejected));
    assert_eq!((at.rows_accepted, at.rows_rejected), (0, 1));
    assert_eq!(stored(store).await, []);
}

#[tokio::test]
async fn a_trigger_and_a_deferred_rule_refuse_rows_and_a_lost_column_the_import() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    run(
        store,
        "create table crm.numbers (n int primary key); insert into crm.numbers values (1), (2);
         alter table crm.contacts add foreign key (n) references crm.numbers deferrable initially deferred;
         create function crm.no() returns trigger language plpgsql as $$ begin
             if new.n = 2 then raise exception 'secret %', new.owner; end if; return new; end $$;
         create trigger no before insert on crm.contacts for each row execute function crm.no();",
    )
    .await;
    let to = into_table(table(store, &[]).await, None);
    let fence = begun(store).await;
    let rows = [
        (2, row("a", 1, "0")),
        (3, row("b", 2, "0")),
        (4, row("c", 3, "0")),
    ];
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (1, 2));
    let rejects = rejects_after(store, fence.job_id, 0, 99)
        .await
        .expect("read");
    assert!(
        rejects[0]
            .message
            .ends_with("a trigger of the table refuses the row")
    );
    assert!(
        rejects[1]
            .message
            .contains("refers to one that is not there")
    );

    run(store, "alter table crm.contacts drop column n cascade").await;
    let error = write(store, fence, at, &[(5, row("d", 1, "0"))], &to)
        .await
        .expect_err("no column");
    let WriteError::Database(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.code(), Code::ImportTargetInvalid);
    assert!(error.message().contains("crm.contacts"), "{error}");
    assert!(!error.is_temporary());
}

#[tokio::test]
async fn a_domain_cuts_no_text_and_a_row_that_is_left_out_is_told() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    run(
        store,
        "create domain crm.short as varchar(3); create domain crm.shorter as crm.short;
         alter table crm.contacts alter column \"e mail\" type crm.shorter;
         create function crm.odd() returns trigger language plpgsql as $$ begin
             if new.n = 2 then return null; end if;
             if new.n = 3 then raise exception 'no' using errcode = 'XY123'; end if;
             if new.n = 4 then assert false; end if;
             return new; end $$;
         create trigger odd before insert on crm.contacts for each row execute function crm.odd();",
    )
    .await;
    let to = into_table(table(store, &[]).await, None);
    let fence = begun(store).await;
    let rows = [
        (2, row("abc", 1, "1")),
        (3, row("abcd", 1, "1")),
        (4, row("b", 2, "1")),
        (5, row("c", 3, "1")),
        (6, row("d", 4, "1")),
        (7, row("e", 5, "1")),
    ];
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (2, 4));
    let names: Vec<String> = stored(store).await.into_iter().map(|row| row.0).collect();
    assert_eq!(names, ["abc", "e"]);
    let rejects = rejects_after(store, fence.job_id, 0, 99)
        .await
        .expect("read");
    let told: Vec<_> = rejects
        .iter()
        .map(|r| {
            (
                r.line,
                r.message.trim_start_matches("the table refused it: "),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (3, "a text is too long for its column"),
            (4, "a trigger of the table leaves the row out"),
            (5, "a trigger of the table refuses the row"),
            (6, "a trigger of the table refuses the row"),
        ]
    );
}

#[tokio::test]
async fn a_table_that_fails_is_no_internal_error_and_refusals_end_at_the_limit() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    run(
        store,
        "create sequence crm.calls;
         create function crm.bad() returns trigger language plpgsql as $$ begin
             perform nextval('crm.calls');
             if new.n = 1 then raise exception 'no' using errcode = '0A000'; end if;
             raise exception 'no'; end $$;
         create trigger bad before insert on crm.contacts for each row execute function crm.bad();
         create rule r as on delete to crm.contacts do instead nothing;",
    )
    .await;
    assert!(info(store).await.has_rules);
    let to = into_table(table(store, &[]).await, Some(1));
    let fence = begun(store).await;
    let error = write(
        store,
        fence,
        position(0, 0, 0),
        &[(2, row("a", 1, "0"))],
        &to,
    )
    .await
    .expect_err("fails");
    let WriteError::Database(error) = error else {
        panic!("{error:?}")
    };
    assert_eq!(error.code(), Code::ImportTargetInvalid);
    let rows: Vec<(i64, String)> = (2..130).map(|line| (line, row("a", 2, "0"))).collect();
    let at = write(store, fence, position(0, 0, 0), &rows, &to)
        .await
        .expect("written");
    assert_eq!((at.rows_accepted, at.rows_rejected), (0, 2));
    let calls: i64 = sqlx::query_scalar("select last_value from crm.calls")
        .fetch_one(store.pool())
        .await
        .expect("a number");
    assert!(calls < 20, "{calls}");
}

/// Raises this state where a statement brings more rows than `most`.
async fn raise_above(store: &Store, most: i64, state: &str) {
    let sql = format!(
        "create or replace function crm.judge() returns trigger language plpgsql as $$ begin \
         if (select count(*) from fresh) > {most} then raise exception 'slow' using errcode = '{state}'; end if; \
         return null; end $$; \
         create or replace trigger judge after insert on crm.contacts referencing new table as fresh \
         for each statement execute function crm.judge()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(store.pool())
        .await
        .expect("a trigger");
}

fn rows(count: i64) -> Vec<(i64, String)> {
    (2..2 + count)
        .map(|line| (line, row(&format!("m{line}"), line, "1")))
        .collect()
}

#[tokio::test]
async fn a_table_that_is_too_slow_for_a_batch_takes_it_in_parts() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    // As a statement that takes too long is ended.
    raise_above(store, 3, "57014").await;
    let fence = begun(store).await;
    let to = into_table(table(store, &[]).await, None);
    let at = write(store, fence, position(0, 0, 0), &rows(12), &to)
        .await
        .expect("written");
    assert_eq!(
        (at.rows_accepted, at.rows_rejected),
        (11, 1),
        "n is 13 in one"
    );
    assert_eq!(stored(store).await.len(), 11);
}

#[tokio::test]
async fn a_table_that_stays_in_the_way_is_no_outage_of_the_database() {
    let db = TestDb::create().await;
    let store = &db.store;
    run(store, CONTACTS).await;
    for state in ["57014", "40001", "40P01", "55P03"] {
        raise_above(store, 0, state).await;
        let fence = begun(store).await;
        let to = into_table(table(store, &[]).await, None);
        let refused = write(store, fence, position(0, 0, 0), &rows(3), &to).await;
        let Err(WriteError::Database(error)) = refused else {
            panic!("{state}: {refused:?}");
        };
        // Not among the codes that give an attempt back.
        assert_eq!(error.code(), Code::ImportTargetBusy, "{state}");
        assert!(error.is_temporary() && !error.code().is_own_outage());
        assert!(error.message().contains("crm.contacts"), "{error}");
        assert!(stored(store).await.is_empty());
    }
}
