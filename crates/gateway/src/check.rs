//! From what a caller asks to a job that can be written: every rule about a JobSpec.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};
use tenure_core::domain::ids::{JobId, UserId, check_name};
use tenure_core::domain::job::{KeyBinding, NewJob};
use tenure_core::domain::job_type::{JobType, MAX_PAYLOAD_BYTES};
use tenure_core::domain::line::{Line, MAX_CONCURRENCY};
use tenure_core::domain::payload;
use tenure_core::domain::payload_schema::Misfit;
use tenure_core::{Code, Result};
use tenure_proto::v1;

use crate::convert;
use crate::fields::{Findings, known};

/// The furthest ahead that a job can be scheduled.
pub(crate) const MAX_AHEAD: TimeDelta = TimeDelta::days(366);
/// The most starts that a job can have.
pub(crate) const MAX_ATTEMPTS: i32 = 100;
/// The shortest time limit of a run, in milliseconds.
const MIN_TIMEOUT_MS: i64 = 100;
/// The longest time limit of a run, in milliseconds: 7 days.
const MAX_TIMEOUT_MS: i64 = 7 * 86_400_000;
/// How alike a job type's name must be to be suggested.
const ALIKE: f64 = 0.6;
/// The most names that are suggested.
const SUGGESTIONS: usize = 3;

/// What the checks need to know beside the job itself.
pub(crate) struct Asked<'a> {
    /// The path of the job in the request: `job`, or `jobs[3]`.
    pub(crate) path: &'a str,
    /// The owner.
    pub(crate) user: UserId,
    /// The caller where that is not the owner.
    pub(crate) submitted_by: Option<String>,
    /// The caller's `traceparent`.
    pub(crate) trace_parent: Option<String>,
    /// The job type, if there is one of that name.
    pub(crate) job_type: Option<&'a JobType>,
    /// Names to suggest where there is none.
    pub(crate) near: Vec<String>,
    /// Where the payload does not fit the job type's schema.
    pub(crate) misfits: Vec<Misfit>,
    /// The time of the request. Decides nothing but whether the times make sense.
    pub(crate) now: DateTime<Utc>,
}

/// Checks a job against every rule and gives it its id.
///
/// # Errors
/// All that is wrong at once: `INVALID_ARGUMENT`, `PAYLOAD_TOO_LARGE` or
/// `UNKNOWN_JOB_TYPE`, with the paths of the fields.
pub(crate) fn new_job(spec: v1::JobSpec, asked: Asked<'_>) -> Result<NewJob> {
    let path = asked.path;
    let mut findings = Findings::default();
    let meaning = check_payload(&mut findings, path, &spec.payload, asked.job_type);
    for misfit in asked.misfits {
        findings.add(format!("{path}.payload{}", misfit.path), misfit.description);
    }
    check_type(
        &mut findings,
        path,
        &spec.job_type,
        asked.job_type,
        &asked.near,
    );

    let lane = known::<v1::Lane>(&mut findings, format!("{path}.lane"), spec.lane)
        .and_then(convert::lane_from);
    if !(0..=MAX_ATTEMPTS).contains(&spec.max_attempts) {
        findings.add(
            format!("{path}.max_attempts"),
            "must be 1 to 100, or 0 for the job type's",
        );
    }
    if spec.timeout_ms != 0 && !(MIN_TIMEOUT_MS..=MAX_TIMEOUT_MS).contains(&spec.timeout_ms) {
        findings.add(
            format!("{path}.timeout_ms"),
            "must be 100 (0.1 s) to 604,800,000 (7 days), or 0 for the job type's",
        );
    }
    let (run_at, expires_at) = check_times(&mut findings, path, &spec, asked.now);
    let fingerprint = fingerprint(&spec, &meaning);
    let labels = findings.labels(&format!("{path}.labels"), spec.labels);
    let dedupe_key = findings.optional_text(format!("{path}.dedupe_key"), spec.dedupe_key);
    let request_id = findings.optional_text(format!("{path}.request_id"), spec.request_id);
    let line = check_line(
        &mut findings,
        path,
        Keys {
            ordering: spec.ordering_key,
            policy: spec.ordering_policy,
            concurrency: spec.concurrency_key,
            most: spec.max_concurrency,
        },
        asked.job_type,
    );
    findings.finish()?;

    // Without its job type there was a finding.
    let Some(job_type) = asked.job_type else {
        return Err(tenure_core::Error::new(
            Code::UnknownJobType,
            "there is no such job type",
        ));
    };
    Ok(NewJob {
        job_id: JobId::new(),
        user_id: asked.user,
        job_type: spec.job_type,
        queue: job_type.queue.clone(),
        lane: lane.unwrap_or(job_type.lane),
        payload: if spec.payload.is_empty() {
            b"{}".to_vec()
        } else {
            spec.payload.into()
        },
        run_at,
        expires_at,
        max_attempts: if spec.max_attempts == 0 {
            job_type.max_attempts
        } else {
            spec.max_attempts
        },
        timeout: if spec.timeout_ms == 0 {
            job_type.timeout
        } else {
            Duration::from_millis(spec.timeout_ms.unsigned_abs())
        },
        labels,
        submitted_by: asked.submitted_by,
        trace_parent: asked.trace_parent,
        dedupe: dedupe_key.map(|key| {
            let (period, after_end) = job_type.key_binding();
            KeyBinding {
                key,
                period,
                after_end,
            }
        }),
        request_id,
        line,
        fingerprint,
    })
}

