//! A caller of the API: typed clients that carry its token, and the calls that most
//! tests make.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tenure_proto::v1::dataset_service_client::DatasetServiceClient;
use tenure_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use tenure_proto::v1::file_service_client::FileServiceClient;
use tenure_proto::v1::job_service_client::JobServiceClient;
use tenure_proto::v1::job_type_service_client::JobTypeServiceClient;
use tenure_proto::v1::notification_service_client::NotificationServiceClient;
use tenure_proto::v1::queue_service_client::QueueServiceClient;
use tenure_proto::v1::upload_file_request::{Header, Part};
use tenure_proto::v1::user_limit_service_client::UserLimitServiceClient;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tenure_proto::v1::{
    CancelJobRequest, CancelJobResponse, DeleteFileRequest, DownloadFileRequest, File,
    GetFileRequest, GetJobRequest, Job, JobEvent, JobSpec, JobState, JobView, ListFilesRequest,
    ListFilesResponse, ListJobsRequest, ListJobsResponse, SubmitJobRequest, SubmitJobResponse,
    UploadFileRequest, WatchJobRequest, WatchJobResponse,
};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use crate::wait::wait_until;

/// The content of one message of an upload.
const CHUNK: usize = 256 * 1024;

/// Adds the token to each call.
#[derive(Clone, Debug)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// What carries a caller's calls.
pub type Transport = InterceptedService<Channel, Bearer>;

/// A caller with one token on one server.
#[derive(Clone, Debug)]
pub struct Caller {
    channel: Channel,
    bearer: Bearer,
}

impl Caller {
    /// Calls over this channel with this value of `authorization`; `None`: without any.
    ///
    /// # Panics
    /// Where the value cannot stand in a header.
    pub fn new(channel: Channel, authorization: Option<&str>) -> Self {
        let value = authorization.map(|text| text.parse().expect("an ASCII value"));
        Self {
            channel,
            bearer: Bearer(value),
        }
    }

    fn transport(&self) -> Transport {
        InterceptedService::new(self.channel.clone(), self.bearer.clone())
    }

    /// JobService.
    pub fn jobs(&self) -> JobServiceClient<Transport> {
        JobServiceClient::new(self.transport()).max_decoding_message_size(64 << 20)
    }

    /// FileService.
    pub fn files(&self) -> FileServiceClient<Transport> {
        FileServiceClient::new(self.transport())
    }

    /// DatasetService.
    pub fn datasets(&self) -> DatasetServiceClient<Transport> {
        DatasetServiceClient::new(self.transport()).max_decoding_message_size(64 << 20)
    }

    /// QueueService.
    pub fn queues(&self) -> QueueServiceClient<Transport> {
        QueueServiceClient::new(self.transport())
    }

    /// WorkerService.
    pub fn workers(&self) -> WorkerServiceClient<Transport> {
        WorkerServiceClient::new(self.transport())
    }

    /// NotificationService.
    pub fn notifications(&self) -> NotificationServiceClient<Transport> {
        NotificationServiceClient::new(self.transport())
    }

    /// UserLimitService.
    pub fn user_limits(&self) -> UserLimitServiceClient<Transport> {
        UserLimitServiceClient::new(self.transport())
    }

    /// JobTypeService.
    pub fn job_types(&self) -> JobTypeServiceClient<Transport> {
        JobTypeServiceClient::new(self.transport())
    }

    /// DeadLetterService; only on dead-letter-admin.
    pub fn dead_letters(&self) -> DeadLetterServiceClient<Transport> {
        DeadLetterServiceClient::new(self.transport()).max_decoding_message_size(64 << 20)
    }

    /// Submits a job as it is.
    ///
    /// # Errors
    /// The refusal.
    pub async fn try_submit(&self, spec: JobSpec) -> Result<SubmitJobResponse, Status> {
        let request = SubmitJobRequest { job: Some(spec) };
        Ok(self.jobs().submit_job(request).await?.into_inner())
    }

