//! Imports that are refused for what their file is, or for what was said about it.

use serde_json::json;
use tenure_tests::v1::ErrorClass;
use tenure_tests::{JobState, Stack};

use super::BOUND;

#[tokio::test]
async fn an_import_that_cannot_be_read_says_why_and_is_not_tried_again() {
    let stack = Stack::builder().start().await;
    let ann = stack.user("ann");
    let names: Vec<String> = (0..=1000).map(|n| format!("c{n}")).collect();
    let wide = format!("{}\n", names.join(","));
    for (name, content, more, code, part) in [
        (
            "wide.csv",
            wide.as_str(),
            json!({}),
            "CSV_TOO_MANY_COLUMNS",
            "1000",
        ),
        (
            "one.csv",
            "only\nx\n",
            json!({}),
            "CSV_NO_DELIMITER",
            "delimiter",
        ),
        (
            "two.csv",
            "1,Anna\n2,Bea\n",
            json!({"header": false, "columns": [{"name": "id"}]}),
            "CSV_SCHEMA_INVALID",
            "has 2 fields",
        ),
    ] {
        let job_id = ann.import(name, content.as_bytes(), more).await;
        let job = ann.wait_state(&job_id, JobState::Failed, BOUND).await;
        let error = job.last_error.as_ref().expect("an error");
        assert_eq!(error.code, code, "{name}: {}", error.message);
        assert_eq!(error.error_class(), ErrorClass::Permanent, "{name}");
        assert!(error.message.contains(part), "{name}: {}", error.message);
        assert_eq!(job.attempt, 1, "{name}");
    }
}
