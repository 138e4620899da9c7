use std::net::SocketAddr;

use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use tenure_proto::v1;
use tenure_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use tenure_proto::v1::dead_letter_service_server::{DeadLetterService, DeadLetterServiceServer};
use tenure_proto::v1::job_service_client::JobServiceClient;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::server::NamedService as _;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Wire;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1 as reflection;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_types::StatusExt as _;

use super::*;
use crate::auth::Principal;
use crate::config::{Config, Secret};
use crate::telemetry::labels::MethodCode;

const SECRET: &str = "a secret of more than thirty-two bytes";
/// No test waits longer than this for anything.
const BOUND: Duration = Duration::from_secs(30);

/// Answers what the id of the dead letter asks for.
struct Trial;

#[tonic::async_trait]
impl DeadLetterService for Trial {
    async fn list_dead_letters(
        &self,
        _: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        Ok(Response::new(v1::ListDeadLettersResponse::default()))
    }

    async fn get_dead_letter(
        &self,
        request: Request<v1::GetDeadLetterRequest>,
    ) -> Result<Response<v1::GetDeadLetterResponse>, Status> {
        assert!(request.extensions().get::<Deadline>().is_some());
        let user = request
            .extensions()
            .get::<Principal>()
            .map(|p| p.user.to_string());
        match request.get_ref().dead_letter_id.as_str() {
            "panic" => panic!("on purpose"),
            "wait" => std::future::pending().await,
            _ => Err(Error::new(Code::DeadLetterNotFound, user.unwrap_or_default()).into()),
        }
    }

    async fn list_dead_letter_causes(
        &self,
        _: Request<v1::ListDeadLetterCausesRequest>,
    ) -> Result<Response<v1::ListDeadLetterCausesResponse>, Status> {
        Ok(Response::new(v1::ListDeadLetterCausesResponse::default()))
    }

    async fn replay_dead_letters(
        &self,
        _: Request<v1::ReplayDeadLettersRequest>,
    ) -> Result<Response<v1::ReplayDeadLettersResponse>, Status> {
        Ok(Response::new(v1::ReplayDeadLettersResponse::default()))
    }

    async fn ignore_dead_letters(
        &self,
        _: Request<v1::IgnoreDeadLettersRequest>,
    ) -> Result<Response<v1::IgnoreDeadLettersResponse>, Status> {
        Ok(Response::new(v1::IgnoreDeadLettersResponse::default()))
    }

    async fn resolve_dead_letters(
        &self,
        _: Request<v1::ResolveDeadLettersRequest>,
    ) -> Result<Response<v1::ResolveDeadLettersResponse>, Status> {
        Ok(Response::new(v1::ResolveDeadLettersResponse::default()))
    }

    async fn reopen_dead_letters(
        &self,
        _: Request<v1::ReopenDeadLettersRequest>,
    ) -> Result<Response<v1::ReopenDeadLettersResponse>, Status> {
        Ok(Response::new(v1::ReopenDeadLettersResponse::default()))
    }

    async fn preview_bulk_replay(
        &self,
        _: Request<v1::PreviewBulkReplayRequest>,
    ) -> Result<Response<v1::PreviewBulkReplayResponse>, Status> {
        Ok(Response::new(v1::PreviewBulkReplayResponse::default()))
    }

    async fn start_bulk_replay(
        &self,
        _: Request<v1::StartBulkReplayRequest>,
    ) -> Result<Response<v1::StartBulkReplayResponse>, Status> {
        Ok(Response::new(v1::StartBulkReplayResponse::default()))
    }

    async fn get_bulk_replay(
        &self,
        _: Request<v1::GetBulkReplayRequest>,
    ) -> Result<Response<v1::GetBulkReplayResponse>, Status> {
        Ok(Response::new(v1::GetBulkReplayResponse::default()))
    }

    async fn list_bulk_replays(
        &self,
        _: Request<v1::ListBulkReplaysRequest>,
    ) -> Result<Response<v1::ListBulkReplaysResponse>, Status> {
        Ok(Response::new(v1::ListBulkReplaysResponse::default()))
    }