    /// Submits a job and returns its id.
    ///
    /// # Panics
    /// Where it is refused.
    pub async fn submit_spec(&self, spec: JobSpec) -> String {
        self.try_submit(spec).await.expect("accepted").job_id
    }

    /// Submits a job of a type with a payload, and returns its id.
    ///
    /// # Panics
    /// Where it is refused.
    pub async fn submit(&self, job_type: &str, payload: Value) -> String {
        self.submit_spec(spec(job_type, payload)).await
    }

    /// Reads a job.
    ///
    /// # Errors
    /// The refusal.
    pub async fn try_get(&self, job_id: &str) -> Result<Job, Status> {
        let request = GetJobRequest {
            job_id: job_id.to_owned(),
            ..GetJobRequest::default()
        };
        let answer = self.jobs().get_job(request).await?.into_inner();
        answer
            .job
            .ok_or_else(|| Status::internal("an answer without its job"))
    }

    /// Reads a job.
    ///
    /// # Panics
    /// Where it cannot be read.
    pub async fn get(&self, job_id: &str) -> Job {
        self.try_get(job_id).await.expect("the job")
    }

    /// A job with what happened to it.
    ///
    /// # Panics
    /// Where it cannot be read.
    pub async fn timeline(&self, job_id: &str) -> (Job, Vec<JobEvent>) {
        let request = GetJobRequest {
            job_id: job_id.to_owned(),
            view: JobView::Full.into(),
        };
        let answer = self.jobs().get_job(request).await;
        let answer = answer.expect("the job").into_inner();
        (answer.job.expect("an answer with its job"), answer.timeline)
    }

