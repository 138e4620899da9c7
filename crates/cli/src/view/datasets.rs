//! The shapes of `datasets` and `rows`.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_proto::v1;

use super::{Embedded, time};

/// A page of data sets, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct DatasetList {
    pub(crate) datasets: Vec<Dataset>,
    pub(crate) next_page_token: Option<String>,
}

/// A data set.
#[derive(Debug, Serialize)]
pub(crate) struct Dataset {
    pub(crate) dataset_id: String,
    pub(crate) user_id: String,
    pub(crate) name: String,
    pub(crate) rows: i64,
    pub(crate) imports: i32,
    pub(crate) create_time: Option<String>,
    pub(crate) update_time: Option<String>,
}

impl From<v1::Dataset> for Dataset {
    fn from(it: v1::Dataset) -> Self {
        Self {
            dataset_id: it.dataset_id,
            user_id: it.user_id,
            name: it.name,
            rows: it.rows,
            imports: it.imports,
            create_time: time(it.create_time),
            update_time: time(it.update_time),
        }
    }
}

/// A data set that is not there any more.
#[derive(Debug, Serialize)]
pub(crate) struct RemovedDataset {
    pub(crate) dataset: String,
    pub(crate) removed: bool,
}

/// A page of rows, or several pages in one.
#[derive(Debug, Serialize)]
pub(crate) struct RowList {
    pub(crate) rows: Vec<Row>,
    pub(crate) next_page_token: Option<String>,
}

/// A row; its values keep the digits that they came with.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) job_id: String,
    pub(crate) line: i64,
    pub(crate) data: Option<Box<RawValue>>,
}

impl From<v1::Row> for Row {
    fn from(it: v1::Row) -> Self {
        Self {
            job_id: it.job_id,
            line: it.line,
            data: Embedded::new(it.data.as_bytes()).json,
        }
    }
}

impl Row {
    /// The values by name. Numbers are given as their text, so that they keep their digits.
    pub(crate) fn values(&self) -> BTreeMap<String, Value> {
        let Some(data) = &self.data else {
            return BTreeMap::new();
        };
        let object: BTreeMap<String, &RawValue> =
            serde_json::from_str(data.get()).unwrap_or_default();
        object
            .into_iter()
            .map(|(name, raw)| {
                let value = match serde_json::from_str(raw.get()) {
                    Ok(Value::Number(_)) | Err(_) => Value::String(raw.get().to_owned()),
                    Ok(value) => value,
                };
                (name, value)
            })
            .collect()
    }
}
