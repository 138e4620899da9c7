//! `files`: what is stored, and what it takes.

use std::fmt::Write as _;

use anyhow::Context as _;
use tenure_proto::v1;

use crate::args::{FileListArgs, FilesVerb};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, escape, pairs, table};
use crate::pages::{NOTHING, more_text, pages};
use crate::values::human_size;
use crate::view;

/// `tenure files`.
pub(crate) async fn run(
    client: &Client,
    verb: FilesVerb,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        FilesVerb::List(args) => list(client, args, out).await,
        FilesVerb::Show { file_id } => show(client, file_id, out).await,
        FilesVerb::Delete { file_id } => delete(client, file_id, out).await,
    }
}

async fn list(client: &Client, args: FileListArgs, out: &mut Output) -> Result<Exit, Failure> {
    let filters = v1::ListFilesRequest {
        user_id: args.user.unwrap_or_default(),
        kind: args.kind.map_or("", |kind| kind.name()).to_owned(),
        job_id: args.job_id.unwrap_or_default(),
        ..v1::ListFilesRequest::default()
    };
    let (mut used_bytes, mut quota_bytes) = (0, 0);
    let (files, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListFilesRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut files = client.files();
            async move { files.list_files(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        (used_bytes, quota_bytes) = (page.used_bytes, page.quota_bytes);
        Ok((page.files, page.next_page_token))
    })
    .await?;
    let list = view::FileList {
        files: files.into_iter().map(view::File::from).collect(),
        next_page_token: next,
        used_bytes,
        quota_bytes,
    };
    out.emit(&list, list_text)?;
    Ok(Exit::Ok)
}

fn list_text(list: &view::FileList) -> String {
    let header = ["FILE", "KIND", "SIZE", "TYPE", "CREATED", "EXPIRES", "NAME"];
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
    let rows = list.files.iter().map(|file| {
        vec![
            file.file_id.clone(),
            file.kind.clone(),
            size(file.size_bytes),
            file.detected_type
                .clone()
                .unwrap_or_else(|| file.content_type.clone()),
            or_empty(&file.create_time),
            or_empty(&file.expire_time),
            file.name.clone(),
        ]
    });
    if list.files.is_empty() {
        return NOTHING.to_owned();
    }
    let mut text = table(&header, rows);
    text.push_str(&more_text(list.next_page_token.as_deref()));
    let (used, quota) = (size(list.used_bytes), size(list.quota_bytes));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "uploads take {used} of {quota}");
    text
}

async fn show(client: &Client, file_id: String, out: &mut Output) -> Result<Exit, Failure> {
    let call = |request| {
        let mut files = client.files();
        async move { files.get_file(request).await }
    };
    let request = v1::GetFileRequest { file_id };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let file = answer.file.context("the gateway answered without a file")?;
    out.emit(&view::File::from(file), file_text)?;
    Ok(Exit::Ok)
}

/// A file for people.
pub(crate) fn file_text(file: &view::File) -> String {
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
    pairs([
        ("file", file.file_id.clone()),
        ("name", file.name.clone()),
        ("kind", file.kind.clone()),
        ("user", file.user_id.clone()),
        ("job", or_empty(&file.job_id)),
        (
            "size",
            match file.size_bytes {
                small @ ..1024 => size(small),
                large => format!("{} ({large} bytes)", size(large)),
            },
        ),
        ("type", file.content_type.clone()),
        ("looks like", or_empty(&file.detected_type)),
        ("sha256", file.sha256.clone()),
        ("created", or_empty(&file.create_time)),
        ("expires", or_empty(&file.expire_time)),
    ])
}

async fn delete(client: &Client, file_id: String, out: &mut Output) -> Result<Exit, Failure> {
    let call = |request| {
        let mut files = client.files();
        async move { files.delete_file(request).await }
    };
    let request = v1::DeleteFileRequest {
        file_id: file_id.clone(),
    };
    // Not sent again: where the first one was heard, the second would not find the file.
    client.unary(0, request, call).await?;
    let deleted = view::DeletedFile {
        file_id,
        deleted: true,
    };
    out.emit(&deleted, |it| format!("deleted: {}\n", escape(&it.file_id)))?;
    Ok(Exit::Ok)
}

fn size(bytes: i64) -> String {
    human_size(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size_bytes: i64) -> view::File {
        view::File::from(v1::File {
            file_id: "f".to_owned(),
            name: "a\u{1b}.csv".to_owned(),
            kind: "upload".to_owned(),
            content_type: "application/octet-stream".to_owned(),
            detected_type: "text/csv".to_owned(),
            size_bytes,
            ..v1::File::default()
        })
    }

    #[test]
    fn a_list_shows_readable_sizes_and_what_is_used() {
        let text = list_text(&view::FileList {
            files: vec![file(1_572_864)],
            next_page_token: None,
            used_bytes: 1_572_864,
            quota_bytes: 10 << 30,
        });
        assert!(text.contains("1.5 MiB  text/csv"), "{text}");
        assert!(text.contains(r"a\u{1b}.csv"), "{text}");
        assert!(
            text.ends_with("uploads take 1.5 MiB of 10.0 GiB\n"),
            "{text}"
        );
    }

    #[test]
    fn a_file_is_shown_with_its_exact_size() {
        assert!(file_text(&file(1_572_864)).contains("1.5 MiB (1572864 bytes)"));
        assert!(file_text(&file(3)).contains("3 B"));
    }
}
