//! `dead-letters`.

use anyhow::Context as _;
use tenure_proto::v1;

use crate::args::DeadLetterListArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, pairs, table};
use crate::pages::{more_text, pages};
use crate::view;

/// `tenure dead-letters list`.
pub(crate) async fn list(
    client: &Client,
    args: DeadLetterListArgs,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let statuses = args.statuses.into_iter().map(v1::DeadLetterStatus::from);
    let filters = v1::ListDeadLettersRequest {
        statuses: statuses.map(i32::from).collect(),
        queue: args.queue.unwrap_or_default(),
        job_type: args.job_type.unwrap_or_default(),
        user_id: args.user.unwrap_or_default(),
        error_code: args.code.unwrap_or_default(),
        ..v1::ListDeadLettersRequest::default()
    };
    let (letters, next) = pages(args.paging, async |page_size, page_token| {
        let request = v1::ListDeadLettersRequest {
            page_size,
            page_token,
            ..filters.clone()
        };
        let call = |request| {
            let mut letters = client.dead_letters();
            async move { letters.list_dead_letters(request).await }
        };
        let page = client.unary(READ_REPEATS, request, call).await?;
        Ok((page.dead_letters, page.next_page_token))
    })
    .await?;
    let list = view::DeadLetterList {
        dead_letters: letters.into_iter().map(view::DeadLetter::from).collect(),
        next_page_token: next,
    };
    out.emit(&list, |list| {
        let header = [
            "DEAD LETTER",
            "JOB",
            "TYPE",
            "QUEUE",
            "STATUS",
            "ATTEMPTS",
            "LAST FAILURE",
            "CODE",
        ];
        let mut text = table(&header, list.dead_letters.iter().map(row));
        text.push_str(&more_text(list.next_page_token.as_deref()));
        text
    })?;
    Ok(Exit::Ok)
}

fn row(letter: &view::DeadLetter) -> Vec<String> {
    vec![
        letter.dead_letter_id.clone(),
        letter.job_id.clone().unwrap_or_default(),
        letter.job_type.clone().unwrap_or_default(),
        letter.queue.clone(),
        letter.status.clone(),
        letter.attempts.to_string(),
        letter.last_failure_time.clone().unwrap_or_default(),
        letter
            .error
            .as_ref()
            .map(|error| error.code.clone())
            .unwrap_or_default(),
    ]
}

/// `tenure dead-letters show`.
pub(crate) async fn show(client: &Client, id: String, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::GetDeadLetterRequest { dead_letter_id: id };
    let call = |request| {
        let mut letters = client.dead_letters();
        async move { letters.get_dead_letter(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let letter = answer
        .dead_letter
        .context("the dead-letter admin answered without a dead letter")?;
    out.emit(&view::DeadLetter::from(letter), text)?;
    Ok(Exit::Ok)
}

fn text(letter: &view::DeadLetter) -> String {
    let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
    let error = letter.error.as_ref().map_or_else(String::new, |error| {
        format!("{} ({}): {}", error.code, error.error_class, error.message)
    });
    let labels: Vec<String> = letter
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    let payload = match (&letter.payload, &letter.payload_hex) {
        (Some(json), _) => json.get().to_owned(),
        (None, Some(hex)) => readable(hex),
        (None, None) => String::new(),
    };
    pairs([
        ("dead letter", letter.dead_letter_id.clone()),
        ("job", or_empty(&letter.job_id)),
        ("message key", letter.message_key.clone()),
        ("type", or_empty(&letter.job_type)),
        ("queue", letter.queue.clone()),
        ("user", or_empty(&letter.user_id)),
        ("status", letter.status.clone()),
        ("error", error),
        ("attempts", letter.attempts.to_string()),
        ("failures", letter.failures.to_string()),
        (
            "replayable",
            if letter.replayable { "yes" } else { "no" }.to_owned(),
        ),
        ("first failure", or_empty(&letter.first_failure_time)),
        ("last failure", or_empty(&letter.last_failure_time)),
        ("labels", labels.join(", ")),
        ("payload", payload),
    ])
}

/// A message that is no JSON: as text where it is text.
fn readable(hex: &str) -> String {
    let text = hex::decode(hex)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    text.map_or_else(
        || format!("not text; in hexadecimal: {hex}"),
        |text| format!("not JSON: {text}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(payload: &'static [u8]) -> view::DeadLetter {
        view::DeadLetter::from(v1::DeadLetter {
            dead_letter_id: "d".to_owned(),
            status: v1::DeadLetterStatus::Open.into(),
            payload: payload.into(),
            ..v1::DeadLetter::default()
        })
    }

    #[test]
    fn a_message_is_shown_as_far_as_it_can_be_read() {
        assert!(text(&letter(b"{\"a\": 1}")).contains("{\"a\": 1}"));
        assert!(text(&letter(b"hello\x1b")).contains(r"not JSON: hello\u{1b}"));
        assert!(text(&letter(b"\xff\x00")).contains("in hexadecimal: ff00"));
    }

    #[test]
    fn an_unreadable_message_has_no_job() {
        let json = serde_json::to_value(letter(b"x")).expect("serialises");
        assert_eq!(json["job_id"], serde_json::Value::Null);
        assert_eq!(json["status"], "open");
        assert_eq!(json["payload_hex"], "78");
    }
}
