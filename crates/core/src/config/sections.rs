//! The sections of the configuration: each key with its type, default and meaning.
//! The doc comments are the reference: docs/CONFIGURATION.md is generated from them.
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::{Secret, SecretUrl};
use super::{duration, size};

/// A key of a section: its name and its doc comment.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name inside the section.
    pub name: &'static str,
    /// The lines of its doc comment.
    pub doc: &'static [&'static str],
}

/// A section: its name, its doc comment and its keys.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The name of the TOML table.
    pub name: &'static str,
    /// The lines of its doc comment.
    pub doc: &'static [&'static str],
    /// The keys in the order of their definition.
    pub keys: &'static [Key],
}

macro_rules! sections {
    ($(
        $(#[doc = $section_doc:literal])*
        $field:ident: $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($attr:tt)*)])*
                $key:ident: $type:ty = $default:expr,
            )*
        }
    )*) => {
        $(
            $(#[doc = $section_doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name {
                $(
                    $(#[doc = $doc])*
                    $(#[serde($($attr)*)])*
                    pub $key: $type,
                )*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($key: $default,)* }
                }
            }
        )*

        /// The whole configuration of a Tenure process.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Config {
            $(
                $(#[doc = $section_doc])*
                pub $field: $name,
            )*
        }

        /// Every section and key, for the loader and the documentation.
        pub const SECTIONS: &[Section] = &[
            $(Section {
                name: stringify!($field),
                doc: &[$($section_doc,)*],
                keys: &[$(Key { name: stringify!($key), doc: &[$($doc,)*] },)*],
            },)*
        ];
    };
}

