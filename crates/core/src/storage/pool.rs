//! The connections to PostgreSQL.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sqlx::pool::{PoolConnection, PoolConnectionMetadata};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};

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
    /// The most that one call on the hot pool may take, whatever the server does.
    limit: Duration,
}

/// What a call may take beyond its statement's own limit: the server answers it, or it
/// is gone.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// A connection that was idle for so long is asked whether it still lives before it is
/// used: after a restart of the server all of them are dead, and a read is not tried again.
const TRUST_IDLE: Duration = Duration::from_millis(500);
/// Hot statements are repeated by those who make them, and their round trips count.
const TRUST_IDLE_HOT: Duration = Duration::from_secs(5);

/// How long an answer to that may take.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// When a connection of this process was last found dead or useless, in milliseconds
/// since [`epoch`]; 0: never.
static LOST_AT: AtomicU64 = AtomicU64::new(0);

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Notes that a connection was found dead or useless (a server that stopped, or that has
/// become a read-only standby). The others may be like it without knowing: those that are
/// older than this moment are replaced before they are used again.
pub(super) fn note_lost() {
    // Never 0, which would mean never.
    let now = epoch().elapsed().as_millis() as u64 + 1;
    LOST_AT.fetch_max(now, Ordering::Relaxed);
}

/// Whether a connection may be used.
async fn is_usable(
    connection: &mut PgConnection,
    meta: PoolConnectionMetadata,
    trust_idle: Duration,
) -> bool {
    let now = epoch().elapsed().as_millis() as u64 + 1;
    let made_at = now.saturating_sub(meta.age.as_millis() as u64);
    let lost_at = LOST_AT.load(Ordering::Relaxed);
    if lost_at > 0 && made_at <= lost_at {
        return false;
    }
    if meta.idle_for < trust_idle {
        return true;
    }
    let alive = matches!(
        tokio::time::timeout(PING_TIMEOUT, connection.ping()).await,
        Ok(Ok(()))
    );
    if !alive {
        // The others will not answer either, and each would take as long.
        note_lost();
    }
    alive
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
        let pool = |size: u32, trust_idle: Duration| {
            PgPoolOptions::new()
                .max_connections(size)
                .acquire_timeout(config.acquire_timeout)
                .idle_timeout(config.idle_timeout)
                .max_lifetime(config.max_lifetime)
                .test_before_acquire(false)
                .before_acquire(move |connection, meta| {
                    Box::pin(async move { Ok(is_usable(connection, meta, trust_idle).await) })
                })
        };
        let hot = (config.max_connections / 2).clamp(1, 8);
        Ok(Self {
            inner: Arc::new(Pools {
                hot: pool(hot, TRUST_IDLE_HOT).connect_lazy_with(hot_options.clone()),
                general: pool(
                    config.max_connections.saturating_sub(hot).max(1),
                    TRUST_IDLE,
                )
                .connect_lazy_with(general_options),
                hot_options,
                limit: Duration::from_millis(statement_ms as u64) + ANSWER_MARGIN,
            }),
        })
    }

    /// The pool for everything but the protocol's hot statements.
    pub fn pool(&self) -> &PgPool {
        &self.inner.general
    }

    /// A store with one connection of its own, for the renewal thread: nothing else can
    /// keep it waiting.
    #[must_use]
    pub fn dedicated(&self, acquire_timeout: Duration) -> Self {
        let one = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move { Ok(is_usable(connection, meta, TRUST_IDLE_HOT).await) })
            })
            .connect_lazy_with(self.inner.hot_options.clone());
        Self {
            inner: Arc::new(Pools {
                hot: one.clone(),
                general: one,
                hot_options: self.inner.hot_options.clone(),
                limit: acquire_timeout,
            }),
        }
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn ping(&self) -> Result<()> {
        let mut held = self.hold().await.map_err(super::db_error)?;
        // The protocol's own call and answer. A query would count as a commit, and make
        // the statistics tell an idle process from its work no more.
        let answer = tokio::time::timeout(held.limit(), held.connection().ping()).await;
        held.settle(answer).map_err(super::db_error)
    }

    /// Holds a connection of the hot pool.
    pub(crate) async fn hold(&self) -> Result<Held, sqlx::Error> {
        Ok(Held {
            connection: Some(self.inner.hot.acquire().await?),
            limit: self.inner.limit,
        })
    }

    /// Closes both pools, waiting for what is under way.
    pub async fn close(&self) {
        self.inner.hot.close().await;
        self.inner.general.close().await;
    }
}

/// A connection that goes back to its pool only when its call has been answered.
///
/// A call that its caller gave up on may be answered later, in the middle of somebody
/// else's: a cancelled BEGIN would leave a transaction open that nobody knows of, and
/// what the next user writes would be rolled back after it was told to be done. So a
/// connection that is dropped in the middle is closed.
pub(crate) struct Held {
    connection: Option<PoolConnection<Postgres>>,
    limit: Duration,
}

impl Held {
    /// The most that one call may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// The connection.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.connection
            .as_mut()
            .expect("a connection is held until it is settled")
    }

    /// Gives the connection back: every call on it has been answered.
    pub(crate) fn done(mut self) {
        drop(self.connection.take());
    }

    /// Gives the connection back after an answer, be it an error; closes it after none.
    pub(crate) fn settle<T>(
        self,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, sqlx::Error> {
        match answer {
            Ok(result) => {
                self.done();
                result
            }
            Err(_) => Err(no_answer()),
        }
    }

    /// Runs a statement without rows within the limit; for BEGIN and COMMIT.
    pub(crate) async fn run(&mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        let limit = self.limit;
        answered(limit, sqlx::query(statement).execute(self.connection())).await?;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // Frees the place in the pool at once and closes the socket.
            drop(connection.detach());
        }
    }
}

/// A call within its limit. The connection must be dropped, not settled, if it fails so.
pub(crate) async fn answered<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    tokio::time::timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err(no_answer()))
}

/// The error of a call without an answer: its outcome is not known.
fn no_answer() -> sqlx::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "the database did not answer").into()
}

/// Runs one query on the hot pool within its limit: `on_hot!(store, fetch_all, query)`.
macro_rules! on_hot {
    ($store:expr, $method:ident, $query:expr) => {
        match $store.hold().await {
            Ok(mut held) => {
                let limit = held.limit();
                let call = $query.$method(held.connection());
                let answer = tokio::time::timeout(limit, call).await;
                held.settle(answer)
            }
            Err(error) => Err(error),
        }
    };
}
pub(crate) use on_hot;
