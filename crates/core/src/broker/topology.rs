//! The broker's topology as data, declared by `tenure-sweeper` alone: one exchange, and
//! a queue for each logical queue and lane.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};

use super::connection::{self, broker_error};
use crate::config::BrokerConfig;
use crate::domain::job::Lane;
use crate::error::Result;

/// The exchange that jobs are published to.
pub fn exchange(config: &BrokerConfig) -> String {
    format!("{}.jobs", config.prefix)
}

/// The broker queue of a logical queue and lane.
pub fn queue_name(config: &BrokerConfig, queue: &str, lane: Lane) -> String {
    format!("{}.{queue}.{}", config.prefix, lane.as_str())
}

/// The routing key of a logical queue and lane.
pub fn routing_key(queue: &str, lane: Lane) -> String {
    format!("{queue}.{}", lane.as_str())
}

/// Declares everything that these queues need. Safe to repeat.
///
/// # Errors
/// BROKER_UNAVAILABLE; also where a queue exists with other properties (delete it or
/// change `broker.queue_type` back: its messages are hints and are sent again).
pub async fn declare(config: &BrokerConfig, queues: &[String]) -> Result<()> {
    let connection = connection::connect(config, "topology").await?;
    let bounded = tokio::time::timeout(
        config.connect_timeout * 6,
        declare_on(&connection, config, queues),
    );
    let result = match bounded.await {
        Ok(result) => result,
        Err(_) => Err(connection::timed_out("declaring the topology")),
    };
    connection::close(&connection).await;
    result
}

async fn declare_on(
    connection: &lapin::Connection,
    config: &BrokerConfig,
    queues: &[String],
) -> Result<()> {
    let channel = connection.create_channel().await.map_err(broker_error)?;
    let exchange = exchange(config);
    channel
        .exchange_declare(
            exchange.as_str().into(),
            ExchangeKind::Direct,
            ExchangeDeclareOptions {
                durable: true,
                ..Default::default()
            },
            FieldTable::default(),
        )
        .await
        .map_err(broker_error)?;
    for queue in queues {
        for lane in Lane::ALL {
            let name = queue_name(config, queue, lane);
            channel
                .queue_declare(
                    name.as_str().into(),
                    QueueDeclareOptions {
                        durable: true,
                        ..Default::default()
                    },
                    arguments(config),
                )
                .await
                .map_err(broker_error)?;
            channel
                .queue_bind(
                    name.as_str().into(),
                    exchange.as_str().into(),
                    routing_key(queue, lane).as_str().into(),
                    QueueBindOptions::default(),
                    FieldTable::default(),
                )
                .await
                .map_err(broker_error)?;
        }
    }
    Ok(())
}

fn arguments(config: &BrokerConfig) -> FieldTable {
    let mut table = FieldTable::default();
    table.insert(
        "x-queue-type".into(),
        AMQPValue::LongString(config.queue_type.as_str().into()),
    );
    table.insert(
        "x-max-length".into(),
        AMQPValue::LongLongInt(i64::from(config.max_length)),
    );
    // A full queue refuses; the job stays in the database and is sent later.
    table.insert(
        "x-overflow".into(),
        AMQPValue::LongString("reject-publish".into()),
    );
    table
}
