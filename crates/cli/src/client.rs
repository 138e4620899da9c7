//! Connections: addresses, TLS, tokens, time limits and repeated calls.

mod signed_in;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ArgMatches;
use clap::parser::ValueSource;
use tenure_proto::v1::dataset_service_client::DatasetServiceClient;
use tenure_proto::v1::dead_letter_service_client::DeadLetterServiceClient;
use tenure_proto::v1::file_service_client::FileServiceClient;
use tenure_proto::v1::job_service_client::JobServiceClient;
use tenure_proto::v1::job_type_service_client::JobTypeServiceClient;
use tenure_proto::v1::notification_service_client::NotificationServiceClient;
use tenure_proto::v1::queue_service_client::QueueServiceClient;
use tenure_proto::v1::user_limit_service_client::UserLimitServiceClient;
use tenure_proto::v1::worker_service_client::WorkerServiceClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Response, Status};

use self::signed_in::SignedIn;
use crate::args::Global;
use crate::errors::{Exit, Failure, Peer, retry_delay};
use crate::values::read_small_file;

/// Large enough for a page of jobs with their results.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// A connection that takes longer than this does not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Finds a dead connection under a quiet stream.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The first pause before a call is repeated; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A longer wait is the user's decision.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where systems keep the certificates that they trust.
const SYSTEM_CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A channel that sends the token with each call.
pub(crate) type Service = InterceptedService<Channel, Bearer>;

/// Adds the token to a call.
#[derive(Clone)]
pub(crate) struct Bearer(MetadataValue<Ascii>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request
            .metadata_mut()
            .insert("authorization", self.0.clone());
        Ok(request)
    }
}

/// How the user signs in.
#[derive(Default)]
pub(crate) struct Credentials {
    /// Whether `--token` stood on the command line.
    token_given: bool,
    /// `TENURE_OPERATOR_TOKEN`, where it is set.
    operator_token: Option<String>,
}

impl Credentials {
    /// Looks at the command line and the environment.
    pub(crate) fn from_matches(matches: &ArgMatches) -> Self {
        Self {
            token_given: matches.value_source("token") == Some(ValueSource::CommandLine),
            operator_token: std::env::var("TENURE_OPERATOR_TOKEN").ok(),
        }
    }

    fn token(&self, global: &Global, operator: bool) -> Result<String, Failure> {
        let from_file = || -> Result<Option<String>, Failure> {
            global
                .token_file
                .as_deref()
                .map(token_from_file)
                .transpose()
        };
        let given = |token: &Option<String>| token.clone().filter(|token| !token.trim().is_empty());
        let token = if self.token_given {
            given(&global.token)
        } else if let Some(token) = from_file()? {
            Some(token)
        } else if operator {
            given(&self.operator_token).or_else(|| given(&global.token))
        } else {
            given(&global.token)
        };
        token.map(|token| token.trim().to_owned()).ok_or_else(|| {
            let (role, variable) = if operator {
                ("operator", "TENURE_OPERATOR_TOKEN")
            } else {
                ("submitter", "TENURE_TOKEN")
            };
            Failure::new(Exit::NotAllowed, "there is no token to sign in with").hint(format!(
                "set {variable}, or give --token or --token-file; `tenure token --user USER --role {role}` makes one, `make up` writes both into .local/env"
            ))
        })
    }
}

fn token_from_file(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_small_file(path)?)
        .ok()
        .filter(|token| !token.trim().is_empty())
        .ok_or_else(|| Failure::usage(format!("{} holds no token", path.display())))
}

/// A service to call.
#[derive(Clone)]
pub(crate) struct Client {
    /// Absent where the token cannot be read.
    signed_in: Option<SignedIn>,
    service: Service,
    peer: Peer,
    timeout: Duration,
}

/// The gateway, as a user.
pub(crate) fn gateway(global: &Global, credentials: &Credentials) -> Result<Client, Failure> {
    Client::new(
        global,
        credentials,
        "the gateway",
        "--gateway",
        &global.gateway,
        false,
    )
}

/// The gateway, as an operator.
pub(crate) fn gateway_for_operator(
    global: &Global,
    credentials: &Credentials,
) -> Result<Client, Failure> {
    Client::new(
        global,
        credentials,
        "the gateway",
        "--gateway",
        &global.gateway,
        true,
    )
}

/// The gateway, as an operator where the user is known to be one, else as a user.
pub(crate) fn gateway_for_reader(
    global: &Global,
    credentials: &Credentials,
) -> Result<Client, Failure> {
    if credentials
        .operator_token
        .as_ref()
        .is_some_and(|token| !token.trim().is_empty())
    {
        gateway_for_operator(global, credentials)
    } else {
        gateway(global, credentials)
    }
}

/// The dead-letter admin.
pub(crate) fn dead_letter_admin(
    global: &Global,
    credentials: &Credentials,
) -> Result<Client, Failure> {
    let url = &global.dead_letter_admin;
    Client::new(
        global,
        credentials,
        "the dead-letter admin",
        "--dead-letter-admin",
        url,
        true,
    )
}

impl Client {
    fn new(
        global: &Global,
        credentials: &Credentials,
        name: &'static str,
        option: &'static str,
        url: &str,
        operator: bool,
    ) -> Result<Self, Failure> {
        let token = credentials.token(global, operator)?;
        let mut header: MetadataValue<Ascii> = format!("Bearer {token}")
            .parse()
            .map_err(|_| Failure::usage("the token has characters that no token has"))?;
        header.set_sensitive(true);
        let channel = endpoint(url, option, global)?.connect_lazy();
        Ok(Self {
            signed_in: SignedIn::of(&token),
            service: InterceptedService::new(channel, Bearer(header)),
            peer: Peer {
                name,
                option,
                url: url.to_owned(),
                operator,
            },
            timeout: global.call_timeout,
        })
    }

