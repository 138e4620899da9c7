//! How fast an import is, and how long it will take.

use std::time::{Duration, Instant};

use crate::values::human_duration;

/// Before that a rate would be a guess.
const SETTLED: Duration = Duration::from_secs(1);

/// Follows the progress of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    first: Option<Seen>,
    last: Option<Seen>,
}

/// The progress at a moment.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    done: u64,
    rows: u64,
}

impl Pace {
    /// The message of an import's progress, with its rate and the time left as far as they
    /// can be told.
    pub(crate) fn tell(&mut self, done: u64, total: u64, message: &str, now: Instant) -> String {
        let Some(rows) = rows(message) else {
            return message.to_owned();
        };
        let seen = Seen {
            at: now,
            done,
            rows,
        };
        let before = self.last.replace(seen);
        if before.is_some_and(|last| rows < last.rows || done < last.done) {
            // Another run goes on behind the last batch that was written.
            self.first = None;
        }
        let first = *self.first.get_or_insert(seen);
        let took = now.duration_since(first.at);
        if took < SETTLED || rows == first.rows || done == first.done {
            return message.to_owned();
        }
        let rate = (rows - first.rows) as f64 / took.as_secs_f64();
        let mut text = format!("{message}, {rate:.0} rows/s");
        if total > done {
            let left = took.mul_f64((total - done) as f64 / (done - first.done) as f64);
            let seconds = Duration::from_secs(left.as_secs_f64().ceil() as u64);
            text.push_str(", ");
            text.push_str(&human_duration(seconds));
            text.push_str(" left");
        }
        text
    }
}

/// The rows that a message tells of: "rows 2000 (3 rejected)".
fn rows(message: &str) -> Option<u64> {
    let rest = message.strip_prefix("rows ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_and_the_time_left_follow_from_what_was_seen() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let mut tell = |seconds: u64, done: u64, message: &str| {
            pace.tell(done, 1000, message, start + Duration::from_secs(seconds))
        };
        assert_eq!(tell(0, 0, "checking the text"), "checking the text");
        assert_eq!(
            tell(1, 100, "rows 2000 (0 rejected)"),
            "rows 2000 (0 rejected)"
        );
        assert_eq!(
            tell(5, 300, "rows 6000 (1 rejected)"),
            "rows 6000 (1 rejected), 1000 rows/s, 14s left"
        );
        // A run that takes over begins again.
        assert_eq!(
            tell(9, 200, "rows 4000 (0 rejected)"),
            "rows 4000 (0 rejected)"
        );
        assert_eq!(
            tell(11, 1000, "rows 9000 (0 rejected)"),
            "rows 9000 (0 rejected), 2500 rows/s"
        );
    }
}
