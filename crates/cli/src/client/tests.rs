use clap::{CommandFactory as _, FromArgMatches as _};

use super::*;
use crate::args::Cli;

fn parsed(line: &[&str]) -> (Global, Credentials) {
    let matches = Cli::command().try_get_matches_from(line).expect("parses");
    let mut credentials = Credentials::from_matches(&matches);
    credentials.operator_token = Some("operator".to_owned());
    let cli = Cli::from_arg_matches(&matches).expect("parses");
    (cli.global, credentials)
}

#[test]
fn a_token_on_the_command_line_goes_before_all_others() {
    for line in [
        ["tenure", "queues", "--token", "mine"],
        ["tenure", "--token", "mine", "queues"],
    ] {
        let (global, credentials) = parsed(&line);
        assert_eq!(credentials.token(&global, true).expect("a token"), "mine");
        assert_eq!(credentials.token(&global, false).expect("a token"), "mine");
    }
}

#[test]
fn operator_verbs_take_the_operator_token() {
    let (mut global, credentials) = parsed(&["tenure", "queues"]);
    global.token = Some("environment".to_owned());
    assert_eq!(
        credentials.token(&global, true).expect("a token"),
        "operator"
    );
    assert_eq!(
        credentials.token(&global, false).expect("a token"),
        "environment"
    );
    let none = Credentials::default();
    assert_eq!(none.token(&global, true).expect("a token"), "environment");
}

#[test]
fn a_token_file_goes_before_the_environment() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("token");
    std::fs::write(&path, " filed\n").expect("writes");
    let (mut global, credentials) = parsed(&["tenure", "queues"]);
    global.token = Some("environment".to_owned());
    global.token_file = Some(path);
    assert_eq!(credentials.token(&global, true).expect("a token"), "filed");
    assert_eq!(credentials.token(&global, false).expect("a token"), "filed");
}

#[test]
fn without_a_token_it_says_how_to_get_one() {
    let (mut global, _) = parsed(&["tenure", "queues"]);
    global.token = None;
    let failure = Credentials::default()
        .token(&global, false)
        .expect_err("none");
    assert_eq!(failure.exit, Exit::NotAllowed);
    assert!(failure.hints[0].contains("tenure token"));
}

#[test]
fn addresses_are_checked() {
    let (global, _) = parsed(&["tenure", "queues"]);
    for wrong in ["127.0.0.1:7400", "ftp://x", "http://", "http://a b"] {
        let failure = endpoint(wrong, "--gateway", &global).expect_err(wrong);
        assert_eq!(failure.exit, Exit::Usage, "{wrong}");
    }
    assert!(endpoint("http://[::1]:7400", "--gateway", &global).is_ok());
}

#[test]
fn an_authority_for_an_address_without_tls_is_refused() {
    let (mut global, _) = parsed(&["tenure", "queues"]);
    global.ca_file = Some("ca.pem".into());
    let failure = endpoint("http://127.0.0.1:7400", "--gateway", &global).expect_err("no TLS");
    assert_eq!(failure.exit, Exit::Usage);
    assert!(
        failure.message.contains("is for https"),
        "{}",
        failure.message
    );
}

#[test]
fn a_file_without_certificates_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, "hello").expect("writes");
    assert_eq!(
        certificates(Some(&path)).expect_err("no PEM").exit,
        Exit::Usage
    );
}
