//! The configuration: defaults, then a TOML file, then the environment.
//!
//! Everything that is wrong is reported at once, with the place that it came
//! from. Unknown keys are refused, since a typo that is ignored costs a night.
pub mod docs;
pub mod duration;
mod load;
mod names;
mod secret;
mod sections;
pub mod size;
mod tables;
mod validate;
mod webhooks;

pub use duration::HumanDuration;
pub use load::{Problems, SHORT_NAMES, environment_name};
pub use secret::{Secret, SecretUrl};
pub use sections::{
    AdmissionConfig, AlertsConfig, Algorithm, AuthConfig, BrokerConfig, CacheConfig, Config,
    DatabaseConfig, DeadLetterAdminConfig, FilesConfig, GatewayConfig, ImportsConfig, Key,
    LogFormat, QueueType, RetentionConfig, RetryConfig, SECTIONS, Section, ServiceConfig,
    SweeperConfig, TelemetryConfig, WebhooksConfig, WorkerConfig,
};
pub use tables::ImportTable;
pub use webhooks::{Fit, HostPattern};

impl Config {
    /// The configuration as TOML, with every secret masked.
    pub fn to_masked_toml(&self) -> String {
        // Serialising plain tables of texts, numbers and lists cannot fail.
        toml::to_string_pretty(self).unwrap_or_default()
    }
}
