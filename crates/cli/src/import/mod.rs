//! `import`: uploads a CSV file, submits `import_csv`, follows it, fetches what it made,
//! sums up.

mod payload;
mod summary;

use std::path::{Path, PathBuf};

use serde_json::json;
use tenure_proto::v1;

use crate::args::ImportArgs;
use crate::client::Client;
use crate::download;
use crate::errors::{Exit, Failure};
use crate::files::Upload;
use crate::jobs::{READ_REPEATS, send};
use crate::output::{Output, say};
use crate::{view, watch};

/// More than one import makes.
const FILES_PAGE: i32 = 50;

/// `tenure import`.
pub(crate) async fn run(
    client: &Client,
    args: ImportArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut payload = payload::build(&args)?;
    let upload = Upload::new(args.file, None, None, args.for_user.clone()).await?;
    let file = upload.send(client).await?;
    payload.insert("file_id".to_owned(), json!(file.file_id));
    let payload = serde_json::to_vec(&payload).map_err(anyhow::Error::from)?;
    let spec = v1::JobSpec {
        job_type: "import_csv".to_owned(),
        payload: payload.into(),
        dedupe_key: args.dedupe_key.unwrap_or_default(),
        user_id: args.for_user.clone().unwrap_or_default(),
        ..v1::JobSpec::default()
    };
    let file_id = file.file_id.clone();
    let accepted = send(client, spec)
        .await
        .map_err(|failure| failure.hint(format!("the file is stored as {file_id}")))?;
    let job = if args.no_wait {
        None
    } else {
        Some(watch::follow(client, &accepted.job_id, args.wait_timeout).await?)
    };
    let exit = job.as_ref().map_or(Exit::Ok, |job| job.state().into());
    let state = job.as_ref().map_or(accepted.state, |job| job.state);
    let wanted = Wanted {
        rejects: args.rejects,
        report: args.report,
    };
    let fetch = job.as_ref().map(|job| job.job_id.clone());
    let import = view::Import {
        file: file.into(),
        job_id: accepted.job_id,
        duplicate: accepted.duplicate,
        state: view::state(state),
        job: job.map(view::Job::from),
    };
    out.emit(&import, summary::summary)?;
    // Last: whatever happens to the files, how the import ended is told.
    if let Some(job_id) = fetch {
        wanted.fetch(client, &job_id, args.for_user).await?;
    }
    Ok(exit)
}

/// The files that are fetched at the end.
struct Wanted {
    rejects: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Wanted {
    async fn fetch(
        &self,
        client: &Client,
        job_id: &str,
        user: Option<String>,
    ) -> Result<(), Failure> {
        if self.rejects.is_none() && self.report.is_none() {
            return Ok(());
        }
        // An import that failed has no result that would name them.
        let call = |request| {
            let mut files = client.files();
            async move { files.list_files(request).await }
        };
        let request = v1::ListFilesRequest {
            page_size: FILES_PAGE,
            job_id: job_id.to_owned(),
            user_id: user.unwrap_or_default(),
            ..v1::ListFilesRequest::default()
        };
        let files = client.unary(READ_REPEATS, request, call).await?.files;
        if let Some(path) = &self.rejects {
            let found = files.iter().find(|file| file.kind == "rejects");
            save(client, found, path, "no row was rejected").await?;
        }
        if let Some(path) = &self.report {
            let page = path
                .extension()
                .is_some_and(|ending| ending.eq_ignore_ascii_case("html"));
            let is_wanted = |file: &&v1::File| {
                file.kind == "report" && file.content_type.starts_with("text/html") == page
            };
            let found = files.iter().find(is_wanted);
            save(client, found, path, "the import ended without a report").await?;
        }
        Ok(())
    }
}

async fn save(
    client: &Client,
    file: Option<&v1::File>,
    path: &Path,
    otherwise: &str,
) -> Result<(), Failure> {
    let shown = path.display();
    match file {
        Some(file) => {
            download::save(client, file, path).await?;
        }
        None => say(&format!("{otherwise}: {shown} is not written")),
    }
    Ok(())
}
