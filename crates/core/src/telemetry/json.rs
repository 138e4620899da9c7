//! One JSON object an event. An error field is written with its whole chain of
//! sources, which is why the formatter of tracing-subscriber does not serve here.
use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::error::chain;

/// Names that the frame of an event uses.
const RESERVED: [&str; 4] = ["timestamp", "level", "target", "span"];

/// Formats events as JSON lines. The fields of spans must be formatted as JSON.
#[derive(Debug)]
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut span = Map::new();
        for scope in ctx.event_scope().into_iter().flat_map(Scope::from_root) {
            span.insert("name".to_owned(), Value::from(scope.name()));
            if let Some(formatted) = scope.extensions().get::<FormattedFields<N>>()
                && let Ok(inner) = serde_json::from_str::<Map<String, Value>>(&formatted.fields)
            {
                span.extend(inner);
            }
        }
        let meta = event.metadata();
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        write!(
            writer,
            "{{\"timestamp\":\"{time}\",\"level\":\"{}\"",
            meta.level()
        )?;
        for (key, value) in fields.0 {
            let key = if RESERVED.contains(&key) {
                format!("field_{key}")
            } else {
                key.to_owned()
            };
            write!(writer, ",{}:{value}", Value::from(key))?;
        }
        write!(writer, ",\"target\":{}", Value::from(meta.target()))?;
        if !span.is_empty() {
            write!(writer, ",\"span\":{}", Value::Object(span))?;
        }
        writeln!(writer, "}}")
    }
}

/// The fields of an event, in their order.
#[derive(Default)]
struct Fields(Vec<(&'static str, Value)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0
            .push((field.name(), Value::from(format!("{value:?}"))));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.0.push((field.name(), Value::from(chain(value))));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), Value::from(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push((field.name(), Value::from(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push((field.name(), Value::from(value)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.push((field.name(), Value::from(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push((field.name(), Value::from(value)));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::fmt::format::JsonFields;

    use super::*;
    use crate::error::{Code, Error};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(log: impl FnOnce()) -> Vec<Value> {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLines)
            .fmt_fields(JsonFields::new())
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(sink.0.lock().clone()).expect("UTF-8");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }

    #[test]
    fn an_event_is_one_line_with_its_fields_at_the_top() {
        let all = lines(|| {
            tracing::info!(kind = "grpc", address = %"127.0.0.1:1", "listening");
            tracing::warn!(
                text = "two\nlines \u{1b}[31m",
                n = 7_u64,
                target = "mine",
                "odd"
            );
        });
        assert_eq!(all.len(), 2);
        assert_eq!(all[0]["message"], "listening");
        assert_eq!(all[0]["kind"], "grpc");
        assert_eq!(all[0]["address"], "127.0.0.1:1");
        assert_eq!(all[0]["level"], "INFO");
        assert_eq!(all[1]["text"], "two\nlines \u{1b}[31m");
        assert_eq!(all[1]["n"], 7);
        assert_eq!(all[1]["field_target"], "mine");
    }

    #[test]
    fn an_error_is_written_with_its_sources() {
        let error =
            Error::new(Code::Internal, "cannot do it").with_source(std::io::Error::other("since"));
        let all = lines(|| {
            let _span = tracing::info_span!("job", job_id = "j1").entered();
            tracing::error!(error = &error as &dyn std::error::Error, "failed");
        });
        assert_eq!(all[0]["error"], "cannot do it: since");
        assert_eq!(all[0]["span"]["job_id"], "j1");
        assert_eq!(all[0]["span"]["name"], "job");
    }
}
