//! A client in Python, generated from `proto/`, and one that knows only an address.

use std::process::Stdio;
use std::time::Duration;

use tenure_tests::environment::{kept, repository};
use tenure_tests::token::token;
use tenure_tests::{Stack, within};
use tokio::process::Command;

const BOUND: Duration = Duration::from_secs(150);

/// Runs a script of `tests/python` against a stack of its own.
async fn run(script: &str) {
    let python = std::env::var("TENURE_PYTHON").unwrap_or_else(|_| {
        panic!(
            "TENURE_PYTHON must name a Python with the packages of \
             deploy/local/requirements-test.txt; `make test` sets it"
        )
    });
    let stack = Stack::builder().start().await;
    let scratch = stack.folder().join("python");
    std::fs::create_dir(&scratch).expect("a folder");
    let running = Command::new(python)
        // Nothing is written into the checkout.
        .arg("-B")
        .arg(repository().join("tests/python").join(script))
        .current_dir(&scratch)
        .env_clear()
        .envs(kept())
        .env("TENURE_ADDRESS", stack.gateway(0).grpc())
        .env("TENURE_TOKEN", token("petra", &["submitter"]))
        .env("TENURE_PROTO", repository().join("proto"))
        .env("TENURE_CSV", repository().join("examples/airports.csv"))
        .env("TENURE_ROWS", "3376")
        .env("TENURE_SCRATCH", &scratch)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within(script, BOUND, running)
        .await
        .unwrap_or_else(|error| panic!("Python cannot be started: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{script}: {}\n{}{said}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    // unittest says so where it has found no test.
    assert!(said.contains("\nOK"), "{said}");
    println!("{said}");
}

#[tokio::test]
async fn a_generated_client_does_the_main_job_and_reads_refusals() {
    run("client_test.py").await;
}

#[tokio::test]
async fn a_client_by_reflection_does_the_main_job() {
    run("reflection_test.py").await;
}
