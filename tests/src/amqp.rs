//! Messages that are put into the broker by hand.

use std::time::Duration;

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use serde_json::{Value, json};

use crate::wait::within;

const BOUND: Duration = Duration::from_secs(30);

/// A connection to a virtual host.
#[derive(Debug)]
pub struct Broker {
    // Closed when it is dropped.
    _connection: Connection,
    channel: Channel,
}

impl Broker {
    /// Connects.
    ///
    /// # Panics
    /// Where there is no broker.
    pub async fn connect(url: &str) -> Self {
        let connecting = Connection::connect(url, ConnectionProperties::default());
        let connection = within("connecting to the broker", BOUND, connecting)
            .await
            .expect("a broker");
        let channel = connection.create_channel().await.expect("a channel");
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .expect("confirms");
        Self {
            _connection: connection,
            channel,
        }
    }

    /// Puts a body into a queue, past every exchange, and waits until the broker has it.
    ///
    /// # Panics
    /// Where the queue is not there, or the broker refuses.
    pub async fn send(&self, queue: &str, body: &[u8], headers: FieldTable) {
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(2)
            .with_headers(headers);
        let publishing = async {
            self.channel
                .basic_publish(
                    "".into(),
                    queue.into(),
                    BasicPublishOptions {
                        mandatory: true,
                        ..Default::default()
                    },
                    body,
                    properties,
                )
                .await?
                .await
        };
        let confirmation = within("a confirm", BOUND, publishing)
            .await
            .expect("published");
        assert!(
            matches!(confirmation, Confirmation::Ack(None)),
            "{queue} did not take the message: {confirmation:?}"
        );
    }

    /// Messages that wait in a queue, delivered ones not counted.
    ///
    /// # Panics
    /// Where the queue is not there.
    pub async fn ready(&self, queue: &str) -> u32 {
        let asked = self.channel.queue_declare(
            queue.into(),
            QueueDeclareOptions {
                passive: true,
                ..Default::default()
            },
            FieldTable::default(),
        );
        within("asking for a queue", BOUND, asked)
            .await
            .expect("the queue")
            .message_count()
    }

    /// Takes away what leads from the exchange to a queue.
    ///
    /// # Panics
    /// Where the broker refuses.
    pub async fn unbind(&self, queue: &str, lane: &str) {
        let (name, key) = (queue_name(queue, lane), format!("{queue}.{lane}"));
        let unbinding = self.channel.queue_unbind(
            name.as_str().into(),
            EXCHANGE.into(),
            key.as_str().into(),
            FieldTable::default(),
        );
        within("taking a binding away", BOUND, unbinding)
            .await
            .expect("unbound");
    }

    /// Deletes the exchange with all its bindings.
    ///
    /// # Panics
    /// Where the broker refuses.
    pub async fn delete_exchange(&self) {
        let deleting = self
            .channel
            .exchange_delete(EXCHANGE.into(), ExchangeDeleteOptions::default());
        within("deleting the exchange", BOUND, deleting)
            .await
            .expect("deleted");
    }
}

/// The exchange of all jobs.
const EXCHANGE: &str = "tenure.jobs";

/// The broker's name of a logical queue and lane.
pub fn queue_name(queue: &str, lane: &str) -> String {
    format!("tenure.{queue}.{lane}")
}

/// The message of one run of a job, as Tenure itself would write it.
pub fn envelope(job_id: &str, run: i32, job_type: &str, user: &str) -> Vec<u8> {
    bundle(&[(job_id, run, job_type, user)])
}

/// A message of several runs: job, run, job type and owner each.
pub fn bundle(runs: &[(&str, i32, &str, &str)]) -> Vec<u8> {
    let jobs: Vec<Value> = runs
        .iter()
        .map(|(job_id, run, job_type, user)| {
            json!({
                "job_id": job_id,
                "event_id": job_id,
                "run": run,
                "job_type": job_type,
                "user_id": user,
                "attempt": 0,
                "created_at": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    json!({"schema": 1, "jobs": jobs}).to_string().into_bytes()
}
