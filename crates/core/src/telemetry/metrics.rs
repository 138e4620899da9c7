//! All metrics of Tenure: the names are in this file and nowhere else.
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::labels::{
    Bounded, Chore, ChoreResult, ClassLabel, Counters, Gauges, Goal, Histograms, JobType, Kind,
    Method, MethodCode, Outcome, QueueBy, QueueLane, QueueName, Reason, ResultLabel, RoleLabel,
    Verdict,
};
use super::process::Process;

/// The media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How many job types and queues have a label value of their own.
const MAX_NAMES: usize = 200;

/// From half a millisecond to two minutes.
fn seconds() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
        120.0,
    ])
}

/// From ten milliseconds to six hours.
fn long_seconds() -> Histogram {
    Histogram::new([
        0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0,
    ])
}

/// How many items went together.
fn sizes() -> Histogram {
    Histogram::new([
        1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
    ])
}

macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $field:ident: $type:ty = $name:literal, $new:expr, $register:expr;)*) => {
        /// The metrics of a process. Every name starts with `tenure_`; counters
        /// end in `_total` on the wire.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            job_types: Bounded,
            queues: Bounded,
            $($(#[doc = $help])+ pub $field: $type,)*
        }

        impl Metrics {
            /// The metrics of this binary in this version.
            pub fn new(binary: &'static str, version: &'static str) -> Self {
                $(let $field: $type = $new;)*
                let mut registry = Registry::default();
                registry.register_collector(Box::new(Process));
                let ours = registry.sub_registry_with_prefix("tenure");
                ours.register(
                    "build",
                    "The binary and its version",
                    Info::new([("binary", binary), ("version", version)]),
                );
                $(ours.register($name, concat!($($help,)+).trim().trim_end_matches('.'), $register(&$field));)*
                Self {
                    registry,
                    job_types: Bounded::new(MAX_NAMES),
                    queues: Bounded::new(MAX_NAMES),
                    $($field,)*
                }
            }
        }

        /// The names of all metrics, without prefix and suffix.
        #[cfg(test)]
        const NAMES: &[&str] = &[$($name,)*];
    };
}

