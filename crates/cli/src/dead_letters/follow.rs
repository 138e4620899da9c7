//! Follows a bulk replay until it ends.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use tenure_proto::v1;
use tenure_proto::v1::bulk_replay::State;

use super::bulk::preview;
use super::operations::{get, replay_text};
use crate::client::Client;
use crate::errors::{Exit, Failure};
use crate::output::Output;
use crate::progress::{Meter, Unit};
use crate::values::human_duration;
use crate::view::bulk_replays::BulkReplay;

/// Between two looks: short at first, as many bulk replays are.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How often in a row the admin may be out of reach.
const MAX_BREAKS: u32 = 8;
/// Before that a rate would be a guess.
const SETTLED: Duration = Duration::from_secs(1);

/// Shows the progress until the end, and then the bulk replay. Ctrl-C ends the following,
/// not what is followed.
pub(super) async fn follow(
    client: &Client,
    begun: v1::BulkReplay,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let id = begun.bulk_replay_id.clone();
    let ended = tokio::select! {
        ended = until_end(client, begun) => ended?,
        signal = tokio::signal::ctrl_c() => {
            signal.context("cannot wait for Ctrl-C")?;
            return Err(interrupted(&id));
        }
    };
    let exit = exit(ended.state());
    out.emit(&BulkReplay::from(ended), replay_text)?;
    Ok(exit)
}

fn interrupted(id: &str) -> Failure {
    Failure::new(
        Exit::Interrupted,
        "interrupted; the bulk replay goes on by itself",
    )
    .hint(goes_on(id))
}

fn goes_on(id: &str) -> String {
    format!(
        "`tenure dead-letters operations watch {id}` follows it, `tenure dead-letters operations cancel {id}` ends it"
    )
}

fn is_over(state: State) -> bool {
    matches!(state, State::Done | State::Cancelled)
}

fn exit(state: State) -> Exit {
    match state {
        State::Cancelled => Exit::JobCancelled,
        _ => Exit::Ok,
    }
}

async fn until_end(client: &Client, begun: v1::BulkReplay) -> Result<v1::BulkReplay, Failure> {
    let id = begun.bulk_replay_id.clone();
    let mut meter = Meter::new(&format!("bulk replay {id}"), Unit::Steps);
    // Without the cap the number of matching letters would pass for all of them. Nothing
    // else of the preview is of use, and without it the numbers are still true.
    let cap = if is_over(begun.state()) {
        0
    } else {
        let filter = begun.filter.clone().unwrap_or_default();
        preview(client, filter).await.map_or(0, |it| it.count_cap)
    };
    let mut speed = Speed::default();
    let mut told = None;
    let (mut pause, mut breaks) = (FIRST_PAUSE, 0);
    let mut bulk = begun;
    loop {
        let state = bulk.state();
        let (total, message) = progress(&bulk, cap, &mut speed, Instant::now());
        let done = u64::try_from(bulk.examined).unwrap_or(0);
        if is_over(state) {
            meter.set_last(done, total, &message);
            return Ok(bulk);
        }
        if told.replace(state) != Some(state) && state == State::Paused {
            meter.note(&format!(
                "it is halted; `tenure dead-letters operations resume {id} --reason 'WHY'` lets it go on"
            ));
        }
        meter.set(done, total, &message);
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            match get(client, &id).await {
                Ok(now) => {
                    bulk = now;
                    breaks = 0;
                    break;
                }
                Err(failure) if failure.exit == Exit::TryLater && breaks < MAX_BREAKS => {
                    breaks += 1;
                    if breaks == 2 {
                        meter.note("the dead-letter admin is out of reach, trying again");
                    }
                }
                Err(failure) => return Err(failure.hint(goes_on(&id))),
            }
        }
    }
}

/// The total as far as it is known, 0 otherwise, and what to say.
fn progress(bulk: &v1::BulkReplay, cap: i64, speed: &mut Speed, now: Instant) -> (u64, String) {
    let capped = (cap > 0 && bulk.matching >= cap) || bulk.examined > bulk.matching;
    let total = if capped { 0 } else { bulk.matching };
    let mut parts = Vec::new();
    if capped {
        parts.push(format!("of at least {}", bulk.matching.max(bulk.examined)));
    }
    if bulk.state() != State::Running {
        parts.push(match bulk.state() {
            State::Paused => "halted".to_owned(),
            State::Cancelled => "cancelled".to_owned(),
            _ => "done".to_owned(),
        });
        // The time at a halt is nobody's pace.
        *speed = Speed::default();
    } else if let Some(rate) = speed.rate(bulk.examined, now) {
        parts.push(format!("{rate:.0}/s"));
        let left = total - bulk.examined;
        if total > 0 && left > 0 && rate > 0.0 {
            let left = Duration::from_secs((left as f64 / rate).ceil() as u64);
            parts.push(format!("{} left", human_duration(left)));
        }
    }
    (u64::try_from(total).unwrap_or(0), parts.join(", "))
}

/// How fast it is since it was first looked at.
#[derive(Debug, Default)]
struct Speed {
    first: Option<(Instant, i64)>,
}

impl Speed {
    fn rate(&mut self, examined: i64, now: Instant) -> Option<f64> {
        let (at, before) = *self.first.get_or_insert((now, examined));
        let took = now.duration_since(at);
        (took >= SETTLED && examined > before)
            .then(|| (examined - before) as f64 / took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(state: State, matching: i64, examined: i64) -> v1::BulkReplay {
        v1::BulkReplay {
            state: state.into(),
            matching,
            examined,
            ..v1::BulkReplay::default()
        }
    }

    #[test]
    fn the_rate_and_the_time_left_follow_from_what_was_seen() {
        let mut speed = Speed::default();
        let start = Instant::now();
        let mut tell = |seconds, state, matching, examined| {
            let now = start + Duration::from_secs(seconds);
            progress(&bulk(state, matching, examined), 1000, &mut speed, now)
        };
        assert_eq!(tell(0, State::Running, 500, 0), (500, String::new()));
        assert_eq!(
            tell(2, State::Running, 500, 100),
            (500, "50/s, 8s left".to_owned())
        );
        assert_eq!(tell(3, State::Paused, 500, 100), (500, "halted".to_owned()));
        assert_eq!(tell(60, State::Running, 500, 100), (500, String::new()));
        assert_eq!(
            tell(61, State::Running, 500, 500),
            (500, "400/s".to_owned())
        );
        assert_eq!(tell(62, State::Done, 500, 500), (500, "done".to_owned()));
    }

    #[test]
    fn a_count_at_the_cap_is_not_taken_for_all() {
        let start = Instant::now();
        let mut speed = Speed::default();
        let at_cap = progress(&bulk(State::Running, 1000, 10), 1000, &mut speed, start);
        assert_eq!(at_cap, (0, "of at least 1000".to_owned()));
        let behind = progress(&bulk(State::Running, 10, 12), 0, &mut speed, start);
        assert_eq!(behind, (0, "of at least 12".to_owned()));
    }

    #[test]
    fn an_interruption_says_that_it_goes_on() {
        let text = interrupted("o").to_text();
        assert!(text.contains("the bulk replay goes on by itself"), "{text}");
        assert!(text.contains("operations watch o"), "{text}");
        assert_eq!(interrupted("o").exit, Exit::Interrupted);
        assert_eq!(exit(State::Cancelled), Exit::JobCancelled);
        assert_eq!(exit(State::Done), Exit::Ok);
    }
}
