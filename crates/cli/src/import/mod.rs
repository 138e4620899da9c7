//! `import`: uploads a CSV file, submits `import_csv`, follows it, fetches what it made,
//! sums up.

mod outputs;
mod payload;
mod schema;
mod summary;

use serde_json::json;
use tenure_proto::v1;

use self::outputs::{End, Outputs, made};
use crate::args::ImportArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::files::Upload;
use crate::jobs::send;
use crate::output::Output;
use crate::{view, watch};

/// `tenure import`.
pub(crate) async fn run(
    client: &Client,
    args: ImportArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut payload = payload::build(&args)?;
    let outputs = Outputs::checked(&args)?;
    let user = args.for_user;
    client.check_acts_for(user.as_deref())?;
    let upload = Upload::new(args.file, None, None, user.clone()).await?;
    let file = upload.send(client).await?;
    payload.insert("file_id".to_owned(), json!(file.file_id));
    let payload = serde_json::to_vec(&payload).map_err(anyhow::Error::from)?;
    let spec = v1::JobSpec {
        job_type: "import_csv".to_owned(),
        payload: payload.into(),
        dedupe_key: args.dedupe_key.unwrap_or_default(),
        user_id: user.clone().unwrap_or_default(),
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
    let end = job.as_ref().map(End::from);
    let files = match &job {
        Some(job) => Some(made(client, &job.job_id, user.as_deref()).await),
        None => None,
    };
    let known = files.as_ref().and_then(|files| files.as_ref().ok());
    let import = view::Import {
        file: file.into(),
        job_id: accepted.job_id,
        duplicate: accepted.duplicate,
        state: view::state(state),
        job: job.map(view::Job::from),
        files: known.map(|files| files.iter().cloned().map(view::File::from).collect()),
    };
    out.emit(&import, |it| summary::summary(it, user.as_deref()))?;
    // Last: whatever happens to the files, how the import ended is told.
    let fetched = match (end, files) {
        (Some(end), Some(Ok(files))) => outputs.fetch(client, &end, &files).await,
        // The result of a success names them.
        (Some(_), Some(Err(failure))) if outputs.any() || exit != Exit::Ok => Err(failure),
        _ => Ok(()),
    };
    match fetched {
        Err(failure) if exit != Exit::Ok => out.warn(&failure),
        fetched => fetched?,
    }
    Ok(exit)
}
