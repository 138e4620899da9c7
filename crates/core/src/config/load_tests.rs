use std::io::Write as _;
use std::time::Duration;

use super::*;

fn file(text: &str) -> TempFile {
    TempFile::new(text)
}

/// A file in the system's folder for such, removed at the end.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tenure-config-{}", uuid::Uuid::now_v7()));
        let mut file = std::fs::File::create_new(&path).expect("create");
        file.write_all(text.as_bytes()).expect("write");
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(k, v)| (k.into(), v.into())).collect()
}

fn problems(file: Option<&Path>, pairs: &[(&str, &str)]) -> String {
    Config::load_from(file, env(pairs))
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn without_anything_there_are_the_defaults() {
    let config = Config::load_from(None, env(&[("HOME", "/"), ("TENURE_TOKEN", "x")]));
    assert_eq!(config, Ok(Config::default()));
}

#[test]
fn the_environment_wins_over_the_file() {
    let file = file("[worker]\nslots = 8\nlease = \"12s\"\n[files]\nmax_bytes = 77\n");
    let config = Config::load_from(
        Some(&file.0),
        env(&[
            ("TENURE_LEASE", "10s"),
            ("TENURE_WORKER__QUEUES", "a, b"),
            ("TENURE_WORKER__DIAGNOSTICS", "true"),
            ("TENURE_RETRY__JITTER", "0.5"),
            ("TENURE_BACKOFF_BASE", "100ms"),
            ("TENURE_GATEWAY__MAX_MESSAGE_BYTES", "1 MiB"),
            ("TENURE_GATEWAY__LISTEN", "127.0.0.1:0"),
            ("DATABASE_URL", "postgres://u:pw@h/db"),
            ("AMQP_URL", ""),
        ]),
    )
    .expect("valid");
    assert_eq!(config.worker.slots, 8);
    assert_eq!(config.worker.lease, Duration::from_secs(10));
    assert_eq!(config.worker.queues, ["a", "b"]);
    assert!(config.worker.diagnostics);
    assert!((config.retry.jitter - 0.5).abs() < f64::EPSILON);
    assert_eq!(config.retry.backoff_base, Some(Duration::from_millis(100)));
    assert_eq!(config.gateway.max_message_bytes, 1 << 20);
    assert_eq!(config.gateway.listen.port(), 0);
    assert_eq!(config.files.max_bytes, 77);
    assert_eq!(config.database.url.expose(), "postgres://u:pw@h/db");
    assert!(config.broker.url.is_empty());
}

#[test]
fn all_problems_are_told_at_once_with_their_place() {
    let file =
        file("[worker]\nslot = 8\nlease = 10\n[workr]\nx = 1\n[database]\nmax_connections = -1\n");
    let text = problems(
        Some(&file.0),
        &[
            ("TENURE_GATEWAY__WRITER", "2"),
            ("TENURE_GATEWY__LISTEN", "x"),
            ("TENURE_SLOTS", "many"),
            ("TENURE_GATEWAY__LISTEN", "localhost"),
            ("TENURE_BROKER__QUEUE_TYPE", "stream"),
        ],
    );
    for part in [
        "unknown key `worker.slot`; did you mean `worker.slots`?",
        "unknown section `workr`; did you mean `worker`?",
        "TENURE_GATEWAY__WRITER: unknown key `gateway.writer`; did you mean `gateway.writers`?",
        "TENURE_GATEWY__LISTEN: unknown section `gatewy`; did you mean `gateway`?",
        "TENURE_SLOTS: `many` is not a whole number",
        "worker.lease (from ",
        "a duration: write a number with a unit",
        "database.max_connections (from ",
        "gateway.listen (from TENURE_GATEWAY__LISTEN): ",
        "broker.queue_type (from TENURE_BROKER__QUEUE_TYPE): ",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert_eq!(text.lines().count(), 9, "{text}");
}

#[test]
fn a_broken_file_is_named_by_line_and_shows_no_secret() {
    let file = file("[auth]\nsecret = \"hunter2hunter2\n");
    let text = problems(Some(&file.0), &[]);
    assert!(text.contains("line 2"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let file = self::file("[auth]\nsecret = 424242\n");
    let text = problems(Some(&file.0), &[]);
    assert!(
        text.contains("auth.secret") && !text.contains("424242"),
        "{text}"
    );
    assert!(problems(Some(Path::new("/no/such/file")), &[]).contains("cannot be read"));
}

#[test]
fn secrets_come_from_files_too() {
    let secret = file("  s3cret-s3cret-s3cret-s3cret-s3cret\n");
    let path = secret.0.to_str().expect("utf-8");
    let config = Config::load_from(None, env(&[("TENURE_JWT_SECRET_FILE", path)])).expect("valid");
    assert_eq!(
        config.auth.secret.expose(),
        "s3cret-s3cret-s3cret-s3cret-s3cret"
    );
    let both = problems(
        None,
        &[("TENURE_JWT_SECRET_FILE", path), ("TENURE_JWT_SECRET", "x")],
    );
    assert!(both.contains("set one of the two"), "{both}");
    // What the environment says directly wins over a path in the file.
    let toml = file(&format!("[auth]\nsecret_file = \"{path}\"\n"));
    let config = Config::load_from(Some(&toml.0), env(&[("TENURE_JWT_SECRET", "direct")]));
    assert_eq!(config.expect("valid").auth.secret.expose(), "direct");
    let empty = file("\n");
    let path = empty.0.to_str().expect("utf-8");
    assert!(problems(None, &[("TENURE_DATABASE__URL_FILE", path)]).contains("is empty"));
}

#[test]
fn two_names_of_one_key_must_agree() {
    let text = problems(
        None,
        &[("TENURE_LEASE", "10s"), ("TENURE_WORKER__LEASE", "20s")],
    );
    assert!(text.contains("different values"), "{text}");
    let same = env(&[("TENURE_LEASE", "10s"), ("TENURE_WORKER__LEASE", "10s")]);
    assert!(Config::load_from(None, same).is_ok());
}

#[test]
fn the_dump_masks_secrets_and_reads_back() {
    let config = Config::load_from(
        None,
        env(&[
            ("DATABASE_URL", "postgres://u:hunter2@h/db"),
            ("TENURE_JWT_SECRET", "hunter2hunter2"),
            ("TENURE_LEASE", "10s"),
        ]),
    )
    .expect("valid");
    let text = config.to_masked_toml();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("lease = \"10s\""), "{text}");
    assert!(text.contains("postgres://u:***@h/db"), "{text}");
    let file = file(&text);
    let back = Config::load_from(Some(&file.0), env(&[])).expect("reads back");
    assert_eq!(back.worker, config.worker);
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn every_short_name_sets_a_known_key() {
    for (short, path) in SHORT_NAMES {
        let (section, key) = target_of(short).expect("known").expect("ours");
        assert_eq!(format!("{section}.{key}"), *path);
        assert_eq!(unknown(&section, &key), None, "{short}");
    }
}
