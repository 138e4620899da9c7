//! What tests on the real services start from: a database and a virtual host each.
//!
//! The services are named by the environment, as `make test` sets it. Panics are the way
//! to fail here: a test without its services has nothing to say.

use std::fmt::Display;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::config::{DatabaseConfig, FilesConfig, Secret, SecretUrl};
use crate::storage::Store;
use crate::storage::migrate::template;

/// How often a fact is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Looks until there is something, and returns it.
///
/// # Panics
/// Where there is nothing after `bound`; `what` says what was waited for.
pub async fn wait_until<T, F>(what: impl Display, bound: Duration, look: impl Fn() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + bound;
    loop {
        match tokio::time::timeout_at(end, look()).await {
            Ok(Some(found)) => return found,
            Ok(None) if Instant::now() < end => tokio::time::sleep(POLL).await,
            Ok(None) | Err(_) => panic!("{what}: not within {bound:?}"),
        }
    }
}

/// Returns once a session of the store's database waits for a lock.
///
/// # Panics
/// Where none does within half a minute.
pub async fn somebody_waits(store: &Store) {
    says_so(
        store,
        "a session waits for a lock",
        template::SOMEBODY_WAITS,
    )
    .await;
}

async fn says_so(store: &Store, what: &str, query: &'static str) {
    wait_until(what, Duration::from_secs(30), || async {
        let told = template::told(store, query).await;
        told.unwrap_or_else(|error| panic!("{what}: {error}"))
            .then_some(())
    })
    .await;
}

/// A database of the test's own, migrated, with all shipped job types. Dropped with the value.
#[derive(Debug)]
pub struct TestDb {
    /// Its address.
    pub url: String,
    /// A store on it.
    pub store: Store,
    name: String,
    admin_url: String,
}

impl TestDb {
    /// Makes one. The first test that asks for one makes the template as well.
    ///
    /// # Panics
    /// Where there are no services, or the database cannot be made.
    pub async fn create() -> Self {
        Self::make(template::Content::Migrated).await
    }

    /// Makes one without any table, for tests of the migration itself.
    ///
    /// # Panics
    /// Where there are no services, or the database cannot be made.
    pub async fn create_empty() -> Self {
        Self::make(template::Content::Nothing).await
    }

    async fn make(content: template::Content) -> Self {
        let server = variable("DATABASE_URL");
        let admin_url = std::env::var("TENURE_PG_ADMIN_URL").unwrap_or_else(|_| server.clone());
        let name = format!("tenure_test_{}", Uuid::new_v4().simple());
        template::create(&admin_url, &server, &name, content)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let url = template::with_database(&server, &name);
        let store = Store::new(&config(&url), "tenure-test", Duration::from_secs(30))
            .unwrap_or_else(|error| panic!("{error}"));
        Self {
            url,
            store,
            name,
            admin_url,
        }
    }

    /// Returns once a query on this database, which gives one boolean, says so.
    ///
    /// # Panics
    /// Where it fails, or has not said so within half a minute.
    pub async fn wait_for(&self, what: &str, query: &'static str) {
        says_so(&self.store, what, query).await;
    }

    /// A configuration with this database's address.
    pub fn config(&self) -> DatabaseConfig {
        config(&self.url)
    }
}

impl Drop for TestDb {
    /// Best effort: what is left goes with the services.
    fn drop(&mut self) {
        let (admin_url, name) = (self.admin_url.clone(), self.name.clone());
        // The test's runtime may be gone or busy; a drop cannot wait on it.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime.map(|runtime| runtime.block_on(template::remove(&admin_url, &name))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => eprintln!("{name}: {error}"),
                Err(error) => eprintln!("{name}: no runtime: {error}"),
            }
        });
        // A panic of the thread has been printed by its own hook.
        let _ = dropper.join();
    }
}

fn config(url: &str) -> DatabaseConfig {
    DatabaseConfig {
        url: SecretUrl::new(url),
        ..DatabaseConfig::default()
    }
}

