//! From the submit call to the start of the handler, at 200 submits a second.
//!
//! Two bounds of the handler's start come from the database, whose clock is that of the
//! same machine: the claim's transaction begins before it (`claim_latency`), the finish's
//! after it (`start_latency`, since a no-op ends as soon as it has started).

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use tenure_tests::{Caller, Stack, wait_until};
use tokio::time::{Instant, MissedTickBehavior};

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::payload::noop;
use crate::report::{Report, percentile, progress};

/// Submits per second.
const RATE: u32 = 200;

/// Connections, caches, plans: not what is measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// The longest that jobs may wait for their end.
const BOUND: Duration = Duration::from_secs(30);

const TIMES: &str = "select job_id, extract(epoch from started_at)::float8, extract(epoch from finished_at)::float8 \
     from jobs where status = 'success'";

/// Measures it where any of its figures is wanted.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    if !wanted.needs_any("start_latency") && !wanted.needs_any("claim_latency") {
        return Ok(());
    }
    let stack = Stack::builder().start().await;
    let caller = stack.user("bench");
    submit_paced(&caller, WARM_UP).await?;
    let mut columns: [Vec<f64>; 4] = Default::default();
    for _ in 0..effort.runs {
        let (starts, claims) = once(&stack, &caller, effort.latency).await?;
        columns[0].push(percentile(&starts, 0.5));
        columns[1].push(percentile(&starts, 0.99));
        columns[2].push(percentile(&claims, 0.5));
        columns[3].push(percentile(&claims, 0.99));
    }
    let [p50, p99, claim_p50, claim_p99] = columns;
    let metrics = stack.sweeper(0).metrics().await;
    let parked = metrics.sum("tenure_dispatched_jobs_total", &[]) as u64;
    progress(format_args!(
        "start latency: p50 {p50:.2?}, p99 {p99:.2?}; {parked} jobs went through the backlog"
    ));
    report.add("start_latency_200_p50_ms", p50);
    report.add("start_latency_200_p99_ms", p99);
    report.add("claim_latency_200_p50_ms", claim_p50);
    report.add("claim_latency_200_p99_ms", claim_p99);
    Ok(())
}

/// Milliseconds from each call to the two bounds of its handler's start, sorted.
async fn once(stack: &Stack, caller: &Caller, time: Duration) -> Result<(Vec<f64>, Vec<f64>)> {
    let sent = submit_paced(caller, time).await?;
    wait_until("the last jobs", BOUND, || async {
        let waiting = "select count(*) from jobs where finished_at is null";
        (stack.number(waiting).await == 0).then_some(())
    })
    .await;
    let rows: Vec<(uuid::Uuid, f64, f64)> = sqlx::query_as(TIMES).fetch_all(stack.pool()).await?;
    let times: HashMap<String, (f64, f64)> = rows
        .into_iter()
        .map(|(id, started, finished)| (id.to_string(), (started, finished)))
        .collect();
    let (mut starts, mut claims) = (Vec::new(), Vec::new());
    for Sent { id, at, .. } in sent {
        let (started, finished) = times.get(&id).with_context(|| format!("job {id} ran"))?;
        starts.push((finished - at) * 1000.0);
        claims.push((started - at) * 1000.0);
    }
    starts.sort_by(f64::total_cmp);
    claims.sort_by(f64::total_cmp);
    ensure!(
        claims[0] > 0.0,
        "the clocks of the bench and of the database differ"
    );
    Ok((starts, claims))
}

/// A submit that was answered.
pub(crate) struct Sent {
    id: String,
    /// The wall time of the call, in seconds.
    at: f64,
    /// How long the answer took.
    pub(crate) took: Duration,
}

/// Submits at the rate, whatever the answers take.
pub(crate) async fn submit_paced(caller: &Caller, time: Duration) -> Result<Vec<Sent>> {
    let period = Duration::from_secs(1) / RATE;
    let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
    // A late tick does not slow the rate down.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let count = (time.as_secs_f64() * f64::from(RATE)) as usize;
    let begun = Instant::now();
    let mut calls = Vec::with_capacity(count);
    for number in 0..count {
        ticks.tick().await;
        let caller = caller.clone();
        calls.push(tokio::spawn(async move {
            let job = noop(number);
            let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            let called = Instant::now();
            let id = caller.try_submit(job).await?.job_id;
            let took = called.elapsed();
            Ok::<_, anyhow::Error>(Sent { id, at, took })
        }));
    }
    let achieved = count as f64 / begun.elapsed().as_secs_f64();
    ensure!(
        achieved > f64::from(RATE) * 0.95,
        "the machine is too busy: {achieved:.0} submits a second in place of {RATE}"
    );
    let mut sent = Vec::with_capacity(count);
    for call in calls {
        sent.push(call.await??);
    }
    Ok(sent)
}