    async fn control_bulk_replay(
        &self,
        _: Request<v1::ControlBulkReplayRequest>,
    ) -> Result<Response<v1::ControlBulkReplayResponse>, Status> {
        Ok(Response::new(v1::ControlBulkReplayResponse::default()))
    }

    async fn list_bulk_replay_outcomes(
        &self,
        _: Request<v1::ListBulkReplayOutcomesRequest>,
    ) -> Result<Response<v1::ListBulkReplayOutcomesResponse>, Status> {
        Ok(Response::new(v1::ListBulkReplayOutcomesResponse::default()))
    }
}

struct Port {
    context: Context,
    channel: Channel,
    serving: JoinHandle<Result<()>>,
}

async fn port(change: impl FnOnce(&mut Config)) -> Port {
    let mut config = Config::default();
    config.auth.secret = Secret::new(SECRET);
    change(&mut config);
    let context = Context::new("test", "0", config);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .expect("bound");
    let address = listener.local_addr().expect("an address");
    let auth = Arc::new(Authenticator::new(&context.config.auth).expect("valid"));
    let inner = context.clone();
    let serving = tokio::spawn(async move {
        let mut routes = RoutesBuilder::default();
        routes.add_service(DeadLetterServiceServer::new(Trial).max_decoding_message_size(1024));
        let names = [DeadLetterServiceServer::<Trial>::NAME];
        serve(&inner, listener, auth, &names, routes).await
    });
    let channel = Channel::from_shared(format!("http://{address}")).expect("an address");
    let channel = channel.connect().await.expect("connected");
    Port {
        context,
        channel,
        serving,
    }
}

