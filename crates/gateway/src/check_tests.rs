//! Every rule about a JobSpec, from both sides of its limit.

use prost_types::Timestamp;
use tenure_core::Error;
use tenure_core::domain::job::Lane;

use super::*;

const NOW: i64 = 1_800_000_000;

fn spec() -> v1::JobSpec {
    v1::JobSpec {
        job_type: "import_csv".into(),
        ..v1::JobSpec::default()
    }
}

fn check(spec: v1::JobSpec) -> Result<NewJob> {
    let job_type = JobType {
        queue: "imports".into(),
        ..JobType::new("import_csv")
    };
    check_as(spec, Some(&job_type), Vec::new())
}

fn check_as(spec: v1::JobSpec, job_type: Option<&JobType>, near: Vec<String>) -> Result<NewJob> {
    let asked = Asked {
        path: "jobs[3]",
        user: UserId::from_stored("ada".into()),
        submitted_by: None,
        trace_parent: None,
        job_type,
        near,
        misfits: Vec::new(),
        now: DateTime::from_timestamp(NOW, 0).unwrap_or_default(),
    };
    new_job(spec, asked)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp {
        seconds: NOW + seconds,
        nanos: 0,
    }
}

fn fields(error: &Error) -> Vec<&str> {
    error
        .violations()
        .iter()
        .map(|v| v.field.as_str())
        .collect()
}

#[test]
fn what_is_left_out_is_the_job_types() {
    let job = check(spec()).expect("accepted");
    assert_eq!(job.payload, b"{}");
    assert_eq!(
        (job.queue.as_str(), job.lane, job.max_attempts),
        ("imports", Lane::Normal, 5)
    );
    assert_eq!(job.timeout, Duration::from_hours(1));
    assert!(
        job.run_at.is_none()
            && job.expires_at.is_none()
            && job.dedupe.is_none()
            && job.request_id.is_none()
    );
}

#[test]
fn what_is_asked_for_is_kept() {
    let job = check(v1::JobSpec {
        payload: b" {\"n\": 12345678901234567890.10}".to_vec().into(),
        lane: v1::Lane::High.into(),
        run_at: Some(at(60)),
        expires_at: Some(at(61)),
        max_attempts: 100,
        timeout_ms: 100,
        dedupe_key: "key".into(),
        request_id: "request".into(),
        ..spec()
    })
    .expect("accepted");
    assert_eq!(job.payload, b" {\"n\": 12345678901234567890.10}");
    assert_eq!((job.lane, job.max_attempts), (Lane::High, 100));
    assert_eq!(job.timeout, Duration::from_millis(100));
    assert_eq!(job.run_at, DateTime::from_timestamp(NOW + 60, 0));
    let binding = job.dedupe.expect("a key");
    assert_eq!(
        (binding.key.as_str(), binding.after_end),
        ("key", Duration::from_hours(24))
    );
    assert_eq!(job.request_id.as_deref(), Some("request"));
}

#[test]
fn each_mistake_is_named_by_its_path() {
    let cases: Vec<(v1::JobSpec, &str)> = vec![
        (
            v1::JobSpec {
                job_type: String::new(),
                ..spec()
            },
            "job_type",
        ),
        (
            v1::JobSpec {
                job_type: "Import CSV".into(),
                ..spec()
            },
            "job_type",
        ),
        (
            v1::JobSpec {
                payload: b"[1]".to_vec().into(),
                ..spec()
            },
            "payload",
        ),
        (
            v1::JobSpec {
                payload: b"{\"a\":1,\"a\":2}".to_vec().into(),
                ..spec()
            },
            "payload",
        ),
        (v1::JobSpec { lane: 9, ..spec() }, "lane"),
        (
            v1::JobSpec {
                max_attempts: 101,
                ..spec()
            },
            "max_attempts",
        ),
        (
            v1::JobSpec {
                max_attempts: -1,
                ..spec()
            },
            "max_attempts",
        ),
        (
            v1::JobSpec {
                timeout_ms: 99,
                ..spec()
            },
            "timeout_ms",
        ),
        (
            v1::JobSpec {
                timeout_ms: MAX_TIMEOUT_MS + 1,
                ..spec()
            },
            "timeout_ms",
        ),
        (
            v1::JobSpec {
                timeout_ms: i64::MIN,
                ..spec()
            },
            "timeout_ms",
        ),
        (
            v1::JobSpec {
                run_at: Some(at(367 * 86_400)),
                ..spec()
            },
            "run_at",
        ),
        (
            v1::JobSpec {
                run_at: Some(Timestamp {
                    seconds: 0,
                    nanos: -1,
                }),
                ..spec()
            },
            "run_at",
        ),
        (
            v1::JobSpec {
                expires_at: Some(at(0)),
                ..spec()
            },
            "expires_at",
        ),
        (
            v1::JobSpec {
                run_at: Some(at(5)),
                expires_at: Some(at(5)),
                ..spec()
            },
            "expires_at",
        ),
        (
            v1::JobSpec {
                dedupe_key: "k".repeat(256),
                ..spec()
            },
            "dedupe_key",
        ),
        (
            v1::JobSpec {
                dedupe_key: " ".into(),
                ..spec()
            },
            "dedupe_key",
        ),
        (
            v1::JobSpec {
                request_id: "a\nb".into(),
                ..spec()
            },
            "request_id",
        ),
    ];
    for (spec, field) in cases {
        let error = check(spec).expect_err(field);
        assert_eq!(error.code(), Code::InvalidArgument, "{field}");
        assert_eq!(fields(&error), [format!("jobs[3].{field}")]);
    }
}

