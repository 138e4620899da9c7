//! The statements about dead letters on two hundred thousand of them: by their indexes, in
//! the order of these, whether the planner knows the values or not.

use std::time::Duration;

use tenure_core::storage::statements;

use crate::plan::{Plan, explain, explain_analyze, prepare};
use crate::world::World;

const LETTERS: usize = 200_000;

/// Letters of jobs that are there, one in a hundred of them open; a user, a cause and a
/// type for each thousand.
const LOAD: &str = "
with n as materialized (select n, ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id,
    now() - n * interval '1 s' as at from generate_series(0, $1::int - 1) n),
j as (insert into jobs (job_id, status, run, attempt, max_attempts, lane, created_at, started_at, finished_at, timeout_ms,
    user_id, queue, job_type, dedupe_key, payload)
    select id, 'failed', 1, 1, 5, 2, at, at, at, 60000, 'user-' || n / 1000, 'default', 'noop', 'key-' || n, '{}' from n),
p as (insert into processed_events (event_id, run, status) select id, 1, 'failed' from n),
d as (insert into dead_letters (id, job_id, message_key, queue_name, job_type, user_id, payload, error_code, error_class,
    error_message, attempts, replayable, status, first_failed_at, last_failed_at, cause_id, counted_status, counted_failures)
    select id, id, id::text, 'default', 'type-' || n / 1000, 'user-' || n / 1000, '{}', 'X', 'permanent', 'no', 1, true,
    case when n % 100 = 0 then 'open' else 'ignored' end, at, at,
    ('00000000-0000-0000-0000-' || lpad((n / 1000)::text, 12, '0'))::uuid,
    case when n % 100 = 0 then 'open' else 'ignored' end, case when n % 1000 <> 0 then 1 end from n)
insert into job_dedupe (user_id, scope, key, job_id, fingerprint, bound_until)
select 'user-' || n / 1000, 'noop', 'key-' || n, id, '\\x00', now() + interval '1 day' from n";

/// A backlog of notes.
const NOTES: &str = "insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code, error_class, \
    error_message, first_seen, last_failed_at) \
    select id, 1, cause_id, status, queue_name, job_type, error_code, error_class, error_message, first_failed_at, \
    last_failed_at from dead_letters";

/// A statement, its types and arguments, and the index that it must use.
struct Case {
    name: String,
    types: &'static str,
    arguments: String,
    index: &'static str,
    /// Whether its rows must come in the order of the index.
    ordered: bool,
}

fn ids(count: usize) -> String {
    let ids: Vec<String> = (0..count)
        .map(|n| format!("018f0000-0000-7000-8000-{n:012x}"))
        .collect();
    format!("'{{{}}}'", ids.join(","))
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let page = "timestamptz, uuid, timestamptz, uuid, text[], text, text, text, text, text, uuid, timestamptz, timestamptz, \
                text, bigint";
    let bound = "timestamptz, uuid, bigint, text, timestamptz, timestamptz";
    let cause = "00000000-0000-0000-0000-000000000007";
    for (driver, index, value) in [
        ("cause", "dead_letters_cause", cause),
        ("user", "dead_letters_user", "user-7"),
        ("type", "dead_letters_type", "type-7"),
        ("open", "dead_letters_open", ""),
        ("time", "dead_letters_recent", ""),
    ] {
        let at = |wanted: &str| {
            if driver == wanted {
                format!("'{value}'")
            } else {
                "null".to_owned()
            }
        };
        let statuses = if driver == "open" { "'{open}'" } else { "null" };
        let arguments = format!(
            "null, null, null, null, {statuses}, null, {}, {}, null, null, {}, null, null, null, 50",
            at("type"),
            at("user"),
            at("cause"),
        );
        let value = if value.is_empty() {
            "null".to_owned()
        } else {
            format!("'{value}'")
        };
        for order in ["", "_oldest"] {
            cases.push(Case {
                name: format!("dead_letters_list_{driver}{order}"),
                types: page,
                arguments: arguments.clone(),
                index,
                ordered: true,
            });
            cases.push(Case {
                name: format!("dead_letters_bound_{driver}{order}"),
                types: bound,
                arguments: format!("null, null, 100, {value}, null, null"),
                index,
                ordered: true,
            });
        }
        cases.push(Case {
            name: format!("dead_letters_keys_{driver}"),
            types: page,
            arguments,
            index,
            ordered: true,
        });
    }
    let by_id = |name: &str, types, index, arguments: String| Case {
        name: name.to_owned(),
        types,
        arguments,
        index,
        ordered: false,
    };
    cases.push(by_id(
        "dead_letters_find",
        "uuid[]",
        "dead_letters_pkey",
        ids(200),
    ));
    cases.push(by_id(
        "dead_letters_lock_jobs",
        "uuid[]",
        "jobs_pkey",
        ids(200),
    ));
    cases.push(by_id(
        "dead_letters_lock",
        "uuid[]",
        "dead_letters_pkey",
        ids(200),
    ));
    cases
}

