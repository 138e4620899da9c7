//! The sweeper: any number of copies, no leader; row locks arbitrate.

pub mod chores;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::broker::depths::Depths;
use tenure_core::broker::publisher::Publisher;
use tenure_core::broker::topology;
use tenure_core::error::{Code, Error, Result};
use tenure_core::files::FileStore;
use tenure_core::service::{Context, readiness};
use tenure_core::storage::Store;
use tenure_core::storage::history::HistoryWriter;
use tenure_core::telemetry::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::chores::Chore;
use crate::chores::alerts::Alerts;
use crate::chores::backlog::CountBacklog;
use crate::chores::dead_letters::CountDeadLetters;
use crate::chores::dispatch::Dispatch;
use crate::chores::end_pauses::EndPauses;
use crate::chores::failed_imports::TellFailedImports;
use crate::chores::lines::Lines;
use crate::chores::prune_files::PruneFiles;
use crate::chores::prune_imports::PruneImports;
use crate::chores::prune_rows::PruneRows;
use crate::chores::topology::Topology;
use crate::chores::wake::Wake;

/// How long a stopping sweeper waits for confirms and history.
const FLUSH: Duration = Duration::from_secs(3);

/// Applies the schema, the broker topology and the shipped job types. Safe to repeat,
/// and by several at once.
///
/// # Errors
/// What could not be reached or applied.
pub async fn migrate(context: Context) -> Result<()> {
    let config = &context.config;
    let store = Store::new(&config.database, "tenure-migrate", config.worker.lease)?;
    let schema = store.migrate().await?;
    tracing::info!(applied = ?schema.applied, version = schema.version, "schema");
    let types = store
        .apply_shipped_job_types(config.worker.diagnostics)
        .await?;
    tracing::info!(
        created = ?types.created,
        schemas = ?types.schemas,
        kept = ?types.kept,
        "job types"
    );
    let queues = store.queue_names().await?;
    topology::declare(&config.broker, &queues).await?;
    tracing::info!(?queues, "broker topology");
    store.close().await;
    Ok(())
}

/// Runs the chores until the process is told to stop.
///
/// # Errors
/// Where the configuration or the schema does not fit.
pub async fn serve(context: Context) -> Result<()> {
    let config = context.config.clone();
    let files = FileStore::open(&config.files)?;
    let store = Store::new(&config.database, "tenure-sweeper", config.worker.lease)?;
    readiness::watch_database(&context, &store);
    readiness::wait_for_schema(&context, &store).await?;
    let stop = context.shutdown.token();
    let history = HistoryWriter::start(store.clone(), context.metrics.clone());
    let connection = CancellationToken::new();
    let publisher = Publisher::start(
        config.broker.clone(),
        context.metrics.clone(),
        connection.clone(),
    );

    let wake = Wake::new(
        store.clone(),
        &config,
        history.clone(),
        context.metrics.clone(),
    );
    let topology = Arc::new(Topology::new(store.clone(), config.broker.clone()));
    let dispatch = Dispatch::new(
        store.clone(),
        &config,
        publisher.clone(),
        Depths::new(config.broker.clone()),
        topology.clone(),
        context.metrics.clone(),
    );
    let mut chores = tokio::task::JoinSet::new();
    chores.spawn(wake_loop(
        wake,
        config.sweeper.wake_interval,
        context.metrics.clone(),
        stop.clone(),
    ));
    chores.spawn(dispatch_loop(
        dispatch,
        context.metrics.clone(),
        stop.clone(),
    ));
    chores.spawn(topology_loop(topology, publisher.clone(), stop.clone()));
    let mut spawn = Spawn {
        chores: &mut chores,
        metrics: &context.metrics,
        stop: &stop,
    };
    let prune = config.sweeper.prune_interval;
    spawn.chore(
        CountDeadLetters::new(store.clone()),
        chores::dead_letters::INTERVAL,
    );
    spawn.chore(
        TellFailedImports::new(store.clone()),
        chores::failed_imports::INTERVAL,
    );
    spawn.chore(Lines::new(store.clone()), chores::lines::INTERVAL);
    spawn.chore(
        CountBacklog::new(
            store.clone(),
            config.admission.clone(),
            context.metrics.clone(),
        ),
        chores::backlog::INTERVAL,
    );
    spawn.chore(
        Alerts::new(
            store.clone(),
            config.alerts.clone(),
            context.metrics.clone(),
        ),
        config.alerts.interval,
    );
    spawn.chore(EndPauses::new(store.clone()), chores::end_pauses::INTERVAL);
    spawn.chore(PruneImports::new(store.clone()), prune);
    spawn.chore(
        PruneFiles::new(
            store.clone(),
            files,
            config.sweeper.orphan_age,
            context.metrics.clone(),
        ),
        prune,
    );
    spawn.chore(
        PruneRows::new(
            store.clone(),
            config.retention.clone(),
            context.metrics.clone(),
        ),
        prune,
    );
    while let Some(ended) = chores.join_next().await {
        // A chore that panicked must not leave a sweeper that looks alive.
        if let Err(error) = ended {
            return Err(
                tenure_core::Error::new(tenure_core::Code::Internal, "a chore ended")
                    .with_source(error),
            );
        }
    }
    publisher.flush(FLUSH).await;
    connection.cancel();
    history.flush(FLUSH).await;
    store.close().await;
    Ok(())
}

