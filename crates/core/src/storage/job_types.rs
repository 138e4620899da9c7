//! The catalogue of job types, and a copy of it in memory for the services.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Store, db_error};
use crate::domain::job::Lane;
use crate::domain::job_type::{DedupePolicy, JobType};
use crate::domain::payload_schema::PayloadSchema;
use crate::error::{Code, Error, Result};

macro_rules! type_columns {
    () => {
        "name, description, queue, lane, max_attempts, backoff_ms, timeout_ms, dedupe_policy, dedupe_period_ms, \
         max_payload_bytes, payload_schema, ordering_policy, max_concurrency"
    };
}

const LIST: &str = concat!(
    "select ",
    type_columns!(),
    ", updated_at from job_types order by name"
);
const LOCK: &str = concat!(
    "select ",
    type_columns!(),
    ", updated_at from job_types where name = any($1) order by name for update"
);
const QUEUES_MISSING: &str = "select q from unnest($1::text[]) q \
     where not exists (select 1 from queues where name = q) order by 1";
const QUEUES: &str =
    "insert into queues (name) select * from unnest($1::text[]) order by 1 on conflict do nothing";
const LANES: &str = "insert into lanes (queue, lane) select q, l from unnest($1::text[]) q, generate_series(1, 3) l \
     order by q, l on conflict do nothing";
const UPSERT: &str = concat!(
    "insert into job_types (",
    type_columns!(),
    ") values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) \
     on conflict (name) do update set description = excluded.description, queue = excluded.queue, \
     lane = excluded.lane, max_attempts = excluded.max_attempts, backoff_ms = excluded.backoff_ms, \
     timeout_ms = excluded.timeout_ms, dedupe_policy = excluded.dedupe_policy, \
     dedupe_period_ms = excluded.dedupe_period_ms, max_payload_bytes = excluded.max_payload_bytes, \
     payload_schema = excluded.payload_schema, ordering_policy = excluded.ordering_policy, \
     max_concurrency = excluded.max_concurrency, updated_at = now()"
);

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("job_types_list", LIST),
    ("job_types_lock", LOCK),
    ("job_types_queues_missing", QUEUES_MISSING),
    ("job_types_queues", QUEUES),
    ("job_types_lanes", LANES),
    ("job_types_upsert", UPSERT),
];

/// How often the copy in memory is renewed.
const REFRESH_EVERY: Duration = Duration::from_secs(2);

/// A name that is not known asks the database again, but not more often than this.
const REFRESH_AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// The longest that a look at the database may take before the copy is used as it is.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// A job type as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredJobType {
    /// The job type.
    pub job_type: JobType,
    /// When it was last changed.
    pub updated_at: DateTime<Utc>,
}

/// What an apply changed, or would change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AppliedJobTypes {
    /// Names that were new.
    pub created: Vec<String>,
    /// Names that were replaced by something different.
    pub updated: Vec<String>,
    /// Names that were the same already.
    pub unchanged: Vec<String>,
    /// Queues that were not there before.
    pub created_queues: Vec<String>,
}

#[derive(sqlx::FromRow)]
struct TypeRow {
    name: String,
    description: String,
    queue: String,
    lane: i16,
    max_attempts: i32,
    backoff_ms: Vec<i64>,
    timeout_ms: i64,
    dedupe_policy: String,
    dedupe_period_ms: i64,
    max_payload_bytes: i32,
    payload_schema: Option<String>,
    ordering_policy: String,
    max_concurrency: i32,
    updated_at: DateTime<Utc>,
}

impl TryFrom<TypeRow> for StoredJobType {
    type Error = Error;

    fn try_from(row: TypeRow) -> Result<Self> {
        let defect = |what: &str| {
            Error::new(
                Code::Internal,
                format!("the job type {:?} has an unknown {what}", row.name),
            )
        };
        let lane = Lane::from_number(row.lane).ok_or_else(|| defect("lane"))?;
        let dedupe_policy =
            DedupePolicy::parse(&row.dedupe_policy).ok_or_else(|| defect("dedupe policy"))?;
        Ok(Self {
            job_type: JobType {
                name: row.name,
                description: row.description,
                queue: row.queue,
                lane,
                max_attempts: row.max_attempts,
                backoff: row.backoff_ms.into_iter().map(millis).collect(),
                timeout: millis(row.timeout_ms),
                dedupe_policy,
                dedupe_period: millis(row.dedupe_period_ms),
                max_payload_bytes: row.max_payload_bytes,
                payload_schema: row.payload_schema,
                ordering_blocks: row.ordering_policy == "block",
                max_concurrency: row.max_concurrency,
            },
            updated_at: row.updated_at,
        })
    }
}

