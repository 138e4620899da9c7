//! `datasets` and `rows`: what imports have brought in.

use serde_json::Value;
use tenure_proto::v1;

use crate::args::{DatasetsArgs, RowsArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, table};
use crate::pages::{more_text, pages};
use crate::view::datasets::{Dataset, DatasetList, Row, RowList};

/// So many characters of a value stand in the table.
const SHOWN: usize = 40;

/// `tenure datasets`.
pub(crate) async fn list(
    client: &Client,
    args: DatasetsArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
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

/// The rows as a table with a column for each name that one of them has.
fn rows_text(list: &RowList) -> String {
    let objects: Vec<Vec<(String, Value)>> = list.rows.iter().map(Row::values).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in objects.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let header: Vec<&str> = std::iter::once("LINE")
        .chain(names.iter().copied())
        .collect();
    let lines = list.rows.iter().zip(&objects).map(|(row, values)| {
        let cell = |name: &&str| {
            let value = values.iter().find(|(key, _)| key == name);
            value.map_or_else(String::new, |(_, value)| shown(value))
        };
        std::iter::once(row.line.to_string())
            .chain(names.iter().map(cell))
            .collect()
    });
    let mut text = table(&header, lines);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    text
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
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
            ["LINE", "amount", "id", "name", "more"]
        );
        assert!(text.contains("10.50"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
