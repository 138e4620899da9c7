//! One process of a stack: started, signalled, ended, measured.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::environment;
use crate::metrics::Metrics;
use crate::wait::wait_until;

/// How long a process may take from its start to /readyz on a busy machine.
const READY: Duration = Duration::from_mins(1);

/// Which program a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `tenure-gateway`.
    Gateway,
    /// `tenure-worker`.
    Worker,
    /// `tenure-sweeper`.
    Sweeper,
    /// `tenure-dead-letter-admin`.
    DeadLetterAdmin,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [
        Self::Gateway,
        Self::Worker,
        Self::Sweeper,
        Self::DeadLetterAdmin,
    ];

    /// The name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Gateway => "tenure-gateway",
            Self::Worker => "tenure-worker",
            Self::Sweeper => "tenure-sweeper",
            Self::DeadLetterAdmin => "tenure-dead-letter-admin",
        }
    }

    /// Whether it has a gRPC port.
    pub fn has_grpc(self) -> bool {
        matches!(self, Self::Gateway | Self::DeadLetterAdmin)
    }
}

/// A process. Killed and reaped with the value.
#[derive(Debug)]
pub struct Process {
    kind: Kind,
    name: String,
    folder: PathBuf,
    variables: Vec<(String, String)>,
    /// The size of a disk of its own for its files.
    disk: Option<&'static str>,
    child: Mutex<Option<Child>>,
    http: reqwest::Client,
}

impl Process {
    /// A process that is not started yet. Its log and its addresses go to `folder`.
    pub(crate) fn new(
        kind: Kind,
        number: usize,
        folder: &Path,
        variables: Vec<(String, String)>,
    ) -> Self {
        Self {
            kind,
            name: format!("{}-{number}", kind.program().trim_start_matches("tenure-")),
            folder: folder.to_owned(),
            variables,
            disk: None,
            child: Mutex::new(None),
            http: reqwest::Client::builder()
                .no_proxy()
                .timeout(Duration::from_secs(10))
                .build()
                .expect("an HTTP client"),
        }
    }

    /// Gives it a small disk of its own for its files.
    pub(crate) fn on_small_disk(mut self, size: &'static str) -> Self {
        self.disk = Some(size);
        self
    }

    /// The program with what it takes to give it its disk.
    fn command(&self) -> Command {
        let program = environment::program(self.kind.program());
        let Some(size) = self.disk else {
            return Command::new(program);
        };
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        let mount =
            "mount -t tmpfs -o size=\"$1\",mode=0755 tmpfs \"$TENURE_FILES\" && exec \"$0\"";
        command
            .args(["--mount", "sh", "-ec", mount])
            .arg(program)
            .arg(size);
        command
    }

