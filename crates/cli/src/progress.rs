//! Progress on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::output::{escape, say};

/// Between two plain lines about the same thing.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Bytes.
    Bytes,
    /// Anything else.
    Steps,
}

/// Shows how far something is.
#[derive(Debug)]
pub(crate) struct Meter {
    label: String,
    unit: Unit,
    bar: Option<ProgressBar>,
    last_line: String,
    last_time: Option<Instant>,
}

impl Meter {
    /// A meter with what it is about.
    pub(crate) fn new(label: &str, unit: Unit) -> Self {
        let label = escape(label).into_owned();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::no_length().with_prefix(label.clone());
            bar.set_style(style(unit, false));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self {
            label,
            unit,
            bar,
            last_line: String::new(),
            last_time: None,
        }
    }

    /// Counts in another unit from now on.
    pub(crate) fn set_unit(&mut self, unit: Unit) {
        self.unit = unit;
    }

    /// Shows that `done` of `total` are done; a total of 0 is not known. Without
    /// a message a bar keeps the one that it has.
    pub(crate) fn set(&mut self, done: u64, total: u64, message: &str) {
        let Some(bar) = &self.bar else {
            let due = |at: Instant| at.elapsed() >= LINE_INTERVAL;
            if (done > 0 || !message.is_empty()) && self.last_time.is_none_or(due) {
                self.set_last(done, total, message);
            }
            return;
        };
        bar.set_style(style(self.unit, total > 0));
        if total > 0 {
            bar.set_length(total);
        }
        bar.set_position(done);
        if !message.is_empty() {
            bar.set_message(escape(message).into_owned());
        }
    }

    /// Tells how far it came, on lines; a bar goes away at the end.
    pub(crate) fn set_last(&mut self, done: u64, total: u64, message: &str) {
        if self.bar.is_none() {
            let counted = counted(self.unit, done, total);
            let parts = [counted.as_str(), &escape(message)];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            self.line(parts.join(", "));
            self.last_time = Some(Instant::now());
        }
    }

    /// Says that something changed; a bar shows it anyway.
    pub(crate) fn change(&mut self, text: &str) {
        let text = escape(text).into_owned();
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.line(text),
        }
    }

    /// Says something that must not be missed.
    pub(crate) fn note(&mut self, text: &str) {
        let text = escape(text);
        match &self.bar {
            Some(bar) => bar.suspend(|| say(&format!("{}: {text}", self.label))),
            None => self.line(text.into_owned()),
        }
    }

    fn line(&mut self, line: String) {
        if line.is_empty() || line == self.last_line {
            return;
        }
        say(&format!("{}: {line}", self.label));
        self.last_line = line;
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(unit: Unit, total_known: bool) -> ProgressStyle {
    let template = match (unit, total_known) {
        (_, false) => "{spinner} {prefix} {msg}",
        (Unit::Bytes, true) => "{prefix} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {msg}",
        (Unit::Steps, true) => "{prefix} [{bar:30}] {pos}/{len} {msg}",
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn counted(unit: Unit, done: u64, total: u64) -> String {
    let amount = |count: u64| match unit {
        Unit::Bytes => HumanBytes(count).to_string(),
        Unit::Steps => count.to_string(),
    };
    match (done, total) {
        (0, 0) => String::new(),
        (done, 0) => format!("{} done", amount(done)),
        (done, total) => {
            // 128 bits, so that no count overflows.
            let percent = u128::from(done) * 100 / u128::from(total);
            format!("{percent} % ({} of {})", amount(done), amount(total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Unit, counted, style};

    #[test]
    fn all_bars_can_be_drawn() {
        for unit in [Unit::Bytes, Unit::Steps] {
            for known in [true, false] {
                let bar = indicatif::ProgressBar::hidden();
                bar.set_style(style(unit, known));
                bar.set_message("m");
                assert_eq!(bar.message(), "m");
            }
        }
    }

    #[test]
    fn counts_are_told_as_far_as_they_are_known() {
        assert_eq!(counted(Unit::Steps, 0, 0), "");
        assert_eq!(counted(Unit::Steps, 3, 0), "3 done");
        assert_eq!(counted(Unit::Steps, 1, 3), "33 % (1 of 3)");
        assert_eq!(
            counted(Unit::Bytes, 1024, 2048),
            "50 % (1.00 KiB of 2.00 KiB)"
        );
        assert_eq!(
            counted(Unit::Steps, u64::MAX, u64::MAX),
            format!("100 % ({0} of {0})", u64::MAX)
        );
    }
}
