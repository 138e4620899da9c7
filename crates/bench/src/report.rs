//! What was measured, as JSON lines.

use std::collections::BTreeMap;
use std::io::Write as _;

use serde::Serialize;

use crate::catalogue::{RATIOS, Wanted, unit};

/// One line of the output.
#[derive(Debug, PartialEq, Serialize)]
struct Line {
    figure: &'static str,
    unit: &'static str,
    median: f64,
    min: f64,
    max: f64,
    runs: usize,
}

impl Line {
    /// Of one or more runs.
    fn new(figure: &'static str, values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self {
            figure,
            unit: unit(figure),
            median: rounded(middle(&sorted)),
            min: rounded(min),
            max: rounded(max),
            runs: values.len(),
        })
    }
}

/// The middle of sorted values.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    }
}

/// Whole numbers where they are large, four digits where they are small: more is noise.
fn rounded(value: f64) -> f64 {
    if value.abs() >= 1000.0 {
        return value.round();
    }
    format!("{value:.4}").parse().unwrap_or(value)
}

/// Collects the figures and prints each as soon as it is known.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    wanted: &'a Wanted,
    values: BTreeMap<&'static str, Vec<f64>>,
}

impl<'a> Report<'a> {
    /// Prints what is wanted.
    pub(crate) fn new(wanted: &'a Wanted) -> Self {
        Self {
            wanted,
            values: BTreeMap::new(),
        }
    }

    /// Takes the values of all runs of a figure.
    pub(crate) fn add(&mut self, figure: &'static str, values: Vec<f64>) {
        if self.wanted.prints(figure)
            && let Some(line) = Line::new(figure, &values)
        {
            print(&line);
        }
        self.values.insert(figure, values);
    }

    /// Adds the figures that relate two others, run by run.
    pub(crate) fn ratios(&mut self) {
        for (figure, a, b) in RATIOS {
            let (Some(above), Some(below)) = (self.values.get(a), self.values.get(b)) else {
                continue;
            };
            let ratios = above.iter().zip(below).map(|(a, b)| a / b).collect();
            self.add(figure, ratios);
        }
    }
}

fn print(line: &Line) {
    // A reader that has gone away is noticed by the process that started us.
    let mut out = std::io::stdout().lock();
    let text = serde_json::to_string(line).unwrap_or_default();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Says on standard error what is being done.
pub(crate) fn progress(text: impl std::fmt::Display) {
    eprintln!("bench: {text}");
}

/// The value below which `part` (0 to 1) of the sorted values lie.
pub(crate) fn percentile(sorted: &[f64], part: f64) -> f64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_middle_and_the_ends() {
        let line = Line::new("drain_20000", &[9000.4, 7000.0, 8000.0]).expect("a line");
        let text = serde_json::to_string(&line).expect("JSON");
        assert_eq!(
            text,
            r#"{"figure":"drain_20000","unit":"jobs/s","median":8000.0,"min":7000.0,"max":9000.0,"runs":3}"#
        );
        assert_eq!(Line::new("drain_20000", &[]), None);
        let even = Line::new("cpu_drain_total", &[0.123_456, 0.2]).expect("a line");
        assert!((even.median - 0.1617).abs() < 1e-9, "{even:?}");
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert!((percentile(&values, 0.5) - 100.0).abs() < 1e-9);
        assert!((percentile(&values, 0.99) - 198.0).abs() < 1e-9);
        assert!((percentile(&values[..1], 0.99) - 1.0).abs() < 1e-9);
    }
}