fn with_token<T>(message: T) -> Request<T> {
    let claims = serde_json::json!({
        "sub": "ada", "roles": ["operator"], "iss": "tenure", "aud": "tenure",
        "exp": get_current_timestamp() + 600,
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("key");
    let token = encode(&Header::default(), &claims, &key).expect("signed");
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("ASCII");
    request.metadata_mut().insert("authorization", value);
    request
}

fn letter(id: impl Into<String>) -> v1::GetDeadLetterRequest {
    v1::GetDeadLetterRequest {
        dead_letter_id: id.into(),
    }
}

impl Port {
    async fn get(&self, request: Request<v1::GetDeadLetterRequest>) -> Status {
        let mut client = DeadLetterServiceClient::new(self.channel.clone());
        let answer = timeout(BOUND, client.get_dead_letter(request)).await;
        answer.expect("an answer").expect_err("a refusal")
    }

    fn counted(&self, code: &'static str) -> u64 {
        let method = "tenure.v1.DeadLetterService/GetDeadLetter";
        self.context
            .metrics
            .grpc_requests
            .get(MethodCode { method, code })
    }
}

fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    details.error_info().expect("ErrorInfo").reason.clone()
}

#[tokio::test]
async fn a_call_needs_a_token_and_learns_who_calls() {
    let port = port(|_| ()).await;
    let refused = port.get(Request::new(letter("x"))).await;
    assert_eq!(reason(&refused), "UNAUTHENTICATED");
    let answer = port.get(with_token(letter("x"))).await;
    assert_eq!(
        (answer.code(), answer.message()),
        (tonic::Code::NotFound, "ada")
    );
    assert_eq!(
        (port.counted("UNAUTHENTICATED"), port.counted("NOT_FOUND")),
        (1, 1)
    );
    let mut client = DeadLetterServiceClient::new(port.channel.clone());
    let list = v1::ListDeadLettersRequest::default();
    client
        .list_dead_letters(with_token(list))
        .await
        .expect("an answer");
    let text = port.context.metrics.encode();
    let line = "tenure_grpc_requests_total{method=\"tenure.v1.DeadLetterService/ListDeadLetters\",code=\"OK\"} 1";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_panic_stays_within_its_call() {
    let port = port(|_| ()).await;
    let answer = port.get(with_token(letter("panic"))).await;
    assert_eq!(reason(&answer), "INTERNAL");
    assert_eq!(port.get(with_token(letter("x"))).await.message(), "ada");
}

#[tokio::test]
async fn a_call_ends_at_the_servers_limit() {
    let port = port(|config| config.gateway.max_deadline = Duration::from_millis(100)).await;
    let answer = port.get(with_token(letter("wait"))).await;
    assert_eq!(reason(&answer), "DEADLINE_EXCEEDED");
    assert!(answer.get_error_details().retry_info().is_some());
}

#[tokio::test]
async fn what_the_transport_refuses_has_a_reason_too() {
    let port = port(|_| ()).await;
    let large = port.get(with_token(letter("x".repeat(2000)))).await;
    assert_eq!(reason(&large), "PAYLOAD_TOO_LARGE");
    let mut other = JobServiceClient::new(port.channel.clone());
    let call = other.get_job(with_token(v1::GetJobRequest::default()));
    let unknown = timeout(BOUND, call)
        .await
        .expect("an answer")
        .expect_err("a refusal");
    assert_eq!(reason(&unknown), "UNIMPLEMENTED");
}

#[tokio::test]
async fn health_follows_the_readiness_and_needs_no_token() {
    let port = port(|_| ()).await;
    let component = port.context.health.component("database");
    let mut client = HealthClient::new(port.channel.clone());
    for service in ["", "tenure.v1.DeadLetterService"] {
        component.down("trial");
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let mut states = client.watch(request).await.expect("a stream").into_inner();
        for want in [Wire::NotServing, Wire::Serving, Wire::NotServing] {
            // The first state may be one from before the change above.
            loop {
                let state = timeout(BOUND, states.message()).await.expect("a state");
                if state.expect("no error").expect("a state").status() == want {
                    break;
                }
            }
            match want {
                Wire::NotServing => component.up(),
                _ => component.down("trial"),
            }
        }
    }
}

#[tokio::test]
async fn reflection_lists_what_is_served() {
    use reflection::server_reflection_request::MessageRequest;
    use reflection::server_reflection_response::MessageResponse;
    let port = port(|_| ()).await;
    let mut client = ServerReflectionClient::new(port.channel.clone());
    let ask = reflection::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let call = client.server_reflection_info(tokio_stream::once(ask));
    let mut answers = timeout(BOUND, call)
        .await
        .expect("bound")
        .expect("a stream")
        .into_inner();
    let answer = timeout(BOUND, answers.message()).await.expect("bound");
    let answer = answer
        .expect("no error")
        .expect("an answer")
        .message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        panic!("{answer:?}");
    };
    let mut names: Vec<_> = list.service.into_iter().map(|s| s.name).collect();
    names.sort();
    assert_eq!(
        names,
        ["grpc.health.v1.Health", "tenure.v1.DeadLetterService"]
    );
}

#[tokio::test]
async fn a_stop_ends_in_spite_of_a_call_that_does_not() {
    let port = port(|config| config.service.shutdown_grace = Duration::from_millis(100)).await;
    let mut client = DeadLetterServiceClient::new(port.channel.clone());
    let call = client.get_dead_letter(with_token(letter("wait")));
    let (stop, serving) = (port.context.shutdown.clone(), port.serving);
    tokio::select! {
        _ = call => panic!("the call waits for ever"),
        done = async {
            stop.trigger();
            timeout(BOUND, serving).await
        } => done.expect("within the bound").expect("no panic").expect("in order"),
    }
}

#[test]
fn the_age_of_connections_differs_by_its_fraction() {
    let age = Duration::from_secs(100);
    assert_eq!(jittered(age, 0.2, 0.0), Duration::from_secs(80));
    assert_eq!(jittered(age, 0.2, 0.5), age);
    assert_eq!(jittered(age, 0.2, 1.0), Duration::from_mins(2));
    assert_eq!(jittered(age, 0.0, 0.9), age);
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_is_a_wrong_configuration() {
    let service = ServiceConfig {
        tls_cert_file: Some("/no/such/cert".into()),
        tls_key_file: Some("/no/such/key".into()),
        ..ServiceConfig::default()
    };
    let error = builder(&GatewayConfig::default(), &service).expect_err("refused");
    assert_eq!(error.code(), Code::ConfigInvalid);
}