/// What a job says of its line.
struct Keys {
    ordering: String,
    policy: i32,
    concurrency: String,
    most: i32,
}

/// The line that a job asks for. What it leaves out is its job type's.
fn check_line(
    findings: &mut Findings,
    path: &str,
    keys: Keys,
    job_type: Option<&JobType>,
) -> Option<Line> {
    let policy =
        known::<v1::OrderingPolicy>(findings, format!("{path}.ordering_policy"), keys.policy);
    if policy.is_some_and(|it| it != v1::OrderingPolicy::Unspecified) && keys.ordering.is_empty() {
        findings.add(
            format!("{path}.ordering_policy"),
            "needs an ordering_key beside it",
        );
    }
    if !(0..=MAX_CONCURRENCY).contains(&keys.most) {
        findings.add(
            format!("{path}.max_concurrency"),
            "must be 1 to 10,000, or 0 for the job type's",
        );
    } else if keys.most != 0 && keys.concurrency.is_empty() {
        findings.add(
            format!("{path}.max_concurrency"),
            "needs a concurrency_key beside it",
        );
    }
    if !keys.ordering.is_empty() && !keys.concurrency.is_empty() {
        findings.add(
            format!("{path}.concurrency_key"),
            "a job has an ordering_key or a concurrency_key, and not both",
        );
    }
    let ordering = findings.optional_text(format!("{path}.ordering_key"), keys.ordering);
    let concurrency = findings.optional_text(format!("{path}.concurrency_key"), keys.concurrency);
    let by_type = job_type?;
    match (ordering, concurrency) {
        (Some(key), _) => Some(Line::Ordered {
            key,
            blocks: match policy {
                Some(v1::OrderingPolicy::Block) => true,
                Some(v1::OrderingPolicy::Continue) => false,
                _ => by_type.ordering_blocks,
            },
        }),
        (None, Some(key)) => Some(Line::Limited {
            key,
            most: match keys.most {
                0 => by_type.max_concurrency,
                most => most,
            },
        }),
        (None, None) => None,
    }
}

/// Checks the payload and digests what it means. The size comes first: it bounds the
/// work of reading it.
fn check_payload(
    findings: &mut Findings,
    path: &str,
    bytes: &[u8],
    job_type: Option<&JobType>,
) -> payload::Meaning {
    let field = format!("{path}.payload");
    let limit = job_type.map_or(MAX_PAYLOAD_BYTES, |t| {
        usize::try_from(t.max_payload_bytes).unwrap_or_default()
    });
    if bytes.len() > limit {
        let why = format!(
            "has {} bytes; the limit of this job type is {limit}. Upload larger content as a file and name its id",
            bytes.len()
        );
        findings.add_as(Code::PayloadTooLarge, field, why);
        findings.note("limit_bytes", limit.to_string());
        return [0; 32];
    }
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    payload::check_object(bytes).unwrap_or_else(|why| {
        findings.add(field, why);
        [0; 32]
    })
}

