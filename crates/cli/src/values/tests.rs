use super::*;

#[test]
fn durations_are_read() {
    for (text, ms) in [
        ("500ms", 500),
        ("30s", 30_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("0s", 0),
    ] {
        assert_eq!(
            parse_duration(text),
            Ok(Duration::from_millis(ms)),
            "{text}"
        );
    }
    for text in [
        "",
        "10",
        "s",
        "1.5h",
        "-3s",
        "10 s",
        "1w",
        "99999999999999999999s",
        "9223372036854775807s",
    ] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn durations_are_shown_as_they_are_read() {
    for text in [
        "0ms", "250ms", "59s", "1m", "1m30s", "2h", "2h5m", "3d", "3d4h",
    ] {
        let duration = parse_duration(text).expect(text);
        assert_eq!(human_duration(duration), text);
    }
}

#[test]
fn sizes_have_a_unit() {
    for (bytes, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_863, "1.4 MiB"),
        (u64::MAX, "16777215.9 TiB"),
    ] {
        assert_eq!(human_size(bytes), text);
    }
}

#[test]
fn times_are_read_both_ways() {
    let now = DateTime::from_timestamp(1_000, 0).expect("in range");
    let later = parse_when("+10m")
        .expect("reads")
        .from(now)
        .expect("in range");
    assert_eq!(later.seconds, 1_600);
    let then = parse_when("1970-01-01T02:00:00.5+01:00").expect("reads");
    let then = then.from(now).expect("in range");
    assert_eq!((then.seconds, then.nanos), (3_600, 500_000_000));
    assert!(parse_when("tomorrow").is_err());
    assert!(parse_when("10m").is_err());
    assert!(
        parse_when("+99999999999d")
            .expect("reads")
            .from(now)
            .is_err()
    );
}

#[test]
fn the_past_is_read_both_ways() {
    let now = DateTime::from_timestamp(10_000, 0).expect("in range");
    let read = |text: &str| parse_past(text).expect("reads").from(now);
    assert_eq!(read("2h").expect("in range").seconds, 2_800);
    let then = read("1970-01-01T00:00:07Z").expect("in range");
    assert_eq!(then.seconds, 7);
    assert!(read("99999999999d").is_err());
    assert!(parse_past("yesterday").is_err());
}

#[test]
fn ids_are_words_and_come_once() {
    assert_eq!(split_ids(" a\n\nb c\r\n"), ["a", "b", "c"]);
    let ids = read_ids(vec!["a".to_owned(), "b".to_owned(), "a".to_owned()]);
    assert_eq!(ids.expect("ids"), ["a", "b"]);
}

#[test]
fn times_are_told_from_now() {
    let now = DateTime::from_timestamp(100, 0).expect("in range");
    assert_eq!(
        relative("1970-01-01T00:02:40Z", now).as_deref(),
        Some("in 1m")
    );
    assert_eq!(
        relative("1970-01-01T00:00:10Z", now).as_deref(),
        Some("1m30s ago")
    );
    assert_eq!(
        relative("1970-01-01T00:01:40Z", now).as_deref(),
        Some("now")
    );
    assert_eq!(relative("soon", now), None);
}

#[test]
fn labels_are_pairs_and_keys_come_once() {
    assert_eq!(parse_label("a=b=c"), Ok(("a".into(), "b=c".into())));
    assert!(parse_label("=b").is_err());
    assert!(parse_label("ab").is_err());
    let twice = vec![("a".into(), "1".into()), ("a".into(), "2".into())];
    assert!(labels(twice).is_err());
}

#[test]
fn payloads_keep_their_bytes() {
    let text = r#"{ "n": 12345678901234567890.123456789012345678 }"#;
    assert_eq!(read_payload(text).expect("an object"), text.as_bytes());
    for wrong in ["", "[1]", "7", "{", "{} {}", "{'a':1}"] {
        assert!(read_payload(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn payloads_come_from_files_without_their_mark() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("p.json");
    std::fs::write(&path, b"\xef\xbb\xbf{\"a\":1}").expect("writes");
    let bytes = read_payload(&format!("@{}", path.display())).expect("reads");
    assert_eq!(bytes, b"{\"a\":1}");
    let missing = read_payload("@/nowhere/at/all").expect_err("is not there");
    assert!(
        missing.message.contains("/nowhere/at/all"),
        "{}",
        missing.message
    );
}

#[test]
fn timestamps_are_rfc3339() {
    let time = |seconds, nanos| Timestamp { seconds, nanos };
    assert_eq!(
        rfc3339(&time(0, 0)).as_deref(),
        Some("1970-01-01T00:00:00Z")
    );
    assert_eq!(
        rfc3339(&time(1, 250_000_000)).as_deref(),
        Some("1970-01-01T00:00:01.250Z")
    );
    assert_eq!(rfc3339(&time(i64::MAX, 0)), None);
    assert_eq!(rfc3339(&time(0, -1)), None);
}

#[test]
fn a_folder_is_no_small_file() {
    let dir = tempfile::tempdir().expect("a folder");
    for path in [dir.path().to_owned(), dir.path().join("missing")] {
        let failure = read_small_file(&path).expect_err("is no file");
        assert_eq!(failure.exit, crate::errors::Exit::Usage);
    }
}

#[test]
fn an_empty_filter_is_no_filter() {
    assert_eq!(given("ann"), Ok("ann".to_owned()));
    assert!(given("").is_err());
}