    /// The jobs.
    pub(crate) fn jobs(&self) -> JobServiceClient<Service> {
        JobServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The files.
    pub(crate) fn files(&self) -> FileServiceClient<Service> {
        FileServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The data sets.
    pub(crate) fn datasets(&self) -> DatasetServiceClient<Service> {
        DatasetServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The notifications.
    pub(crate) fn notifications(&self) -> NotificationServiceClient<Service> {
        NotificationServiceClient::new(self.service.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The queues.
    pub(crate) fn queues(&self) -> QueueServiceClient<Service> {
        QueueServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The workers.
    pub(crate) fn workers(&self) -> WorkerServiceClient<Service> {
        WorkerServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The limits of users.
    pub(crate) fn user_limits(&self) -> UserLimitServiceClient<Service> {
        UserLimitServiceClient::new(self.service.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The job types.
    pub(crate) fn job_types(&self) -> JobTypeServiceClient<Service> {
        JobTypeServiceClient::new(self.service.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// The dead letters.
    pub(crate) fn dead_letters(&self) -> DeadLetterServiceClient<Service> {
        DeadLetterServiceClient::new(self.service.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// How long a call may take, or a stream may stand still.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The failure that a status of this service means.
    pub(crate) fn failure(&self, status: &Status) -> Failure {
        Failure::from_status(status, &self.peer)
    }

    /// Makes a call that may be sent again `repeats` times where the service is
    /// not available. `call` gets the request with its deadline.
    pub(crate) async fn unary<M, T, F>(
        &self,
        repeats: u32,
        message: M,
        mut call: impl FnMut(Request<M>) -> F,
    ) -> Result<T, Failure>
    where
        M: Clone,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut pause = FIRST_PAUSE;
        let mut left = repeats;
        let mut outcome_unknown = false;
        loop {
            let mut request = Request::new(message.clone());
            request.set_timeout(self.timeout);
            let status = match self.limited(call(request)).await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) => status,
            };
            // No room, no quota: nothing was begun. Of any other try it is not known.
            outcome_unknown |= status.code() != Code::ResourceExhausted;
            let wait = retry_delay(&status).unwrap_or(pause);
            if status.code() != Code::Unavailable || left == 0 || wait > LONGEST_PAUSE {
                let mut failure = self.failure(&status);
                failure.outcome_unknown = outcome_unknown;
                return Err(failure);
            }
            left -= 1;
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the answer, or for the first part of one, as long as a call may
    /// take.
    pub(crate) async fn limited<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let started = Instant::now();
        let late = || {
            Status::deadline_exceeded(format!(
                "no answer within {}",
                crate::values::human_duration(self.timeout)
            ))
        };
        // The request's own deadline comes first where the service keeps it; it
        // shows as CANCELLED where the transport noticed it.
        match tokio::time::timeout(self.timeout + Duration::from_millis(500), call).await {
            Ok(Err(status))
                if status.code() == Code::Cancelled && started.elapsed() >= self.timeout =>
            {
                Err(late())
            }
            Ok(answer) => answer,
            Err(_) => Err(late()),
        }
    }
}

fn endpoint(url: &str, option: &'static str, global: &Global) -> Result<Endpoint, Failure> {
    let wrong = |problem: String| {
        Failure::usage(format!("{option} {url}: {problem}"))
            .hint("an address looks like http://127.0.0.1:7400 or https://tenure.example.org")
    };
    let tls = url.starts_with("https://");
    if !tls && !url.starts_with("http://") {
        return Err(wrong("must begin with http:// or https://".to_owned()));
    }
    if let (false, Some(file)) = (tls, &global.ca_file) {
        return Err(Failure::usage(format!(
            "--ca-file {} is for https, and {option} is {url}: nothing would be encrypted",
            file.display()
        ))
        .hint(format!("write {option} https://…, or leave out --ca-file")));
    }
    let endpoint = Endpoint::from_shared(url.to_owned())
        .and_then(|endpoint| endpoint.user_agent(concat!("tenure-cli/", env!("CARGO_PKG_VERSION"))))
        .map_err(|error| wrong(error.to_string()))?
        .connect_timeout(CONNECT_TIMEOUT.min(global.call_timeout))
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    if !tls {
        return Ok(endpoint);
    }
    let pem = certificates(global.ca_file.as_deref())?;
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    Ok(endpoint.tls_config(config).context("cannot set up TLS")?)
}

fn certificates(ca_file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    if let Some(path) = ca_file {
        let pem = read_small_file(path)?;
        if !pem.windows(11).any(|part| part == b"-----BEGIN ") {
            return Err(Failure::usage(format!(
                "{} is not a PEM file",
                path.display()
            )));
        }
        return Ok(pem);
    }
    std::env::var_os("SSL_CERT_FILE")
        .map(PathBuf::from)
        .into_iter()
        .chain(SYSTEM_CERTIFICATES.map(PathBuf::from))
        .find_map(|path| std::fs::read(path).ok())
        .ok_or_else(|| {
            Failure::usage("this system has no certificates to trust")
                .hint("give the certificate of your authority with --ca-file")
        })
}

#[cfg(test)]
mod tests;
