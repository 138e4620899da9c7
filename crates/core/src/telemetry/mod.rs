//! Logs on standard error, one event a line, and metrics.
mod json;
pub mod labels;
pub mod metrics;
mod process;

use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use crate::config::{LogFormat, TelemetryConfig};
use crate::error::{Code, Error, Result};

/// Starts logging for this process, panics included. CONFIG_INVALID if the
/// filter is wrong or logging was started before.
pub fn init(config: &TelemetryConfig) -> Result<()> {
    let filter = EnvFilter::try_new(&config.filter).map_err(|error| {
        Error::new(Code::ConfigInvalid, "telemetry.filter is not a filter").with_source(error)
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    let done: Result<(), TryInitError> = match config.format {
        LogFormat::Json => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .event_format(json::JsonLines)
                    .fmt_fields(JsonFields::new())
                    .with_writer(std::io::stderr),
            )
            .try_init(),
        LogFormat::Text => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(std::io::stderr),
            )
            .try_init(),
    };
    done.map_err(|error| {
        Error::new(Code::ConfigInvalid, "logging cannot be started").with_source(error)
    })?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// A panic is one log line like everything else, not text between the lines.
fn log_panic(info: &PanicHookInfo<'_>) {
    let location = info
        .location()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string);
    let backtrace = std::backtrace::Backtrace::capture();
    let backtrace = (backtrace.status() == std::backtrace::BacktraceStatus::Captured)
        .then(|| backtrace.to_string());
    tracing::error!(
        panic = panic_text(info.payload()),
        location,
        backtrace,
        "a task panicked"
    );
}

/// The text of a panic, if it has one.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_found() {
        let caught = std::panic::catch_unwind(|| panic!("static")).expect_err("panics");
        assert_eq!(panic_text(&*caught), "static");
        let caught = std::panic::catch_unwind(|| panic!("with {}", 1)).expect_err("panics");
        assert_eq!(panic_text(&*caught), "with 1");
        let caught = std::panic::catch_unwind(|| std::panic::panic_any(7)).expect_err("panics");
        assert_eq!(panic_text(&*caught), "a panic without a text");
    }

    #[test]
    fn a_wrong_filter_is_a_wrong_configuration() {
        let config = TelemetryConfig {
            filter: "a=b=c".to_owned(),
            ..TelemetryConfig::default()
        };
        assert_eq!(
            init(&config).expect_err("refused").code(),
            Code::ConfigInvalid
        );
    }
}
