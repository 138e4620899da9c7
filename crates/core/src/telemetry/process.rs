//! What the process costs, read when the metrics are asked for.
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::time::{ClockId, clock_gettime};

/// Reads `/proc/self`. What cannot be read is left out.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: Option<u64>| -> fmt::Result {
            let Some(value) = value.and_then(|value| i64::try_from(value).ok()) else {
                return Ok(());
            };
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        gauge(
            "process_resident_memory_bytes",
            "Resident memory",
            kilobytes(&status, "VmRSS:"),
        )?;
        gauge(
            "process_peak_resident_memory_bytes",
            "The most resident memory so far",
            kilobytes(&status, "VmHWM:"),
        )?;
        let open = std::fs::read_dir("/proc/self/fd").ok();
        gauge(
            "process_open_fds",
            "Open files and sockets",
            open.map(|d| d.count() as u64),
        )?;
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let counter = ConstCounter::new(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9);
        let metric = encoder.encode_descriptor(
            "process_cpu_seconds",
            "User and system time",
            None,
            counter.metric_type(),
        )?;
        counter.encode(metric)
    }
}

/// A value such as `VmRSS:     1234 kB`, in bytes.
fn kilobytes(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}