    /// Lists jobs.
    ///
    /// # Errors
    /// The refusal.
    pub async fn list(&self, request: ListJobsRequest) -> Result<ListJobsResponse, Status> {
        Ok(self.jobs().list_jobs(request).await?.into_inner())
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// The refusal.
    pub async fn cancel(&self, job_id: &str, reason: &str) -> Result<CancelJobResponse, Status> {
        let request = CancelJobRequest {
            job_id: job_id.to_owned(),
            reason: reason.to_owned(),
        };
        Ok(self.jobs().cancel_job(request).await?.into_inner())
    }

    /// Follows a job.
    ///
    /// # Errors
    /// The refusal.
    pub async fn watch(
        &self,
        job_id: &str,
        after_revision: i64,
    ) -> Result<Streaming<WatchJobResponse>, Status> {
        let request = WatchJobRequest {
            job_id: job_id.to_owned(),
            after_revision,
            ..WatchJobRequest::default()
        };
        Ok(self.jobs().watch_job(request).await?.into_inner())
    }

    /// Waits until a job is in a state. Calls that fail on the way are made again.
    ///
    /// # Panics
    /// Where it is not after `bound`, or has ended in another state.
    pub async fn wait_state(&self, job_id: &str, state: JobState, bound: Duration) -> Job {
        let what = format!("job {job_id} in {}", state.as_str_name());
        wait_until(what, bound, || async {
            let job = self.try_get(job_id).await.ok()?;
            assert!(
                job.state() == state || !is_final(job.state()),
                "job {job_id} ended in {} and not in {}: {:?}",
                job.state().as_str_name(),
                state.as_str_name(),
                job.last_error
            );
            (job.state() == state).then_some(job)
        })
        .await
    }

    /// Waits until a job has ended, in whatever state.
    ///
    /// # Panics
    /// Where it has not after `bound`.
    pub async fn wait_end(&self, job_id: &str, bound: Duration) -> Job {
        wait_until(format!("the end of job {job_id}"), bound, || async {
            let job = self.try_get(job_id).await.ok()?;
            is_final(job.state()).then_some(job)
        })
        .await
    }

    /// Uploads a file, with its size and checksum.
    ///
    /// # Errors
    /// The refusal.
    pub async fn try_upload(&self, name: &str, content: &[u8]) -> Result<File, Status> {
        let header = Header {
            name: name.to_owned(),
            content_type: "text/csv".to_owned(),
            size_bytes: content.len() as i64,
            sha256: hex::encode(Sha256::digest(content)),
            user_id: String::new(),
        };
        let mut messages = vec![UploadFileRequest {
            part: Some(Part::Header(header)),
        }];
        messages.extend(content.chunks(CHUNK).map(|chunk| UploadFileRequest {
            part: Some(Part::Chunk(Bytes::copy_from_slice(chunk))),
        }));
        let sent = futures::stream::iter(messages);
        let answer = self.files().upload_file(sent).await?.into_inner();
        answer
            .file
            .ok_or_else(|| Status::internal("an answer without its file"))
    }

    /// Uploads a file and returns its id.
    ///
    /// # Panics
    /// Where it is refused.
    pub async fn upload(&self, name: &str, content: &[u8]) -> String {
        let file = self.try_upload(name, content).await;
        file.expect("uploaded").file_id
    }

    /// Uploads a file and submits its import; `more` is joined to the payload. Returns
    /// the job's id.
    ///
    /// # Panics
    /// Where one of the two is refused.
    pub async fn import(&self, name: &str, content: &[u8], more: Value) -> String {
        let mut payload = json!({"file_id": self.upload(name, content).await});
        for (key, value) in more.as_object().into_iter().flatten() {
            payload[key] = value.clone();
        }
        self.submit("import_csv", payload).await
    }

    /// Uploads a file without saying its size or checksum before.
    ///
    /// # Errors
    /// The refusal.
    pub async fn stream_upload(&self, name: &str, content: &[u8]) -> Result<File, Status> {
        let header = Header {
            name: name.to_owned(),
            ..Header::default()
        };
        let header = Part::Header(header);
        let chunks = content.chunks(CHUNK).map(Bytes::copy_from_slice);
        let parts: Vec<_> = std::iter::once(header)
            .chain(chunks.map(Part::Chunk))
            .map(|part| UploadFileRequest { part: Some(part) })
            .collect();
        let sent = futures::stream::iter(parts);
        let answer = self.files().upload_file(sent).await?.into_inner();
        answer
            .file
            .ok_or_else(|| Status::internal("an answer without its file"))
    }

    /// Describes a file.
    ///
    /// # Errors
    /// The refusal.
    pub async fn file(&self, file_id: &str) -> Result<File, Status> {
        let request = GetFileRequest {
            file_id: file_id.to_owned(),
        };
        let answer = self.files().get_file(request).await?.into_inner();
        answer
            .file
            .ok_or_else(|| Status::internal("an answer without its file"))
    }

    /// Lists files.
    ///
    /// # Errors
    /// The refusal.
    pub async fn list_files(&self, request: ListFilesRequest) -> Result<ListFilesResponse, Status> {
        Ok(self.files().list_files(request).await?.into_inner())
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The refusal.
    pub async fn delete_file(&self, file_id: &str) -> Result<(), Status> {
        let request = DeleteFileRequest {
            file_id: file_id.to_owned(),
        };
        self.files().delete_file(request).await?;
        Ok(())
    }

    /// Reads a file's content.
    ///
    /// # Errors
    /// The refusal.
    pub async fn download(&self, file_id: &str) -> Result<Vec<u8>, Status> {
        let request = DownloadFileRequest {
            file_id: file_id.to_owned(),
            offset: 0,
        };
        let mut parts = self.files().download_file(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(part) = parts.message().await? {
            content.extend_from_slice(&part.chunk);
        }
        Ok(content)
    }
}

/// A job of a type with a payload, and nothing else.
pub fn spec(job_type: &str, payload: Value) -> JobSpec {
    JobSpec {
        job_type: job_type.to_owned(),
        payload: payload.to_string().into(),
        ..JobSpec::default()
    }
}

/// Whether a job in this state has ended.
pub fn is_final(state: JobState) -> bool {
    matches!(
        state,
        JobState::Success | JobState::Failed | JobState::Cancelled
    )
}

/// The result of a job as JSON; null where it has none.
///
/// # Panics
/// Where it is no JSON.
pub fn result(job: &Job) -> Value {
    if job.result.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&job.result).expect("a JSON result")
}
