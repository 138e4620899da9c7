//! What a deep backlog costs those who submit, and the dispatcher: a thousand jobs that
//! wait against a million, of a thousand users.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tenure_tests::Stack;
use tenure_tests::caller::spec;
use tenure_tests::v1::JobSpec;

use crate::catalogue::Wanted;
use crate::latency::submit_paced;
use crate::measure::Effort;
use crate::report::{Report, percentile, progress};

/// Whose jobs wait.
const USERS: usize = 1000;

/// Jobs of each user that wait, and the figures: the 99th percentile of a submit, and the
/// mean time of a tick.
const SIZES: [(usize, &str, &str); 2] = [
    (1, "backlog_1000_submit_p99_ms", "backlog_1000_tick_ms"),
    (
        1000,
        "backlog_1000000_submit_p99_ms",
        "backlog_1000000_tick_ms",
    ),
];

/// How long each run lasts. The workers below leave most of a thousand jobs waiting.
const RUN: Duration = Duration::from_secs(6);

/// Few, so that the backlog stays while the dispatcher has something to do at each tick.
const SLOTS: usize = 8;

/// Measures it where it is asked for.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    for (jobs, submits, ticks) in SIZES {
        if !wanted.asked_for(submits) && !wanted.asked_for(ticks) {
            continue;
        }
        let (mut p99, mut tick) = (Vec::new(), Vec::new());
        for _ in 0..effort.runs {
            let (one_p99, one_tick) = once(jobs).await?;
            p99.push(one_p99);
            tick.push(one_tick);
        }
        progress(format_args!(
            "{} waiting: submit p99 {p99:.2?} ms, tick {tick:.2?} ms",
            jobs * USERS
        ));
        report.add(submits, p99);
        report.add(ticks, tick);
    }
    Ok(())
}

async fn once(jobs: usize) -> Result<(f64, f64)> {
    let stack = Stack::builder().slots(SLOTS).start().await;
    for user in 0..USERS {
        let caller = stack.user(&format!("user-{user}"));
        caller.submit_all(vec![waiting(); jobs]).await;
    }
    // Statistics as they are some minutes later.
    sqlx::raw_sql("vacuum analyze jobs")
        .execute(stack.pool())
        .await?;
    let caller = stack.user("bench");
    submit_paced(&caller, RUN / 4).await?;
    let before = ticks(&stack).await;
    let sent = submit_paced(&caller, RUN).await?;
    let after = ticks(&stack).await;
    let mut took: Vec<f64> = sent.iter().map(|s| s.took.as_secs_f64() * 1000.0).collect();
    took.sort_by(f64::total_cmp);
    let tick = (after.0 - before.0) / (after.1 - before.1).max(1.0) * 1000.0;
    Ok((percentile(&took, 0.99), tick))
}

/// A job that keeps a slot for a tenth of a second.
fn waiting() -> JobSpec {
    spec("sleep", json!({"ms": 100}))
}

/// The seconds that all ticks took, and their number.
async fn ticks(stack: &Stack) -> (f64, f64) {
    let metrics = stack.sweeper(0).metrics().await;
    let dispatch = [("chore", "dispatch")];
    (
        metrics.sum("tenure_chore_duration_seconds_sum", &dispatch),
        metrics.sum("tenure_chore_duration_seconds_count", &dispatch),
    )
}
