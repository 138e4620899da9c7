//! What a message has beside its body, for the letter of one that cannot be read.

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde_json::{Map, Value, json};

/// Tables within tables beyond this are left out.
const DEPTH_MAX: usize = 8;

/// Properties and headers as they came; turned into something to read where they are kept.
#[derive(Clone, Default, Debug)]
pub struct Properties(pub(super) BasicProperties);

impl Properties {
    /// As a JSON object: each property that is set, and the headers below `headers`. Texts
    /// that are no UTF-8, or that PostgreSQL cannot hold, are told in hexadecimal.
    pub fn to_json(&self) -> Value {
        let it = &self.0;
        let mut all = Map::new();
        let texts = [
            ("content_type", it.content_type()),
            ("content_encoding", it.content_encoding()),
            ("correlation_id", it.correlation_id()),
            ("reply_to", it.reply_to()),
            ("expiration", it.expiration()),
            ("message_id", it.message_id()),
            ("type", it.kind()),
            ("user_id", it.user_id()),
            ("app_id", it.app_id()),
            ("cluster_id", it.cluster_id()),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                all.insert(name.to_owned(), text(value.as_str().as_bytes()));
            }
        }
        if let Some(mode) = it.delivery_mode() {
            all.insert("delivery_mode".to_owned(), json!(mode));
        }
        if let Some(priority) = it.priority() {
            all.insert("priority".to_owned(), json!(priority));
        }
        if let Some(timestamp) = it.timestamp() {
            all.insert("timestamp".to_owned(), json!(timestamp));
        }
        if let Some(headers) = it.headers() {
            all.insert("headers".to_owned(), table(headers, 0));
        }
        Value::Object(all)
    }
}

fn table(table: &FieldTable, depth: usize) -> Value {
    if depth == DEPTH_MAX {
        return json!("(deeper tables are left out)");
    }
    let entry = |(name, it): (&ShortString, &AMQPValue)| {
        // A name is text in any case: what it cannot hold is replaced.
        (
            name.as_str().replace('\0', "\u{fffd}"),
            value(it, depth + 1),
        )
    };
    Value::Object(table.inner().iter().map(entry).collect())
}

fn value(it: &AMQPValue, depth: usize) -> Value {
    match it {
        AMQPValue::Boolean(it) => json!(it),
        AMQPValue::ShortShortInt(it) => json!(it),
        AMQPValue::ShortShortUInt(it) => json!(it),
        AMQPValue::ShortInt(it) => json!(it),
        AMQPValue::ShortUInt(it) => json!(it),
        AMQPValue::LongInt(it) => json!(it),
        AMQPValue::LongUInt(it) => json!(it),
        AMQPValue::LongLongInt(it) => json!(it),
        AMQPValue::Float(it) => json!(it),
        AMQPValue::Double(it) => json!(it),
        AMQPValue::Timestamp(it) => json!(it),
        AMQPValue::DecimalValue(it) => json!({"decimal": it.value, "scale": it.scale}),
        AMQPValue::ShortString(it) => text(it.as_str().as_bytes()),
        AMQPValue::LongString(it) => text(it.as_bytes()),
        AMQPValue::ByteArray(it) => hexadecimal(it.as_slice()),
        AMQPValue::FieldArray(_) if depth == DEPTH_MAX => json!("(deeper tables are left out)"),
        AMQPValue::FieldArray(it) => Value::Array(
            it.as_slice()
                .iter()
                .map(|it| value(it, depth + 1))
                .collect(),
        ),
        AMQPValue::FieldTable(it) => table(it, depth),
        AMQPValue::Void => Value::Null,
    }
}

fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => json!(text),
        _ => hexadecimal(bytes),
    }
}

fn hexadecimal(bytes: &[u8]) -> Value {
    json!({"hex": hex::encode(bytes)})
}

#[cfg(test)]
mod tests {
    use lapin::types::{FieldArray, LongString};

    use super::*;

    #[test]
    fn everything_that_is_set_is_told_with_its_type() {
        let mut headers = FieldTable::default();
        headers.insert("n".into(), AMQPValue::LongLongInt(i64::MAX));
        headers.insert("t".into(), AMQPValue::LongString("grün".into()));
        headers.insert(
            "raw".into(),
            AMQPValue::LongString(LongString::from(vec![0xff, 0])),
        );
        headers.insert("nul".into(), AMQPValue::LongString("a\0b".into()));
        headers.insert(
            "list".into(),
            AMQPValue::FieldArray(FieldArray::from(vec![
                AMQPValue::Boolean(true),
                AMQPValue::Void,
            ])),
        );
        let properties = BasicProperties::default()
            .with_content_type("text/plain".into())
            .with_delivery_mode(2)
            .with_headers(headers);
        assert_eq!(
            Properties(properties).to_json(),
            json!({
                "content_type": "text/plain",
                "delivery_mode": 2,
                "headers": {
                    "list": [true, null], "n": i64::MAX, "nul": {"hex": "610062"}, "raw": {"hex": "ff00"}, "t": "grün",
                },
            })
        );
        assert_eq!(Properties::default().to_json(), json!({}));
    }

    #[test]
    fn tables_within_tables_come_to_an_end() {
        let mut headers = FieldTable::default();
        for _ in 0..100 {
            let mut outer = FieldTable::default();
            let array = FieldArray::from(vec![AMQPValue::FieldTable(headers)]);
            outer.insert("x".into(), AMQPValue::FieldArray(array));
            headers = outer;
        }
        let told = Properties(BasicProperties::default().with_headers(headers)).to_json();
        let text = told.to_string();
        assert!(text.contains("left out") && text.len() < 300, "{text}");
    }
}
