//! Lines, and what is kept of users, on the table of a million jobs of `explain`.

use sqlx::PgConnection;

use crate::explain::{Case, END, same, texts};

/// Lines, each with a place that is free.
const LINES: usize = 200;
/// The jobs of all of them.
pub(crate) const JOBS: usize = LINES * 50;
/// Notes that are there at once, after a long time without a sweeper.
const NOTES: usize = 50_000;

const LOAD: &str = "
insert into jobs (job_id, status, run, max_attempts, lane, held, order_seq, ordering_key, wake_at, timeout_ms, user_id,
    queue, job_type, payload)
select ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'pending', 1, 5, 2, true, n,
    'o:line-' || n % $3, now() + interval '5 min', 60000, 'user-' || n % 1000, 'default', 'noop', '{}'
from generate_series($1::int, $1::int + $2::int - 1) n";
const LOAD_NOTES: &str = "
insert into line_turns (queue, ordering_key, noted_at)
select 'default', 'o:line-' || n % $2, now() - interval '1 min' from generate_series(1, $1::int) n";
const LOAD_USERS: &str = "
insert into user_load (user_id, job_limit, credit) select 'user-' || n, 100, 5 from generate_series(0, 1999) n";

/// Loads them behind the other jobs.
pub(crate) async fn load(connection: &mut PgConnection) {
    sqlx::query(LOAD)
        .bind(END as i32)
        .bind(JOBS as i32)
        .bind(LINES as i32)
        .execute(&mut *connection)
        .await
        .expect("loads lines");
    sqlx::query(LOAD_NOTES)
        .bind(NOTES as i32)
        .bind(10 * LINES as i32)
        .execute(&mut *connection)
        .await
        .expect("loads notes");
    sqlx::query(LOAD_USERS)
        .execute(connection)
        .await
        .expect("loads users");
}

fn keys() -> String {
    texts(LINES, |n| format!("o:line-{n}"))
}

/// Turns need statistics. The index of lines is one of jobs that have not ended, and so is
/// that of the users' live jobs: where there were none when the statistics were gathered, both
/// look empty, and no form of the statement keeps the planner from the wrong one.
pub(crate) fn with_statistics() -> Vec<Case> {
    let arguments = [same("default", LINES), keys(), "'{}'".to_owned()];
    vec![Case {
        name: "give_turns",
        types: "text[], text[], uuid[]",
        arguments: arguments.join(", "),
        rows: LINES,
        indexes: &["jobs_order", "jobs_pkey", "line_turns_line"],
    }]
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |name, types, rows, indexes, arguments: &[String]| Case {
        name,
        types,
        arguments: arguments.join(", "),
        rows,
        indexes,
    };
    vec![
        case(
            "lines_lock",
            "text[], text[]",
            LINES,
            &[],
            &[same("default", LINES), keys()],
        ),
        case(
            "lines_noted",
            "bigint, bigint",
            500,
            &["line_turns_pkey"],
            &["150".to_owned(), "500".to_owned()],
        ),
        case(
            "retention_user_loads",
            "text, bigint",
            1000,
            &["jobs_user"],
            &["''".to_owned(), "1000".to_owned()],
        ),
    ]
}
