//! The hot statements on a table of a million jobs: index look-ups only, whatever the
//! statistics say, and work in proportion to the batch, not to the table.

use std::fmt::Write as _;
use std::time::Duration;

use sqlx::PgConnection;
use tenure_core::storage::statements;

use crate::plan::{explain, explain_analyze, prepare};
use crate::world::World;

/// Tables that grow with the jobs.
const LARGE: &[&str] = &[
    "jobs",
    "processed_events",
    "job_dedupe",
    "dead_letters",
    "job_history",
    "line_turns",
];

/// Pages per row of a batch: three to four per index look-up, and with each new version
/// of a row an insertion into each of the six indexes.
const PAGES_PER_ROW: f64 = 150.0;

/// Rows per row of a batch that a plan may read in vain: once for each part of a statement
/// that looks through the batch for what concerns it (letters, lines, audit). A join that is
/// not made by an index or a hash reads as many as the batch has.
const WASTE_PER_ROW: f64 = 12.0;

/// The rows of one batch.
const BATCH: usize = 1000;

const SESSION: &str = "00000000-0000-7000-8000-000000000001";

/// Which jobs are what: the numbers that their ids end with.
const FINAL: usize = 0;
pub(crate) const PARKED: usize = 880_000;
pub(crate) const LATER: usize = 980_000;
pub(crate) const SENT: usize = 985_000;
const SENT_LONG_AGO: usize = 990_000;
pub(crate) const RUNNING: usize = 994_000;
const EXPIRED: usize = 997_000;
pub(crate) const END: usize = 1_000_000;

/// The load. Rows arrive in the order of their ids, as they do in life.
const LOAD: &str = "
insert into jobs (job_id, status, run, attempt, max_attempts, lane, parked, run_at, wake_at, locked_by, locked_at,
    lease_until, created_at, started_at, finished_at, timeout_ms, user_id, queue, job_type, payload)
select ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, status, 1, (status <> 'pending')::int, 5,
    2, n >= 880000 and n < 980000, at,
    case when n < 880000 then null when n < 980000 then now() + interval '1 day' when n < 985000 then at
        when n < 990000 then now() + interval '5 s' when n < 994000 then now() - n % 100 * interval '1 s' - interval '1 s'
        when n < 997000 then now() + interval '600 s' else now() - interval '1 s' end,
    case when status = 'running' then '00000000-0000-7000-8000-000000000001'::uuid end,
    case when status = 'running' then now() end,
    case when n >= 997000 then now() - interval '1 s' when n >= 994000 then now() + interval '600 s' end,
    at, case when status <> 'pending' then at end, case when n < 880000 then at end,
    60000, 'user-' || n % 1000, 'default', 'noop', convert_to('{\"n\":' || n || ',\"pad\":\"' || repeat('x', 60) || '\"}', 'UTF8')
from (select n, now() + (case when n >= 980000 and n < 985000 then 7200 else -7200 end) * interval '1 s' as at,
        case when n < 860000 then 'success' when n < 880000 then 'failed' when n < 994000 then 'pending' else 'running' end as status
    from generate_series($1::int, $2::int - 1) n) s";
const LOAD_LEDGER: &str = "
insert into processed_events (event_id, run, status, worker)
select job_id, run, case status when 'success' then 'done' else status end, locked_by
from jobs where status <> 'pending' and job_id >= $1::uuid";
const LOAD_LETTERS: &str = "
insert into dead_letters (id, job_id, message_key, queue_name, payload, error_code, error_class, attempts, replayable)
select job_id, job_id, job_id::text, queue, payload, 'X', 'permanent', 1, true
from jobs where status = 'failed' and job_id >= $1::uuid";
const LOAD_KEYS: &str = "
insert into job_dedupe (user_id, scope, key, job_id, fingerprint, bound_until)
select user_id, job_type, 'key-' || job_id, job_id, '\\x00', now() + interval '1 day'
from jobs where job_id >= $1::uuid and job_id < $2::uuid";

pub(crate) fn id(n: usize) -> String {
    format!("018f0000-0000-7000-8000-{n:012x}")
}

