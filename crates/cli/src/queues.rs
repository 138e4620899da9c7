//! `queues`: how full they are, and pausing them.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use tenure_proto::v1;

use crate::args::{PauseQueueArgs, QueuesVerb, ResumeQueueArgs};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::jobs::READ_REPEATS;
use crate::operator::sweepers_text;
use crate::output::{Output, escape, table};
use crate::shell::quoted;
use crate::values::human_duration;
use crate::view;
use crate::view::operator::{Queue, QueuePause};

const NO_QUEUE: &str = "the gateway answered without a queue";

/// `tenure queues`.
pub(crate) async fn run(
    client: &Client,
    verb: Option<QueuesVerb>,
    out: &mut Output,
) -> Result<Exit, Failure> {
    match verb {
        None | Some(QueuesVerb::List) => list(client, out).await,
        Some(QueuesVerb::Pause(args)) => pause(client, args, out).await,
        Some(QueuesVerb::Resume(args)) => resume(client, args, out).await,
    }
}

async fn list(client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let call = |request| {
        let mut queues = client.queues();
        async move { queues.list_queues(request).await }
    };
    let answer = client
        .unary(READ_REPEATS, v1::ListQueuesRequest {}, call)
        .await?;
    out.emit(&view::Queues::from(answer), queues_text)?;
    Ok(Exit::Ok)
}

async fn pause(client: &Client, args: PauseQueueArgs, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::PauseQueueRequest {
        queue: args.queue,
        reason: args.reason,
    };
    let call = |request| {
        let mut queues = client.queues();
        async move { queues.pause_queue(request).await }
    };
    // Pausing once more changes nothing.
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let queue = Queue::from(answer.queue.context(NO_QUEUE)?);
    out.emit(&queue, paused_text)?;
    Ok(Exit::Ok)
}

async fn resume(client: &Client, args: ResumeQueueArgs, out: &mut Output) -> Result<Exit, Failure> {
    let request = v1::ResumeQueueRequest { queue: args.queue };
    let call = |request| {
        let mut queues = client.queues();
        async move { queues.resume_queue(request).await }
    };
    let answer = client.unary(READ_REPEATS, request, call).await?;
    let queue = Queue::from(answer.queue.context(NO_QUEUE)?);
    out.emit(&queue, resumed_text)?;
    Ok(Exit::Ok)
}

fn paused_text(queue: &Queue) -> String {
    format!(
        "{}jobs that run go on; new ones are accepted and wait\n\
         `tenure queues resume {}` lets them start\n",
        pauses_text(queue),
        quoted(&queue.name)
    )
}

fn resumed_text(queue: &Queue) -> String {
    if queue.paused {
        return format!(
            "{}that pause ends by itself, when its cause has gone\n",
            pauses_text(queue)
        );
    }
    format!("queue {} starts jobs\n", escape(&queue.name))
}

/// A line for each pause of a queue.
fn pauses_text(queue: &Queue) -> String {
    let mut text = String::new();
    let mut line = |pause: &QueuePause, by: &str| {
        let since = pause.pause_time.as_ref();
        let since = since.map_or_else(String::new, |at| format!(" since {at}"));
        let _ = writeln!(
            text,
            "queue {} is paused{by}{since}: {}",
            escape(&queue.name),
            escape(&pause.reason)
        );
    };
    if let Some(pause) = &queue.pause {
        let by = pause.paused_by.as_ref();
        line(
            pause,
            &by.map_or_else(String::new, |who| format!(" by {}", escape(who))),
        );
    }
    if let Some(pause) = &queue.system_pause {
        line(pause, " by the system");
    }
    text
}

fn queues_text(queues: &view::Queues) -> String {
    let cap = queues.count_cap;
    let count = |n: i64| {
        let more = if cap > 0 && n >= cap { "+" } else { "" };
        format!("{n}{more}")
    };
    let rows = queues.queues.iter().flat_map(|queue| {
        queue.lanes.iter().map(move |lane| {
            vec![
                queue.name.clone(),
                lane.lane.clone(),
                if queue.paused { "paused" } else { "" }.to_owned(),
                count(lane.waiting),
                count(lane.running),
                count(lane.scheduled),
                lane.oldest_age_ms.map(human_ms).unwrap_or_default(),
            ]
        })
    });
    let header = [
        "QUEUE",
        "LANE",
        "",
        "WAITING",
        "RUNNING",
        "SCHEDULED",
        "OLDEST",
    ];
    let pauses: String = queues.queues.iter().map(pauses_text).collect();
    let sweepers = sweepers_text(queues.sweepers_silent_ms);
    let gap = if pauses.is_empty() && sweepers.is_empty() {
        ""
    } else {
        "\n"
    };
    format!("{}{gap}{pauses}{sweepers}", table(&header, rows))
}

pub(crate) fn human_ms(ms: i64) -> String {
    human_duration(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;
    use crate::view::operator::QueueLane;

    fn pause(reason: &str, by: Option<&str>) -> QueuePause {
        QueuePause {
            reason: reason.to_owned(),
            paused_by: by.map(str::to_owned),
            pause_time: Some("2030-01-31T08:00:00Z".to_owned()),
        }
    }

    fn queue(pause: Option<QueuePause>, system_pause: Option<QueuePause>) -> Queue {
        Queue {
            name: "default".to_owned(),
            paused: pause.is_some() || system_pause.is_some(),
            pause,
            system_pause,
            lanes: vec![QueueLane {
                lane: "high".to_owned(),
                waiting: 1000,
                running: 2,
                scheduled: 0,
                oldest_age_ms: Some(61_000),
            }],
        }
    }

    #[test]
    fn a_count_at_the_cap_says_at_least() {
        let text = queues_text(&view::Queues {
            count_cap: 1000,
            sweepers_silent_ms: None,
            queues: vec![queue(Some(pause("new disks", Some("olga"))), None)],
        });
        let row: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("a row")
            .split_whitespace()
            .collect();
        assert_eq!(
            row,
            ["default", "high", "paused", "1000+", "2", "0", "1m1s"]
        );
        assert!(
            text.ends_with(
                "\n\nqueue default is paused by olga since 2030-01-31T08:00:00Z: new disks\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_pause_says_what_it_does_and_how_it_ends() {
        let text = paused_text(&queue(Some(pause("new\ndisks", Some("olga"))), None));
        assert!(text.contains(": new\\ndisks\n"), "{text}");
        assert!(text.contains("`tenure queues resume default`"), "{text}");
        assert_eq!(
            resumed_text(&queue(None, None)),
            "queue default starts jobs\n"
        );
        let still = resumed_text(&queue(None, Some(pause("late", None))));
        assert!(still.contains("paused by the system"), "{still}");
        assert!(still.contains("by itself"), "{still}");
    }

    #[test]
    fn a_pause_needs_a_reason() {
        let parse = |line: &[&str]| {
            Cli::try_parse_from(["tenure", "queues"].iter().chain(line).copied()).is_ok()
        };
        assert!(parse(&[]) && parse(&["list"]));
        assert!(parse(&["pause", "default", "--reason", "new disks"]));
        assert!(!parse(&["pause", "default"]));
        assert!(!parse(&["pause", "default", "--reason", ""]));
        assert!(parse(&["resume", "default"]));
        assert!(!parse(&["resume"]));
    }
}