metrics! {
    /// Submitted jobs: accepted, duplicate, refused, failed.
    submits: Counters<Outcome> = "submits", Counters::default(), |m: &Counters<Outcome>| m.0.clone();
    /// Jobs that were refused by a limit: too_many_pending_jobs, rate_limited, queue_full.
    admission_refusals: Counters<Reason> = "admission_refusals", Counters::default(), |m: &Counters<Reason>| m.0.clone();
    /// Whether the rates of submits are shared by Redis (1), or each gateway limits by itself (0).
    rates_shared: Gauge = "rates_shared", Gauge::default(), Clone::clone;
    /// Jobs in one submitting commit.
    submit_batch_size: Histogram = "submit_batch_size", sizes(), Clone::clone;
    /// Published jobs: confirmed, returned, nacked, failed, dropped.
    publish: Counters<ResultLabel> = "publish", Counters::default(), |m: &Counters<ResultLabel>| m.0.clone();
    /// Messages given to the broker; one may carry several jobs.
    published_messages: Counter = "published_messages", Counter::default(), Clone::clone;
    /// Deliveries by what became of them.
    deliveries: Counters<Verdict> = "deliveries", Counters::default(), |m: &Counters<Verdict>| m.0.clone();
    /// Claims of single jobs by verdict.
    claims: Counters<Verdict> = "claims", Counters::default(), |m: &Counters<Verdict>| m.0.clone();
    /// Jobs in one claiming statement.
    claim_batch_size: Histogram = "claim_batch_size", sizes(), Clone::clone;
    /// Finished runs by where they lead.
    finishes: Counters<Goal> = "finishes", Counters::default(), |m: &Counters<Goal>| m.0.clone();
    /// Jobs in one finishing statement.
    finish_batch_size: Histogram = "finish_batch_size", sizes(), Clone::clone;
    /// Runs whose lease was lost before they finished.
    lease_lost: Counter = "lease_lost", Counter::default(), Clone::clone;
    /// Attempts that were given back, by the reason: outage, second_loss, database_restart.
    attempts_returned: Counters<Kind> = "attempts_returned", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Cancels of running jobs: seen, dropped (the handler had not returned in its grace).
    cancels: Counters<Outcome> = "cancels", Counters::default(), |m: &Counters<Outcome>| m.0.clone();
    /// Renewed leases by result.
    lease_renewals: Counters<ResultLabel> = "lease_renewals", Counters::default(), |m: &Counters<ResultLabel>| m.0.clone();
    /// How long the handler ran, in seconds.
    job_duration: Histograms<JobType> = "job_duration_seconds", Histograms::new(long_seconds), |m: &Histograms<JobType>| m.0.clone();
    /// From when a job could start to its handler's start, in seconds.
    job_start_delay: Histogram = "job_start_delay_seconds", seconds(), Clone::clone;
    /// How many jobs this worker can run at once.
    worker_slots: Gauge = "worker_slots", Gauge::default(), Clone::clone;
    /// How many jobs run in this worker.
    worker_running: Gauge = "worker_running", Gauge::default(), Clone::clone;
    /// Rows whose time had come, by what was done.
    wake: Counters<Outcome> = "wake", Counters::default(), |m: &Counters<Outcome>| m.0.clone();
    /// Jobs that were dispatched from the backlog.
    dispatched_jobs: Counters<QueueLane> = "dispatched_jobs", Counters::default(), |m: &Counters<QueueLane>| m.0.clone();
    /// Messages that wait in the broker.
    lane_ready_messages: Gauges<QueueLane> = "lane_ready_messages", Gauges::default(), |m: &Gauges<QueueLane>| m.0.clone();
    /// How many jobs of a lane the broker is given to hold: what workers take in about two seconds.
    lane_window_jobs: Gauges<QueueLane> = "lane_window_jobs", Gauges::default(), |m: &Gauges<QueueLane>| m.0.clone();
    /// Jobs that wait in the database, as they were last counted.
    lane_backlog: Gauges<QueueLane> = "lane_backlog", Gauges::default(), |m: &Gauges<QueueLane>| m.0.clone();
    /// Runs of a chore by result.
    chore_runs: Counters<ChoreResult> = "chore_runs", Counters::default(), |m: &Counters<ChoreResult>| m.0.clone();
    /// How long a chore ran, in seconds.
    chore_duration: Histograms<Chore> = "chore_duration_seconds", Histograms::new(seconds), |m: &Histograms<Chore>| m.0.clone();
    /// Removed from the object store: expired files, orphans without a description, staged leftovers.
    pruned_files: Counters<Kind> = "pruned_files", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// The bytes of what was removed from the object store.
    pruned_bytes: Counter = "pruned_bytes", Counter::default(), Clone::clone;
    /// What could not be removed from the object store.
    prune_failures: Counters<Kind> = "prune_failures", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Open dead letters by queue, as they are counted.
    dead_letters_open: Gauges<QueueName> = "dead_letters_open", Gauges::default(), |m: &Gauges<QueueName>| m.0.clone();
    /// How long ago the oldest open dead letter failed, in seconds; 0: none is open.
    dead_letters_oldest: Gauge = "dead_letters_oldest_seconds", Gauge::default(), Clone::clone;
    /// Alerts of dead letters that this process raised: new_cause, growth, oldest.
    alerts: Counters<Kind> = "alerts", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Rows that retention removed: jobs, events, keys, notifications, workers, dead_letters, audit.
    pruned_rows: Counters<Kind> = "pruned_rows", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Items that left a batch without being written, as their caller was gone.
    batch_dropped: Counters<Kind> = "batch_dropped", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Failed database statements by kind.
    db_errors: Counters<Kind> = "db_errors", Counters::default(), |m: &Counters<Kind>| m.0.clone();
    /// Whether the broker connection of this role is up.
    broker_connected: Gauges<RoleLabel> = "broker_connected", Gauges::default(), |m: &Gauges<RoleLabel>| m.0.clone();
    /// Whether the broker has told this role's connection to wait: an alarm of memory or disk.
    broker_blocked: Gauges<RoleLabel> = "broker_blocked", Gauges::default(), |m: &Gauges<RoleLabel>| m.0.clone();
    /// Whether a queue is paused, and by whom: hand, system.
    queue_paused: Gauges<QueueBy> = "queue_paused", Gauges::default(), |m: &Gauges<QueueBy>| m.0.clone();
    /// For how long the oldest result that is not written yet has waited, in seconds.
    results_late: Gauge = "results_late_seconds", Gauge::default(), Clone::clone;
    /// Rows of imports: imported, rejected.
    import_rows: Counters<Outcome> = "import_rows", Counters::default(), |m: &Counters<Outcome>| m.0.clone();
    /// Calls of webhooks: sent, unavailable, refused, blocked.
    webhooks: Counters<Outcome> = "webhooks", Counters::default(), |m: &Counters<Outcome>| m.0.clone();
    /// Jobs that became dead letters, by the class of their last error.
    dead_letters: Counters<ClassLabel> = "dead_letters", Counters::default(), |m: &Counters<ClassLabel>| m.0.clone();
    /// Answered gRPC calls; a stream counts when it opens.
    grpc_requests: Counters<MethodCode> = "grpc_requests", Counters::default(), |m: &Counters<MethodCode>| m.0.clone();
    /// From a gRPC call to its answer, or to the opening of its stream, in seconds.
    grpc_duration: Histograms<Method> = "grpc_duration_seconds", Histograms::new(seconds), |m: &Histograms<Method>| m.0.clone();
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new("tenure", env!("CARGO_PKG_VERSION"))
    }
}

