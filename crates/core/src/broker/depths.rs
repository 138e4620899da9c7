//! How many messages are ready in each queue: what the dispatcher fills its window by.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use lapin::{Channel, Connection};

use super::connection::{self, broker_error};
use super::topology;
use crate::config::BrokerConfig;
use crate::domain::job::Lane;
use crate::error::Result;

/// A connection of its own for passive declarations.
pub struct Depths {
    config: BrokerConfig,
    open: Option<(Connection, Channel)>,
}

impl Depths {
    /// Connects when first asked.
    pub fn new(config: BrokerConfig) -> Self {
        Self { config, open: None }
    }

    /// The ready messages of a queue and lane; `None`: the queue is not there.
    ///
    /// # Errors
    /// BROKER_UNAVAILABLE; the next call connects anew.
    pub async fn ready(&mut self, queue: &str, lane: Lane) -> Result<Option<u32>> {
        let limit = self.config.confirm_timeout;
        let result = tokio::time::timeout(limit, self.ask(queue, lane)).await;
        let result =
            result.unwrap_or_else(|_| Err(connection::timed_out("asking for a queue's length")));
        if result.is_err()
            && let Some((connection, _)) = self.open.take()
        {
            connection::close(&connection).await;
        }
        result
    }

    async fn ask(&mut self, queue: &str, lane: Lane) -> Result<Option<u32>> {
        if self
            .open
            .as_ref()
            .is_none_or(|(c, _)| !c.status().connected())
        {
            let connection = connection::connect(&self.config, "depths").await?;
            let channel = connection.create_channel().await.map_err(broker_error)?;
            self.open = Some((connection, channel));
        }
        let Some((connection, channel)) = self.open.as_mut() else {
            return Err(connection::timed_out("connecting"));
        };
        // A passive declaration that fails closes its channel.
        if !channel.status().connected() {
            *channel = connection.create_channel().await.map_err(broker_error)?;
        }
        let name = topology::queue_name(&self.config, queue, lane);
        let asked = channel
            .queue_declare(
                name.as_str().into(),
                QueueDeclareOptions {
                    passive: true,
                    ..Default::default()
                },
                FieldTable::default(),
            )
            .await;
        match asked {
            Ok(state) => Ok(Some(state.message_count())),
            Err(error) if connection::is_not_found(&error) => Ok(None),
            Err(error) => Err(broker_error(error)),
        }
    }
}
