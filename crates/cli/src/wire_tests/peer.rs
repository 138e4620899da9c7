//! A peer that answers as the tests need it.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};
use futures::{Stream, stream};
use sha2::{Digest as _, Sha256};
use tenure_proto::v1;
use tenure_proto::v1::file_service_server::{FileService, FileServiceServer};
use tenure_proto::v1::job_service_server::{JobService, JobServiceServer};
use tenure_proto::v1::queue_service_server::QueueServiceServer;
use tenure_proto::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::args::Cli;
use crate::client::{self, Client, Credentials};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) const CONTENT: &[u8] = b"0123456789abcdefghij";

/// What the peer saw, and how it behaves.
#[derive(Default)]
pub(super) struct Seen {
    /// The request ids of the submits.
    pub(super) request_ids: Vec<String>,
    /// From where downloads began.
    pub(super) offsets: Vec<i64>,
    /// After which revisions watches began.
    pub(super) revisions: Vec<i64>,
    /// The stored content.
    pub(super) stored: Vec<u8>,
    /// Answers other bytes than the file's.
    pub(super) damaged: bool,
    /// The cancels by filter.
    pub(super) cancels: Vec<v1::CancelJobsRequest>,
    /// Which pages of a cancel by filter are refused.
    pub(super) refused_page: Option<String>,
    /// What operators asked for: the reason and the number, or the second of the time.
    pub(super) asked: Vec<(String, i64)>,
    /// How much of a job was asked for.
    pub(super) views: Vec<v1::JobView>,
    /// The pauses of queues, with their reasons, and the ends of pauses.
    pub(super) pauses: Vec<(String, Option<String>)>,
    /// How many uploads are put off.
    pub(super) busy: u32,
    /// The files that jobs made.
    pub(super) files: Vec<v1::File>,
}

#[derive(Clone, Default)]
pub(super) struct Peer(pub(super) Arc<Mutex<Seen>>);

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

/// The description of a file with [`CONTENT`].
pub(super) fn stored_file() -> v1::File {
    v1::File {
        name: "../f.txt".to_owned(),
        size_bytes: CONTENT.len() as i64,
        sha256: hex_of(CONTENT),
        ..v1::File::default()
    }
}

#[tonic::async_trait]
impl JobService for Peer {
    /// Accepts the third try; of a type "full" none, and of one "late" the second is the last.
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
        let tries = seen.request_ids.len();
        if spec.job_type == "full" || (spec.job_type == "late" && tries == 2) {
            return Err(Status::resource_exhausted("the queue is full"));
        }
        if tries < 3 {
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
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        let mut seen = self.0.lock().expect("no panic before");
        seen.views.push(request.into_inner().view());
        let (state, revision) = match seen.revisions.len() {
            0..3 => (v1::JobState::Running, 5),
            _ => (v1::JobState::Failed, 9),
        };
        Ok(Response::new(v1::GetJobResponse {
            job: Some(job(state, revision)),
            ..v1::GetJobResponse::default()
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

    /// Answers two pages.
    async fn cancel_jobs(
        &self,
        request: Request<v1::CancelJobsRequest>,
    ) -> Result<Response<v1::CancelJobsResponse>, Status> {
        let request = request.into_inner();
        let mut seen = self.0.lock().expect("no panic before");
        if seen.refused_page.as_ref() == Some(&request.page_token) {
            return Err(Status::permission_denied("no more"));
        }
        let next = match request.page_token.as_str() {
            "" => "second",
            _ => "",
        };
        seen.cancels.push(request);
        Ok(Response::new(v1::CancelJobsResponse {
            cancelled: 3,
            requested: 1,
            already_ended: 0,
            next_page_token: next.to_owned(),
            failed: 0,
        }))
    }

    async fn retry_job_now(
        &self,
        request: Request<v1::RetryJobNowRequest>,
    ) -> Result<Response<v1::RetryJobNowResponse>, Status> {
        let request = request.into_inner();
        self.note(request.reason, 0);
        Ok(Response::new(v1::RetryJobNowResponse {
            job: Some(job(v1::JobState::Pending, 1)),
        }))
    }

    async fn reschedule_job(
        &self,
        request: Request<v1::RescheduleJobRequest>,
    ) -> Result<Response<v1::RescheduleJobResponse>, Status> {
        let request = request.into_inner();
        self.note(
            request.reason,
            request.run_at.map_or(0, |time| time.seconds),
        );
        Ok(Response::new(v1::RescheduleJobResponse {
            job: Some(job(v1::JobState::Pending, 1)),
        }))
    }

    async fn set_job_max_attempts(
        &self,
        request: Request<v1::SetJobMaxAttemptsRequest>,
    ) -> Result<Response<v1::SetJobMaxAttemptsResponse>, Status> {
        let request = request.into_inner();
        self.note(request.reason, request.max_attempts.into());
        // A gateway that says nothing.
        Ok(Response::new(v1::SetJobMaxAttemptsResponse { job: None }))
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
                ..v1::WatchJobResponse::default()
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

impl Peer {
    fn note(&self, reason: String, number: i64) {
        let mut seen = self.0.lock().expect("no panic before");
        seen.asked.push((reason, number));
    }
}

#[tonic::async_trait]
impl WorkerService for Peer {
    async fn list_workers(
        &self,
        _: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        Err(Status::permission_denied("for operators"))
    }
}

#[tonic::async_trait]
impl FileService for Peer {
    async fn upload_file(
        &self,
        request: Request<Streaming<v1::UploadFileRequest>>,
    ) -> Result<Response<v1::UploadFileResponse>, Status> {
        use v1::upload_file_request::Part;
        {
            let mut seen = self.0.lock().expect("no panic before");
            if seen.busy > 0 {
                seen.busy -= 1;
                let mut details = ErrorDetails::new();
                details
                    .set_error_info("OVERLOADED", "tenure", [])
                    .set_retry_info(Some(Duration::from_millis(1)));
                let code = Code::ResourceExhausted;
                return Err(Status::with_error_details(code, "much to do", details));
            }
        }
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
            ..stored_file()
        };
        Ok(Response::new(v1::GetFileResponse { file: Some(file) }))
    }

    async fn list_files(
        &self,
        request: Request<v1::ListFilesRequest>,
    ) -> Result<Response<v1::ListFilesResponse>, Status> {
        assert_eq!(request.into_inner().job_id, "j");
        let seen = self.0.lock().expect("no panic before");
        Ok(Response::new(v1::ListFilesResponse {
            files: seen.files.clone(),
            ..v1::ListFilesResponse::default()
        }))
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
pub(super) async fn peer() -> (Peer, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let peer = Peer::default();
    let server = Server::builder()
        .add_service(JobServiceServer::new(peer.clone()))
        .add_service(FileServiceServer::new(peer.clone()))
        .add_service(WorkerServiceServer::new(peer.clone()))
        .add_service(QueueServiceServer::new(peer.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    let client = client_of(&url);
    (peer, client)
}

/// A client of what answers at this address.
pub(super) fn client_of(url: &str) -> Client {
    let line = ["tenure", "--gateway", url, "--token", "t", "queues"];
    let matches = Cli::command().get_matches_from(line);
    let credentials = Credentials::from_matches(&matches);
    let cli = Cli::from_arg_matches(&matches).expect("parses");
    client::gateway(&cli.global, &credentials).expect("a client")
}
