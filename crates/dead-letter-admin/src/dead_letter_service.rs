//! DeadLetterService: for operators and administrators alone.

use std::sync::Arc;

use tenure_core::auth::{Principal, Role};
use tenure_core::error::chain;
use tenure_core::storage::Store;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tenure_proto::v1::dead_letter_service_server::DeadLetterService;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

use crate::bulk_runner::BulkRunner;

/// The service on a database.
///
/// It takes its caller from the extensions of a request, where the port puts the
/// [`Principal`] of a verified token.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    pub(crate) store: Store,
    /// Told of a bulk replay that begins or goes on, so that nobody waits for the next look.
    pub(crate) started: Arc<Notify>,
}

impl DeadLetters {
    /// The service on this database.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            started: Arc::new(Notify::new()),
        }
    }

    /// What makes the steps of bulk replays; it is told when this service begins one.
    pub fn bulk_runner(&self) -> BulkRunner {
        BulkRunner::new(self.store.clone(), Arc::clone(&self.started))
    }
}

/// A method of the service: admits its caller, calls its name, and says what went wrong.
macro_rules! answer {
    ($self:ident, $request:ident, $method:ident) => {{
        let (caller, message) = admitted($request)?;
        $self
            .$method(caller, message)
            .await
            .map(Response::new)
            .map_err(refusal)
    }};
}

#[tonic::async_trait]
impl DeadLetterService for DeadLetters {
    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        answer!(self, request, list)
    }

    async fn get_dead_letter(
        &self,
        request: Request<v1::GetDeadLetterRequest>,
    ) -> Result<Response<v1::GetDeadLetterResponse>, Status> {
        answer!(self, request, get)
    }

    async fn list_dead_letter_causes(
        &self,
        request: Request<v1::ListDeadLetterCausesRequest>,
    ) -> Result<Response<v1::ListDeadLetterCausesResponse>, Status> {
        answer!(self, request, causes)
    }

    async fn replay_dead_letters(
        &self,
        request: Request<v1::ReplayDeadLettersRequest>,
    ) -> Result<Response<v1::ReplayDeadLettersResponse>, Status> {
        answer!(self, request, replay)
    }

    async fn ignore_dead_letters(
        &self,
        request: Request<v1::IgnoreDeadLettersRequest>,
    ) -> Result<Response<v1::IgnoreDeadLettersResponse>, Status> {
        answer!(self, request, ignore)
    }

    async fn resolve_dead_letters(
        &self,
        request: Request<v1::ResolveDeadLettersRequest>,
    ) -> Result<Response<v1::ResolveDeadLettersResponse>, Status> {
        answer!(self, request, resolve)
    }

    async fn reopen_dead_letters(
        &self,
        request: Request<v1::ReopenDeadLettersRequest>,
    ) -> Result<Response<v1::ReopenDeadLettersResponse>, Status> {
        answer!(self, request, reopen)
    }

    async fn preview_bulk_replay(
        &self,
        request: Request<v1::PreviewBulkReplayRequest>,
    ) -> Result<Response<v1::PreviewBulkReplayResponse>, Status> {
        answer!(self, request, preview)
    }

    async fn start_bulk_replay(
        &self,
        request: Request<v1::StartBulkReplayRequest>,
    ) -> Result<Response<v1::StartBulkReplayResponse>, Status> {
        answer!(self, request, start)
    }

    async fn get_bulk_replay(
        &self,
        request: Request<v1::GetBulkReplayRequest>,
    ) -> Result<Response<v1::GetBulkReplayResponse>, Status> {
        answer!(self, request, get_bulk)
    }

    async fn list_bulk_replays(
        &self,
        request: Request<v1::ListBulkReplaysRequest>,
    ) -> Result<Response<v1::ListBulkReplaysResponse>, Status> {
        answer!(self, request, list_bulk)
    }

    async fn control_bulk_replay(
        &self,
        request: Request<v1::ControlBulkReplayRequest>,
    ) -> Result<Response<v1::ControlBulkReplayResponse>, Status> {
        answer!(self, request, control)
    }

    async fn list_bulk_replay_outcomes(
        &self,
        request: Request<v1::ListBulkReplayOutcomesRequest>,
    ) -> Result<Response<v1::ListBulkReplayOutcomesResponse>, Status> {
        answer!(self, request, outcomes)
    }
}

/// Who calls, and the message: a caller who may look at dead letters.
fn admitted<T>(request: Request<T>) -> Result<(String, T), Status> {
    let caller = request
        .extensions()
        .get::<Principal>()
        .ok_or_else(|| Error::new(Code::Unauthenticated, "the call has no verified caller"))
        .and_then(|caller| {
            caller.require(&[Role::Operator, Role::Admin])?;
            Ok(caller.user.as_str().to_owned())
        })
        .map_err(refusal)?;
    Ok((caller, request.into_inner()))
}

/// What the caller reads; the cause stays here, in the log.
fn refusal(error: Error) -> Status {
    if error.code() == Code::Internal {
        tracing::error!(error = chain(&error), "a call failed");
    } else if error.is_temporary() {
        tracing::warn!(error = chain(&error), "a call was refused for now");
    }
    error.to_status()
}
