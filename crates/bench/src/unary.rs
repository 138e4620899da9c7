//! Single submits: one caller, and 64 at once on four connections. No worker runs, so
//! that what is measured is the taking.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, ensure};
use tenure_tests::{Caller, Kind, Stack};

use crate::bulk;
use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::payload::noop;
use crate::report::{Report, progress};

/// Connections of 64 callers.
const CONNECTIONS: usize = 4;

/// Measures what is wanted of it.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    for (figure, callers) in [("submit_unary_1", 1), ("submit_unary_64", 64)] {
        if !wanted.needs(figure) {
            continue;
        }
        let stack = Stack::builder().asleep(Kind::Worker).start().await;
        // Connections, caches and the catalogue: not what is measured.
        rate(&stack, callers, effort.run / 4).await?;
        let mut rates = Vec::new();
        for _ in 0..effort.runs {
            rates.push(rate(&stack, callers, effort.run).await?);
        }
        progress(format_args!("{figure}: {rates:.0?}"));
        bulk::check_all_there(&stack).await?;
        report.add(figure, rates);
    }
    Ok(())
}

/// Accepted submits per second of callers that each submit one after the other.
async fn rate(stack: &Stack, callers: usize, time: std::time::Duration) -> Result<f64> {
    let connections: Vec<Caller> = (0..CONNECTIONS.min(callers))
        .map(|_| stack.user("bench"))
        .collect();
    let taken = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let caller = connections[number % connections.len()].clone();
            let taken = taken.clone();
            tokio::spawn(async move {
                let mut client = caller.jobs();
                while start.elapsed() < time {
                    let job = Some(noop(taken.load(Ordering::Relaxed)));
                    client
                        .submit_job(tenure_tests::v1::SubmitJobRequest { job })
                        .await?;
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), tonic::Status>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let elapsed = start.elapsed();
    let count = taken.load(Ordering::Relaxed);
    ensure!(count > 0, "nothing was submitted");
    Ok(count as f64 / elapsed.as_secs_f64())
}
