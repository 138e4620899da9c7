//! `datasets` and `rows`: what imports have brought in.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_proto::v1;

use crate::args::{DatasetListArgs, DatasetRemoveArgs, DatasetsArgs, DatasetsVerb, RowsArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, cut, escape, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::view::datasets::{Dataset, DatasetList, RemovedDataset, Row, RowList};

/// So many characters of a value stand in the table.
const SHOWN: usize = 40;

/// `tenure datasets`.
pub(crate) async fn run(
    client: &Client,
    args: DatasetsArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match args.verb {
        None => list(client, args.list, out).await,
        Some(DatasetsVerb::Remove(args)) => remove(client, args, out).await,
    }
}

async fn remove(
    client: &Client,
    args: DatasetRemoveArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let call = |request| {
        let mut datasets = client.datasets();
        async move { datasets.delete_dataset(request).await }
    };
    let request = v1::DeleteDatasetRequest {
        dataset: args.dataset.clone(),
        user_id: args.user.unwrap_or_default(),
    };
    // Not sent again: where the first one was heard, the second would not find the data set.
    client.unary(0, request, call).await?;
    let removed = RemovedDataset {
        dataset: args.dataset,
        removed: true,
    };
    out.emit(&removed, |it| format!("removed: {}\n", escape(&it.dataset)))?;
    Ok(Exit::Ok)
}

async fn list(client: &Client, args: DatasetListArgs, out: &mut Output) -> Result<Exit, Failure> {
    let user_id = args.user.unwrap_or_default();
    let (datasets, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListDatasetsRequest {
            page_size,
            page_token,
            user_id: user_id.clone(),
        };
        let call = |request| {
            let mut datasets = client.datasets();
            async move { datasets.list_datasets(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.datasets, page.next_page_token))
    })
    .await?;
    let list = DatasetList {
        datasets: datasets.into_iter().map(Dataset::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        let header = ["DATASET", "ROWS", "IMPORTS", "CHANGED"];
        let row = |it: &Dataset| {
            vec![
                it.name.clone(),
                it.rows.to_string(),
                it.imports.to_string(),
                it.update_time.clone().unwrap_or_default(),
            ]
        };
        if list.datasets.is_empty() {
            return NOTHING.to_owned();
        }
        let mut text = table(&header, list.datasets.iter().map(row));
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

/// `tenure rows`.
pub(crate) async fn rows(
    client: &Client,
    args: RowsArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let filters = v1::ListRowsRequest {
        dataset: args.dataset,
        user_id: args.user.unwrap_or_default(),
        job_id: args.job_id.unwrap_or_default(),
        ..v1::ListRowsRequest::default()
    };
    let (rows, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListRowsRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut datasets = client.datasets();
            async move { datasets.list_rows(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.rows, page.next_page_token))
    })
    .await?;
    let list = RowList {
        rows: rows.into_iter().map(Row::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, rows_text)?;
    Ok(Exit::Ok)
}

/// The rows as a table with a column for each name that one of them has. The rows' own
/// order of names is the database's, and says nothing.
fn rows_text(list: &RowList) -> String {
    let objects: Vec<BTreeMap<String, Value>> = list.rows.iter().map(Row::values).collect();
    let names: BTreeSet<&str> = objects
        .iter()
        .flat_map(|values| values.keys().map(String::as_str))
        .collect();
    // Lines are numbered file by file.
    let first = list.rows.first().map(|row| row.job_id.as_str());
    let several = list
        .rows
        .iter()
        .any(|row| Some(row.job_id.as_str()) != first);
    let header: Vec<&str> = several
        .then_some("IMPORT")
        .into_iter()
        .chain(["LINE"])
        .chain(names.iter().copied())
        .collect();
    let lines = list.rows.iter().zip(&objects).map(|(row, values)| {
        let cell = |name: &&str| values.get(*name).map_or_else(String::new, shown);
        several
            .then(|| row.job_id.clone())
            .into_iter()
            .chain([row.line.to_string()])
            .chain(names.iter().map(cell))
            .collect()
    });
    let mut text = table(&header, lines);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => cut(text, SHOWN),
        other => cut(&other.to_string(), SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: i64, data: &str) -> Row {
        Row::from(v1::Row {
            job_id: "j".to_owned(),
            line,
            data: data.to_owned(),
        })
    }

    #[test]
    fn rows_stand_under_their_columns_with_all_digits() {
        let list = RowList {
            rows: vec![
                row(2, r#"{"id":1,"amount":10.50,"name":"Ann"}"#),
                row(3, r#"{"id":2,"amount":null,"more":"a\nb\u001b"}"#),
            ],
            next_page_token: None,
        };
        let text = rows_text(&list);
        let head = text.lines().next().unwrap_or_default();
        assert_eq!(
            head.split_whitespace().collect::<Vec<_>>(),
            ["LINE", "amount", "id", "more", "name"]
        );
        assert!(text.contains("10.50"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    fn shown_rows(rows: Vec<Row>) -> Vec<Vec<String>> {
        let list = RowList {
            rows,
            next_page_token: None,
        };
        let text = rows_text(&list);
        text.lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn an_empty_text_is_no_null_and_a_heading_does_nothing() {
        let rows = vec![
            row(2, r#"{"a\u001b[31m":"","b":1}"#),
            row(3, r#"{"a\u001b[31m":null,"b":2}"#),
        ];
        assert_eq!(
            shown_rows(rows),
            [
                vec!["LINE", r"a\u{1b}[31m", "b"],
                vec!["2", "\"\"", "1"],
                vec!["3", "2"]
            ]
        );
    }

    #[test]
    fn rows_of_several_imports_name_theirs() {
        let other = |line| Row {
            job_id: "k".to_owned(),
            ..row(line, r#"{"a":1}"#)
        };
        assert_eq!(
            shown_rows(vec![row(2, r#"{"a":1}"#), other(2)]),
            [
                vec!["IMPORT", "LINE", "a"],
                vec!["j", "2", "1"],
                vec!["k", "2", "1"]
            ]
        );
    }
}
