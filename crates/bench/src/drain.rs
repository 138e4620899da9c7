//! Draining a backlog of no-ops: of 20,000, what it costs by process, and the memory; and
//! of many more, also while another session keeps a transaction open.

use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_tests::{Kind, Stack, wait_until};

use crate::bulk;
use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, progress};
use crate::usage;

/// Jobs of the backlog.
const JOBS: usize = 20_000;

/// Slots of the worker: what no-ops need to fill its batches.
const SLOTS: usize = 1000;

/// Deep backlogs: their figures, the jobs, and whether a transaction is open meanwhile, so
/// that nothing of what is updated can be cleaned up.
const DEEP: [(&str, usize, bool); 4] = [
    ("drain_200000", 200_000, false),
    ("drain_200000_open_tx", 200_000, true),
    ("drain_1000000", 1_000_000, false),
    ("drain_1000000_open_tx", 1_000_000, true),
];

/// The longest that a drain may take.
const BOUND: Duration = Duration::from_mins(2);

/// From the first start to the last finish, by the database's clock.
const SECONDS: &str =
    "select extract(epoch from max(finished_at) - min(started_at))::float8 from jobs";

/// What one drain gave.
#[derive(Debug, Default)]
struct Drain {
    rate: f64,
    cpu: Vec<(&'static str, f64)>,
    rss: Vec<(&'static str, f64)>,
}

/// Measures it where any of its figures is wanted.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    if !["drain_", "cpu_drain_", "rss_"]
        .iter()
        .any(|p| wanted.needs_any(p))
    {
        return Ok(());
    }
    let mut drains = Vec::new();
    for _ in 0..effort.runs {
        let drain = once(JOBS, false).await?;
        progress(format_args!("drain_20000: {drain:.3?}"));
        drains.push(drain);
    }
    for (figure, jobs, open) in DEEP {
        if wanted.asked_for(figure) {
            let drain = once(jobs, open).await?;
            progress(format_args!("{figure}: {drain:.3?}"));
            // Beside each of the others, so that each is compared.
            report.add(figure, vec![drain.rate; effort.runs]);
        }
    }
    report.add("drain_20000", drains.iter().map(|d| d.rate).collect());
    let columns = |pick: fn(&Drain) -> &Vec<(&'static str, f64)>| {
        (0..pick(&drains[0]).len()).map(move |n| (pick, n))
    };
    for (pick, n) in columns(|d| &d.cpu).chain(columns(|d| &d.rss)) {
        let name = pick(&drains[0])[n].0;
        report.add(name, drains.iter().map(|d| pick(d)[n].1).collect());
    }
    Ok(())
}

/// Loads so many jobs and drains them, while another session holds a transaction open or not.
async fn once(jobs: usize, open: bool) -> Result<Drain> {
    let stack = Stack::builder()
        .asleep(Kind::Worker)
        .slots(SLOTS)
        .env("TENURE_ADMISSION__MAX_JOBS_PER_USER", "0")
        .start()
        .await;
    let mut reader = stack.pool().acquire().await?;
    if open {
        // A snapshot of its own is what keeps versions from being cleaned up.
        sqlx::raw_sql("begin isolation level repeatable read; select count(*) from queues")
            .execute(&mut *reader)
            .await?;
    }
    bulk::submit(&stack.user("bench"), jobs).await?;
    let (postgres, rabbit) = (
        usage::pid_of("TENURE_PG_PID_FILE")?,
        usage::pid_of("TENURE_RABBITMQ_PID_FILE")?,
    );
    let (gateway, worker, sweeper) = (stack.gateway(0), stack.worker(0), stack.sweeper(0));
    let used = |worker: Duration| -> Result<[(&'static str, Duration); 5]> {
        Ok([
            ("cpu_drain_gateway", usage::tree(gateway.pid())?),
            ("cpu_drain_worker", worker),
            ("cpu_drain_sweeper", usage::tree(sweeper.pid())?),
            ("cpu_drain_postgres", usage::tree(postgres)?),
            ("cpu_drain_rabbitmq", usage::tree(rabbit)?),
        ])
    };
    let before = used(Duration::ZERO)?;
    worker.start().await;
    // Told by the worker: while nothing can be cleaned up, asking the database for a job that
    // is not done would cost more than the jobs.
    wait_until("the drain", BOUND, || async {
        let done = worker.metrics().await.sum("tenure_finishes_total", &[]);
        (done >= jobs as f64).then_some(())
    })
    .await;
    let after = used(usage::tree(worker.pid())?)?;
    if open {
        sqlx::raw_sql("rollback").execute(&mut *reader).await?;
    }

    let done = stack
        .number("select count(*) from jobs where status = 'success' and attempt = 1")
        .await;
    ensure!(done == jobs as i64, "{done} of {jobs} jobs ran, and once");
    let seconds: f64 = sqlx::query_scalar(SECONDS).fetch_one(stack.pool()).await?;
    let per_thousand =
        |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() * 1000.0 / jobs as f64;
    let mut cpu: Vec<(&'static str, f64)> = before
        .iter()
        .zip(&after)
        .map(|((name, from), (_, to))| (*name, per_thousand(*from, *to)))
        .collect();
    cpu.push(("cpu_drain_total", cpu.iter().map(|(_, used)| used).sum()));
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    Ok(Drain {
        rate: jobs as f64 / seconds,
        cpu,
        rss: vec![
            ("rss_gateway_mib", mib(gateway.peak_memory_bytes())),
            ("rss_worker_mib", mib(worker.peak_memory_bytes())),
            ("rss_sweeper_mib", mib(sweeper.peak_memory_bytes())),
        ],
    })
}
