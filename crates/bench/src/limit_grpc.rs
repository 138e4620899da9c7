//! What gRPC could do at most: 64 callers on four connections of a server in this
//! process that does nothing, the health service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, progress};

const CALLERS: usize = 64;
const CONNECTIONS: usize = 4;

/// Measures it where it is wanted.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    const FIGURE: &str = "limit_grpc_echo_64";
    if !wanted.needs(FIGURE) {
        return Ok(());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = tokio::spawn(
        Server::builder()
            .add_service(health)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(Channel::from_shared(address.clone())?.connect().await?);
    }
    rate(&channels, effort.run / 4).await?;
    let mut rates = Vec::new();
    for _ in 0..effort.runs {
        rates.push(rate(&channels, effort.run).await?);
    }
    server.abort();
    progress(format_args!("{FIGURE}: {rates:.0?}"));
    report.add(FIGURE, rates);
    Ok(())
}

async fn rate(channels: &[Channel], time: Duration) -> Result<f64> {
    let answered = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|number| {
            let mut client = HealthClient::new(channels[number % CONNECTIONS].clone());
            let answered = answered.clone();
            tokio::spawn(async move {
                while start.elapsed() < time {
                    client.check(HealthCheckRequest::default()).await?;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), tonic::Status>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(answered.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}
