//! The gateway: takes jobs and files from callers over gRPC, and tells how they are.

mod admission;
mod call;
mod check;
mod convert;
mod datasets;
mod explain;
mod fields;
mod files;
mod job_types;
mod jobs;
mod notifications;
mod page_token;
mod queues;
mod submit;
mod upload;
mod upload_places;
mod user_limits;
mod watch;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Result;
use tenure_core::auth::Authenticator;
use tenure_core::broker::publisher::Publisher;
use tenure_core::config::Config;
use tenure_core::files::FileStore;
use tenure_core::service::{self, Context, grpc, readiness};
use tenure_core::storage::Store;
use tenure_core::storage::admission::JobLimit;
use tenure_core::storage::batch_writer::{SubmitWriter, WriterSettings};
use tenure_core::storage::job_types::Catalogue;
use tenure_core::storage::lane_hints::LaneHints;
use tenure_proto::v1::dataset_service_server::{DatasetServiceServer, SERVICE_NAME as DATASETS};
use tenure_proto::v1::file_service_server::{FileServiceServer, SERVICE_NAME as FILES};
use tenure_proto::v1::job_service_server::{JobServiceServer, SERVICE_NAME as JOBS};
use tenure_proto::v1::job_type_service_server::{JobTypeServiceServer, SERVICE_NAME as JOB_TYPES};
use tenure_proto::v1::notification_service_server::{
    NotificationServiceServer, SERVICE_NAME as NOTIFICATIONS,
};
use tenure_proto::v1::queue_service_server::{QueueServiceServer, SERVICE_NAME as QUEUES};
use tenure_proto::v1::user_limit_service_server::{
    SERVICE_NAME as USER_LIMITS, UserLimitServiceServer,
};
use tenure_proto::v1::worker_service_server::{SERVICE_NAME as WORKERS, WorkerServiceServer};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::service::RoutesBuilder;

use crate::admission::Admission;

/// How long a batch of submits is tried before its callers are told to come again.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a stop waits for submits that are being written. With the next one it stays
/// within what the process has above the grace period.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a stop waits for the broker's confirms. What is lost wakes up by itself.
const FLUSH: Duration = Duration::from_secs(1);

/// Serves until the process is told to stop; then finishes the calls that run, writes
/// what was accepted, and publishes it.
///
/// # Errors
/// Where the configuration does not fit, or a port cannot be opened.
pub async fn serve(context: Context) -> Result<()> {
    let config = context.config.clone();
    let authenticator = Arc::new(Authenticator::new(&config.auth)?);
    let objects = FileStore::open(&config.files)?;
    let store = Store::new(&config.database, "tenure-gateway", config.worker.lease)?;
    readiness::watch_database(&context, &store);
    readiness::wait_for_schema(&context, &store).await?;

    // The broker is not part of the readiness: without it submits go on, parked.
    let connection = CancellationToken::new();
    let publisher = Publisher::start(
        config.broker.clone(),
        context.metrics.clone(),
        connection.clone(),
    );
    let job_limit = Arc::new(JobLimit::new(config.admission.max_jobs_per_user));
    let admission = Admission::start(
        &config,
        &store,
        job_limit.clone(),
        context.metrics.clone(),
        &context.shutdown.token(),
    )?;
    let watching = admission.clone();
    let hints = LaneHints::watched(
        store.clone(),
        Box::new(move |hints| watching.lanes_read(hints)),
    );
    let writer = start_writer(&context, &store, job_limit, &publisher, &hints);
    let catalogue = Catalogue::start(store.clone(), context.shutdown.token());
    let pipeline = submit::Pipeline {
        catalogue: catalogue.clone(),
        writer: writer.clone(),
        publisher: publisher.clone(),
        hints,
        admission,
        large_checks: Arc::new(Semaphore::new(submit::LARGE_CHECKS)),
    };
    let routes = routes(&context, &store, objects, pipeline, catalogue);

    let (listener, address) = service::bind("gateway.listen", config.gateway.listen).await?;
    context.announce("grpc", address);
    let names = [
        JOBS,
        FILES,
        DATASETS,
        NOTIFICATIONS,
        QUEUES,
        JOB_TYPES,
        WORKERS,
        USER_LIMITS,
    ];
    let served = grpc::serve(&context, listener, authenticator, &names, routes).await;

    if tokio::time::timeout(DRAIN, writer.drain()).await.is_err() {
        tracing::warn!(
            "submits that could not be written in time were cut off; their callers got no answer"
        );
    }
    publisher.flush(FLUSH).await;
    connection.cancel();
    store.close().await;
    served
}

fn start_writer(
    context: &Context,
    store: &Store,
    job_limit: Arc<JobLimit>,
    publisher: &Publisher,
    hints: &LaneHints,
) -> SubmitWriter {
    let config = &context.config.gateway;
    let settings = WriterSettings {
        writers: config.writers,
        batch_max: config.batch_max,
        queue_max: config.queue_max,
        deadline: WRITE_DEADLINE.min(config.max_deadline),
    };
    let publish =
        submit::publish_committed(publisher.clone(), hints.clone(), config.publish_bundle_max);
    SubmitWriter::start_limited(
        store.clone(),
        settings,
        job_limit,
        publish,
        context.metrics.clone(),
    )
}

fn routes(
    context: &Context,
    store: &Store,
    objects: FileStore,
    pipeline: submit::Pipeline,
    catalogue: Catalogue,
) -> RoutesBuilder {
    let config: &Config = &context.config;
    let limit = config.gateway.max_message_bytes;
    let limits = pipeline.admission.limits.clone();
    let jobs = jobs::Jobs {
        store: store.clone(),
        pipeline,
        hub: watch::Hub::start(store.clone(), context.shutdown.token()),
    };
    let files = files::Files::new(store.clone(), objects, &config.files);
    let mut routes = RoutesBuilder::default();
    routes
        .add_service(JobServiceServer::new(jobs).max_decoding_message_size(limit))
        .add_service(FileServiceServer::new(files).max_decoding_message_size(limit))
        .add_service(
            DatasetServiceServer::new(datasets::Datasets {
                store: store.clone(),
            })
            .max_decoding_message_size(limit),
        )
        .add_service(
            NotificationServiceServer::new(notifications::Notifications {
                store: store.clone(),
            })
            .max_decoding_message_size(limit),
        )
        .add_service(
            QueueServiceServer::new(queues::Queues {
                store: store.clone(),
            })
            .max_decoding_message_size(limit),
        )
        .add_service(
            WorkerServiceServer::new(workers::Workers {
                store: store.clone(),
            })
            .max_decoding_message_size(limit),
        )
        .add_service(
            UserLimitServiceServer::new(user_limits::UserLimits {
                store: store.clone(),
                limits,
            })
            .max_decoding_message_size(limit),
        )
        .add_service(
            JobTypeServiceServer::new(job_types::JobTypes {
                store: store.clone(),
                catalogue,
            })
            .max_decoding_message_size(limit),
        );
    routes
}
