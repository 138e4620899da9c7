//! `types`.

use std::fmt::Write as _;

use serde::Deserialize;
use tenure_proto::v1;

use crate::args::ApplyArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, escape, table};
use crate::queues::human_ms;
use crate::values::{millis, parse_duration, read_small_file};
use crate::view;

/// `tenure types list`.
pub(crate) async fn list(client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let call = |request| {
        let mut types = client.job_types();
        async move { types.list_job_types(request).await }
    };
    let answer = client
        .unary(READ_REPEATS, v1::ListJobTypesRequest {}, call)
        .await?;
    let types = view::JobTypes {
        job_types: answer
            .job_types
            .into_iter()
            .map(view::JobType::from)
            .collect(),
    };
    out.emit(&types, |types| {
        let rows = types.job_types.iter().map(|it| {
            vec![
                it.name.clone(),
                it.queue.clone(),
                it.lane.clone(),
                it.max_attempts.to_string(),
                human_ms(it.timeout_ms),
                it.backoff_ms
                    .iter()
                    .copied()
                    .map(human_ms)
                    .collect::<Vec<_>>()
                    .join(" "),
                if it.payload_schema.is_some() {
                    "yes"
                } else {
                    ""
                }
                .to_owned(),
                it.description.clone(),
            ]
        });
        let header = [
            "TYPE",
            "QUEUE",
            "LANE",
            "ATTEMPTS",
            "TIMEOUT",
            "BACKOFF",
            "SCHEMA",
            "DESCRIPTION",
        ];
        table(&header, rows)
    })?;
    Ok(Exit::Ok)
}

/// `tenure types apply`.
pub(crate) async fn apply(
    client: &Client,
    args: ApplyArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let bytes = read_small_file(&args.file)?;
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", args.file.display()));
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8".to_owned()))?;
    let job_types = read_types(&text).map_err(|problem| {
        let failure = wrong(problem.message);
        match problem.excerpt {
            Some(excerpt) => failure.excerpt(excerpt),
            None => failure,
        }
    })?;
    let request = v1::ApplyJobTypesRequest {
        job_types,
        validate_only: args.dry_run,
    };
    let call = |request| {
        let mut types = client.job_types();
        async move { types.apply_job_types(request).await }
    };
    // Applying the same types again changes nothing.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let applied = view::Applied {
        dry_run: args.dry_run,
        created: answer.created,
        updated: answer.updated,
        unchanged: answer.unchanged,
        created_queues: answer.created_queues,
    };
    out.emit(&applied, applied_text)?;
    Ok(Exit::Ok)
}

