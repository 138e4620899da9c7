//! Databases for tests: copies of one migrated template, so that a test's own database
//! costs a copy of files and not a migration.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use sha2::{Digest, Sha256};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::time::timeout;

use super::{MIGRATOR, shipped};
use crate::config::{DatabaseConfig, SecretUrl};
use crate::storage::Store;

/// How long all of it may take: the first of many tests makes the template, and the
/// others wait for it.
const DEADLINE: Duration = Duration::from_mins(2);

const EXISTS: &str = "select exists (select 1 from pg_database where datname = $1)";
const LOCK: &str = "select pg_advisory_lock(hashtextextended($1, 0))";

/// What a test's database begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// No table.
    Nothing,
    /// All migrations and all shipped job types.
    Migrated,
}

/// Creates the database `name`, owned by the user of `url`, which names any database of
/// the server. `admin_url` is of a user who may create databases.
pub(crate) async fn create(
    admin_url: &str,
    url: &str,
    name: &str,
    content: Content,
) -> Result<(), String> {
    let work = async {
        let mut admin = connect(admin_url).await?;
        let owner = parse(url)?.get_username().to_owned();
        let template = match content {
            Content::Nothing => "template0".to_owned(),
            Content::Migrated => template_name(),
        };
        if !exists(&mut admin, &template).await? {
            make_template(&mut admin, url, &owner, &template).await?;
        }
        let copy = format!(
            "create database {name} template {template} owner {}",
            quoted(&owner)
        );
        run_until_free(&mut admin, &copy).await?;
        admin.close().await.map_err(said("close the connection"))
    };
    timeout(DEADLINE, work)
        .await
        .map_err(|_| "the test database was not made in two minutes".to_owned())?
}

/// Drops a database and whoever is connected to it.
pub(crate) async fn remove(admin_url: &str, name: &str) -> Result<(), String> {
    let work = async {
        let mut admin = connect(admin_url).await?;
        run(
            &mut admin,
            &format!("drop database if exists {name} with (force)"),
        )
        .await
        .map_err(said("drop the test database"))
    };
    timeout(DEADLINE, work)
        .await
        .map_err(|_| "the test database was not dropped in two minutes".to_owned())?
}

/// The address `url` with another database's name.
pub(crate) fn with_database(url: &str, name: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, ""), |(a, q)| (a, q));
    let after_scheme = address.find("://").map_or(0, |at| at + 3);
    let end = address[after_scheme..]
        .rfind('/')
        .map_or(address.len(), |at| after_scheme + at);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}/{name}{mark}{query}", &address[..end])
}

/// One name per content of the migrations and the catalogue.
fn template_name() -> String {
    let mut hash = Sha256::new();
    for migration in MIGRATOR.iter() {
        hash.update(&migration.checksum);
    }
    hash.update(shipped::CATALOGUE);
    format!("tenure_template_{}", hex::encode(&hash.finalize()[..8]))
}

/// Tests run in a process each, so the lock that lets one of them work is the server's.
/// A template that is there under its name is whole: it gets the name last.
async fn make_template(
    admin: &mut PgConnection,
    url: &str,
    owner: &str,
    template: &str,
) -> Result<(), String> {
    sqlx::query(LOCK)
        .bind(template)
        .execute(&mut *admin)
        .await
        .map_err(said("lock the template"))?;
    if !exists(admin, template).await? {
        let unfinished = format!("{template}_new");
        // From a run that was ended in the middle.
        run(
            admin,
            &format!("drop database if exists {unfinished} with (force)"),
        )
        .await
        .map_err(said("drop the unfinished template"))?;
        run(
            admin,
            &format!("create database {unfinished} owner {}", quoted(owner)),
        )
        .await
        .map_err(said("create the template"))?;
        fill(&with_database(url, &unfinished)).await?;
        // Without connections, nothing keeps the copies waiting.
        run_until_free(
            admin,
            &format!("alter database {unfinished} with allow_connections false"),
        )
        .await?;
        run_until_free(
            admin,
            &format!("alter database {unfinished} rename to {template}"),
        )
        .await?;
    }
    // The lock ends with the session, which `create` closes.
    Ok(())
}

async fn fill(url: &str) -> Result<(), String> {
    let config = DatabaseConfig {
        url: SecretUrl::new(url),
        ..DatabaseConfig::default()
    };
    let store = Store::new(&config, "tenure-test-template", Duration::from_secs(30))
        .map_err(said("open the template"))?;
    store
        .migrate()
        .await
        .map_err(said("migrate the template"))?;
    store
        .apply_shipped_job_types(true)
        .await
        .map_err(said("apply the shipped job types"))?;
    store.close().await;
    Ok(())
}

fn parse(url: &str) -> Result<PgConnectOptions, String> {
    url.parse::<PgConnectOptions>()
        .map_err(said("read the database's address"))
}

async fn connect(url: &str) -> Result<PgConnection, String> {
    parse(url)?
        .application_name("tenure-test-admin")
        .connect()
        .await
        .map_err(said("connect to the database; is it running?"))
}

async fn exists(admin: &mut PgConnection, name: &str) -> Result<bool, String> {
    sqlx::query_scalar(EXISTS)
        .bind(name)
        .fetch_one(admin)
        .await
        .map_err(said("look for the template"))
}

async fn run(admin: &mut PgConnection, statement: &str) -> Result<(), sqlx::Error> {
    admin
        .execute(AssertSqlSafe(statement.to_owned()))
        .await
        .map(|_| ())
}

/// Repeats a statement while a database that it needs for itself is in use.
async fn run_until_free(admin: &mut PgConnection, statement: &str) -> Result<(), String> {
    let admin = tokio::sync::Mutex::new(admin);
    (|| async { run(&mut **admin.lock().await, statement).await })
        .retry(
            ExponentialBuilder::default()
                .with_min_delay(Duration::from_millis(20))
                .with_max_delay(Duration::from_secs(1))
                .with_jitter()
                .with_max_times(100),
        )
        .when(|error| {
            let code = error
                .as_database_error()
                .and_then(sqlx::error::DatabaseError::code);
            code.as_deref() == Some("55006")
        })
        .await
        .map_err(said(statement))
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

fn said<E: std::error::Error + 'static>(what: &str) -> impl FnOnce(E) -> String {
    let what = what.to_owned();
    move |error| format!("cannot {what}: {}", crate::error::chain(&error))
}

/// Whether a session of this database waits for a lock.
pub(crate) const SOMEBODY_WAITS: &str = "select exists (select 1 from pg_stat_activity \
     where datname = current_database() and wait_event_type = 'Lock')";

/// What a query that gives one boolean says.
pub(crate) async fn told(store: &Store, query: &'static str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(query).fetch_one(store.pool()).await
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn only_the_database_of_an_address_changes() {
        for (url, expected) in [
            ("postgres://u:p@h:1/a", "postgres://u:p@h:1/b"),
            ("postgres://u:p@h:1", "postgres://u:p@h:1/b"),
            (
                "postgres://u@h/a?sslmode=disable",
                "postgres://u@h/b?sslmode=disable",
            ),
        ] {
            assert_eq!(with_database(url, "b"), expected);
        }
    }
}
