//! A whole Tenure: its database, virtual host and folder, and the processes on them.

use std::process::Stdio;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;
use tenure_core::test_util::{TestDb, TestVhost};
use tonic::transport::{Channel, Endpoint};
use uuid::Uuid;

use crate::amqp::Broker;
use crate::caller::Caller;
use crate::environment::{self, variable};
use crate::process::{Kind, Process};
use crate::token;
use crate::wait::within;

/// How long the set-up of the broker may take on a busy machine.
const MIGRATE: Duration = Duration::from_mins(1);

/// What a stack is made of.
#[derive(Clone, Debug)]
pub struct StackBuilder {
    gateways: usize,
    workers: usize,
    sweepers: usize,
    dead_letter_admins: usize,
    asleep: Vec<Kind>,
    small_disk: Option<(Kind, &'static str)>,
    variables: Vec<(String, String)>,
}

impl StackBuilder {
    /// How many gateways; 1 by default.
    #[must_use]
    pub fn gateways(mut self, count: usize) -> Self {
        self.gateways = count;
        self
    }

    /// How many workers; 1 by default.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Self {
        self.workers = count;
        self
    }

    /// How many sweepers; 1 by default.
    #[must_use]
    pub fn sweepers(mut self, count: usize) -> Self {
        self.sweepers = count;
        self
    }

    /// With dead-letter-admin, which most tests do not need.
    #[must_use]
    pub fn dead_letter_admin(mut self) -> Self {
        self.dead_letter_admins = 1;
        self
    }

    /// Processes of this kind are not started with the rest; the test does it.
    #[must_use]
    pub fn asleep(mut self, kind: Kind) -> Self {
        self.asleep.push(kind);
        self
    }

    /// Gives processes of this kind a disk of their own for their files, of a size such as
    /// `4m`. Nobody else sees it but through [`Process::files`]. Needs the right to mount,
    /// which root has, and others where they may make a user namespace.
    #[must_use]
    pub fn small_disk(mut self, kind: Kind, size: &'static str) -> Self {
        self.small_disk = Some((kind, size));
        self
    }

    /// The slots of each worker.
    #[must_use]
    pub fn slots(self, count: usize) -> Self {
        self.env("TENURE_SLOTS", &count.to_string())
    }

    /// The lease of jobs, such as `10s`.
    #[must_use]
    pub fn lease(self, lease: &str) -> Self {
        self.env("TENURE_LEASE", lease)
    }

    /// An environment variable of every process; the last one of a name counts.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes the database, the virtual host and the folder, starts all processes and
    /// waits until they serve.
    ///
    /// # Panics
    /// Where one of them cannot be had.
    pub async fn start(self) -> Stack {
        let (database, vhost) = tokio::join!(TestDb::create(), TestVhost::create());
        let folder = TempDir::with_prefix("tenure-test-").expect("a folder");
        let files = folder.path().join("files");
        std::fs::create_dir(&files).expect("a folder for files");
        let prefix = format!("test-{}:", Uuid::new_v4().simple());
        let given = [
            ("DATABASE_URL", database.url.clone()),
            ("AMQP_URL", vhost.url.clone()),
            ("REDIS_URL", variable("REDIS_URL")),
            ("TENURE_KEY_PREFIX", prefix),
            ("TENURE_JWT_SECRET", token::SECRET.to_owned()),
            ("TENURE_FILES", files.display().to_string()),
            ("TENURE_DIAGNOSTICS", "true".to_owned()),
            ("TENURE_GATEWAY__LISTEN", "127.0.0.1:0".to_owned()),
            ("TENURE_DEAD_LETTER_ADMIN__LISTEN", "127.0.0.1:0".to_owned()),
            ("TENURE_SERVICE__HTTP_LISTEN", "127.0.0.1:0".to_owned()),
            ("RUST_BACKTRACE", "1".to_owned()),
        ];
        let mut variables: Vec<(String, String)> = given
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        variables.retain(|(name, _)| self.variables.iter().all(|(own, _)| own != name));
        variables.extend(self.variables.clone());
        if self
            .variables
            .iter()
            .any(|(name, _)| name == "TENURE_FILES__URL")
        {
            // The store is a folder or a bucket.
            variables.retain(|(name, _)| name != "TENURE_FILES");
        }
        migrate(&variables).await;

        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(30))
            .connect_lazy(&database.url)
            .expect("an address");
        let make = |kind: Kind, count: usize| {
            (0..count)
                .map(|n| {
                    let process = Process::new(kind, n, folder.path(), variables.clone());
                    match self.small_disk {
                        Some((small, size)) if small == kind => process.on_small_disk(size),
                        _ => process,
                    }
                })
                .collect::<Vec<_>>()
        };
        let stack = Stack {
            gateways: make(Kind::Gateway, self.gateways),
            workers: make(Kind::Worker, self.workers),
            sweepers: make(Kind::Sweeper, self.sweepers),
            dead_letter_admins: make(Kind::DeadLetterAdmin, self.dead_letter_admins),
            pool,
            database,
            vhost,
            folder,
        };
        let awake: Vec<&Process> = stack
            .all()
            .filter(|process| !self.asleep.contains(&process.kind()))
            .collect();
        for process in &awake {
            process.spawn();
        }
        futures::future::join_all(awake.iter().map(|process| process.ready())).await;
        stack
    }
}