fn millis(value: i64) -> Duration {
    Duration::from_millis(u64::try_from(value).unwrap_or_default())
}

impl Store {
    /// All job types, by name.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_job_types(&self) -> Result<Vec<StoredJobType>> {
        let rows: Vec<TypeRow> = sqlx::query_as(LIST)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        rows.into_iter().map(StoredJobType::try_from).collect()
    }

    /// Creates or replaces job types, all or none, with the queues and lanes that they
    /// name. The types are checked and have different names. `dry_run`: only tells.
    ///
    /// Runs in a task of its own: a caller that goes away cannot leave it half done.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; it is safe to apply the same again.
    pub async fn apply_job_types(
        &self,
        types: Vec<JobType>,
        dry_run: bool,
    ) -> Result<AppliedJobTypes> {
        let store = self.clone();
        tokio::spawn(async move { store.apply_in_transaction(types, dry_run).await })
            .await
            .map_err(|e| {
                Error::new(Code::Internal, "applying the job types broke off").with_source(e)
            })?
    }

    async fn apply_in_transaction(
        &self,
        types: Vec<JobType>,
        dry_run: bool,
    ) -> Result<AppliedJobTypes> {
        // Sorted, so that two applies lock in one order.
        let types: BTreeMap<String, JobType> =
            types.into_iter().map(|t| (t.name.clone(), t)).collect();
        let mut tx = self.pool().begin().await.map_err(db_error)?;
        let names: Vec<&str> = types.keys().map(String::as_str).collect();
        let rows: Vec<TypeRow> = sqlx::query_as(LOCK)
            .bind(names)
            .fetch_all(&mut *tx)
            .await
            .map_err(db_error)?;
        let stored = rows
            .into_iter()
            .map(StoredJobType::try_from)
            .collect::<Result<Vec<_>>>()?;
        let stored: HashMap<&str, &JobType> = stored
            .iter()
            .map(|s| (s.job_type.name.as_str(), &s.job_type))
            .collect();
        let mut applied = AppliedJobTypes::default();
        let mut changes = Vec::new();
        for (name, wanted) in &types {
            let list = match stored.get(name.as_str()) {
                Some(present) if *present == wanted => &mut applied.unchanged,
                Some(_) => &mut applied.updated,
                None => &mut applied.created,
            };
            list.push(name.clone());
            if stored.get(name.as_str()) != Some(&wanted) {
                changes.push(wanted);
            }
        }
        if changes.is_empty() {
            return Ok(applied);
        }
        let mut queues: Vec<&str> = changes.iter().map(|t| t.queue.as_str()).collect();
        queues.sort_unstable();
        queues.dedup();
        applied.created_queues = sqlx::query_scalar(QUEUES_MISSING)
            .bind(&queues)
            .fetch_all(&mut *tx)
            .await
            .map_err(db_error)?;
        if dry_run {
            return Ok(applied);
        }
        for statement in [QUEUES, LANES] {
            sqlx::query(statement)
                .bind(&queues)
                .execute(&mut *tx)
                .await
                .map_err(db_error)?;
        }
        for wanted in changes {
            let backoff: Vec<i64> = wanted
                .backoff
                .iter()
                .map(|wait| wait.as_millis() as i64)
                .collect();
            sqlx::query(UPSERT)
                .bind(&wanted.name)
                .bind(&wanted.description)
                .bind(&wanted.queue)
                .bind(wanted.lane.number())
                .bind(wanted.max_attempts)
                .bind(backoff)
                .bind(wanted.timeout.as_millis() as i64)
                .bind(wanted.dedupe_policy.as_str())
                .bind(wanted.dedupe_period.as_millis() as i64)
                .bind(wanted.max_payload_bytes)
                .bind(&wanted.payload_schema)
                .bind(if wanted.ordering_blocks {
                    "block"
                } else {
                    "continue"
                })
                .bind(wanted.max_concurrency)
                .execute(&mut *tx)
                .await
                .map_err(db_error)?;
        }
        tx.commit().await.map_err(db_error)?;
        Ok(applied)
    }
}

/// A job type of the copy in memory, with its schema once that was compiled.
#[derive(Debug)]
pub struct KnownType {
    job_type: JobType,
    schema: OnceLock<Result<Arc<PayloadSchema>, String>>,
}

impl KnownType {
    /// A job type whose schema is not compiled yet.
    pub fn new(job_type: JobType) -> Self {
        Self {
            job_type,
            schema: OnceLock::new(),
        }
    }

