//! What imports have brought in, as callers see it.

use serde_json::Value;
use tenure_proto::v1::{Dataset, Job, ListDatasetsRequest, ListRowsRequest, Row};
use tonic::Status;

use crate::caller::{Caller, result};

impl Caller {
    /// All data sets of the caller, read in pages of two.
    ///
    /// # Errors
    /// The refusal.
    pub async fn all_datasets(&self) -> Result<Vec<Dataset>, Status> {
        let mut all = Vec::new();
        let mut request = ListDatasetsRequest {
            page_size: 2,
            ..ListDatasetsRequest::default()
        };
        loop {
            let answer = self.datasets().list_datasets(request.clone()).await?;
            let page = answer.into_inner();
            all.extend(page.datasets);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// All rows that a request finds, page by page.
    ///
    /// # Errors
    /// The refusal.
    pub async fn all_rows(&self, mut request: ListRowsRequest) -> Result<Vec<Row>, Status> {
        let mut all = Vec::new();
        loop {
            let page = self.datasets().list_rows(request.clone()).await?;
            let page = page.into_inner();
            all.extend(page.rows);
            if page.next_page_token.is_empty() {
                return Ok(all);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// The content of a file that a job's result names.
    ///
    /// # Panics
    /// Where the result does not name it, or it cannot be read.
    pub async fn result_file(&self, job: &Job, key: &str) -> Vec<u8> {
        let result = result(job);
        let id = result[key].as_str();
        let id = id.unwrap_or_else(|| panic!("{key} in {result}"));
        self.download(id).await.expect("the file's bytes")
    }

    /// The report of an import that has ended with success.
    ///
    /// # Panics
    /// Where it has none.
    pub async fn report(&self, job: &Job) -> Value {
        let content = self.result_file(job, "report_file_id").await;
        serde_json::from_slice(&content).expect("the report's JSON")
    }
}

/// All rows of a data set.
pub fn rows_of(dataset: &str) -> ListRowsRequest {
    ListRowsRequest {
        dataset: dataset.to_owned(),
        ..ListRowsRequest::default()
    }
}

/// The records of a CSV file whose fields are all quoted, without its byte order mark.
///
/// # Panics
/// Where the file is not of this form.
pub fn quoted_csv(content: &[u8]) -> Vec<Vec<String>> {
    let text = std::str::from_utf8(content).expect("UTF-8");
    let text = text.strip_prefix('\u{feff}').expect("a byte order mark");
    let mut records = Vec::new();
    let mut record = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.strip_prefix('"').expect("a quoted field");
        let mut field = String::new();
        loop {
            let (part, behind) = rest.split_once('"').expect("a closing quote");
            field.push_str(part);
            rest = behind;
            match rest.strip_prefix('"') {
                Some(behind) => {
                    field.push('"');
                    rest = behind;
                }
                None => break,
            }
        }
        record.push(field);
        if let Some(behind) = rest.strip_prefix("\r\n") {
            records.push(std::mem::take(&mut record));
            rest = behind;
        } else {
            rest = rest.strip_prefix(',').expect("a comma");
        }
    }
    assert!(record.is_empty(), "the last line has no end");
    records
}