    /// The folder of its files, as it sees it.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn files(&self) -> PathBuf {
        let files = self.folder.join("files");
        if self.disk.is_none() {
            return files;
        }
        let inside = files.strip_prefix("/").expect("an absolute path");
        Path::new("/proc")
            .join(self.pid().to_string())
            .join("root")
            .join(inside)
    }

    /// Starts it, without waiting until it is ready.
    ///
    /// # Panics
    /// Where it runs already, or cannot be started.
    pub fn spawn(&self) {
        let mut child = self.child.lock();
        assert!(child.is_none(), "{} runs already", self.name);
        let addresses = self.address_file();
        // What an earlier start has left would be taken for this one's.
        if let Err(error) = std::fs::remove_file(&addresses) {
            assert!(
                error.kind() == std::io::ErrorKind::NotFound,
                "{}: {error}",
                addresses.display()
            );
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("a log");
        let output = log.try_clone().expect("the log once more");
        let started = self
            .command()
            .current_dir(&self.folder)
            .env_clear()
            .envs(environment::kept())
            .envs(self.variables.iter().cloned())
            .env("TENURE_SERVICE__ADDRESS_FILE", addresses)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be started: {error}", self.name));
        *child = Some(started);
    }

    /// Waits until it serves.
    ///
    /// # Panics
    /// Where it ends, or is not ready in a minute.
    pub async fn ready(&self) {
        wait_until(format!("{} ready", self.name), READY, || async {
            if let Some(status) = self.ended() {
                panic!("{} ended with {status}:\n{}", self.name, self.log_tail());
            }
            let http = self.address("http")?;
            if self.kind.has_grpc() {
                self.address("grpc")?;
            }
            let answer = self.http.get(format!("http://{http}/readyz")).send().await;
            answer.is_ok_and(|a| a.status().is_success()).then_some(())
        })
        .await;
    }

    /// Starts it and waits until it serves.
    ///
    /// # Panics
    /// Where it runs already, or does not get ready.
    pub async fn start(&self) {
        self.spawn();
        self.ready().await;
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.rustix_pid(), signal)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Ends it by SIGKILL, at once.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn kill(&self) {
        let mut child = self.child.lock().take().expect("a process that runs");
        child.kill().expect("SIGKILL can be sent");
        child.wait().expect("the killed process is reaped");
    }

    /// Asks it by SIGTERM to end, and waits until it has.
    ///
    /// # Panics
    /// Where it does not run, or has not ended after `bound`.
    pub async fn terminate(&self, bound: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(bound).await
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// Where it has not after `bound`.
    pub async fn wait_exit(&self, bound: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        let status = wait_until(what, bound, || async { self.ended() }).await;
        *self.child.lock() = None;
        status
    }

    /// Kills it where it runs, and starts it again.
    ///
    /// # Panics
    /// Where it does not get ready.
    pub async fn restart(&self) {
        if self.is_running() {
            self.kill();
        }
        *self.child.lock() = None;
        self.start().await;
    }

    /// Whether it runs (or is stopped by SIGSTOP).
    pub fn is_running(&self) -> bool {
        match self.child.lock().as_mut() {
            Some(child) => child.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// How it ended; `None`: it has not.
    fn ended(&self) -> Option<ExitStatus> {
        match self.child.lock().as_mut() {
            Some(child) => child.try_wait().expect("a child's status"),
            None => Some(ExitStatus::from_raw(0)),
        }
    }

    /// Which program it runs.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name in messages: the program and a number.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    ///
    /// # Panics
    /// Where it does not run.
    pub fn pid(&self) -> u32 {
        let child = self.child.lock();
        child
            .as_ref()
            .unwrap_or_else(|| panic!("{} does not run", self.name))
            .id()
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_raw(self.pid() as i32).expect("a pid")
    }

    /// The address of its HTTP port.
    ///
    /// # Panics
    /// Where it has none yet.
    pub fn http(&self) -> String {
        self.address("http")
            .unwrap_or_else(|| panic!("{} has no HTTP port", self.name))
    }

    /// The address of its gRPC port.
    ///
    /// # Panics
    /// Where it has none.
    pub fn grpc(&self) -> String {
        self.address("grpc")
            .unwrap_or_else(|| panic!("{} has no gRPC port", self.name))
    }

    /// Its metrics now.
    ///
    /// # Panics
    /// Where it does not answer.
    pub async fn metrics(&self) -> Metrics {
        let url = format!("http://{}/metrics", self.http());
        let answer = self.http.get(url).send().await.expect("an answer");
        Metrics::new(answer.text().await.expect("text"))
    }

    /// The status code and body of a path of its HTTP port.
    ///
    /// # Panics
    /// Where it does not answer.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("http://{}{path}", self.http());
        let answer = self.http.get(url).send().await.expect("an answer");
        (
            answer.status().as_u16(),
            answer.text().await.expect("a body"),
        )
    }

    /// The memory that it holds now, in bytes; 0 where it does not run.
    pub fn memory_bytes(&self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// The most memory that it ever held, in bytes; 0 where it does not run.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    /// The processor time that it has used, by itself.
    pub fn cpu_time(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The name in parentheses may hold blanks; utime and stime are the 12th and
        // 13th field behind it, in hundredths of a second on Linux.
        let ticks: u64 = stat
            .rsplit_once(')')
            .map(|(_, rest)| {
                let times = rest.split_whitespace().skip(11).take(2);
                times.filter_map(|t| t.parse::<u64>().ok()).sum()
            })
            .unwrap_or_default();
        Duration::from_millis(ticks * 10)
    }

    fn status_kib(&self, key: &str) -> u64 {
        let Some(pid) = self.child.lock().as_ref().map(Child::id) else {
            return 0;
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .find_map(|line| {
                line.strip_prefix(key)?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()
            })
            .unwrap_or_default()
    }

    /// All that it has logged, over all its starts.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    fn address_file(&self) -> PathBuf {
        self.folder.join(format!("{}.address", self.name))
    }

    fn address(&self, kind: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.address_file()).ok()?;
        text.lines().find_map(|line| {
            let (found, address) = line.split_once('=')?;
            (found == kind).then(|| address.to_owned())
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().take() {
            // It may have ended already; either way it is reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
