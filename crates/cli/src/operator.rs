//! `workers`.

use chrono::{DateTime, TimeDelta, Utc};
use tenure_proto::v1;

use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::output::{Output, table};
use crate::queues::human_ms;
use crate::values::relative;
use crate::view;

/// `tenure workers`.
pub(crate) async fn workers(client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let call = |request| {
        let mut workers = client.workers();
        async move { workers.list_workers(request).await }
    };
    let answer = client
        .unary(READ_REPEATS, v1::ListWorkersRequest {}, call)
        .await?;
    let workers = view::Workers::from(answer);
    let now = Utc::now();
    out.emit(&workers, |workers| workers_text(workers, now))?;
    Ok(Exit::Ok)
}

/// A worker tells of itself every five seconds; one that has missed two of them may be dead.
const SILENT_AFTER: TimeDelta = TimeDelta::seconds(12);

fn is_silent(contact: &str, now: DateTime<Utc>) -> bool {
    DateTime::parse_from_rfc3339(contact)
        .is_ok_and(|contact| now.signed_duration_since(contact) > SILENT_AFTER)
}

/// That jobs wait for a sweeper and none works, where it is so.
pub(crate) fn sweepers_text(silent_ms: Option<i64>) -> String {
    /// Longer than this, or for ever: nobody knows when there was the last one.
    const LONG_MS: i64 = 86_400_000;
    match silent_ms {
        None => String::new(),
        Some(ms) => {
            let time = if ms < LONG_MS {
                human_ms(ms)
            } else {
                "more than a day".to_owned()
            };
            format!(
                "jobs wait, and no sweeper has dispatched any for {time}: none runs, or none reaches the broker\n"
            )
        }
    }
}

fn workers_text(it: &view::Workers, now: DateTime<Utc>) -> String {
    let sweepers = sweepers_text(it.sweepers_silent_ms);
    if it.workers.is_empty() {
        return format!("no worker was heard of lately; jobs wait until one comes\n{sweepers}");
    }
    let rows = it.workers.iter().map(|worker| {
        let contact = worker.last_contact_time.as_deref();
        vec![
            worker.name.clone(),
            worker.version.clone(),
            format!("{}/{}", worker.running, worker.slots),
            worker.queues.join(" "),
            contact
                .and_then(|time| relative(time, now))
                .unwrap_or_default(),
            if contact.is_some_and(|time| is_silent(time, now)) {
                "silent"
            } else if worker.draining {
                "draining"
            } else {
                ""
            }
            .to_owned(),
        ]
    });
    let header = ["WORKER", "VERSION", "RUNNING", "QUEUES", "LAST CONTACT", ""];
    format!("{}{sweepers}", table(&header, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::operator::Worker;

    #[test]
    fn workers_are_told_with_when_they_were_heard_of() {
        let now = DateTime::from_timestamp(100, 0).expect("in range");
        let mut workers = view::Workers {
            workers: vec![Worker::from(v1::Worker {
                name: "w1".to_owned(),
                version: "1.2.3".to_owned(),
                queues: vec!["a".to_owned(), "b".to_owned()],
                slots: 8,
                running: 3,
                draining: true,
                last_contact_time: Some(prost_types::Timestamp {
                    seconds: 95,
                    nanos: 0,
                }),
                ..v1::Worker::default()
            })],
            sweepers_silent_ms: None,
        };
        let text = workers_text(&workers, now);
        let row = text.lines().nth(1).expect("a row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            ["w1", "1.2.3", "3/8", "a", "b", "5s", "ago", "draining"]
        );
        // Silent for longer than it may be: perhaps it is dead, whatever it said last.
        let text = workers_text(&workers, now + TimeDelta::seconds(8));
        assert!(
            text.contains("silent") && !text.contains("draining"),
            "{text}"
        );
        workers.sweepers_silent_ms = Some(25_000);
        let text = workers_text(&workers, now);
        assert!(
            text.contains("no sweeper has dispatched any for 25s"),
            "{text}"
        );
        workers.sweepers_silent_ms = Some(i64::MAX);
        let text = workers_text(&workers, now);
        assert!(text.contains("for more than a day"), "{text}");
        workers.workers.clear();
        assert!(workers_text(&workers, now).starts_with("no worker"));
    }
}
