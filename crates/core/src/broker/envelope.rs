//! The message format: 1 to 32 envelopes of one queue and lane, as JSON
//! (docs/ENVELOPE.md; requirement D1).
//!
//! `{"schema":1,"jobs":[{"job_id":…,"event_id":…,"run":1,…}]}`. A single job may also
//! stand at the top level, without `jobs`.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::ids::JobId;
pub use crate::domain::job::MAX_BUNDLE;
use crate::domain::job::{INLINE_PAYLOAD_BYTES, NewJob};

/// The schema version that this binary writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// The most bytes of one message, as far as it is up to us.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// The largest body that a consumer parses.
const MAX_PARSED_BYTES: usize = 1024 * 1024;

/// A hint that a run of a job can start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// The job.
    pub job_id: JobId,
    /// The id under which its effects are claimed: the same value.
    pub event_id: JobId,
    /// The run that it is for; any other run makes it stale.
    pub run: i32,
    /// The job type's name.
    pub job_type: String,
    /// The owner.
    pub user_id: String,
    /// Starts that counted before this one.
    #[serde(default)]
    pub attempt: i32,
    /// Leases lost in a row: such jobs start one at a time, and from two on alone among
    /// their kind.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: i16,
    /// The dedupe key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<String>,
    /// When the job was accepted.
    pub created_at: DateTime<Utc>,
    /// The caller's W3C `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The payload where it is at most 1,024 bytes long; else it is in the job's row,
    /// which is what a worker goes by in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde wants a reference
fn is_zero(n: &i16) -> bool {
    *n == 0
}

impl Envelope {
    /// The envelope of a job that was just written.
    pub fn from_new(job: &NewJob, created_at: DateTime<Utc>) -> Self {
        Self {
            job_id: job.job_id,
            event_id: job.job_id,
            run: 1,
            job_type: job.job_type.clone(),
            user_id: job.user_id.as_str().to_owned(),
            attempt: 0,
            lost: 0,
            dedupe_key: job.dedupe.as_ref().map(|d| d.key.clone()),
            created_at,
            traceparent: job.trace_parent.clone(),
            payload: inline_payload(&job.payload),
        }
    }
}

/// The payload as it rides in an envelope; `None` where it is too large.
pub fn inline_payload(payload: &[u8]) -> Option<Box<RawValue>> {
    if payload.len() > INLINE_PAYLOAD_BYTES {
        return None;
    }
    let text = std::str::from_utf8(payload).ok()?;
    RawValue::from_string(text.to_owned()).ok()
}

#[derive(Serialize)]
struct BodyOut<'a> {
    schema: u32,
    jobs: &'a [Envelope],
}

/// Writes bodies of at most `bundle` envelopes and 64 KiB, in order; each with the
/// number of its envelopes.
pub fn encode(jobs: &[Envelope], bundle: usize) -> Vec<(Vec<u8>, usize)> {
    let mut bodies = Vec::new();
    let mut work: Vec<&[Envelope]> = jobs.chunks(bundle.clamp(1, MAX_BUNDLE)).rev().collect();
    while let Some(part) = work.pop() {
        let body = serde_json::to_vec(&BodyOut {
            schema: SCHEMA,
            jobs: part,
        })
        .unwrap_or_default();
        if body.len() > MAX_BODY_BYTES && part.len() > 1 {
            let (first, rest) = part.split_at(part.len() / 2);
            work.push(rest);
            work.push(first);
        } else if !body.is_empty() {
            bodies.push((body, part.len()));
        }
    }
    bodies
}

/// What a body was found to be.
#[derive(Debug)]
pub enum Decoded {
    /// Envelopes to decide on.
    Jobs(Vec<Envelope>),
    /// Written by a newer release: looked at again later, never a dead letter. The jobs
    /// that it names as far as they can be told.
    Newer(Vec<(JobId, i32)>),
    /// It cannot be read; the reason is for people.
    Unreadable(String),
}

#[derive(Deserialize)]
struct Header {
    #[serde(default = "first_schema")]
    schema: u32,
}

fn first_schema() -> u32 {
    1
}

#[derive(Deserialize)]
struct BodyIn {
    jobs: Vec<Envelope>,
}

#[derive(Deserialize)]
struct Named {
    job_id: JobId,
    run: i32,
}

#[derive(Deserialize)]
struct NewerBody {
    #[serde(default)]
    jobs: Vec<serde_json::Value>,
}