/// What is wrong with a plan.
fn wrong(case: &Case, plan: &Plan) -> Vec<String> {
    let mut wrong = Vec::new();
    let scanned = plan.scanned();
    if scanned
        .iter()
        .any(|table| ["dead_letters", "jobs", "job_dedupe"].contains(table))
    {
        wrong.push(format!("scans {scanned:?}"));
    }
    if !plan.indexes().contains(&case.index) {
        wrong.push(format!("uses {:?} and not {}", plan.indexes(), case.index));
    }
    if case.ordered && plan.nodes.iter().any(|node| node.kind.contains("Sort")) {
        wrong.push("sorts".to_owned());
    }
    wrong
}

#[tokio::test]
async fn explain_letters_are_found_by_their_indexes_in_order() {
    let world = World::new().await;
    let mut loader = world
        .store
        .pool()
        .acquire()
        .await
        .expect("a connection")
        .detach();
    for (sql, arguments) in [
        ("set statement_timeout = '120s'", 0),
        // As the release before has left them, with what it had counted.
        ("alter table dead_letters disable trigger user", 0),
        (LOAD, 1),
        ("alter table dead_letters enable trigger user", 0),
        (NOTES, 0),
        ("analyze", 0),
    ] {
        let query = sqlx::query(sql);
        let query = if arguments == 1 {
            query.bind(LETTERS as i32)
        } else {
            query
        };
        query
            .execute(&mut loader)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let hot = world.store.dedicated(Duration::from_secs(10));
    let mut hot = hot
        .pool()
        .acquire()
        .await
        .expect("a hot connection")
        .detach();
    let known = statements();
    let mut found = Vec::new();
    for (pool, connection) in [("general", &mut loader), ("hot", &mut hot)] {
        for case in cases() {
            let (_, sql) = known
                .iter()
                .find(|(name, _)| *name == case.name)
                .unwrap_or_else(|| panic!("there is no statement {}", case.name));
            prepare(connection, &case.name, case.types, sql).await;
            let plan = explain(connection, &case.name, &case.arguments).await;
            found.extend(
                wrong(&case, &plan)
                    .into_iter()
                    .map(|w| format!("{pool}, {}: {w}", case.name)),
            );
            let run = explain_analyze(connection, &case.name, &case.arguments).await;
            // A few pages for each row that is asked for, of the hundreds of thousands.
            if run.pages > 5_000.0 {
                found.push(format!("{pool}, {}: {} pages", case.name, run.pages));
            }
        }
    }
    // What is done each second: the two hundred that are not counted are found and nothing
    // else, the fold goes by the notes alone, and the look at replayed letters looks at these.
    for (name, types, arguments, index) in [
        ("causes_enlist", "bigint", "1000", "dead_letters_uncounted"),
        (
            "causes_fold",
            "bigint, bigint",
            "1000, 500",
            "dead_letter_counts_pkey",
        ),
        (
            "dead_letters_settle",
            "uuid, bigint",
            "'00000000-0000-0000-0000-000000000000', 1000",
            "dead_letters_replayed",
        ),
        ("bulk_step_pick", "", "", "bulk_replays_due"),
        (
            "bulk_step_uncounted",
            "timestamptz",
            "now()",
            "dead_letters_uncounted",
        ),
        ("alerts_uncounted", "", "", "dead_letters_uncounted"),
        (
            "alerts_own_open",
            "text",
            "'tenure-alerts'",
            "dead_letters_user",
        ),
    ] {
        let (_, sql) = known.iter().find(|(known, _)| *known == name).expect("it");
        let types = if types.is_empty() { "int" } else { types };
        let arguments = if arguments.is_empty() { "1" } else { arguments };
        prepare(&mut hot, name, types, sql).await;
        let run = explain_analyze(&mut hot, name, arguments).await;
        let scanned = run.scanned();
        if scanned.contains(&"dead_letters")
            || scanned.contains(&"jobs")
            || !run.indexes().contains(&index)
        {
            found.push(format!(
                "{name}: uses {:?}, scans {scanned:?}",
                run.indexes()
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
