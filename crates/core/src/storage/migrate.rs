//! The schema: bringing it up to date, the shipped job types, and the check at start
//! (PROTOCOL.md §18).

mod shipped;
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod template;

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use sqlx::migrate::{Migrate as _, MigrateError, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::time::timeout;

use super::{DbKind, Store, classify, db_error};
use crate::domain::job::Lane;
use crate::error::{Code, Error, Result};

pub use shipped::{ShippedJobType, shipped_job_types};

/// The oldest schema that this version works with. Raise it together with the first
/// statement that needs a newer one.
pub const REQUIRED_SCHEMA: i32 = 16;

/// The number that a schema's `min_binary` is compared with. Raise it when a release
/// stops using something that a later migration is going to remove.
pub const BINARY: i32 = 1;

/// The migrations of `migrations/*.sql`, embedded.
static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// Above this, something is wrong that more waiting does not heal.
const MIGRATE_DEADLINE: Duration = Duration::from_mins(10);

/// How long a new connection may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// What to do about a schema that does not fit.
const ADVICE: &str = "run `tenure-sweeper migrate` of this version";

const SCHEMA: &str = "select version, min_binary from schema_info";
const QUEUE_INSERT: &str =
    "insert into queues (name) select unnest($1::text[]) on conflict (name) do nothing";
const LANE_INSERT: &str = "insert into lanes (queue, lane) \
     select q, l from unnest($1::text[]) q cross join unnest($2::smallint[]) l on conflict (queue, lane) do nothing";
const TYPE_INSERT: &str = "insert into job_types (name, description, queue, lane, max_attempts, backoff_ms, \
     timeout_ms, dedupe_policy, dedupe_period_ms, max_payload_bytes, payload_schema, payload_schema_shipped) \
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11) on conflict (name) do nothing";
/// What an operator has set or taken away differs from what was shipped, and stays. A row
/// that never had one is a type from before there were schemas: it gets one where it is
/// still as it was shipped, since another may be served by another handler.
const TYPE_SCHEMA: &str = "update job_types set payload_schema = $11, payload_schema_shipped = $11, updated_at = now() \
     where name = $1 and payload_schema is not distinct from payload_schema_shipped \
     and payload_schema_shipped is distinct from $11 \
     and (payload_schema_shipped is not null or ($2::text is not null and queue = $3 and lane = $4 and max_attempts = $5 \
     and backoff_ms = $6 and timeout_ms = $7 and dedupe_policy = $8 and dedupe_period_ms = $9 \
     and max_payload_bytes = $10))";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("schema", SCHEMA),
    ("shipped_queue_insert", QUEUE_INSERT),
    ("shipped_lane_insert", LANE_INSERT),
    ("shipped_type_insert", TYPE_INSERT),
    ("shipped_type_schema", TYPE_SCHEMA),
];

/// What a migration did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationReport {
    /// The numbers of the migrations that this call applied, in order.
    pub applied: Vec<i64>,
    /// The schema's version now.
    pub version: i32,
}

/// What applying the shipped job types did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ShippedReport {
    /// The names that were missing.
    pub created: Vec<String>,
    /// The names that were there, and were left as they are.
    pub kept: Vec<String>,
    /// The names that were there, and got the payload schema of this version.
    pub schemas: Vec<String>,
}

impl Store {
    /// Applies the migrations that are missing. Any number of callers may do so at once:
    /// an advisory lock lets one work and the others find nothing to do. Migrations of a
    /// later version that are there already are left alone.
    ///
    /// Has a connection of its own, whose statements may take as long as they need, and
    /// gives up after ten minutes. A table that is in use is waited for in short steps,
    /// since a waiting migration keeps everybody else waiting behind it.
    ///
    /// # Errors
    /// SCHEMA_MISMATCH where the database holds another history of migrations, and
    /// DATABASE_UNAVAILABLE. Repeating is safe.
    pub async fn migrate(&self) -> Result<MigrationReport> {
        let work = async {
            let attempt = || self.migrate_once();
            attempt
                .retry(
                    ExponentialBuilder::default()
                        .with_min_delay(Duration::from_millis(100))
                        .with_max_delay(Duration::from_secs(2))
                        .with_jitter()
                        .without_max_times(),
                )
                .when(is_busy)
                .await
        };
        timeout(MIGRATE_DEADLINE, work)
            .await
            .map_err(|_| {
                Error::new(
                    Code::DatabaseUnavailable,
                    "the schema could not be migrated in ten minutes; look for long transactions in pg_stat_activity",
                )
            })?
            .map_err(migrate_error)
    }