fn check_type(
    findings: &mut Findings,
    path: &str,
    name: &str,
    job_type: Option<&JobType>,
    near: &[String],
) {
    let field = format!("{path}.job_type");
    if name.is_empty() {
        findings.add(field, "is required");
    } else if let Err(why) = check_name(name) {
        findings.add(field, why);
    } else if job_type.is_none() {
        let hint = if near.is_empty() {
            "ListJobTypes tells the known ones".to_owned()
        } else {
            findings.note("near", near.join(","));
            format!("did you mean {}?", near.join(" or "))
        };
        findings.add_as(
            Code::UnknownJobType,
            field,
            format!("there is no job type {name:?}; {hint}"),
        );
    }
}

/// Checks the start and the expiry. A start that has passed is none.
fn check_times(
    findings: &mut Findings,
    path: &str,
    spec: &v1::JobSpec,
    now: DateTime<Utc>,
) -> (Option<DateTime<Utc>>, Option<DateTime<Utc>>) {
    let run_at = findings.time(&format!("{path}.run_at"), spec.run_at.as_ref());
    let expires_at = findings.time(&format!("{path}.expires_at"), spec.expires_at.as_ref());
    if run_at.is_some_and(|at| at > now + MAX_AHEAD) {
        findings.add(format!("{path}.run_at"), "must be at most 366 days ahead");
    }
    let run_at = run_at.filter(|at| *at > now);
    if let Some(expires_at) = expires_at {
        if expires_at <= now {
            findings.add(format!("{path}.expires_at"), "must be in the future");
        } else if run_at.is_some_and(|at| at >= expires_at) {
            findings.add(format!("{path}.expires_at"), "must be after run_at");
        }
    }
    (run_at, expires_at)
}

/// A digest of what the caller asked for, by which a repeated key is compared. What the
/// caller left out stays out: a changed default of the job type makes no other request.
fn fingerprint(spec: &v1::JobSpec, meaning: &payload::Meaning) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(b"tenure job 1");
    part(spec.job_type.as_bytes());
    // A repeated request_id with another key is another request.
    part(spec.dedupe_key.as_bytes());
    part(meaning);
    part(&spec.lane.to_be_bytes());
    part(&spec.max_attempts.to_be_bytes());
    part(&spec.timeout_ms.to_be_bytes());
    for time in [&spec.run_at, &spec.expires_at] {
        match time {
            Some(time) => {
                part(&time.seconds.to_be_bytes());
                part(&time.nanos.to_be_bytes());
            }
            None => part(b""),
        }
    }
    // Left out where they are not set: a request of an older client stays the same.
    for (tag, key, number) in [
        ("ordering", &spec.ordering_key, spec.ordering_policy),
        ("concurrency", &spec.concurrency_key, spec.max_concurrency),
    ] {
        if !key.is_empty() {
            part(tag.as_bytes());
            part(key.as_bytes());
            part(&number.to_be_bytes());
        }
    }
    let mut labels: Vec<_> = spec.labels.iter().collect();
    labels.sort_unstable();
    for (key, value) in labels {
        part(key.as_bytes());
        part(value.as_bytes());
    }
    hash.finalize().into()
}

/// The known names that are most like this one.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut alike: Vec<(f64, &String)> = known
        .map(|candidate| {
            let within =
                name.len() >= 3 && (candidate.contains(name) || name.contains(candidate.as_str()));
            let likeness = strsim::normalized_damerau_levenshtein(name, candidate);
            (
                if within {
                    likeness.max(ALIKE)
                } else {
                    likeness
                },
                candidate,
            )
        })
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    alike
        .into_iter()
        .take(SUGGESTIONS)
        .map(|(_, candidate)| candidate.clone())
        .collect()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