/// Reads a body. Never panics, whatever it is given.
pub fn decode(body: &[u8]) -> Decoded {
    if body.is_empty() {
        return Decoded::Unreadable("the body is empty".to_owned());
    }
    if body.len() > MAX_PARSED_BYTES {
        return Decoded::Unreadable(format!(
            "the body is {} bytes long; at most 1 MiB is read",
            body.len()
        ));
    }
    let header: Header = match serde_json::from_slice(body) {
        Ok(header) => header,
        Err(error) => return Decoded::Unreadable(format!("not an envelope: {error}")),
    };
    if header.schema > SCHEMA {
        let body: NewerBody =
            serde_json::from_slice(body).unwrap_or(NewerBody { jobs: Vec::new() });
        let named = body
            .jobs
            .into_iter()
            .filter_map(|job| serde_json::from_value::<Named>(job).ok())
            .map(|named| (named.job_id, named.run))
            .collect();
        return Decoded::Newer(named);
    }
    match serde_json::from_slice::<BodyIn>(body) {
        Ok(body) if (1..=MAX_BUNDLE).contains(&body.jobs.len()) => Decoded::Jobs(body.jobs),
        Ok(body) => Decoded::Unreadable(format!(
            "it holds {} jobs; 1 to {MAX_BUNDLE} are allowed",
            body.jobs.len()
        )),
        // One job at the top level.
        Err(bundle_error) => match serde_json::from_slice::<Envelope>(body) {
            Ok(job) => Decoded::Jobs(vec![job]),
            Err(error) => {
                let error = if body_has_jobs(body) {
                    bundle_error
                } else {
                    error
                };
                Decoded::Unreadable(format!("not an envelope: {error}"))
            }
        },
    }
}

fn body_has_jobs(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body)
        .is_ok_and(|map| map.contains_key("jobs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope(payload: &str) -> Envelope {
        let id = JobId::new();
        Envelope {
            job_id: id,
            event_id: id,
            run: 1,
            job_type: "noop".into(),
            user_id: "u".into(),
            attempt: 0,
            lost: 0,
            dedupe_key: None,
            created_at: Utc::now(),
            traceparent: None,
            payload: inline_payload(payload.as_bytes()),
        }
    }

    #[test]
    fn bundles_are_bounded_and_keep_their_order() {
        let jobs: Vec<_> = (0..70)
            .map(|_| envelope("{\"n\":9007199254740993}"))
            .collect();
        let bodies = encode(&jobs, 32);
        assert_eq!(bodies.iter().map(|b| b.1).collect::<Vec<_>>(), [32, 32, 6]);
        let mut ids = Vec::new();
        for (body, _) in bodies {
            let Decoded::Jobs(jobs) = decode(&body) else {
                panic!("unreadable")
            };
            for job in &jobs {
                assert_eq!(
                    job.payload.as_ref().map(|p| p.get()),
                    Some("{\"n\":9007199254740993}")
                );
            }
            ids.extend(jobs.iter().map(|j| j.job_id));
        }
        assert_eq!(ids, jobs.iter().map(|j| j.job_id).collect::<Vec<_>>());
    }

    #[test]
    fn a_body_stays_under_64_kib() {
        let mut jobs: Vec<_> = (0..32)
            .map(|_| envelope(&format!("{{\"a\":\"{}\"}}", "x".repeat(1000))))
            .collect();
        for job in &mut jobs {
            job.dedupe_key = Some("k".repeat(255));
            job.user_id = "u".repeat(255);
            job.traceparent = Some("t".repeat(1000));
        }
        let bodies = encode(&jobs, 32);
        assert!(bodies.iter().all(|b| b.0.len() <= MAX_BODY_BYTES));
        assert_eq!(bodies.iter().map(|b| b.1).sum::<usize>(), 32);
    }

    #[test]
    fn unreadable_bodies_say_why() {
        for (body, word) in [
            (&b""[..], "empty"),
            (b"not json", "not an envelope"),
            (b"{\"job_type\":\"noop\"}", "job_id"),
            (b"{\"jobs\":[]}", "0 jobs"),
            (b"{\"jobs\":[{\"job_id\":7}]}", "not an envelope"),
        ] {
            match decode(body) {
                Decoded::Unreadable(why) => assert!(why.contains(word), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            decode(&vec![b'['; 2_000_000]),
            Decoded::Unreadable(_)
        ));
        assert!(matches!(
            decode(&vec![b'['; 100_000]),
            Decoded::Unreadable(_)
        ));
    }

    #[test]
    fn a_newer_schema_is_never_unreadable() {
        let id = JobId::new();
        let body =
            format!("{{\"schema\":9,\"jobs\":[{{\"job_id\":\"{id}\",\"run\":3,\"other\":1}}]}}");
        match decode(body.as_bytes()) {
            Decoded::Newer(named) => assert_eq!(named, [(id, 3)]),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            decode(b"{\"schema\":2,\"what\":1}"),
            Decoded::Newer(_)
        ));
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