pub(crate) fn ids(from: usize, count: usize) -> String {
    let mut text = String::from("'{");
    for n in from..from + count {
        let _ = write!(text, "{}{}", if n > from { "," } else { "" }, id(n));
    }
    text + "}'"
}

pub(crate) fn texts(count: usize, text: impl Fn(usize) -> String) -> String {
    let values: Vec<String> = (0..count).map(text).collect();
    format!("'{{{}}}'", values.join(","))
}

pub(crate) fn same(value: &str, count: usize) -> String {
    texts(count, |_| value.to_owned())
}

/// A statement with arguments, and what is to be true of its plan.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) types: &'static str,
    pub(crate) arguments: String,
    /// Rows that it is given, or asks for.
    pub(crate) rows: usize,
    /// Indexes that it must look into.
    pub(crate) indexes: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let case = |name, types, rows, indexes, arguments: &[String]| Case {
        name,
        types,
        arguments: arguments.join(", "),
        rows,
        indexes,
    };
    let (session, b) = (format!("'{SESSION}'"), BATCH);
    let ones = same("1", b);
    let nulls = same("null", b);
    let text = |t: &str| format!("'{t}'");
    let goals = texts(b, |n| {
        ["success", "failed", "retrying", "pending"][n % 4].to_owned()
    });
    let new = |n: usize| format!("018f0000-0000-7000-9000-{n:012x}");
    let users = texts(100, |n| format!("user-{n}"));
    let turns = same("10", 100);
    let sent = same("00000000-0000-0000-0000-000000000000", 100);
    vec![
        case(
            "claim",
            "uuid[], int[], uuid, bigint",
            b,
            &["jobs_pkey"],
            &[ids(SENT, b), ones.clone(), session.clone(), "30000".into()],
        ),
        case(
            "claim_reread",
            "uuid[]",
            b,
            &["jobs_pkey"],
            &[ids(FINAL, b)],
        ),
        case(
            "claim_ledger",
            "uuid[]",
            b,
            &["processed_events_pkey"],
            &[ids(FINAL, b)],
        ),
        case(
            "adopt",
            "uuid[], int[], uuid, bigint",
            b,
            &["jobs_pkey"],
            &[
                ids(RUNNING, b),
                ones.clone(),
                session.clone(),
                "30000".into(),
            ],
        ),
        case(
            "defer",
            "uuid[], int[], bigint",
            b,
            &["jobs_pkey"],
            &[ids(SENT, b), ones.clone(), "0".into()],
        ),
        case(
            "renew",
            "uuid[], int[], uuid, bigint, bigint[], bigint[], text[]",
            b,
            &["jobs_pkey"],
            &[
                ids(RUNNING, b),
                ones.clone(),
                session.clone(),
                "30000".into(),
                ones.clone(),
                ones.clone(),
                nulls.clone(),
            ],
        ),
        case(
            "renew_waiting",
            "uuid[], int[], uuid, bigint, bigint[], bigint[], text[]",
            b,
            &["jobs_pkey"],
            &[
                ids(RUNNING, b),
                ones.clone(),
                session.clone(),
                "30000".into(),
                ones.clone(),
                ones.clone(),
                nulls.clone(),
            ],
        ),
        case(
            "renew_still_mine",
            "uuid[], int[], uuid",
            b,
            &["jobs_pkey"],
            &[ids(RUNNING, b), ones.clone(), session.clone()],
        ),
        case(
            "cancel_requests",
            "uuid[]",
            b,
            &["jobs_pkey"],
            &[ids(RUNNING, b)],
        ),
        case(
            "finish",
            "uuid[], int[], text[], bigint[], bool[], text[], text[], text[], bytea[], bigint[], bigint[], text[], \
             uuid, uuid[], uuid[], text[], bytea[]",
            b,
            &["jobs_pkey", "processed_events_pkey"],
            &[
                ids(RUNNING, b),
                ones.clone(),
                goals,
                same("1000", b),
                same("false", b),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                session,
                // Every fourth succeeds; each of those has a follow-up.
                texts(b / 4, |n| id(RUNNING + n * 4)),
                texts(b / 4, new),
                same("notify", b / 4),
                same("x", b / 4),
            ],
        ),
        case(
            "finish_reread",
            "uuid[]",
            b,
            &["jobs_pkey"],
            &[ids(RUNNING, b)],
        ),
        case(
            "wake_candidates",
            "bigint, bigint",
            b,
            &["jobs_wake"],
            &["3600000".into(), b.to_string()],
        ),
        case(
            "wake_candidates_all",
            "bigint",
            b,
            &["jobs_wake"],
            &[b.to_string()],
        ),
        case(
            "wake",
            "uuid[], bool, smallint",
            b,
            &["jobs_pkey", "processed_events_pkey"],
            &[ids(EXPIRED - b / 2, b), "true".into(), "3".into()],
        ),
        case(
            "wake_push",
            "uuid",
            1,
            &["jobs_pkey"],
            &[text(&id(SENT_LONG_AGO))],
        ),
        case(
            "dispatch_users",
            "text, smallint, text, int",
            500,
            &["jobs_parked"],
            &[text("default"), "2".into(), text("user-5"), "500".into()],
        ),
        case(
            "dispatch_pick",
            "text, smallint, text[], int[], int, uuid[]",
            b,
            &["jobs_parked", "jobs_pkey"],
            &[
                text("default"),
                "2".into(),
                users.clone(),
                turns,
                "1024".into(),
                sent.clone(),
            ],
        ),
        case(
            "dispatch_users_known",
            "text, smallint, text, int, text[], uuid[]",
            500,
            &["jobs_parked"],
            &[
                text("default"),
                "2".into(),
                text(""),
                "500".into(),
                users,
                sent,
            ],
        ),
        case(
            "lanes_due",
            "text[], text[]",
            3,
            &["jobs_parked"],
            &[text("{default/1,default/2,default/3}"), text("{}")],
        ),
        case(
            "submit",
            "uuid[], text[], text[], smallint[], text[], bytea[], timestamptz[], bool[], int[], bigint[], \
             timestamptz[], text[], text[], text[], text[], text[], int[], text[], int[], bool[]",
            b,
            &[],
            &[
                texts(b, new),
                same("ada", b),
                same("default", b),
                same("2", b),
                same("noop", b),
                same("x", b),
                nulls.clone(),
                same("false", b),
                same("5", b),
                same("60000", b),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                nulls.clone(),
                same("ada", 1),
                same(&b.to_string(), 1),
                nulls.clone(),
                nulls.clone(),
                same("false", b),
            ],
        ),
        case(
            "bind_keys",
            "text[], text[], text[], uuid[], bytea[], interval[], interval[]",
            b,
            &["jobs_pkey"],
            &[
                texts(b, |n| format!("user-{}", (FINAL + n) % 1000)),
                same("noop", b),
                // Half of them are bound already.
                texts(b, |n| {
                    if n % 2 == 0 {
                        format!("key-{}", id(FINAL + n))
                    } else {
                        format!("new-{n}")
                    }
                }),
                texts(b, new),
                same("x", b),
                same("1 day", b),
                nulls,
            ],
        ),
        case(
            "read_keys",
            "text[], text[], text[]",
            b,
            &["job_dedupe_pkey", "jobs_pkey"],
            &[
                texts(b, |n| format!("user-{}", (FINAL + n) % 1000)),
                same("noop", b),
                texts(b, |n| format!("key-{}", id(FINAL + n))),
            ],
        ),
        case(
            "unbind_keys",
            "text[], text[], text[], uuid[]",
            b,
            &["job_dedupe_pkey"],
            &[
                texts(b, |n| format!("user-{}", (FINAL + n) % 1000)),
                same("noop", b),
                texts(b, |n| format!("key-{}", id(FINAL + n))),
                ids(FINAL, b),
            ],
        ),
        case(
            "cancel",
            "uuid, text",
            1,
            &["jobs_pkey", "processed_events_pkey"],
            &[text(&id(PARKED)), text("enough")],
        ),
        case(
            "jobs_changed",
            "uuid[], bigint[]",
            b,
            &["jobs_pkey"],
            &[ids(LATER, b), same("0", b)],
        ),
    ]
}

