//! Submits of 1,000 jobs in one call, one caller.

use std::time::Instant;

use anyhow::{Result, ensure};
use tenure_tests::v1::SubmitJobsRequest;
use tenure_tests::v1::submit_jobs_response::outcome::Result as Outcome;
use tenure_tests::{Caller, Kind, Stack};

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::payload::noop;
use crate::report::{Report, progress};

/// Jobs of one call.
const CALL: usize = 1000;

/// Measures it where it is wanted.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    const FIGURE: &str = "submit_bulk_1000";
    if !wanted.needs(FIGURE) {
        return Ok(());
    }
    let stack = Stack::builder().asleep(Kind::Worker).start().await;
    let caller = stack.user("bench");
    submit(&caller, 2 * CALL).await?;
    let mut rates = Vec::new();
    for _ in 0..effort.runs {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < effort.run {
            submit(&caller, CALL).await?;
            count += CALL;
        }
        rates.push(count as f64 / start.elapsed().as_secs_f64());
    }
    progress(format_args!("{FIGURE}: {rates:.0?}"));
    check_all_there(&stack).await?;
    report.add(FIGURE, rates);
    Ok(())
}

/// Submits no-ops, 1,000 in a call; all of them have to be accepted.
pub(crate) async fn submit(caller: &Caller, count: usize) -> Result<()> {
    let mut client = caller.jobs();
    let mut number = 0;
    while number < count {
        let jobs: Vec<_> = (number..count.min(number + CALL)).map(noop).collect();
        number += jobs.len();
        let sent = jobs.len();
        let answer = client.submit_jobs(SubmitJobsRequest { jobs }).await?;
        let outcomes = answer.into_inner().outcomes;
        let accepted = outcomes
            .iter()
            .filter(|outcome| matches!(outcome.result, Some(Outcome::Accepted(_))))
            .count();
        ensure!(accepted == sent, "{accepted} of {sent} jobs were accepted");
    }
    Ok(())
}

/// A rate of jobs that are not there would be none: nothing but pending jobs is in the
/// database, and it is not empty.
pub(crate) async fn check_all_there(stack: &Stack) -> Result<()> {
    let pending = stack
        .number("select count(*) from jobs where status = 'pending'")
        .await;
    let all = stack.number("select count(*) from jobs").await;
    ensure!(
        pending == all && all > 0,
        "{pending} of {all} jobs are pending"
    );
    Ok(())
}
