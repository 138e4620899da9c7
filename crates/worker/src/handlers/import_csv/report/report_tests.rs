use chrono::{DateTime, Utc};
use tenure_core::storage::imports::Position;

use super::*;

const EVIL: &str = "<script>alert(1)</script>\u{202e}\"'&";

struct Case {
    payload: Payload,
    plan: Plan,
    checkpoint: Checkpoint,
    rejects: Vec<Reject>,
    groups: Vec<RejectGroup>,
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

fn case(rejected: i64, payload: Value) -> Case {
    let mut wished = json!({"file_id": FileId::new()});
    for (key, value) in payload.as_object().expect("an object") {
        wished[key] = value.clone();
    }
    let plan = json!({
        "delimiter": ";", "header": ["a"], "columns": [[0, {"name": EVIL, "type": "decimal"}]],
        "decimal_comma": true, "warnings": [EVIL], "started_at": "2024-01-01T00:00:00Z",
        "encoding": "windows-1252", "compression": "gzip", "text_bytes": 10,
    });
    let reject = |line: i64| Reject {
        line,
        column: EVIL.into(),
        reason: "BAD_DECIMAL".into(),
        message: format!("'{EVIL}' is not a number"),
        value: Some(EVIL.into()),
        original: None,
    };
    Case {
        payload: Payload::parse(wished.to_string().as_bytes()).expect("a payload"),
        plan: serde_json::from_value(plan.clone()).expect("a plan"),
        checkpoint: Checkpoint {
            position: Position {
                byte_offset: 10,
                line_no: 2,
                batch_no: 3,
                rows_accepted: 2_000,
                rows_rejected: rejected,
            },
            plan,
            updated_at: at("2024-01-01T00:00:02Z"),
        },
        rejects: (2..2 + rejected.min(REPORT_REJECTS as i64))
            .map(reject)
            .collect(),
        groups: (rejected > 0)
            .then(|| RejectGroup {
                reason: "BAD_DECIMAL".into(),
                column: EVIL.into(),
                rejects: rejected,
            })
            .into_iter()
            .collect(),
    }
}

impl Case {
    fn finished<'f>(&'f self, home: Home<'f>, failure: Option<&'f str>) -> Finished<'f> {
        Finished {
            job_id: JobId::new(),
            bytes: 12_345,
            file_name: EVIL,
            home,
            payload: &self.payload,
            plan: &self.plan,
            checkpoint: &self.checkpoint,
            rejects: &self.rejects,
            groups: &self.groups,
            failure,
            event_id: Uuid::now_v7(),
        }
    }
}

#[test]
fn one_event_has_one_file_of_each_part() {
    let (one, other) = (Uuid::now_v7(), Uuid::now_v7());
    let mut seen = std::collections::HashSet::new();
    for part in [Part::Json, Part::Html, Part::Rejects] {
        assert_eq!(part.file_id(one), part.file_id(one));
        let id = part.file_id(one);
        assert_eq!(id.to_string().parse::<FileId>().ok(), Some(id));
        assert!(seen.insert(id) && seen.insert(part.file_id(other)));
    }
}

#[test]
fn the_report_for_programs() {
    let case = case(1_500, json!({"mode": "replace", "validate_only": true}));
    let finished = case.finished(Home::Dataset("set"), Some("too many"));
    let report: Value = serde_json::from_slice(&finished.json()).expect("JSON");
    for (key, value) in [
        ("report", json!("import_csv/2")),
        ("dataset", json!("set")),
        ("mode", json!("replace")),
        ("validate_only", json!(true)),
        ("failure", json!("too many")),
        ("encoding", json!("windows-1252")),
        ("compression", json!("gzip")),
        ("rows_accepted", json!(2000)),
        ("rows_rejected", json!(1500)),
    ] {
        assert_eq!(report[key], value, "{key}");
    }
    assert_eq!(report["timing"]["duration_ms"], 2_000);
    assert_eq!(report["timing"]["rows_per_second"], 1_750);
    assert_eq!(report["timing"]["batches"], 3);
    assert_eq!(report["rejects"].as_array().map(Vec::len), Some(1_000));
    assert!(
        report["rejects_note"]
            .as_str()
            .is_some_and(|n| n.starts_with("500 more"))
    );
    assert_eq!(report["rejects_by_reason"][0]["rows"], 1_500);
    assert!(report.get("table").is_none());
}

#[test]
fn the_result_names_its_files_and_fits_its_room() {
    let some = case(3, json!({"webhook": "https://example.com"}));
    let finished = some.finished(Home::Table("crm.contacts"), None);
    let result = finished.result();
    let id = |part: Part| json!(part.file_id(finished.event_id).to_string());
    assert_eq!(result["report_file_id"], id(Part::Json));
    assert_eq!(result["report_html_file_id"], id(Part::Html));
    assert_eq!(result["rejects_file_id"], id(Part::Rejects));
    assert_eq!(result["table"], "crm.contacts");
    assert_eq!(result["reject_samples"].as_array().map(Vec::len), Some(3));
    assert!(result.to_string().len() < 64 * 1024);
    let webhook = finished.webhook("https://example.com");
    assert_eq!(webhook["event"], "import.finished");
    assert_eq!(webhook["data"], finished.notification()["data"]);
    assert_eq!(webhook["data"]["rejects_file_id"], id(Part::Rejects));
    let none = case(0, json!({}));
    let result = none.finished(Home::Dataset("set"), None).result();
    assert!(result.get("rejects_file_id").is_none() && result.get("table").is_none());
}

#[test]
fn the_page_for_people_runs_nothing_of_the_file() {
    for (rejected, failure) in [(0, None), (1_234, None), (7, Some(EVIL))] {
        let case = case(rejected, json!({}));
        let page = case
            .finished(Home::Dataset(EVIL), failure)
            .html()
            .expect("a page");
        let page = std::str::from_utf8(&page).expect("UTF-8");
        assert!(!page.contains("<script"), "{page}");
        // What turns the writing direction cannot leave its element.
        for (at, _) in page.match_indices('\u{202e}') {
            let before = &page[..at];
            let open = before.rfind("<bdi>").zip(before.rfind("</bdi>"));
            let inside = open.map_or(before.contains("<bdi>"), |(open, close)| open > close);
            assert!(
                inside
                    || before
                        .rfind("<title>")
                        .is_some_and(|t| !before[t..].contains("</title>"))
            );
        }
        assert!(!page.contains("http://") && !page.contains("https://"));
        let told = |text: &str| page.contains(text);
        assert!(told("<b>2,000</b>"));
        assert_eq!(told("The first rejected rows"), rejected > 0);
        assert_eq!(told("1,134 more are not shown"), rejected == 1_234);
        assert_eq!(told(">Failed<"), failure.is_some());
    }
}