async fn load(connection: &mut PgConnection, from: usize, to: usize) {
    for (sql, arguments) in [
        (LOAD, 0),
        (LOAD_LEDGER, 1),
        (LOAD_LETTERS, 1),
        (LOAD_KEYS, 2),
    ] {
        let query = sqlx::query(sql);
        let query = match arguments {
            0 => query.bind(from as i32).bind(to as i32),
            1 => query.bind(id(from)),
            _ => query.bind(id(from)).bind(id(to.min(200_000))),
        };
        query
            .execute(&mut *connection)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Everything that is wrong with the plans as they are made now.
async fn check(connection: &mut PgConnection, when: &str, more: Vec<Case>) -> Vec<String> {
    let known = statements();
    let mut wrong = Vec::new();
    let others = crate::explain_acts::cases()
        .into_iter()
        .chain(crate::explain_lines::cases())
        .chain(more);
    for case in cases().into_iter().chain(others) {
        let (_, sql) = known
            .iter()
            .find(|(name, _)| *name == case.name)
            .unwrap_or_else(|| panic!("there is no statement {}", case.name));
        prepare(connection, case.name, case.types, sql).await;
        let plan = explain(connection, case.name, &case.arguments).await;
        let run = explain_analyze(connection, case.name, &case.arguments).await;
        let mut complain = |what: String| wrong.push(format!("{when}, {}: {what}", case.name));
        let scanned: Vec<_> = plan
            .scanned()
            .into_iter()
            .filter(|t| LARGE.contains(t))
            .collect();
        if !scanned.is_empty() {
            complain(format!("scans {scanned:?}"));
        }
        for index in case.indexes {
            if !plan.indexes().contains(index) {
                complain(format!("does not use {index} but {:?}", plan.indexes()));
            }
        }
        let (pages, waste) = (
            run.pages / case.rows as f64,
            run.thrown_away() / case.rows as f64,
        );
        println!(
            "{when}, {}: {pages:.1} pages and {waste:.2} rows in vain per row",
            case.name
        );
        if pages > PAGES_PER_ROW {
            complain(format!("{pages:.0} pages per row"));
        }
        if waste > WASTE_PER_ROW {
            complain(format!("{waste:.0} rows read in vain per row"));
        }
    }
    wrong
}

#[tokio::test]
async fn explain_million_rows_are_only_looked_up_by_index() {
    let world = World::new().await;
    let mut connection = {
        let hot = world.store.dedicated(Duration::from_secs(10));
        hot.pool()
            .acquire()
            .await
            .expect("a hot connection")
            .detach()
    };
    // The load is no part of what is looked at. Nothing but this test gathers statistics.
    world
        .sql(LARGE.iter().fold(String::new(), |sql, table| {
            sql + &format!("alter table {table} set (autovacuum_enabled = false); alter table {table} set unlogged;")
        }))
        .await;
    let mut loader = world
        .store
        .pool()
        .acquire()
        .await
        .expect("a connection")
        .detach();
    sqlx::query("set statement_timeout = '120s'")
        .execute(&mut loader)
        .await
        .expect("sets");
    load(&mut loader, FINAL, 1000).await;
    // From here on the statistics say that there are a thousand jobs, all of them ended.
    let analyze =
        "analyze jobs, processed_events, job_dedupe, dead_letters, job_history, line_turns";
    sqlx::query(analyze)
        .execute(&mut loader)
        .await
        .expect("analyzes");
    load(&mut loader, 1000, END).await;
    crate::explain_lines::load(&mut loader).await;
    let rows: i64 = sqlx::query_scalar("select count(*) from jobs")
        .fetch_one(&mut loader)
        .await
        .expect("counts");
    assert_eq!(rows, (END + crate::explain_lines::JOBS) as i64);

    let mut wrong = check(&mut connection, "with stale statistics", Vec::new()).await;
    sqlx::query(analyze)
        .execute(&mut loader)
        .await
        .expect("analyzes");
    wrong.extend(
        check(
            &mut connection,
            "with fresh statistics",
            crate::explain_lines::with_statistics(),
        )
        .await,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