    /// The schema of payloads; `None`: any object will do. Compiled at the first call after
    /// a change, on a thread for such work.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where what is stored is no schema: it was not applied by this version.
    pub async fn schema(self: &Arc<Self>) -> Result<Option<Arc<PayloadSchema>>> {
        if self.job_type.payload_schema.is_none() {
            return Ok(None);
        }
        if self.schema.get().is_none() {
            let known = self.clone();
            let compiling = tokio::task::spawn_blocking(move || {
                known.compiled();
            });
            compiling.await.map_err(|e| {
                Error::new(Code::Internal, "compiling a payload schema broke off").with_source(e)
            })?;
        }
        match self.compiled() {
            Ok(schema) => Ok(Some(schema.clone())),
            Err(why) => Err(Error::new(
                Code::ConfigInvalid,
                format!(
                    "the payload schema of the job type {} cannot be used ({why}); an operator must apply another one",
                    self.job_type.name
                ),
            )),
        }
    }

    fn compiled(&self) -> &Result<Arc<PayloadSchema>, String> {
        self.schema.get_or_init(|| {
            let text = self.job_type.payload_schema.as_deref().unwrap_or("{}");
            PayloadSchema::compile(text).map(Arc::new)
        })
    }
}

impl Deref for KnownType {
    type Target = JobType;

    fn deref(&self) -> &JobType {
        &self.job_type
    }
}

type KnownTypes = HashMap<String, Arc<KnownType>>;

/// A copy of the catalogue in memory: renewed every 2 s, and when a name is asked for
/// that it does not have. Cheap to clone.
#[derive(Clone)]
pub struct Catalogue {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    types: RwLock<Arc<KnownTypes>>,
    /// When the copy was last taken; `None`: never. Held while it is being taken, so
    /// that many unknown names at once cost one look.
    taken: Mutex<Option<Instant>>,
}

impl Catalogue {
    /// Starts with an empty copy and renews it until `stop`.
    pub fn start(store: Store, stop: CancellationToken) -> Self {
        let catalogue = Self {
            shared: Arc::new(Shared {
                store,
                types: RwLock::default(),
                taken: Mutex::new(None),
            }),
        };
        let background = catalogue.clone();
        tokio::spawn(async move {
            let mut healthy = true;
            loop {
                let result = background.refresh(REFRESH_AT_MOST_EVERY).await;
                // Once per outage: the next failure tells nothing new.
                if let Err(error) = &result
                    && healthy
                {
                    tracing::warn!(
                        error = error as &dyn std::error::Error,
                        "the job types could not be read; the last ones known stay"
                    );
                }
                healthy = result.is_ok();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(REFRESH_EVERY) => {}
                }
            }
        });
        catalogue
    }

    /// The job type of this name; `None`: there is none, the database was asked.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE where the name is not in the copy and the database does not
    /// answer.
    pub async fn get(&self, name: &str) -> Result<Option<Arc<KnownType>>> {
        if let Some(found) = self.cached(name) {
            return Ok(Some(found));
        }
        self.refresh(REFRESH_AT_MOST_EVERY).await?;
        Ok(self.cached(name))
    }

    /// The job type of this name as far as the copy in memory knows.
    pub fn cached(&self, name: &str) -> Option<Arc<KnownType>> {
        self.shared.types.read().get(name).cloned()
    }

    /// All job types of the copy in memory.
    pub fn all(&self) -> Arc<KnownTypes> {
        self.shared.types.read().clone()
    }

    /// Takes the copy again, unless it is younger than `max_age`.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; the copy stays as it is.
    pub async fn refresh(&self, max_age: Duration) -> Result<()> {
        let mut taken = self.shared.taken.lock().await;
        if taken.is_some_and(|at| at.elapsed() < max_age) {
            return Ok(());
        }
        let types = tokio::time::timeout(REFRESH_TIMEOUT, self.shared.store.list_job_types())
            .await
            .map_err(|_| {
                Error::new(
                    Code::DatabaseUnavailable,
                    "the database does not answer; try again",
                )
            })??;
        let before = self.all();
        let types = types
            .into_iter()
            .map(|StoredJobType { job_type, .. }| {
                // What is as it was keeps its compiled schema.
                let known = before
                    .get(&job_type.name)
                    .filter(|known| known.job_type == job_type)
                    .cloned();
                let name = job_type.name.clone();
                (
                    name,
                    known.unwrap_or_else(|| Arc::new(KnownType::new(job_type))),
                )
            })
            .collect();
        *self.shared.types.write() = Arc::new(types);
        *taken = Some(Instant::now());
        Ok(())
    }
}
