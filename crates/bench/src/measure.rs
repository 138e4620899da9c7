//! All figures, one after the other.

use std::time::Duration;

use anyhow::Result;

use crate::catalogue::Wanted;
use crate::report::Report;
use crate::{
    backlog, bulk, dead_letters, drain, imports, latency, limit_grpc, limit_postgres, limit_rabbit,
    unary,
};

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Runs of each figure.
    pub(crate) runs: usize,
    /// How long one run of a rate lasts.
    pub(crate) run: Duration,
    /// How long the latency is measured.
    pub(crate) latency: Duration,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        runs: 3,
        run: Duration::from_secs(3),
        latency: Duration::from_secs(20),
    };
    pub(crate) const QUICK: Self = Self {
        runs: 1,
        run: Duration::from_millis(500),
        latency: Duration::from_secs(3),
    };
}

/// Makes all figures that are wanted.
pub(crate) async fn all(only: &[String], effort: Effort) -> Result<()> {
    let wanted = Wanted::new(only)?;
    let mut report = Report::new(&wanted);
    // The limits first: on services that nothing has used yet.
    limit_postgres::measure(&mut report, &wanted, effort).await?;
    limit_rabbit::measure(&mut report, &wanted, effort).await?;
    limit_grpc::measure(&mut report, &wanted, effort).await?;
    latency::measure(&mut report, &wanted, effort).await?;
    drain::measure(&mut report, &wanted, effort).await?;
    backlog::measure(&mut report, &wanted, effort).await?;
    unary::measure(&mut report, &wanted, effort).await?;
    bulk::measure(&mut report, &wanted, effort).await?;
    imports::measure(&mut report, &wanted, effort).await?;
    dead_letters::measure(&mut report, &wanted, effort).await?;
    report.ratios();
    Ok(())
}