#[test]
fn several_mistakes_are_told_together() {
    let error = check(v1::JobSpec {
        lane: 9,
        max_attempts: 101,
        timeout_ms: 1,
        ..spec()
    })
    .expect_err("refused");
    assert_eq!(
        fields(&error),
        ["jobs[3].lane", "jobs[3].max_attempts", "jobs[3].timeout_ms"]
    );
}

#[test]
fn a_payload_over_the_job_types_limit_tells_the_limit() {
    let small = JobType {
        max_payload_bytes: 16,
        ..JobType::new("import_csv")
    };
    let fits = v1::JobSpec {
        payload: b"{\"a\":\"12345678\"}".to_vec().into(),
        ..spec()
    };
    assert_eq!(fits.payload.len(), 16);
    assert!(check_as(fits, Some(&small), Vec::new()).is_ok());
    let large = v1::JobSpec {
        payload: b"{\"a\":\"123456789\"}".to_vec().into(),
        ..spec()
    };
    let error = check_as(large, Some(&small), Vec::new()).expect_err("too large");
    assert_eq!(error.code(), Code::PayloadTooLarge);
    assert!(
        error.message().contains("limit of this job type is 16"),
        "{error}"
    );
}

#[test]
fn an_unknown_type_is_told_its_neighbours() {
    let known = ["import_csv", "notify", "noop", "import_json"].map(str::to_owned);
    assert_eq!(near("imoprt_csv", known.iter())[0], "import_csv");
    assert_eq!(near("import", known.iter()), ["import_csv", "import_json"]);
    assert!(near("zebra", known.iter()).is_empty());
    let unknown = v1::JobSpec {
        job_type: "imoprt_csv".into(),
        ..spec()
    };
    let error = check_as(unknown, None, vec!["import_csv".into()]).expect_err("unknown");
    assert_eq!(error.code(), Code::UnknownJobType);
    assert!(
        error.message().contains("did you mean import_csv?"),
        "{error}"
    );
}

#[test]
fn a_start_that_has_passed_is_now() {
    let job = check(v1::JobSpec {
        run_at: Some(at(-5)),
        expires_at: Some(at(1)),
        ..spec()
    })
    .expect("accepted");
    assert_eq!(job.run_at, None);
}

#[test]
fn the_fingerprint_is_what_was_meant_and_not_how_it_was_spelt() {
    let print = |spec: v1::JobSpec| check(spec).expect("accepted").fingerprint;
    let base = v1::JobSpec {
        payload: b"{\"a\":1,\"b\":2}".to_vec().into(),
        ..spec()
    };
    let respelt = v1::JobSpec {
        payload: b"{ \"b\": 2.0, \"a\": 1 }".to_vec().into(),
        ..spec()
    };
    assert_eq!(print(base.clone()), print(respelt));
    // Nothing and an empty object are the same payload; a request id is no part of the
    // meaning, a key is: a request that is repeated names the same one.
    let empty = v1::JobSpec {
        payload: b"{}".to_vec().into(),
        ..spec()
    };
    let repeatable = v1::JobSpec {
        request_id: "r".into(),
        ..spec()
    };
    assert_eq!(print(spec()), print(empty));
    assert_eq!(print(spec()), print(repeatable));
    let others = [
        v1::JobSpec {
            payload: b"{\"a\":1,\"b\":3}".to_vec().into(),
            ..spec()
        },
        v1::JobSpec {
            lane: v1::Lane::Normal.into(),
            ..base.clone()
        },
        v1::JobSpec {
            dedupe_key: "k".into(),
            ..base.clone()
        },
        v1::JobSpec {
            max_attempts: 5,
            ..base.clone()
        },
        v1::JobSpec {
            timeout_ms: 3_600_000,
            ..base.clone()
        },
        v1::JobSpec {
            run_at: Some(at(60)),
            ..base.clone()
        },
        v1::JobSpec {
            expires_at: Some(at(60)),
            ..base.clone()
        },
        v1::JobSpec {
            labels: [("k".to_owned(), "v".to_owned())].into(),
            ..base.clone()
        },
    ];
    for other in others {
        assert_ne!(print(other.clone()), print(base.clone()), "{other:?}");
    }
}