/// `tenure-sweeper migrate`: the database is a migrated copy already, the virtual host
/// is empty.
async fn migrate(variables: &[(String, String)]) {
    let command = tokio::process::Command::new(environment::program("tenure-sweeper"))
        .arg("migrate")
        .env_clear()
        .envs(environment::kept())
        .envs(variables.iter().cloned())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within("tenure-sweeper migrate", MIGRATE, command)
        .await
        .expect("tenure-sweeper starts");
    assert!(
        output.status.success(),
        "tenure-sweeper migrate: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The running processes, and what they run on. All of it goes with the value; the
/// processes first, by SIGKILL.
#[derive(Debug)]
pub struct Stack {
    gateways: Vec<Process>,
    workers: Vec<Process>,
    sweepers: Vec<Process>,
    dead_letter_admins: Vec<Process>,
    pool: PgPool,
    database: TestDb,
    vhost: TestVhost,
    folder: TempDir,
}

impl Stack {
    /// A stack of one gateway, one worker and one sweeper, unless it is told otherwise.
    pub fn builder() -> StackBuilder {
        StackBuilder {
            gateways: 1,
            workers: 1,
            sweepers: 1,
            dead_letter_admins: 0,
            asleep: Vec::new(),
            small_disk: None,
            variables: Vec::new(),
        }
    }

    /// All processes.
    pub fn all(&self) -> impl Iterator<Item = &Process> {
        self.gateways
            .iter()
            .chain(&self.workers)
            .chain(&self.sweepers)
            .chain(&self.dead_letter_admins)
    }

    /// A gateway.
    pub fn gateway(&self, number: usize) -> &Process {
        &self.gateways[number]
    }

    /// A worker.
    pub fn worker(&self, number: usize) -> &Process {
        &self.workers[number]
    }

    /// All workers.
    pub fn workers(&self) -> &[Process] {
        &self.workers
    }

    /// A sweeper.
    pub fn sweeper(&self, number: usize) -> &Process {
        &self.sweepers[number]
    }

    /// The dead-letter-admin.
    pub fn dead_letter_admin(&self) -> &Process {
        &self.dead_letter_admins[0]
    }

    /// A channel to a gateway.
    pub fn channel(&self, gateway: usize) -> Channel {
        channel(&self.gateways[gateway].grpc())
    }

    /// A caller with these roles, on the first gateway.
    pub fn caller(&self, user: &str, roles: &[&str]) -> Caller {
        self.caller_on(0, user, roles)
    }

    /// A caller with these roles, on a gateway.
    pub fn caller_on(&self, gateway: usize, user: &str, roles: &[&str]) -> Caller {
        Caller::new(self.channel(gateway), Some(&bearer(user, roles)))
    }

    /// A submitter on the first gateway.
    pub fn user(&self, name: &str) -> Caller {
        self.caller(name, &["submitter"])
    }

    /// An operator on the first gateway.
    pub fn operator(&self) -> Caller {
        self.caller("olga", &["operator"])
    }

    /// An operator on dead-letter-admin.
    pub fn dead_letters(&self) -> Caller {
        let channel = channel(&self.dead_letter_admin().grpc());
        Caller::new(channel, Some(&bearer("olga", &["operator"])))
    }

    /// A pool on the stack's own database.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The name of the stack's own database.
    pub fn database_name(&self) -> &str {
        last_part(&self.database.url)
    }

    /// The name of the stack's own virtual host.
    pub fn vhost_name(&self) -> &str {
        last_part(&self.vhost.url)
    }

    /// The address of the stack's own virtual host.
    pub fn vhost_url(&self) -> &str {
        &self.vhost.url
    }

    /// A connection to the stack's own virtual host.
    ///
    /// # Panics
    /// Where there is no broker.
    pub async fn broker(&self) -> Broker {
        Broker::connect(&self.vhost.url).await
    }

    /// The folder with logs and files.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Puts a job into the database as it is, without any check of the gateway; returns
    /// its id. It is found when it is due, which is now.
    ///
    /// # Panics
    /// Where it cannot be written.
    pub async fn insert_job(&self, user: &str, job_type: &str, payload: &str) -> String {
        let id = Uuid::now_v7();
        sqlx::query(
            "insert into jobs (job_id, user_id, queue, lane, job_type, payload, max_attempts, timeout_ms, wake_at) \
             select $1, $2, queue, lane, name, convert_to($4, 'UTF8'), max_attempts, timeout_ms, now() \
             from job_types where name = $3",
        )
        .bind(id)
        .bind(user)
        .bind(job_type)
        .bind(payload)
        .execute(&self.pool)
        .await
        .expect("a row");
        id.to_string()
    }

    /// A number that the stack's own database answers with.
    ///
    /// # Panics
    /// Where the statement fails.
    pub async fn number(&self, statement: &'static str) -> i64 {
        sqlx::query_scalar(statement)
            .fetch_one(&self.pool)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.all() {
                eprintln!("--- {} ---\n{}", process.name(), process.log_tail());
            }
        }
    }
}

fn bearer(user: &str, roles: &[&str]) -> String {
    format!("Bearer {}", token::token(user, roles))
}

/// A channel that connects when it is first used, and again when it has to.
fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect_timeout(Duration::from_secs(10))
        .connect_lazy()
}

/// The part of an address behind its last slash.
fn last_part(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
