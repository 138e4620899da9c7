//! Every code of the list is named by a test that meets it from outside: end to end, or on
//! a service. The tests' sources are read, since they need services to run.
use std::fs;
use std::path::{Path, PathBuf};

use super::Code;

/// Codes that no such test can bring about, and why.
const BEYOND_REACH: &[(Code, &str)] = &[
    (
        Code::Internal,
        "it tells of a defect; that a defect is answered so is tested on the answers",
    ),
    (
        Code::UnhandledJobType,
        "a worker puts off what it has no handler for before it claims it; the code is a net behind that",
    ),
];

/// The sources of the tests that meet the product from outside.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("tests/tests")];
    let crates = fs::read_dir(root.join("crates")).expect("the folder of crates");
    for entry in crates {
        let tests = entry.expect("an entry").path().join("tests");
        if tests.is_dir() {
            folders.push(tests);
        }
    }
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                found.push((path, text));
            }
        }
    }
    found
}

/// Whether a source names the code by its reason or, where gRPC has no code of that name
/// that could be meant, by its own.
fn names(source: &str, code: Code) -> bool {
    if source.contains(&format!("\"{code}\"")) {
        return true;
    }
    let own = format!("{code:?}");
    let of_grpc = (0..=16).any(|n| format!("{:?}", tonic::Code::from_i32(n)) == own);
    let path = format!("Code::{own}");
    !of_grpc
        && source.match_indices(&path).any(|(at, _)| {
            let next = source[at + path.len()..].chars().next();
            !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
}

#[test]
fn every_code_is_named_by_a_test_from_outside() {
    let sources = sources();
    assert!(sources.len() > 20, "only {} sources", sources.len());
    let beyond = |code: Code| BEYOND_REACH.iter().any(|(other, _)| *other == code);
    let mut unnamed = Vec::new();
    for code in Code::ALL.iter().copied() {
        let named = sources.iter().any(|(_, text)| names(text, code));
        if !named && !beyond(code) {
            unnamed.push(code.as_str());
        }
        assert!(
            !named || !beyond(code),
            "{code} is named by a test and needs no excuse"
        );
    }
    assert!(
        unnamed.is_empty(),
        "no test of the public API names {unnamed:?}; add one, for example in tests/tests/error_codes"
    );
}

#[test]
fn a_code_is_named_by_its_reason_or_by_its_own_name() {
    assert!(names(
        "refusal.is(Code::NotFound, \"JOB_NOT_FOUND\")",
        Code::JobNotFound
    ));
    assert!(names(
        "error.code(), Code::SchemaMismatch);",
        Code::SchemaMismatch
    ));
    assert!(!names("Code::SchemaMismatchX", Code::SchemaMismatch));
    assert!(!names("Code::Cancelled", Code::Cancelled));
    assert!(names("\"CANCELLED\"", Code::Cancelled));
    assert!(!names("\"CANCELLED_TOO\"", Code::Cancelled));
}