/// A place of the test's own in the S3-compatible store; what lies there goes with the
/// services.
///
/// # Panics
/// Where there is no such store.
pub fn bucket_config() -> FilesConfig {
    let (endpoint, bucket) = (
        variable("TENURE_TEST_S3"),
        variable("TENURE_TEST_S3_BUCKET"),
    );
    FilesConfig {
        url: format!("s3://{bucket}/{}", Uuid::new_v4().simple()),
        s3_endpoint: endpoint,
        s3_access_key_id: "test".to_owned(),
        s3_secret_access_key: Secret::new("test"),
        s3_allow_http: true,
        ..FilesConfig::default()
    }
}

/// A virtual host of the test's own on the broker. Deleted with the value.
#[derive(Debug)]
pub struct TestVhost {
    /// Its address.
    pub url: String,
    name: String,
}

impl TestVhost {
    /// Makes one, where the user of `AMQP_URL` may do everything. Takes one to two
    /// seconds, the time that the broker's command needs to start.
    ///
    /// # Panics
    /// Where there are no services, or the broker refuses.
    pub async fn create() -> Self {
        let server = variable("AMQP_URL");
        let (user, base) = user_and_base(&server).unwrap_or_else(|| {
            panic!("AMQP_URL must look like amqp://user:password@host:port/vhost")
        });
        let name = format!("test-{}", Uuid::new_v4().simple());
        // One command for both, since starting it is what takes the time.
        let make = format!(
            "ok = rabbit_vhost:add(<<\"{name}\">>, <<\"tenure-test\">>), \
             rabbit_auth_backend_internal:set_permissions(<<\"{user}\">>, <<\"{name}\">>, \
             <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"tenure-test\">>)."
        );
        let command = tokio::process::Command::from(rabbitmqctl(&make)).output();
        let output = tokio::time::timeout(Duration::from_mins(1), command)
            .await
            .unwrap_or_else(|_| panic!("rabbitmqctl did not end in a minute"))
            .unwrap_or_else(|error| panic!("rabbitmqctl cannot be started: {error}"));
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.trim() == "ok",
            "rabbitmqctl could not add a virtual host: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Self {
            url: format!("{base}/{name}"),
            name,
        }
    }
}

impl Drop for TestVhost {
    /// Best effort, and not waited for: the command takes longer than many a test.
    fn drop(&mut self) {
        let delete = format!(
            "rabbit_vhost:delete(<<\"{}\">>, <<\"tenure-test\">>).",
            self.name
        );
        let started = rabbitmqctl(&delete)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Err(error) = started {
            eprintln!("{}: the virtual host stays: {error}", self.name);
        }
    }
}

fn rabbitmqctl(expression: &str) -> Command {
    let mut command = Command::new(variable("TENURE_RABBITMQCTL"));
    command
        .args(["--silent", "eval", expression])
        .stdin(Stdio::null());
    command
}

/// The user of an AMQP address, and the address without its virtual host.
fn user_and_base(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let (user, _) = authority.split_once('@')?.0.split_once(':')?;
    Some((user, &url[..scheme.len() + 3 + authority.len()]))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run `make test`, which starts the services, or source their services.env")
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lapin::{Connection, ConnectionProperties};

    use super::{TestVhost, user_and_base, wait_until};

    #[tokio::test]
    async fn a_virtual_host_can_be_used_until_it_is_dropped() {
        let vhost = TestVhost::create().await;
        let connection = Connection::connect(&vhost.url, ConnectionProperties::default())
            .await
            .expect("connects");
        connection.create_channel().await.expect("a channel");
        drop(vhost);
        // The broker ends what is connected to a virtual host that goes.
        wait_until("deleted", Duration::from_mins(1), || async {
            (!connection.status().connected()).then_some(())
        })
        .await;
    }

    #[test]
    fn an_address_is_taken_apart() {
        assert_eq!(
            user_and_base("amqp://tenure:secret@127.0.0.1:5672/tenure"),
            Some(("tenure", "amqp://tenure:secret@127.0.0.1:5672"))
        );
        assert_eq!(user_and_base("amqp://127.0.0.1:5672"), None);
    }
}