/// Starts chores that are done again and again.
struct Spawn<'s> {
    chores: &'s mut tokio::task::JoinSet<()>,
    metrics: &'s Arc<Metrics>,
    stop: &'s CancellationToken,
}

impl Spawn<'_> {
    fn chore<C: Chore>(&mut self, chore: C, interval: Duration) {
        self.chores.spawn(repeat(
            chore,
            interval,
            self.metrics.clone(),
            self.stop.clone(),
        ));
    }
}

/// Waits, unless the process is told to stop; `false`: it is.
async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

/// The longest that waking or a tick of the dispatcher may take. A network that is cut says
/// nothing, and without a bound the work would wait for an answer that never comes. Whatever
/// is dropped half done is done again.
const TICK_MAX: Duration = Duration::from_secs(20);
/// The same for the other chores, which do more in one go.
const CHORE_MAX: Duration = Duration::from_mins(2);

async fn wake_loop(
    mut wake: Wake,
    interval: Duration,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    // Waking is what repairs everything else: a batch that was full is followed at once.
    loop {
        let full = observe(&metrics, "wake", TICK_MAX, wake.run_once())
            .await
            .is_some_and(|woken| woken.full);
        let time = if full { Duration::ZERO } else { interval };
        if !pause(&stop, time).await {
            return;
        }
    }
}

async fn dispatch_loop(mut dispatch: Dispatch, metrics: Arc<Metrics>, stop: CancellationToken) {
    loop {
        let next = observe(&metrics, "dispatch", TICK_MAX, dispatch.run_once())
            .await
            .unwrap_or(Duration::from_millis(500));
        if !pause(&stop, next).await {
            return;
        }
    }
}

async fn topology_loop(topology: Arc<Topology>, publisher: Publisher, stop: CancellationToken) {
    while pause(&stop, chores::topology::INTERVAL).await {
        if let Err(error) = topology.run_once(publisher.take_misrouted()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "queues could not be declared"
            );
        }
    }
}

async fn repeat<C: Chore>(
    mut chore: C,
    interval: Duration,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    loop {
        let more = tokio::select! {
            // What is half done is done later, by this or another sweeper.
            () = stop.cancelled() => return,
            more = observe(&metrics, C::NAME, CHORE_MAX, chore.run_once()) => more.unwrap_or(false),
        };
        let time = if more { Duration::ZERO } else { interval };
        if !pause(&stop, time).await {
            return;
        }
    }
}

async fn observe<T>(
    metrics: &Metrics,
    chore: &'static str,
    most: Duration,
    run: impl Future<Output = Result<T>>,
) -> Option<T> {
    let started = tokio::time::Instant::now();
    let result = tokio::time::timeout(most, run).await.unwrap_or_else(|_| {
        let told = format!("{chore} had no answer for {} s", most.as_secs());
        Err(Error::new(Code::DatabaseUnavailable, told))
    });
    metrics
        .chore_duration
        .observe(chore, started.elapsed().as_secs_f64());
    let label = if result.is_ok() { "ok" } else { "error" };
    metrics
        .chore_runs
        .inc(tenure_core::telemetry::labels::ChoreResult {
            chore,
            result: label,
        });
    result
        .map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                chore,
                "a chore failed; it is tried again"
            );
        })
        .ok()
}
