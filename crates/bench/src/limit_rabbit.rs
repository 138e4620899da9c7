//! What RabbitMQ could do at most: a quorum queue, messages of 1,600 bytes, publishing
//! with up to 1,000 unconfirmed and consuming with an ack for each hundred, at once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use tenure_core::test_util::TestVhost;

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, progress};

const QUEUE: &str = "limit";
/// About what an envelope bundle of a hundred ids has.
const BYTES: usize = 1600;
/// Messages without a confirm, and messages without an ack.
const WINDOW: usize = 1000;
/// One ack for so many.
const ACK_EVERY: usize = 100;
/// Messages per second that one run is sized for.
const EXPECTED: f64 = 8000.0;
const BOUND: Duration = Duration::from_secs(30);

/// Measures it where it is wanted.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    const FIGURE: &str = "limit_rabbit_publish_consume";
    if !wanted.needs(FIGURE) {
        return Ok(());
    }
    let vhost = TestVhost::create().await;
    let (publisher, consumer) = (connect(&vhost).await?, connect(&vhost).await?);
    let (publishing, consuming) = (
        publisher.create_channel().await?,
        consumer.create_channel().await?,
    );
    let mut arguments = FieldTable::default();
    arguments.insert(
        "x-queue-type".into(),
        AMQPValue::LongString("quorum".into()),
    );
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    publishing
        .queue_declare(QUEUE.into(), durable, arguments)
        .await?;
    publishing
        .confirm_select(ConfirmSelectOptions::default())
        .await?;
    consuming
        .basic_qos(WINDOW as u16, BasicQosOptions::default())
        .await?;
    let mut deliveries = consuming
        .basic_consume(
            QUEUE.into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await?;
    let count = (EXPECTED * effort.run.as_secs_f64()) as usize;
    let mut rates = Vec::new();
    // One more than is counted: the first one warms up.
    for number in 0..=effort.runs {
        let count = if number == 0 { count / 4 } else { count };
        let start = Instant::now();
        let both = async {
            tokio::try_join!(publish(&publishing, count), consume(&mut deliveries, count))
        };
        tokio::time::timeout(BOUND, both)
            .await
            .context("the broker is too slow")??;
        if number > 0 {
            rates.push(count as f64 / start.elapsed().as_secs_f64());
        }
    }
    progress(format_args!("{FIGURE}: {rates:.0?}"));
    report.add(FIGURE, rates);
    Ok(())
}

async fn connect(vhost: &TestVhost) -> Result<Connection> {
    Ok(Connection::connect(&vhost.url, ConnectionProperties::default()).await?)
}

async fn publish(channel: &Channel, count: usize) -> Result<()> {
    let body = vec![b'x'; BYTES];
    let mut open = FuturesUnordered::new();
    for _ in 0..count {
        if open.len() >= WINDOW {
            settled(open.next().await)?;
        }
        let confirm = channel
            .basic_publish(
                "".into(),
                QUEUE.into(),
                BasicPublishOptions::default(),
                &body,
                BasicProperties::default().with_delivery_mode(2),
            )
            .await?;
        open.push(confirm);
    }
    while let Some(confirm) = open.next().await {
        settled(Some(confirm))?;
    }
    Ok(())
}

fn settled(confirm: Option<lapin::Result<lapin::Confirmation>>) -> Result<()> {
    let confirm = confirm.context("a confirm")??;
    ensure!(confirm.is_ack(), "the broker refused a message");
    Ok(())
}

async fn consume(deliveries: &mut lapin::Consumer, count: usize) -> Result<()> {
    for number in 1..=count {
        let delivery = deliveries.next().await.context("a delivery")??;
        if number % ACK_EVERY == 0 || number == count {
            delivery
                .acker
                .ack(BasicAckOptions { multiple: true })
                .await?;
        }
    }
    Ok(())
}
