//! A dead-letter admin that answers as the tests need it.

use std::sync::{Arc, Mutex};

use tenure_proto::v1;
use tenure_proto::v1::bulk_replay::State;
use tenure_proto::v1::dead_letter_service_server::{DeadLetterService, DeadLetterServiceServer};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::peer::client_of;
use crate::client::Client;

/// What the admin was asked, and how it behaves.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) lists: Vec<v1::ListDeadLettersRequest>,
    pub(super) causes: Vec<v1::ListDeadLetterCausesRequest>,
    pub(super) shown: Vec<String>,
    /// The verb, how many letters, and why.
    pub(super) decided: Vec<(&'static str, usize, String)>,
    /// Refuses decisions from this call on.
    pub(super) refuse_from: Option<usize>,
    pub(super) previews: Vec<v1::DeadLetterFilter>,
    pub(super) starts: Vec<v1::StartBulkReplayRequest>,
    pub(super) reads: usize,
    pub(super) controls: Vec<v1::ControlBulkReplayRequest>,
    pub(super) outcomes: Vec<v1::ListBulkReplayOutcomesRequest>,
}

#[derive(Clone, Default)]
pub(super) struct Admin(Arc<Mutex<Seen>>);

impl Admin {
    pub(super) fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().expect("no panic before")
    }

    /// A letter with the id `bad` has changed; all others are done.
    fn decide(
        &self,
        verb: &'static str,
        ids: Vec<String>,
        reason: String,
    ) -> Result<Vec<v1::DeadLetterResult>, Status> {
        let mut seen = self.seen();
        if seen
            .refuse_from
            .is_some_and(|from| seen.decided.len() >= from)
        {
            return Err(Status::permission_denied("no more"));
        }
        seen.decided.push((verb, ids.len(), reason));
        let results = ids.into_iter().map(|id| v1::DeadLetterResult {
            outcome: if id == "bad" {
                v1::DeadLetterOutcome::Changed
            } else {
                v1::DeadLetterOutcome::Done
            }
            .into(),
            dead_letter_id: id,
            ..v1::DeadLetterResult::default()
        });
        Ok(results.collect())
    }
}

fn bulk(state: State, examined: i64) -> v1::BulkReplay {
    v1::BulkReplay {
        bulk_replay_id: "o".to_owned(),
        state: state.into(),
        matching: 4,
        examined,
        ..v1::BulkReplay::default()
    }
}

#[tonic::async_trait]
impl DeadLetterService for Admin {
    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        self.seen().lists.push(request.into_inner());
        Ok(Response::new(Default::default()))
    }

    async fn get_dead_letter(
        &self,
        request: Request<v1::GetDeadLetterRequest>,
    ) -> Result<Response<v1::GetDeadLetterResponse>, Status> {
        self.seen().shown.push(request.into_inner().dead_letter_id);
        Ok(Response::new(v1::GetDeadLetterResponse {
            dead_letter: Some(v1::DeadLetter::default()),
            ..v1::GetDeadLetterResponse::default()
        }))
    }

    async fn list_dead_letter_causes(
        &self,
        request: Request<v1::ListDeadLetterCausesRequest>,
    ) -> Result<Response<v1::ListDeadLetterCausesResponse>, Status> {
        self.seen().causes.push(request.into_inner());
        Ok(Response::new(Default::default()))
    }

    async fn replay_dead_letters(
        &self,
        request: Request<v1::ReplayDeadLettersRequest>,
    ) -> Result<Response<v1::ReplayDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let results = self.decide("replay", request.dead_letter_ids, request.reason)?;
        Ok(Response::new(v1::ReplayDeadLettersResponse { results }))
    }

    async fn ignore_dead_letters(
        &self,
        request: Request<v1::IgnoreDeadLettersRequest>,
    ) -> Result<Response<v1::IgnoreDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let results = self.decide("ignore", request.dead_letter_ids, request.reason)?;
        Ok(Response::new(v1::IgnoreDeadLettersResponse { results }))
    }

    async fn resolve_dead_letters(
        &self,
        request: Request<v1::ResolveDeadLettersRequest>,
    ) -> Result<Response<v1::ResolveDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let results = self.decide("resolve", request.dead_letter_ids, request.reason)?;
        Ok(Response::new(v1::ResolveDeadLettersResponse { results }))
    }

    async fn reopen_dead_letters(
        &self,
        request: Request<v1::ReopenDeadLettersRequest>,
    ) -> Result<Response<v1::ReopenDeadLettersResponse>, Status> {
        let request = request.into_inner();
        let results = self.decide("reopen", request.dead_letter_ids, request.reason)?;
        Ok(Response::new(v1::ReopenDeadLettersResponse { results }))
    }

    async fn preview_bulk_replay(
        &self,
        request: Request<v1::PreviewBulkReplayRequest>,
    ) -> Result<Response<v1::PreviewBulkReplayResponse>, Status> {
        let filter = request.into_inner().filter.unwrap_or_default();
        self.seen().previews.push(filter);
        Ok(Response::new(v1::PreviewBulkReplayResponse {
            matching: 4,
            count_cap: 100,
            ..v1::PreviewBulkReplayResponse::default()
        }))
    }

    /// Answers the second try.
    async fn start_bulk_replay(
        &self,
        request: Request<v1::StartBulkReplayRequest>,
    ) -> Result<Response<v1::StartBulkReplayResponse>, Status> {
        let mut seen = self.seen();
        seen.starts.push(request.into_inner());
        if seen.starts.len() == 1 {
            return Err(Status::unavailable("cut"));
        }
        Ok(Response::new(v1::StartBulkReplayResponse {
            bulk_replay: Some(bulk(State::Running, 0)),
        }))
    }

    /// Runs, is out of reach twice (a read is repeated once), and has ended.
    async fn get_bulk_replay(
        &self,
        _: Request<v1::GetBulkReplayRequest>,
    ) -> Result<Response<v1::GetBulkReplayResponse>, Status> {
        let mut seen = self.seen();
        seen.reads += 1;
        let bulk_replay = match seen.reads {
            1 => bulk(State::Running, 2),
            2 | 3 => return Err(Status::unavailable("cut")),
            _ => bulk(State::Done, 4),
        };
        Ok(Response::new(v1::GetBulkReplayResponse {
            bulk_replay: Some(bulk_replay),
            actions: Vec::new(),
        }))
    }

    async fn list_bulk_replays(
        &self,
        _: Request<v1::ListBulkReplaysRequest>,
    ) -> Result<Response<v1::ListBulkReplaysResponse>, Status> {
        Err(Status::permission_denied("for operators"))
    }

    async fn control_bulk_replay(
        &self,
        request: Request<v1::ControlBulkReplayRequest>,
    ) -> Result<Response<v1::ControlBulkReplayResponse>, Status> {
        self.seen().controls.push(request.into_inner());
        Ok(Response::new(v1::ControlBulkReplayResponse {
            bulk_replay: Some(bulk(State::Paused, 1)),
        }))
    }

    async fn list_bulk_replay_outcomes(
        &self,
        request: Request<v1::ListBulkReplayOutcomesRequest>,
    ) -> Result<Response<v1::ListBulkReplayOutcomesResponse>, Status> {
        self.seen().outcomes.push(request.into_inner());
        Ok(Response::new(Default::default()))
    }
}

pub(super) async fn admin() -> (Admin, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let admin = Admin::default();
    let server = Server::builder()
        .add_service(DeadLetterServiceServer::new(admin.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    tokio::spawn(server);
    (admin, client_of(&url))
}
