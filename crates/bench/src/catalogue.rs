//! The names of all figures, and which of them were asked for.

use anyhow::{Result, bail};

/// Every measured figure with its unit.
const MEASURED: &[(&str, &str)] = &[
    ("submit_unary_1", "jobs/s"),
    ("submit_unary_64", "jobs/s"),
    ("submit_bulk_1000", "jobs/s"),
    ("drain_20000", "jobs/s"),
    ("drain_200000", "jobs/s"),
    ("drain_200000_open_tx", "jobs/s"),
    ("drain_1000000", "jobs/s"),
    ("drain_1000000_open_tx", "jobs/s"),
    ("backlog_1000_submit_p99_ms", "ms"),
    ("backlog_1000000_submit_p99_ms", "ms"),
    ("backlog_1000_tick_ms", "ms"),
    ("backlog_1000000_tick_ms", "ms"),
    ("start_latency_200_p50_ms", "ms"),
    ("start_latency_200_p99_ms", "ms"),
    ("claim_latency_200_p50_ms", "ms"),
    ("claim_latency_200_p99_ms", "ms"),
    ("import_rows_per_s", "rows/s"),
    ("import_1gb_rows_per_s", "rows/s"),
    ("import_1gb_rss_worker_mib", "MiB"),
    ("dead_letters_counted_s", "s"),
    ("dead_letters_list_p95_ms", "ms"),
    ("dead_letters_list_filtered_p95_ms", "ms"),
    ("dead_letters_causes_p95_ms", "ms"),
    ("limit_copy_rows_per_s", "rows/s"),
    ("limit_pg_insert_1000", "rows/s"),
    ("limit_pg_claim_finish_1000", "rows/s"),
    ("limit_rabbit_publish_consume", "messages/s"),
    ("limit_grpc_echo_64", "calls/s"),
    ("cpu_drain_gateway", "s/1000 jobs"),
    ("cpu_drain_worker", "s/1000 jobs"),
    ("cpu_drain_sweeper", "s/1000 jobs"),
    ("cpu_drain_postgres", "s/1000 jobs"),
    ("cpu_drain_rabbitmq", "s/1000 jobs"),
    ("cpu_drain_total", "s/1000 jobs"),
    ("rss_gateway_mib", "MiB"),
    ("rss_worker_mib", "MiB"),
    ("rss_sweeper_mib", "MiB"),
];

/// Figures that relate two others of the same run.
pub(crate) const RATIOS: &[(&str, &str, &str)] = &[
    (
        "submit_unary_64_vs_limit_grpc",
        "submit_unary_64",
        "limit_grpc_echo_64",
    ),
    (
        "submit_bulk_1000_vs_limit_pg",
        "submit_bulk_1000",
        "limit_pg_insert_1000",
    ),
    (
        "drain_20000_vs_limit_pg",
        "drain_20000",
        "limit_pg_claim_finish_1000",
    ),
    (
        "drain_20000_vs_limit_rabbit",
        "drain_20000",
        "limit_rabbit_publish_consume",
    ),
    ("drain_200000_vs_20000", "drain_200000", "drain_20000"),
    (
        "drain_200000_open_tx_vs_20000",
        "drain_200000_open_tx",
        "drain_20000",
    ),
    ("drain_1000000_vs_20000", "drain_1000000", "drain_20000"),
    (
        "drain_1000000_open_tx_vs_20000",
        "drain_1000000_open_tx",
        "drain_20000",
    ),
    (
        "backlog_submit_growth",
        "backlog_1000000_submit_p99_ms",
        "backlog_1000_submit_p99_ms",
    ),
    (
        "backlog_tick_growth",
        "backlog_1000000_tick_ms",
        "backlog_1000_tick_ms",
    ),
    (
        "import_vs_limit_copy",
        "import_rows_per_s",
        "limit_copy_rows_per_s",
    ),
];

/// All figures with their units.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let ratios = RATIOS.iter().map(|(name, _, _)| (*name, "ratio"));
    MEASURED.iter().copied().chain(ratios)
}

/// The unit of a figure.
pub(crate) fn unit(name: &str) -> &'static str {
    all()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, unit)| unit)
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    printed: Vec<&'static str>,
    only: Vec<String>,
}

impl Wanted {
    /// The figures that begin with one of these; all where there is none.
    pub(crate) fn new(only: &[String]) -> Result<Self> {
        for prefix in only {
            if !all().any(|(name, _)| name.starts_with(prefix.as_str())) {
                bail!("no figure begins with '{prefix}'; --list shows all");
            }
        }
        let chosen = |name: &str| {
            only.is_empty() || only.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        Ok(Self {
            printed: all()
                .map(|(name, _)| name)
                .filter(|name| chosen(name))
                .collect(),
            only: only.to_vec(),
        })
    }

    /// Whether figures that begin like this were asked for by that name, and not just all.
    pub(crate) fn asked(&self, prefix: &str) -> bool {
        self.only.iter().any(|only| only.starts_with(prefix))
    }

    /// Whether this figure, or a ratio to it, was asked for by its name, and not just all.
    pub(crate) fn asked_for(&self, name: &str) -> bool {
        !self.only.is_empty() && self.needs(name)
    }

    /// Whether it is printed.
    pub(crate) fn prints(&self, name: &str) -> bool {
        self.printed.contains(&name)
    }

    /// Whether it has to be measured, for itself or for a ratio.
    pub(crate) fn needs(&self, name: &str) -> bool {
        self.prints(name)
            || RATIOS
                .iter()
                .any(|(ratio, a, b)| self.prints(ratio) && (*a == name || *b == name))
    }

    /// Whether any figure has to be measured that begins like this.
    pub(crate) fn needs_any(&self, prefix: &str) -> bool {
        all().any(|(name, _)| name.starts_with(prefix) && self.needs(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(only: &[&str]) -> Wanted {
        let only: Vec<String> = only.iter().map(|text| (*text).to_owned()).collect();
        Wanted::new(&only).expect("known")
    }

    #[test]
    fn a_ratio_needs_both_of_its_figures_and_prints_neither() {
        let some = wanted(&["drain_20000_vs_limit_pg"]);
        assert!(some.needs("drain_20000") && some.needs("limit_pg_claim_finish_1000"));
        assert!(!some.prints("drain_20000"));
        assert!(!some.needs("submit_unary_1"));
        assert!(some.needs_any("limit_pg") && !some.needs_any("limit_grpc"));
    }

    #[test]
    fn what_takes_minutes_is_made_where_it_or_its_ratio_is_asked_for() {
        assert!(!wanted(&[]).asked_for("drain_1000000"));
        assert!(!wanted(&["submit"]).asked_for("drain_1000000"));
        assert!(wanted(&["drain_1000000_vs"]).asked_for("drain_1000000"));
        assert!(wanted(&["backlog_tick_growth"]).asked_for("backlog_1000_tick_ms"));
    }

    #[test]
    fn without_a_choice_all_are_made_and_an_unknown_one_is_refused() {
        let every = wanted(&[]);
        assert!(all().all(|(name, _)| every.prints(name)));
        assert!(Wanted::new(&["drian".to_owned()]).is_err());
    }

    #[test]
    fn every_ratio_names_figures_and_every_name_is_there_once() {
        let names: Vec<&str> = all().map(|(name, _)| name).collect();
        for (_, a, b) in RATIOS {
            assert!(names.contains(a) && names.contains(b));
        }
        let once: std::collections::BTreeSet<&str> = names.iter().copied().collect();
        assert_eq!(once.len(), names.len());
    }
}