fn applied_text(it: &view::Applied) -> String {
    let mut text = String::new();
    for (what, would, names) in [
        ("created", "would create", &it.created),
        ("updated", "would update", &it.updated),
        ("unchanged", "unchanged", &it.unchanged),
        (
            "created the queue",
            "would create the queue",
            &it.created_queues,
        ),
    ] {
        let what = if it.dry_run { would } else { what };
        for name in names {
            let _ = writeln!(text, "{what}: {}", escape(name));
        }
    }
    if !it.created_queues.is_empty() {
        text.push_str(
            "a new queue needs workers that name it in worker.queues; look at its spelling if none was meant\n",
        );
    }
    text
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypesFile {
    #[serde(default)]
    job_type: Vec<TypeEntry>,
}

/// A job type as the file writes it; what is left out takes the service's
/// default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeEntry {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    queue: String,
    lane: Option<LaneEntry>,
    #[serde(default)]
    max_attempts: i32,
    #[serde(default)]
    backoff: Vec<Period>,
    timeout: Option<Period>,
    dedupe_policy: Option<PolicyEntry>,
    dedupe_period: Option<Period>,
    #[serde(default)]
    max_payload_bytes: i32,
    #[serde(default)]
    payload_schema: String,
    ordering_policy: Option<OrderingEntry>,
    #[serde(default)]
    max_concurrency: i32,
    /// Marks the types of the shipped catalogue that only a worker with
    /// diagnostics handles; the service has no such field.
    #[serde(default, rename = "diagnostic")]
    _diagnostic: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum LaneEntry {
    High,
    Normal,
    Low,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PolicyEntry {
    Period,
    WhileActive,
    Forever,
    AfterEnd,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OrderingEntry {
    Continue,
    Block,
}

/// Milliseconds, written like `30s`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Period(i64);

impl TryFrom<String> for Period {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse_duration(&text).map(|period| Self(millis(period)))
    }
}

/// What is wrong with a file of job types.
#[derive(Debug)]
struct TypesProblem {
    /// On one line, with the number of the line.
    message: String,
    /// The parser's drawing of the place.
    excerpt: Option<String>,
}

impl TypesProblem {
    fn new(text: &str, error: &toml::de::Error) -> Self {
        let line = error.span().map_or(1, |span| {
            1 + text[..span.start.min(text.len())].matches('\n').count()
        });
        Self {
            message: format!("line {line}: {}", error.message().replace('\n', ", ")),
            excerpt: error.span().map(|_| error.to_string()),
        }
    }
}

fn read_types(text: &str) -> Result<Vec<v1::JobType>, TypesProblem> {
    let file: TypesFile = toml::from_str(text).map_err(|error| TypesProblem::new(text, &error))?;
    if file.job_type.is_empty() {
        return Err(TypesProblem {
            message: "there is no [[job_type]] in it".to_owned(),
            excerpt: None,
        });
    }
    let types = file.job_type.into_iter().map(|entry| v1::JobType {
        name: entry.name,
        description: entry.description,
        queue: entry.queue,
        lane: match entry.lane {
            None => v1::Lane::Unspecified,
            Some(LaneEntry::High) => v1::Lane::High,
            Some(LaneEntry::Normal) => v1::Lane::Normal,
            Some(LaneEntry::Low) => v1::Lane::Low,
        }
        .into(),
        max_attempts: entry.max_attempts,
        backoff_ms: entry.backoff.into_iter().map(|Period(ms)| ms).collect(),
        timeout_ms: entry.timeout.map_or(0, |Period(ms)| ms),
        dedupe_policy: match entry.dedupe_policy {
            None => v1::DedupePolicy::Unspecified,
            Some(PolicyEntry::Period) => v1::DedupePolicy::Period,
            Some(PolicyEntry::WhileActive) => v1::DedupePolicy::WhileActive,
            Some(PolicyEntry::Forever) => v1::DedupePolicy::Forever,
            Some(PolicyEntry::AfterEnd) => v1::DedupePolicy::AfterEnd,
        }
        .into(),
        dedupe_period_ms: entry.dedupe_period.map_or(0, |Period(ms)| ms),
        max_payload_bytes: entry.max_payload_bytes,
        update_time: None,
        payload_schema: entry.payload_schema,
        ordering_policy: match entry.ordering_policy {
            None => v1::OrderingPolicy::Unspecified,
            Some(OrderingEntry::Continue) => v1::OrderingPolicy::Continue,
            Some(OrderingEntry::Block) => v1::OrderingPolicy::Block,
        }
        .into(),
        max_concurrency: entry.max_concurrency,
    });
    Ok(types.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_toml() {
        let types = read_types(
            r#"
            [[job_type]]
            name = "a"
            description = "d"
            queue = "q"
            lane = "low"
            max_attempts = 3
            backoff = ["1s", "1m30s"]
            timeout = "6h"
            dedupe_policy = "while_active"
            dedupe_period = "7d"
            max_payload_bytes = 100
            payload_schema = '{"required": ["a"]}'

            [[job_type]]
            name = "b"
            "#,
        )
        .expect("reads");
        assert_eq!(types.len(), 2);
        assert_eq!(types[0].lane(), v1::Lane::Low);
        assert_eq!(types[0].backoff_ms, [1_000, 90_000]);
        assert_eq!(types[0].timeout_ms, 21_600_000);
        assert_eq!(types[0].dedupe_policy(), v1::DedupePolicy::WhileActive);
        assert_eq!(types[0].dedupe_period_ms, 604_800_000);
        assert_eq!(types[0].payload_schema, r#"{"required": ["a"]}"#);
        let left_out = v1::JobType {
            name: "b".to_owned(),
            ..v1::JobType::default()
        };
        assert_eq!(types[1], left_out);
    }

    #[test]
    fn the_shipped_catalogue_can_be_applied() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../migrations/job_types.toml"
        );
        let text = std::fs::read_to_string(path).expect("the catalogue");
        let types = read_types(&text).expect("reads");
        assert!(types.iter().any(|it| it.name == "import_csv"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, problem) in [
            ("", "no [[job_type]]"),
            ("[[job_type]]\nname = 'a'\ntimout = '1s'", "timout"),
            (
                "[[job_type]]\nname = 'a'\ntimeout = '1 hour'",
                "write a number and a unit",
            ),
            ("[[job_type]]\nname = 'a'\nlane = 'fast'", "fast"),
            ("[[job_type]]\nqueue = 'a'", "name"),
        ] {
            let problem_found = read_types(text).expect_err(problem);
            let found = problem_found.message;
            assert!(found.contains(problem), "{found}");
            assert!(!found.contains('\n'), "{found}");
        }
        let drawn = read_types("[[job_type]]\nname = 'a'\ntimout = '1s'").expect_err("a mistake");
        let drawn = drawn.excerpt.expect("a drawing");
        assert!(drawn.contains("3 | timout = '1s'\n"), "{drawn}");
    }

    #[test]
    fn a_queue_that_nobody_had_is_told() {
        let mut applied = view::Applied {
            dry_run: true,
            created: vec!["a".to_owned()],
            updated: Vec::new(),
            unchanged: Vec::new(),
            created_queues: vec!["imprts".to_owned()],
        };
        let text = applied_text(&applied);
        assert!(
            text.contains("would create: a\nwould create the queue: imprts\n"),
            "{text}"
        );
        assert!(text.contains("worker.queues"), "{text}");
        applied.dry_run = false;
        assert!(applied_text(&applied).contains("created the queue: imprts\n"));
        applied.created_queues.clear();
        assert_eq!(applied_text(&applied), "created: a\n");
    }
}