impl Metrics {
    /// The label of a job type. Give it only registered types.
    pub fn job_type(&self, name: &str) -> JobType {
        JobType {
            job_type: self.job_types.name(name),
        }
    }

    /// The label of a queue. Give it only queues that exist.
    pub fn queue(&self, queue: &str) -> QueueName {
        QueueName {
            queue: self.queues.name(queue),
        }
    }

    /// The label of a queue's pause. Give it only queues that exist.
    pub fn queue_by(&self, queue: &str, by: &'static str) -> QueueBy {
        QueueBy {
            queue: self.queues.name(queue),
            by,
        }
    }

    /// The label of a queue's lane. Give it only queues that exist.
    pub fn queue_lane(&self, queue: &str, lane: &'static str) -> QueueLane {
        QueueLane {
            queue: self.queues.name(queue),
            lane,
        }
    }

    /// All metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut text = String::with_capacity(16 * 1024);
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics cannot be encoded");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_well_formed() {
        let metrics = Metrics::new("tenure-test", "1.2.3");
        let text = metrics.encode();
        let mut seen = HashSet::new();
        for name in NAMES {
            assert!(seen.insert(name), "{name} twice");
            assert!(
                !name.ends_with("_total"),
                "{name}: the suffix comes by itself"
            );
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
        }
        // Labelled metrics appear with their first value, the others at once.
        for name in [
            "lease_lost_total 0",
            "worker_slots 0",
            "claim_batch_size_count 0",
        ] {
            assert!(
                text.contains(&format!("\ntenure_{name}\n")),
                "{name} in {text}"
            );
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("tenure_build_info{binary=\"tenure-test\",version=\"1.2.3\"} 1"));
    }

    #[test]
    fn labels_have_the_names_of_the_documents() {
        let metrics = Metrics::default();
        metrics.submits.inc("accepted");
        metrics.publish.inc("confirmed");
        metrics.claims.inc("claimed");
        metrics.job_duration.observe(metrics.job_type("noop"), 0.2);
        metrics
            .dispatched_jobs
            .inc_by(metrics.queue_lane("default", "high"), 5);
        metrics.broker_connected.set("publisher", 1);
        let text = metrics.encode();
        for line in [
            "tenure_submits_total{outcome=\"accepted\"} 1",
            "tenure_publish_total{result=\"confirmed\"} 1",
            "tenure_claims_total{verdict=\"claimed\"} 1",
            "tenure_job_duration_seconds_count{job_type=\"noop\"} 1",
            "tenure_dispatched_jobs_total{queue=\"default\",lane=\"high\"} 5",
            "tenure_broker_connected{role=\"publisher\"} 1",
            "tenure_published_messages_total 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
    }

    #[test]
    fn the_process_shows_its_memory_and_time() {
        let text = Metrics::default().encode();
        for name in [
            "process_resident_memory_bytes",
            "process_cpu_seconds_total",
            "process_open_fds",
        ] {
            let value = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name} in {text}");
        }
    }
}
