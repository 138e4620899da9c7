//! The connections to PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::config::DatabaseConfig;
use crate::error::{Code, Error, Result};

/// The database: two pools, since the protocol's statements need a planner that is
/// held to index look-ups, and the rest does not.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Pools>,
}

#[derive(Debug)]
struct Pools {
    hot: PgPool,
    general: PgPool,
    hot_options: PgConnectOptions,
}

/// The most that one hot statement may take.
const HOT_STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

impl Store {
    /// Prepares the pools; connects when first used. `application` shows in
    /// `pg_stat_activity`. `lease` bounds the hot statements to a quarter of it.
    ///
    /// # Errors
    /// CONFIG_INVALID where the address cannot be read.
    pub fn new(config: &DatabaseConfig, application: &str, lease: Duration) -> Result<Self> {
        let base: PgConnectOptions = config.url.expose().parse().map_err(|e: sqlx::Error| {
            Error::new(
                Code::ConfigInvalid,
                "database.url is not a PostgreSQL address",
            )
            .with_source(e)
        })?;
        let base = base.application_name(application).options([
            ("idle_in_transaction_session_timeout", "5s"),
            ("tcp_user_timeout", "15s"),
            ("timezone", "UTC"),
        ]);
        let statement_ms = HOT_STATEMENT_TIMEOUT.min(lease / 4).as_millis().max(500);
        let hot_options = base.clone().options([
            ("jit", "off".to_owned()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
            ("enable_seqscan", "off".to_owned()),
            ("enable_mergejoin", "off".to_owned()),
            ("lock_timeout", "500ms".to_owned()),
            ("statement_timeout", format!("{statement_ms}ms")),
        ]);
        let general_options = base.options([
            ("jit", "off"),
            ("statement_timeout", "30s"),
            ("lock_timeout", "5s"),
        ]);
        let pool = |size: u32, options: PgConnectOptions| {
            PgPoolOptions::new()
                .max_connections(size)
                .acquire_timeout(config.acquire_timeout)
                .idle_timeout(config.idle_timeout)
                .max_lifetime(config.max_lifetime)
                .test_before_acquire(false)
                .connect_lazy_with(options)
        };
        Ok(Self {
            inner: Arc::new(Pools {
                hot: pool(config.max_connections.min(8), hot_options.clone()),
                general: pool(config.max_connections, general_options),
                hot_options,
            }),
        })
    }

    /// The pool for everything but the protocol's hot statements.
    pub fn pool(&self) -> &PgPool {
        &self.inner.general
    }

    /// The pool for submit, claim, finish, wake and dispatch.
    pub(crate) fn hot(&self) -> &PgPool {
        &self.inner.hot
    }

    /// A store with one connection of its own, for the renewal thread: nothing else can
    /// keep it waiting.
    #[must_use]
    pub fn dedicated(&self, acquire_timeout: Duration) -> Self {
        let one = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(acquire_timeout)
            .test_before_acquire(false)
            .connect_lazy_with(self.inner.hot_options.clone());
        Self {
            inner: Arc::new(Pools {
                hot: one.clone(),
                general: one,
                hot_options: self.inner.hot_options.clone(),
            }),
        }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn ping(&self) -> Result<()> {
        sqlx::query("select 1")
            .execute(self.hot())
            .await
            .map_err(super::db_error)?;
        Ok(())
    }

    /// Closes both pools, waiting for what is under way.
    pub async fn close(&self) {
        self.inner.hot.close().await;
        self.inner.general.close().await;
    }
}
