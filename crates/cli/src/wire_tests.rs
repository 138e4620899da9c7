//! The verbs against a peer that breaks connections at chosen places.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use clap::{CommandFactory as _, FromArgMatches as _};
use futures::{Stream, stream};
use sha2::{Digest as _, Sha256};
use tenure_proto::v1;
use tenure_proto::v1::file_service_server::{FileService, FileServiceServer};
use tenure_proto::v1::job_service_server::{JobService, JobServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::args::{Cli, DownloadArgs};
use crate::client::{self, Client, Credentials};
use crate::errors::Exit;
use crate::files::Upload;
use crate::output::{Format, Output};
use crate::{download, jobs, watch};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

const CONTENT: &[u8] = b"0123456789abcdefghij";

/// What the peer saw, and how it behaves.
#[derive(Default)]
struct Seen {
    /// The request ids of the submits.
    request_ids: Vec<String>,
    /// From where downloads began.
    offsets: Vec<i64>,
    /// After which revisions watches began.
    revisions: Vec<i64>,
    /// The stored content.
    stored: Vec<u8>,
    /// Answers other bytes than the file's.
    damaged: bool,
}

#[derive(Clone, Default)]
struct Peer(Arc<Mutex<Seen>>);

fn job(state: v1::JobState, revision: i64) -> v1::Job {
    v1::Job {
        job_id: "j".to_owned(),
        state: state.into(),
        revision,
        ..v1::Job::default()
    }
}

fn hex_of(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

#[tonic::async_trait]
impl JobService for Peer {
    /// Accepts the third try.
    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobResponse>, Status> {
        assert_eq!(
            request
                .metadata()
                .get("authorization")
                .map(tonic::metadata::MetadataValue::as_bytes),
            Some(b"Bearer t".as_slice())
        );
        let spec = request.into_inner().job.unwrap_or_default();
        let mut seen = self.0.lock().expect("no panic before");
        seen.request_ids.push(spec.request_id);
        if seen.request_ids.len() < 3 {
            return Err(Status::unavailable("not yet"));
        }
        Ok(Response::new(v1::SubmitJobResponse {
            job_id: "j".to_owned(),
            ..v1::SubmitJobResponse::default()
        }))
    }

    async fn submit_jobs(
        &self,
        _: Request<v1::SubmitJobsRequest>,
    ) -> Result<Response<v1::SubmitJobsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_job(
        &self,
        _: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        let watches = self.0.lock().expect("no panic before").revisions.len();
        let (state, revision) = match watches {
            0..3 => (v1::JobState::Running, 5),
            _ => (v1::JobState::Failed, 9),
        };
        Ok(Response::new(v1::GetJobResponse {
            job: Some(job(state, revision)),
        }))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn cancel_job(
        &self,
        _: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        Err(Status::not_found("no such job"))
    }

    type WatchJobStream = Answers<v1::WatchJobResponse>;

    /// Breaks the first stream, ends the second one early, refuses the third.
    async fn watch_job(
        &self,
        request: Request<v1::WatchJobRequest>,
    ) -> Result<Response<Self::WatchJobStream>, Status> {
        let mut seen = self.0.lock().expect("no panic before");
        seen.revisions.push(request.into_inner().after_revision);
        let change = |state, revision| {
            Ok(v1::WatchJobResponse {
                job: Some(job(state, revision)),
            })
        };
        let answers = match seen.revisions.len() {
            1 => vec![
                change(v1::JobState::Pending, 1),
                change(v1::JobState::Running, 4),
                Err(Status::unavailable("cut")),
            ],
            2 => vec![],
            3 => return Err(Status::unavailable("still cut")),
            _ => vec![change(v1::JobState::Failed, 9)],
        };
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }
}

#[tonic::async_trait]
impl FileService for Peer {
    async fn upload_file(
        &self,
        request: Request<Streaming<v1::UploadFileRequest>>,
    ) -> Result<Response<v1::UploadFileResponse>, Status> {
        use v1::upload_file_request::Part;
        let mut parts = request.into_inner();
        let mut content = Vec::new();
        while let Some(part) = parts.message().await? {
            match part.part {
                Some(Part::Header(header)) if header.name == "refused" => {
                    return Err(Status::resource_exhausted("no room"));
                }
                Some(Part::Header(_)) | None => {}
                Some(Part::Chunk(chunk)) => content.extend_from_slice(&chunk),
            }
        }
        let file = v1::File {
            file_id: "f".to_owned(),
            sha256: hex_of(&content),
            ..v1::File::default()
        };
        self.0.lock().expect("no panic before").stored = content;
        Ok(Response::new(v1::UploadFileResponse { file: Some(file) }))
    }

    async fn get_file(
        &self,
        request: Request<v1::GetFileRequest>,
    ) -> Result<Response<v1::GetFileResponse>, Status> {
        let file = v1::File {
            file_id: request.into_inner().file_id,
            name: "../f.txt".to_owned(),
            size_bytes: CONTENT.len() as i64,
            sha256: hex_of(CONTENT),
            ..v1::File::default()
        };
        Ok(Response::new(v1::GetFileResponse { file: Some(file) }))
    }

    async fn list_files(
        &self,
        _request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn delete_file(
        &self,
        _request: Request<v1::DeleteFileRequest>,
    ) -> Result<Response<v1::DeleteFileResponse>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    type DownloadFileStream = Answers<v1::DownloadFileResponse>;

    /// Sends seven bytes, then breaks the stream or ends it early.
    async fn download_file(
        &self,
        request: Request<v1::DownloadFileRequest>,
    ) -> Result<Response<Self::DownloadFileStream>, Status> {
        let mut seen = self.0.lock().expect("no panic before");
        let offset = request.into_inner().offset;
        seen.offsets.push(offset);
        let rest = CONTENT.get(offset as usize..).unwrap_or_default();
        let mut chunk = rest[..rest.len().min(7)].to_vec();
        if seen.damaged {
            chunk.fill(b'x');
        }
        let mut answers = vec![Ok(v1::DownloadFileResponse {
            chunk: chunk.into(),
        })];
        if seen.offsets.len() == 1 {
            answers.push(Err(Status::unavailable("cut")));
        }
        Ok(Response::new(Box::pin(stream::iter(answers))))
    }
}

/// A peer on a free port of the loopback, and a client of it.
async fn peer() -> (Peer, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let peer = Peer::default();
    let server = Server::builder()
        .add_service(JobServiceServer::new(peer.clone()))
        .add_service(FileServiceServer::new(peer.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let line = ["tenure", "--gateway", &url, "--token", "t", "queues"];
    let matches = Cli::command().get_matches_from(line);
    let credentials = Credentials::from_matches(&matches);
    let cli = Cli::from_arg_matches(&matches).expect("parses");
    let client = client::gateway(&cli.global, &credentials).expect("a client");
    (peer, client)
}

#[tokio::test]
async fn a_submit_is_repeated_under_one_request_id() {
    let (peer, client) = peer().await;
    let accepted = jobs::send(&client, v1::JobSpec::default())
        .await
        .expect("the third try");
    assert_eq!(accepted.job_id, "j");
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.request_ids.len(), 3);
    let ids: HashSet<_> = seen.request_ids.iter().collect();
    assert_eq!(ids.len(), 1);
    assert!(!seen.request_ids[0].is_empty());
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_revision() {
    let (peer, client) = peer().await;
    let job = watch::follow(&client, "j", None).await.expect("the end");
    assert_eq!(job.state(), v1::JobState::Failed);
    let seen = peer.0.lock().expect("no panic before");
    // Cut after 4; ended, and 5 was read; refused; and the end.
    assert_eq!(seen.revisions, [0, 4, 5, 5]);
}

fn to(file: &std::path::Path) -> DownloadArgs {
    DownloadArgs {
        file_id: "f".to_owned(),
        out: Some(file.to_owned()),
    }
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_cut() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    let mut out = Output::new(Format::Json);
    let exit = download::run(&client, to(&file), &mut out)
        .await
        .expect("downloads");
    assert_eq!(exit, Exit::Ok);
    assert_eq!(std::fs::read(&file).expect("is there"), CONTENT);
    let seen = peer.0.lock().expect("no panic before");
    assert_eq!(seen.offsets, [0, 7, 14]);
}

#[tokio::test]
async fn a_damaged_download_leaves_nothing() {
    let (peer, client) = peer().await;
    peer.0.lock().expect("no panic before").damaged = true;
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("out");
    let mut out = Output::new(Format::Json);
    let failure = download::run(&client, to(&file), &mut out)
        .await
        .expect_err("is damaged");
    assert!(failure.message.contains("checksum"), "{}", failure.message);
    assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
}

#[tokio::test]
async fn an_upload_arrives_and_a_refusal_is_told() {
    let (peer, client) = peer().await;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("big");
    let content = vec![7; 3 << 20];
    std::fs::write(&path, &content).expect("writes");
    let upload = Upload::new(path.clone(), None, None, None)
        .await
        .expect("is there");
    assert_eq!(upload.send(&client).await.expect("uploads").file_id, "f");
    assert!(peer.0.lock().expect("no panic before").stored == content);
    let upload = Upload::new(path, Some("refused".to_owned()), None, None)
        .await
        .expect("is there");
    let failure = upload.send(&client).await.expect_err("is refused");
    assert_eq!(failure.exit, Exit::TryLater);
    assert_eq!(failure.message, "no room");
}

#[tokio::test]
async fn a_job_that_is_not_there_is_told() {
    let (_peer, client) = peer().await;
    let args = crate::args::CancelArgs {
        job_id: "x".to_owned(),
        reason: String::new(),
    };
    let mut out = Output::new(Format::Json);
    let failure = jobs::cancel(&client, args, &mut out)
        .await
        .expect_err("is not there");
    assert_eq!(failure.exit, Exit::NotFound);
}