sections! {
    /// The process: its HTTP port, its end, its certificate.
    service: ServiceConfig {
        /// The address of `/livez`, `/readyz` and `/metrics`. Port 0 takes a free one.
        http_listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 9100)),
        /// How long an orderly stop may take; 5 s later the process ends with exit code 3.
        #[serde(with = "duration")]
        shutdown_grace: Duration = Duration::from_secs(30),
        /// A file that gets the bound addresses, one `kind=address` a line.
        address_file: Option<PathBuf> = None,
        /// The certificate chain (PEM) of the gRPC port; with `tls_key_file`. Without, plain text.
        tls_cert_file: Option<PathBuf> = None,
        /// The private key (PEM) of `tls_cert_file`.
        tls_key_file: Option<PathBuf> = None,
    }

    /// Logs on standard error, one event a line.
    telemetry: TelemetryConfig {
        /// What is logged: a level, or directives such as `info,tenure_core=debug`. Tenure tells of
        /// the broker itself; lapin would log returned messages with their payloads.
        filter: String = "info,lapin=off".to_owned(),
        /// `json` for machines, `text` for people.
        format: LogFormat = LogFormat::Json,
    }

    /// PostgreSQL, the truth about every job.
    database: DatabaseConfig {
        /// The address, such as `postgres://user:password@host:5432/tenure`. Required.
        url: SecretUrl = SecretUrl::default(),
        /// A file that holds the address.
        url_file: Option<PathBuf> = None,
        /// The most connections of this process; a worker has one more, for its leases.
        max_connections: u32 = 16,
        /// How long a statement waits for a free connection, a new one included.
        #[serde(with = "duration")]
        acquire_timeout: Duration = Duration::from_secs(3),
        /// An idle connection is closed after this time.
        #[serde(with = "duration")]
        idle_timeout: Duration = Duration::from_mins(10),
        /// Any connection is replaced after this time.
        #[serde(with = "duration")]
        max_lifetime: Duration = Duration::from_mins(30),
    }

    /// RabbitMQ, which carries the hints that a job can start.
    broker: BrokerConfig {
        /// The address, such as `amqp://user:password@host:5672/vhost`. Required.
        url: SecretUrl = SecretUrl::default(),
        /// A file that holds the address.
        url_file: Option<PathBuf> = None,
        /// The first part of the names of exchanges and queues.
        prefix: String = "tenure".to_owned(),
        /// `quorum` (survives a node) or `classic`.
        queue_type: QueueType = QueueType::Quorum,
        /// The most messages that a queue holds; what is above waits in the database.
        max_length: u32 = 100_000,
        /// How long a new connection may take.
        #[serde(with = "duration")]
        connect_timeout: Duration = Duration::from_secs(5),
        /// How long a published message waits for the broker's confirm.
        #[serde(with = "duration")]
        confirm_timeout: Duration = Duration::from_secs(5),
    }

    /// Redis, where the gateways share the rates of submits. Without it each gateway limits by itself.
    cache: CacheConfig {
        /// The address, such as `redis://:password@host:6379/0`. Empty: none.
        url: SecretUrl = SecretUrl::default(),
        /// A file that holds the address.
        url_file: Option<PathBuf> = None,
        /// The first part of every key.
        key_prefix: String = "tenure:".to_owned(),
    }

    /// Who may call: JSON web tokens in `authorization: Bearer …`.
    auth: AuthConfig {
        /// The one signature algorithm that is accepted: `HS256`, `RS256`, `ES256` or `EdDSA`.
        algorithm: Algorithm = Algorithm::HS256,
        /// The shared secret of `HS256`, 32 bytes or more.
        secret: Secret = Secret::default(),
        /// A file that holds the shared secret.
        secret_file: Option<PathBuf> = None,
        /// A JSON web key set with the public keys of the other algorithms.
        jwks_file: Option<PathBuf> = None,
        /// The `iss` that a token must have.
        issuer: String = "tenure".to_owned(),
        /// The `aud` that a token must have.
        audience: String = "tenure".to_owned(),
        /// How far the clocks of issuer and service may differ.
        #[serde(with = "duration")]
        leeway: Duration = Duration::from_secs(10),
        /// How many verified tokens are remembered. 0: none.
        cache_entries: u64 = 10_000,
    }

    /// The object store of uploaded files and reports.
    files: FilesConfig {
        /// The folder of the store; gateway, worker and sweeper need the same one.
        root: PathBuf = PathBuf::new(),
        /// A bucket instead of a folder: `s3://BUCKET/PREFIX`, in any S3-compatible store.
        url: String = String::new(),
        /// The address of the S3-compatible store. Empty: Amazon's of the region.
        s3_endpoint: String = String::new(),
        /// The region of the bucket.
        s3_region: String = "us-east-1".to_owned(),
        /// The key id for the bucket.
        s3_access_key_id: String = String::new(),
        /// The secret key for the bucket.
        s3_secret_access_key: Secret = Secret::default(),
        /// A file that holds the secret key.
        s3_secret_access_key_file: Option<PathBuf> = None,
        /// Allows an `s3_endpoint` without TLS.
        s3_allow_http: bool = false,
        /// The largest file.
        #[serde(with = "size")]
        max_bytes: u64 = 1 << 30,
        /// The most bytes of all uploads of one user.
        #[serde(with = "size")]
        max_user_bytes: u64 = 10 << 30,
        /// An upload is kept this long; the same upload again begins anew.
        #[serde(with = "duration")]
        upload_retention: Duration = Duration::from_hours(30 * 24),
        /// Reports and rejected rows are kept this long.
        #[serde(with = "duration")]
        report_retention: Duration = Duration::from_hours(90 * 24),
        /// An upload that sends nothing for this long is given up.
        #[serde(with = "duration")]
        upload_idle_timeout: Duration = Duration::from_secs(30),
    }

    /// Imports of CSV files.
    imports: ImportsConfig {
        /// The most bytes of text that a compressed file may unpack to.
        #[serde(with = "size")]
        max_unpacked_bytes: u64 = 4 << 30,
        /// The tables that imports may write to instead of a data set: `crm.contacts` takes new
        /// rows; `crm.contacts(owner)` puts the user's id into the column `owner` of each row,
        /// and users may change their own; in `crm.contacts(*)` everybody may change every row.
        tables: Vec<String> = Vec::new(),
    }

    /// Webhooks: the calls with which `notify_webhook` tells other systems.
    webhooks: WebhooksConfig {
        /// The hosts that may be called: `hooks.example.com`, `*.example.com`, each with `:PORT`
        /// where it is not the scheme's; `*` is any host. Empty: no webhook is sent.
        allowed_hosts: Vec<String> = Vec::new(),
        /// Addresses that may be called although they are not public: `10.1.2.3:8080`.
        allowed_private: Vec<String> = Vec::new(),
        /// Allows `http:` beside `https:`.
        allow_http: bool = false,
        /// The secret that signs each call (Standard Webhooks): `whsec_` and base64, 24 bytes or more.
        secret: Secret = Secret::default(),
        /// A file that holds the secret.
        secret_file: Option<PathBuf> = None,
        /// How long one call may take, up to 50 s.
        #[serde(with = "duration")]
        timeout: Duration = Duration::from_secs(10),
    }

    /// The gateway: the gRPC port of callers.
    gateway: GatewayConfig {
        /// The gRPC address. Port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7400)),
        /// The largest request message.
        #[serde(with = "size")]
        max_message_bytes: usize = 4 << 20,
        /// The longest deadline; a call that names none gets this one.
        #[serde(with = "duration")]
        max_deadline: Duration = Duration::from_mins(1),
        /// How many tasks write submits; each commit takes all submits that wait.
        writers: usize = 2,
        /// The most jobs in one commit.
        batch_max: usize = 1000,
        /// The most jobs that wait for a writer; above, calls are refused with OVERLOADED.
        queue_max: usize = 20_000,
        /// A connection is asked to end after this time, so that load spreads over new copies.
        #[serde(with = "duration")]
        connection_age: Duration = Duration::from_mins(5),
        /// The fraction by which `connection_age` differs between processes.
        connection_age_jitter: f64 = 0.2,
        /// How long calls may go on after a connection was asked to end: an upload takes no longer.
        #[serde(with = "duration")]
        connection_grace: Duration = Duration::from_hours(24),
        /// How often a silent connection is pinged.
        #[serde(with = "duration")]
        keepalive_interval: Duration = Duration::from_secs(20),
        /// A connection whose ping is not answered in this time is closed.
        #[serde(with = "duration")]
        keepalive_timeout: Duration = Duration::from_secs(10),
        /// The most calls that run at once on one connection; more wait.
        concurrency_per_connection: usize = 256,
        /// The most jobs that one broker message carries.
        publish_bundle_max: usize = 32,
    }

    /// What is taken in. Single users' limits are set by `tenure limits`; a limit of a user that
    /// is 0 refuses everything, one here that is 0 nothing.
    admission: AdmissionConfig {
        /// The most jobs of one user that have not ended, up to 1,000,000,000; above, calls are
        /// refused with TOO_MANY_PENDING_JOBS. 0: no limit.
        max_jobs_per_user: i64 = 1_000_000,
        /// The most submits of one user in a second, over all gateways; above, calls are refused
        /// with RATE_LIMITED. 0: no limit.
        submits_per_second: f64 = 0.0,
        /// How many submits of one user may come at once after a pause. 0: as many as in a second.
        submit_burst: i64 = 0,
        /// The most jobs that wait in one queue, about; above, calls are refused with QUEUE_FULL: the
        /// low lane from 80 % on, the high one from 110 % on. `queues.max_backlog` in the database
        /// overrides it for a queue. 0: no limit.
        max_backlog_per_queue: i64 = 5_000_000,
        /// The most jobs that wait in all queues together, in the same way. 0: no limit.
        max_backlog: i64 = 10_000_000,
    }

    /// The worker: claims jobs and runs handlers.
    worker: WorkerConfig {
        /// How many jobs run at once.
        slots: usize = 64,
        /// How long a claimed job belongs to a worker that has stopped renewing. 2 s or more.
        #[serde(with = "duration")]
        lease: Duration = Duration::from_secs(30),
        /// Registers the handlers for trials: noop, sleep, busy, fail, abort, effect.
        diagnostics: bool = false,
        /// The queues that this worker consumes.
        queues: Vec<String> = vec!["default".to_owned(), "imports".to_owned()],
        /// The name in logs and in the history of jobs. Empty: host name and process id.
        name: String = String::new(),
        /// How long a delivery without a free slot is kept before it goes back.
        #[serde(with = "duration")]
        hold_unclaimed: Duration = Duration::from_millis(250),
        /// How many tasks write results; each commit takes all results that wait.
        finish_writers: usize = 2,
        /// The most unacknowledged messages per queue and lane.
        prefetch_messages: u16 = 32,
        /// How the lanes share the slots while all of them have work: high, normal, low. A lane
        /// without work gives its share to the others.
        lane_weights: Vec<u32> = vec![6, 3, 1],
        /// When results have waited for so long to be written, while the database answers, their
        /// queues are paused until it is better.
        #[serde(with = "duration")]
        results_late_after: Duration = Duration::from_secs(10),
        /// How long a handler may go on after it was told that its job is cancelled; then it is
        /// dropped at its next await.
        #[serde(with = "duration")]
        cancel_grace: Duration = Duration::from_secs(10),
    }

    /// What follows a failed attempt.
    retry: RetryConfig {
        /// Scales every backoff schedule so that a first step of 10 s becomes this; for trials.
        #[serde(with = "duration::optional")]
        backoff_base: Option<Duration> = None,
        /// The most that is added to a delay at random, as a fraction of it, so that retries spread. No
        /// delay is shorter than its schedule says, or than a downstream has named.
        jitter: f64 = 0.25,
        /// A job whose lease ran out this many times in a row becomes a dead letter (POISON).
        poison_lost: u32 = 3,
        /// For how long runs that end by an outage of the database, the broker or the object
        /// store spend no attempt; counted from the first of them.
        #[serde(with = "duration")]
        outage_patience: Duration = Duration::from_hours(24),
        /// A handler that puts its job off more often than this fails it (SNOOZE_LIMIT).
        max_snoozes: u32 = 1000,
    }

    /// The sweeper: wakes what is due and dispatches what waits.
    sweeper: SweeperConfig {
        /// How often rows whose time has come are looked for.
        #[serde(with = "duration")]
        wake_interval: Duration = Duration::from_secs(1),
        /// The most rows that one statement wakes.
        wake_batch: u32 = 500,
        /// How often rows whose time passed longer ago than `lost_horizon` are looked for.
        #[serde(with = "duration")]
        full_pass_interval: Duration = Duration::from_mins(1),
        /// The pause between dispatches while work waits.
        #[serde(with = "duration")]
        dispatch_busy: Duration = Duration::from_millis(50),
        /// The pause between dispatches while nothing waits.
        #[serde(with = "duration")]
        dispatch_idle: Duration = Duration::from_millis(500),
        /// How far back waking looks between two full passes: dead index entries behind it are not walked.
        #[serde(with = "duration")]
        lost_horizon: Duration = Duration::from_hours(1),
        /// How often what nobody needs any more is looked for: expired files, content without
        /// a description, rows of imports that came to nothing, and what `retention` lets go.
        #[serde(with = "duration")]
        prune_interval: Duration = Duration::from_mins(1),
        /// Content without a description is removed when it is older than this. An upload must
        /// not take longer.
        #[serde(with = "duration")]
        orphan_age: Duration = Duration::from_hours(24),
    }

    /// What operators are told of dead letters, once each, by webhook and metrics.
    alerts: AlertsConfig {
        /// The address that is called, by a `notify_webhook` job of the user `tenure-alerts`; the rules
        /// of `webhooks` hold. Empty: nobody is called, and the log and the metrics tell.
        webhook: String = String::new(),
        /// How often is looked.
        #[serde(with = "duration")]
        interval: Duration = Duration::from_secs(15),
        /// Whether a cause that was not there before is told of.
        new_cause: bool = true,
        /// Told of when this many more letters are open than at some time within `growth_window`; 0: never.
        growth: u32 = 100,
        /// The time within which growth is looked for.
        #[serde(with = "duration")]
        growth_window: Duration = Duration::from_mins(10),
        /// Told of when the oldest open letter has failed longer ago than this.
        #[serde(with = "duration")]
        oldest_after: Duration = Duration::from_hours(24),
        /// Growth and age are told of again after this time, where they last.
        #[serde(with = "duration")]
        repeat: Duration = Duration::from_hours(6),
    }

    /// How long what has ended is kept. Dead letters and what operators did are kept for good
    /// where nothing is set here.
    retention: RetentionConfig {
        /// A job is kept this long after its end, with its history and logs; a failed one as long
        /// as its dead letter is open or ignored, whatever this says, and this long after it was dealt
        /// with.
        #[serde(with = "duration")]
        jobs: Duration = Duration::from_hours(30 * 24),
        /// The record that a job's event was handled is kept this much longer than jobs. A message
        /// that turns up later than that cannot be told from one whose job was lost.
        #[serde(with = "duration")]
        events_beyond_jobs: Duration = Duration::from_hours(30 * 24),
        /// A notification is kept this long, read or not; while it is there, nothing notifies its
        /// user of the same thing again.
        #[serde(with = "duration")]
        notifications: Duration = Duration::from_hours(90 * 24),
        /// Resolved dead letters are kept this long after they were, and at least as long as their job.
        #[serde(with = "duration::optional")]
        closed_letters: Option<Duration> = None,
        /// What operators did (actions, replays, outcomes of bulk replays) is kept this long.
        #[serde(with = "duration::optional")]
        audit: Option<Duration> = None,
    }

    /// The dead-letter admin: the gRPC port of operators.
    dead_letter_admin: DeadLetterAdminConfig {
        /// The gRPC address. Port 0 takes a free one.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7401)),
        /// The largest request message.
        #[serde(with = "size")]
        max_message_bytes: usize = 4 << 20,
    }
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One readable line.
    Text,
}

/// The kind of a RabbitMQ queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueType {
    /// Replicated; survives the loss of a node.
    Quorum,
    /// On one node.
    Classic,
}

impl QueueType {
    /// The value of the `x-queue-type` argument.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }
}

/// The signature algorithm of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// HMAC with SHA-256 and a shared secret.
    HS256,
    /// RSA with SHA-256.
    RS256,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl WorkerConfig {
    /// The configured name, or `host-pid`.
    pub fn display_name(&self) -> String {
        if !self.name.is_empty() {
            return self.name.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        let host = if host.is_empty() { "host" } else { host };
        format!("{host}-{}", std::process::id())
    }
}
