//! RabbitMQ, which carries hints that a job can start. Losing, repeating or delaying
//! one never harms (PROTOCOL.md §0).

mod connection;
pub mod consumer;
pub mod depths;
pub mod envelope;
pub mod properties;
pub mod publisher;
pub mod topology;