    async fn migrate_once(&self) -> Result<MigrationReport, MigrateError> {
        let options = (*self.pool().connect_options()).clone().options([
            ("statement_timeout", "0"),
            ("lock_timeout", "3s"),
            ("idle_in_transaction_session_timeout", "60s"),
        ]);
        let mut connection = timeout(CONNECT_DEADLINE, options.connect())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)??;
        // The session's end frees the lock in every case; closing is politeness.
        let report = migrate_on(&mut connection).await?;
        connection.close().await?;
        Ok(report)
    }

    /// Creates the job types of `migrations/job_types.toml` that are missing, with their
    /// queues and lanes. What is there is left alone, since an operator may have changed
    /// it, but for a payload schema that no operator has set or taken away: that becomes
    /// this version's. The diagnostic types are for stacks whose workers handle them.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; repeating is safe.
    pub async fn apply_shipped_job_types(&self, diagnostics: bool) -> Result<ShippedReport> {
        let mut types = shipped_job_types()?;
        types.retain(|shipped| diagnostics || !shipped.diagnostic);
        // One order for everybody, so that two of these never wait for each other in a ring.
        types.sort_by(|a, b| a.job_type.name.cmp(&b.job_type.name));
        let mut queues: Vec<&str> = types
            .iter()
            .map(|shipped| shipped.job_type.queue.as_str())
            .collect();
        queues.sort_unstable();
        queues.dedup();
        let lanes = Lane::ALL.map(Lane::number);

        let mut report = ShippedReport::default();
        let mut tx = self.pool().begin().await.map_err(db_error)?;
        sqlx::query(QUEUE_INSERT)
            .bind(&queues)
            .execute(&mut *tx)
            .await
            .map_err(db_error)?;
        sqlx::query(LANE_INSERT)
            .bind(&queues)
            .bind(&lanes[..])
            .execute(&mut *tx)
            .await
            .map_err(db_error)?;
        for ShippedJobType { job_type, .. } in types {
            let backoff: Vec<i64> = job_type
                .backoff
                .iter()
                .map(|wait| wait.as_millis() as i64)
                .collect();
            let mut changed = [false; 2];
            for (statement, changed) in [TYPE_INSERT, TYPE_SCHEMA].into_iter().zip(&mut changed) {
                let done = sqlx::query(statement)
                    .bind(&job_type.name)
                    .bind(&job_type.description)
                    .bind(&job_type.queue)
                    .bind(job_type.lane.number())
                    .bind(job_type.max_attempts)
                    .bind(&backoff)
                    .bind(job_type.timeout.as_millis() as i64)
                    .bind(job_type.dedupe_policy.as_str())
                    .bind(job_type.dedupe_period.as_millis() as i64)
                    .bind(job_type.max_payload_bytes)
                    .bind(&job_type.payload_schema)
                    .execute(&mut *tx)
                    .await
                    .map_err(db_error)?;
                *changed = done.rows_affected() > 0;
            }
            match changed {
                [true, _] => report.created.push(job_type.name),
                [_, true] => report.schemas.push(job_type.name),
                _ => report.kept.push(job_type.name),
            }
        }
        tx.commit().await.map_err(db_error)?;
        Ok(report)
    }

    /// Whether this version can work with the database's schema. A newer schema is fine
    /// as long as it says so, since an old process must be able to restart during a
    /// roll-out.
    ///
    /// # Errors
    /// SCHEMA_MISMATCH with what to do about it, and DATABASE_UNAVAILABLE.
    pub async fn check_schema(&self) -> Result<()> {
        match sqlx::query_as(SCHEMA).fetch_optional(self.pool()).await {
            Ok(row) => check_versions(row),
            // There is no such table.
            Err(sqlx::Error::Database(db)) if db.code().as_deref() == Some("42P01") => {
                check_versions(None)
            }
            Err(error) => Err(db_error(error)),
        }
    }
}

