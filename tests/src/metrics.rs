//! The metrics of a process, read as a scraper reads them.

/// One scrape.
#[derive(Clone, Debug)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Reads an OpenMetrics text.
    pub fn new(text: String) -> Self {
        Self { text }
    }

    /// The sum of the series with this name (`tenure_claims_total`) that have all of
    /// these labels; 0 where there is none yet.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.text
            .lines()
            .filter_map(|line| {
                let (series, value) = line.rsplit_once(' ')?;
                let (found, set) = match series.split_once('{') {
                    Some((found, set)) => (found, set.trim_end_matches('}')),
                    None => (series, ""),
                };
                let has = |(key, value): &(&str, &str)| set.contains(&format!("{key}=\"{value}\""));
                (found == name && labels.iter().all(has)).then(|| value.parse::<f64>().ok())?
            })
            .sum()
    }

    /// The text itself.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn series_are_summed_by_name_and_labels() {
        let metrics = Metrics::new(
            "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 3\na_total{x=\"1\",y=\"3\"} 4\nb 5\n# EOF\n"
                .to_owned(),
        );
        assert!((metrics.sum("a_total", &[("x", "1")]) - 7.0).abs() < f64::EPSILON);
        assert!((metrics.sum("a_total", &[("y", "3")]) - 4.0).abs() < f64::EPSILON);
        assert!((metrics.sum("b", &[]) - 5.0).abs() < f64::EPSILON);
        assert!(metrics.sum("a", &[]).abs() < f64::EPSILON);
    }
}
