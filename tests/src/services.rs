//! Stopping and starting the services that all tests share: for tests that run alone.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::environment::variable;
use crate::wait::within;

/// How long a service may take to stop or to start.
const BOUND: Duration = Duration::from_mins(2);

/// A service that was stopped; started again when the value goes, also by a panic, since
/// the tests after this one need it.
#[derive(Debug)]
pub struct Stopped {
    service: &'static str,
    started: bool,
}

impl Stopped {
    /// Stops `postgres`, `rabbitmq` or `redis`.
    ///
    /// # Panics
    /// Where it does not stop.
    pub async fn stop(service: &'static str) -> Self {
        // Made first: whatever half a stop has done is undone as well.
        let stopped = Self {
            service,
            started: false,
        };
        run(
            &variable("TENURE_SERVICE_CONTROL"),
            &[stopped.service, "stop"],
        )
        .await;
        stopped
    }

    /// Starts it again.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn start(mut self) {
        run(
            &variable("TENURE_SERVICE_CONTROL"),
            &[self.service, "start"],
        )
        .await;
        self.started = true;
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.started {
            return;
        }
        let started = std::process::Command::new(variable("TENURE_SERVICE_CONTROL"))
            .args([self.service, "start"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !matches!(&started, Ok(status) if status.success()) {
            eprintln!("{} could not be started again: {started:?}", self.service);
        }
    }
}

/// Deletes a queue of a virtual host, with all that is in it.
///
/// # Panics
/// Where the broker refuses.
pub async fn delete_queue(vhost: &str, queue: &str) {
    run(
        &variable("TENURE_RABBITMQCTL"),
        &["--silent", "--vhost", vhost, "delete_queue", queue],
    )
    .await;
}

/// Breaks all connections of a virtual host.
///
/// # Panics
/// Where the broker refuses.
pub async fn close_connections(vhost: &str) {
    run(
        &variable("TENURE_RABBITMQCTL"),
        &[
            "--silent",
            "close_all_connections",
            "--vhost",
            vhost,
            "test",
        ],
    )
    .await;
}

/// The memory alarm of the broker, which blocks all who publish on it: for tests that run
/// alone. Ends with the value, also by a panic.
#[derive(Debug)]
pub struct MemoryAlarm(());

/// What RabbitMQ has where nothing is set, in all versions that are supported.
const WATERMARK: &str = "0.4";

impl MemoryAlarm {
    /// Raises it.
    ///
    /// # Panics
    /// Where the broker refuses.
    pub async fn raise() -> Self {
        let alarm = Self(());
        let limit = ["set_vm_memory_high_watermark", "absolute", "1048576"];
        run(&variable("TENURE_RABBITMQCTL"), &limit).await;
        alarm
    }
}

impl Drop for MemoryAlarm {
    fn drop(&mut self) {
        let ended = std::process::Command::new(variable("TENURE_RABBITMQCTL"))
            .args(["set_vm_memory_high_watermark", WATERMARK])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !matches!(&ended, Ok(status) if status.success()) {
            eprintln!("the memory alarm could not be ended: {ended:?}");
        }
    }
}

/// Sets what the services' user may write to on a virtual host, as a regular expression;
/// it may configure and read everything.
///
/// # Panics
/// Where the broker refuses.
pub async fn allow_writing(vhost: &str, pattern: &str) {
    let url = variable("AMQP_URL");
    let user = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once(':'))
        .expect("AMQP_URL has a user")
        .0;
    let arguments = [
        "--silent",
        "set_permissions",
        "--vhost",
        vhost,
        user,
        ".*",
        pattern,
        ".*",
    ];
    run(&variable("TENURE_RABBITMQCTL"), &arguments).await;
}

/// The messages of a virtual host that consumers hold without having acknowledged them.
///
/// # Panics
/// Where the broker refuses.
pub async fn unacknowledged(vhost: &str) -> u64 {
    let listed = run(
        &variable("TENURE_RABBITMQCTL"),
        &[
            "--silent",
            "--vhost",
            vhost,
            "list_queues",
            "messages_unacknowledged",
        ],
    )
    .await;
    listed
        .lines()
        .filter_map(|line| line.trim().parse::<u64>().ok())
        .sum()
}

async fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = within(format!("{program} {arguments:?}"), BOUND, output)
        .await
        .unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
