//! What people ask for and operators do, on the table of a million jobs of `explain`.

use crate::explain::{Case, LATER, PARKED, RUNNING, SENT, id, ids, same};

/// A page of a list.
const PAGE: usize = 200;
/// What one cancel by filter takes.
const MANY: usize = 1000;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name, types, rows, indexes, arguments: &[String]| Case {
        name,
        types,
        arguments: arguments.join(", "),
        rows,
        indexes,
    };
    let text = |t: &str| format!("'{t}'");
    let null = || "null".to_owned();
    let waits = |from: usize, parked: &str, started: &str| {
        case(
            "waits",
            "uuid[], text[], smallint[], text[], text[], text[], bool[], bool[], bigint, bigint",
            PAGE,
            &["jobs_parked", "processed_events_pkey"],
            &[
                ids(from, PAGE),
                same("default", PAGE),
                same("2", PAGE),
                same("noop", PAGE),
                same("user-7", PAGE),
                same("null", PAGE),
                same(parked, PAGE),
                same(started, PAGE),
                "30000".into(),
                "101".into(),
            ],
        )
    };
    let many = |name, owner: Option<&str>, below: usize, indexes| {
        case(
            name,
            "text, uuid, bigint, timestamptz, text[], text, text, jsonb, bigint",
            MANY,
            indexes,
            &[
                owner.map_or_else(null, text),
                text(&id(below)),
                "10000".into(),
                null(),
                text("{pending,running}"),
                null(),
                null(),
                null(),
                MANY.to_string(),
            ],
        )
    };
    let cancel = |name, owner: Option<&str>, below: usize, indexes| {
        let mut case = many(name, owner, below, indexes);
        case.types = "text, uuid, bigint, timestamptz, text[], text, text, jsonb, bigint, \
             text, text, text, uuid, text, jsonb";
        let more = [
            text("olga"),
            text("own"),
            text("other"),
            text(&id(1)),
            null(),
            text("{}"),
        ];
        case.arguments = format!("{}, {}", case.arguments, more.join(", "));
        case
    };
    let act = |name, value: &str, from: usize| {
        case(
            name,
            if name == "job_set_start" {
                "uuid, timestamptz, uuid, text, text, text"
            } else {
                "uuid, int, uuid, text, text, text"
            },
            1,
            &["jobs_pkey"],
            &[
                text(&id(from)),
                value.to_owned(),
                text(&id(1)),
                text("retry_now"),
                text("olga"),
                null(),
            ],
        )
    };
    vec![
        waits(PARKED + 50_000, "true", "false"),
        waits(RUNNING, "false", "true"),
        many(
            "cancel_many_count_of_user",
            Some("user-7"),
            RUNNING,
            &["jobs_user"],
        ),
        many("cancel_many_count_of_all", None, RUNNING, &["jobs_pkey"]),
        cancel(
            "cancel_many_of_user",
            Some("user-7"),
            RUNNING,
            &["jobs_user", "jobs_pkey", "processed_events_pkey"],
        ),
        cancel(
            "cancel_many_of_all",
            None,
            RUNNING + MANY,
            &["jobs_pkey", "processed_events_pkey"],
        ),
        act("job_set_start", "null", LATER),
        act("job_set_start", "now() + interval '1 hour'", SENT),
        act("job_set_attempts", "9", RUNNING),
        case(
            "timeline_past",
            "uuid, bigint",
            PAGE,
            &["job_history_pkey"],
            &[text(&id(RUNNING)), "200".into()],
        ),
        case(
            "timeline_acts",
            "uuid, bigint",
            PAGE,
            &["job_actions_job"],
            &[text(&id(RUNNING)), "200".into()],
        ),
        case(
            "timeline_facts",
            "uuid",
            1,
            &["jobs_pkey", "processed_events_pkey"],
            &[text(&id(RUNNING))],
        ),
        case(
            "timeline_hold",
            "uuid",
            1,
            &["jobs_pkey"],
            &[text(&id(RUNNING))],
        ),
    ]
}
