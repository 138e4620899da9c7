//! Plans where few have most of it: two users with all of the backlog, and one line with all
//! jobs that wait in lines. What the planner believes of how many rows a look gives is far too
//! much then, and a join that it makes by a hash of the whole table would be made each time.

use std::time::Duration;

use tenure_core::storage::statements;

use crate::explain::same;
use crate::plan::{explain, explain_analyze, prepare};
use crate::world::World;

/// Half of the jobs have ended; the others are parked, of two users, or wait in one line.
const LOAD: &str = "
insert into jobs (job_id, status, run, attempt, max_attempts, lane, parked, held, order_seq, ordering_key, line_limit,
    wake_at, started_at, finished_at, timeout_ms, user_id, queue, job_type, payload)
select ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, case when ended then 'success' else 'pending' end,
    1, ended::int, 5, 2, parked, line, case when line then n end, case when line then 'c:one' end,
    case when line then 500 end, case when not ended then now() + interval '1 day' end, case when ended then now() end,
    case when ended then now() end, 60000, 'user-' || n % 2, 'default', 'noop', convert_to(repeat('x', 60), 'UTF8')
from (select n, n < 100000 as ended, n >= 100000 and n < 160000 as parked, n >= 160000 as line
    from generate_series(0, 199999) n) s";

/// Pages for each row that is moved: a few for each look, and for a new version an insertion
/// into each index.
const PAGES_PER_ROW: f64 = 150.0;

#[tokio::test]
async fn explain_what_few_have_is_looked_up_one_by_one() {
    let world = World::new().await;
    world
        .sql("alter table jobs set (autovacuum_enabled = false); alter table jobs set unlogged;")
        .await;
    let mut loader = world.store.pool().acquire().await.expect("a connection");
    for sql in [
        "set statement_timeout = '120s'",
        LOAD,
        "insert into line_turns (queue, ordering_key) select 'default', 'c:one' from generate_series(1, 100)",
        "analyze jobs, line_turns",
    ] {
        sqlx::query(sql).execute(&mut *loader).await.expect(sql);
    }
    let mut hot = {
        let hot = world.store.dedicated(Duration::from_secs(10));
        hot.pool().acquire().await.expect("a connection").detach()
    };
    let nil = uuid::Uuid::nil();
    let cases = [
        (
            "dispatch_pick",
            "text, smallint, text[], int[], int, uuid[]",
            format!("'default', 2, '{{user-0,user-1}}', '{{50,50}}', 1024, '{{{nil},{nil}}}'"),
            100.0,
        ),
        (
            "give_turns",
            "text[], text[], uuid[]",
            format!("{}, {}, '{{}}'", same("default", 1), same("c:one", 1)),
            500.0,
        ),
    ];
    let known = statements();
    for (name, types, arguments, rows) in cases {
        let (_, sql) = known.iter().find(|(it, _)| *it == name).expect(name);
        prepare(&mut hot, name, types, sql).await;
        let plan = explain(&mut hot, name, &arguments).await;
        assert!(!plan.scanned().contains(&"jobs"), "{name}: {plan:?}");
        let run = explain_analyze(&mut hot, name, &arguments).await;
        assert!(run.thrown_away() <= rows, "{name}: {run:?}");
        assert!(run.pages <= rows * PAGES_PER_ROW, "{name}: {run:?}");
    }
}