async fn migrate_on(connection: &mut PgConnection) -> Result<MigrationReport, MigrateError> {
    let mut migrator = Migrator {
        migrations: MIGRATOR.migrations.clone(),
        table_name: MIGRATOR.table_name.clone(),
        create_schemas: MIGRATOR.create_schemas.clone(),
        ..Migrator::DEFAULT
    };
    // A version that is being replaced may be started once more, and migrates again.
    migrator.set_ignore_missing(true);
    // The lock counts within a session: held around the run, it makes the report exact.
    connection.lock().await?;
    connection
        .ensure_migrations_table(&migrator.table_name)
        .await?;
    let before = connection
        .list_applied_migrations(&migrator.table_name)
        .await?;
    migrator.run_direct(None, connection, false).await?;
    let applied = migrator
        .iter()
        .map(|migration| migration.version)
        .filter(|version| before.iter().all(|known| known.version != *version))
        .collect();
    let (version, _): (i32, i32) = sqlx::query_as(SCHEMA).fetch_one(&mut *connection).await?;
    connection.unlock().await?;
    Ok(MigrationReport { applied, version })
}

/// Whether another migration, or the tables' users, had the lock that was needed.
fn is_busy(error: &MigrateError) -> bool {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            classify(error) == DbKind::Retry
        }
        _ => false,
    }
}

fn migrate_error(error: MigrateError) -> Error {
    let mismatch = |message: String| Error::new(Code::SchemaMismatch, message);
    match error {
        MigrateError::Execute(error) => db_error(error),
        MigrateError::ExecuteMigration(error, version) => match classify(&error) {
            DbKind::Lost | DbKind::Retry | DbKind::Full => db_error(error),
            _ => mismatch(format!(
                "migration {version} does not fit this database; its transaction was rolled back, see the cause in the log"
            ))
            .with_source(error),
        },
        MigrateError::VersionMismatch(version) => mismatch(format!(
            "migration {version} was applied to this database with another content; \
             use the release that made the database, or another database"
        )),
        error => mismatch("the database's list of migrations cannot be used; see the cause in the log".to_owned())
            .with_source(error),
    }
}

fn check_versions(row: Option<(i32, i32)>) -> Result<()> {
    let message = match row {
        None => format!("the database has no Tenure schema: {ADVICE}"),
        Some((version, _)) if version < REQUIRED_SCHEMA => format!(
            "the database's schema is version {version}, and this binary needs {REQUIRED_SCHEMA} or later: {ADVICE}"
        ),
        Some((version, min_binary)) if min_binary > BINARY => format!(
            "the database's schema {version} serves binaries from {min_binary} on, and this one is {BINARY}: \
             start a newer release of it"
        ),
        Some(_) => return Ok(()),
    };
    Err(Error::new(Code::SchemaMismatch, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_holds_migrations_and_other_files() {
        let versions: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
        assert_eq!(versions.first(), Some(&1));
        let expected: Vec<i64> = (1..=versions.len() as i64).collect();
        assert_eq!(versions, expected, "numbered without gaps");
        assert!(
            MIGRATOR
                .iter()
                .all(|m| !m.migration_type.is_down_migration()),
            "forward only"
        );
    }

    #[test]
    fn a_schema_is_refused_only_where_it_must_be() {
        assert!(check_versions(Some((REQUIRED_SCHEMA, BINARY))).is_ok());
        assert!(check_versions(Some((REQUIRED_SCHEMA + 7, BINARY))).is_ok());
        for (row, advice) in [
            (None, "tenure-sweeper migrate"),
            (Some((REQUIRED_SCHEMA - 1, 1)), "tenure-sweeper migrate"),
            (Some((REQUIRED_SCHEMA + 1, BINARY + 1)), "newer release"),
        ] {
            let error = check_versions(row).expect_err("refused");
            assert_eq!(error.code(), Code::SchemaMismatch);
            assert!(error.message().contains(advice), "{error}");
        }
    }
}
