//! Tells the owners of imports that have failed for good: in their inbox, and by the webhook
//! that the import names. Whoever fails a job (a worker, or a sweeper that finds its attempts
//! spent) only leaves a note, so that all ends are told alike.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure_core::error::Result;
use tenure_core::storage::Store;
use tenure_core::storage::imports::{FailedImport, NewsJob, tell_failed};

use super::Chore;

/// The pause between two runs.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The imports of one run.
const BATCH: i64 = 100;

/// The chore.
#[derive(Debug)]
pub struct TellFailedImports {
    store: Store,
}

impl TellFailedImports {
    /// Tells of the imports in this database.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

impl Chore for TellFailedImports {
    const NAME: &'static str = "failed_imports";

    async fn run_once(&mut self) -> Result<bool> {
        let told = tell_failed(&self.store, BATCH, news).await?;
        Ok(told == BATCH)
    }
}

/// The jobs that tell of it.
fn news(failed: &FailedImport) -> Vec<NewsJob> {
    let wishes: Value = serde_json::from_slice(&failed.payload).unwrap_or_default();
    let data = data(failed, &wishes);
    // Each failure is told once; after a replay it is another one.
    let key = match failed.failures {
        1 => failed.job_id.to_string(),
        more => format!("{}/{more}", failed.job_id),
    };
    let mut jobs = vec![NewsJob {
        job_type: "notify",
        payload: json!({"template": "import_failed", "key": key, "data": data})
            .to_string()
            .into_bytes(),
    }];
    if let Some(url) = wishes["webhook"].as_str().filter(|url| is_address(url)) {
        jobs.push(NewsJob {
            job_type: "notify_webhook",
            payload: json!({"url": url, "event": "import.failed", "data": data})
                .to_string()
                .into_bytes(),
        });
    }
    jobs
}

/// Whether a job that calls it could be submitted: an import may have failed since its
/// payload is not what it should be.
fn is_address(url: &str) -> bool {
    (url.starts_with("https://") || url.starts_with("http://")) && url.len() <= 2048
}

/// What is told: the names are those of the news of a success.
fn data(failed: &FailedImport, wishes: &Value) -> Value {
    let mut data = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            data.insert(name.to_owned(), value);
        }
    };
    put("job_id", json!(failed.job_id.to_string()));
    put("code", json!(failed.code));
    put("message", json!(failed.message));
    put("file_id", json!(wishes["file_id"].as_str()));
    let validate_only = wishes["validate_only"].as_bool().unwrap_or_default();
    put("validate_only", json!(validate_only));
    if let Some((accepted, rejected)) = failed.rows {
        put("rows_accepted", json!(accepted));
        put("rows_rejected", json!(rejected));
    }
    if let Some(table) = wishes["target"]["table"].as_str() {
        put("table", json!(table));
        put("mode", json!(wishes["target"]["mode"].as_str()));
    } else {
        let asked = wishes["dataset"].as_str().map(str::trim);
        put("dataset", json!(failed.dataset.as_deref().or(asked)));
        put("mode", json!(wishes["mode"].as_str().unwrap_or("append")));
    }
    let files = failed.files;
    for (name, file) in [
        ("report_file_id", files.report),
        ("report_html_file_id", files.html),
        ("rejects_file_id", files.rejects),
    ] {
        put(name, json!(file.map(|id| id.to_string())));
    }
    Value::Object(data)
}

#[cfg(test)]
mod tests {
    use tenure_core::domain::ids::JobId;
    use tenure_core::storage::imports::ImportFiles;

    use super::*;

    fn told(payload: &str, failures: i32) -> Vec<(&'static str, Value)> {
        let failed = FailedImport {
            job_id: JobId::new(),
            failures,
            code: "CSV_EMPTY".to_owned(),
            message: "the file is empty".to_owned(),
            payload: payload.as_bytes().to_vec(),
            rows: None,
            dataset: None,
            files: ImportFiles::default(),
        };
        let jobs = news(&failed).into_iter();
        jobs.map(|job| {
            (
                job.job_type,
                serde_json::from_slice(&job.payload).expect("JSON"),
            )
        })
        .collect()
    }

    #[test]
    fn a_payload_of_any_form_is_told_of() {
        for payload in ["", "{", "[]", "7", r#"{"webhook": 7, "target": "x"}"#] {
            let jobs = told(payload, 1);
            assert_eq!(jobs.len(), 1, "{payload}");
            let (job_type, news) = &jobs[0];
            assert_eq!(
                (*job_type, &news["template"]),
                ("notify", &json!("import_failed"))
            );
            assert_eq!(news["data"]["code"], "CSV_EMPTY");
            assert_eq!(news["key"], news["data"]["job_id"]);
        }
        assert_eq!(told(r#"{"webhook": "file:///etc/passwd"}"#, 1).len(), 1);
    }

    #[test]
    fn what_was_wished_is_told_and_each_failure_is_another() {
        let payload = r#"{"file_id": "f", "dataset": " people ", "mode": "replace", "webhook": "https://a.example/x"}"#;
        let (first, second) = (told(payload, 1), told(payload, 2));
        let (job_type, call) = &first[1];
        assert_eq!(*job_type, "notify_webhook");
        assert_eq!(
            (&call["url"], &call["event"]),
            (&json!("https://a.example/x"), &json!("import.failed"))
        );
        assert_eq!(call["data"], first[0].1["data"]);
        assert_eq!(call["data"]["dataset"], "people");
        assert_eq!(call["data"]["mode"], "replace");
        assert!(call["data"].get("report_file_id").is_none());
        let key = second[0].1["key"].as_str().expect("a key");
        assert!(key.ends_with("/2"), "{key}");
        let table = told(r#"{"target": {"table": "t", "mode": "upsert"}}"#, 1);
        assert_eq!(
            (&table[0].1["data"]["table"], &table[0].1["data"]["mode"]),
            (&json!("t"), &json!("upsert"))
        );
    }
}
