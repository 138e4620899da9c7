//! A database of the test's own with a submit writer, and short ways to say what is to
//! happen in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::AssertSqlSafe;
use tenure_core::domain::ids::{JobId, SessionId, UserId};
use tenure_core::domain::job::{KeyBinding, Lane, NewJob};
use tenure_core::domain::state::JobState;
use tenure_core::error::{Class, Result};
use tenure_core::storage::Store;
use tenure_core::storage::batch_writer::{SubmitWriter, Submitted, WriterSettings};
use tenure_core::storage::claim::Claimed;
use tenure_core::storage::finish::{Finish, Goal, RunError};
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::test_util::TestDb;
use uuid::Uuid;

/// A lease that does not end by itself during a test.
pub(crate) const LEASE: Duration = Duration::from_mins(10);

/// A job fails when it has lost this many leases.
pub(crate) const POISON_LIMIT: i16 = 3;

/// The test's database and what works on it.
pub(crate) struct World {
    /// Dropped with the world.
    _db: TestDb,
    pub(crate) store: Store,
    pub(crate) writer: SubmitWriter,
    /// What the writer gave to be published, in the order of the commits.
    pub(crate) published: Arc<Mutex<Vec<JobId>>>,
}

/// A job's row, as far as the protocol is concerned.
#[derive(Clone, PartialEq, Debug, sqlx::FromRow)]
pub(crate) struct Row {
    pub(crate) job_id: Uuid,
    status: String,
    pub(crate) run: i32,
    pub(crate) life: i32,
    pub(crate) attempt: i32,
    pub(crate) max_attempts: i32,
    pub(crate) lost: i16,
    pub(crate) sends: i16,
    pub(crate) rev: i64,
    pub(crate) parked: bool,
    pub(crate) held: bool,
    pub(crate) cancel_requested: bool,
    /// Seconds until `wake_at`; none where the job is final.
    pub(crate) wake_in: Option<f64>,
    /// Seconds until the lease ends.
    pub(crate) lease_in: Option<f64>,
    pub(crate) locked_by: Option<Uuid>,
    pub(crate) last_error_code: Option<String>,
}

impl Row {
    pub(crate) fn state(&self) -> JobState {
        self.status.parse().expect("a state")
    }

    pub(crate) fn id(&self) -> JobId {
        JobId(self.job_id)
    }

    /// The row apart from what passes by itself.
    pub(crate) fn still(self) -> Self {
        Self {
            wake_in: self.wake_in.map(|_| 0.0),
            lease_in: self.lease_in.map(|_| 0.0),
            ..self
        }
    }
}

/// A ledger row: run, status, error code.
pub(crate) type Ledger = (i32, String, Option<String>);

impl World {
    pub(crate) async fn new() -> Self {
        let db = TestDb::create().await;
        let store = db.store.clone();
        let published = Arc::new(Mutex::new(Vec::new()));
        let sink = published.clone();
        let writer = SubmitWriter::start(
            store.clone(),
            WriterSettings {
                writers: 2,
                batch_max: 1000,
                queue_max: 100_000,
                deadline: Duration::from_secs(30),
            },
            Arc::new(move |jobs| sink.lock().extend(jobs.iter().map(|c| c.job.job_id))),
            Arc::new(Metrics::default()),
        );
        Self {
            _db: db,
            store,
            writer,
            published,
        }
    }

    /// Submits jobs in one call, all of them accepted.
    pub(crate) async fn submit(&self, jobs: Vec<NewJob>, parked: bool) -> Vec<JobId> {
        let jobs = jobs.into_iter().map(|job| (job, parked)).collect();
        let outcomes = self.writer.submit(jobs).await;
        outcomes
            .into_iter()
            .map(|outcome| outcome.expect("accepted").job_id)
            .collect()
    }

    /// Submits one job.
    pub(crate) async fn submit_one(&self, job: NewJob) -> Result<Submitted> {
        let mut outcomes = self.writer.submit(vec![(job, false)]).await;
        outcomes.pop().expect("one outcome")
    }

    /// A fresh job that is "sent".
    pub(crate) async fn sent(&self) -> JobId {
        self.submit(vec![job("ada")], false).await[0]
    }

    /// A fresh job that a session runs.
    pub(crate) async fn running(&self, session: SessionId) -> JobId {
        let id = self.sent().await;
        assert_eq!(self.claim(&[(id, 1)], session).await.len(), 1);
        id
    }

    pub(crate) async fn claim(&self, runs: &[(JobId, i32)], session: SessionId) -> Vec<Claimed> {
        self.store
            .claim(runs, session, LEASE)
            .await
            .expect("a claim")
    }

    /// Finishes one run; whether the row matched.
    pub(crate) async fn finish(&self, id: JobId, run: i32, goal: Goal, session: SessionId) -> bool {
        let items = [finish(id, run, goal)];
        let done = self.store.finish(&items, session).await.expect("a finish");
        done.revisions.contains_key(&id)
    }

    /// Makes the sweeper see these rows as due: a lease that is over, or a wake-up time.
    pub(crate) async fn let_time_pass(&self, ids: &[JobId]) {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        sqlx::query(
            "update jobs set wake_at = now() - interval '1 s', \
             run_at = least(run_at, now() - interval '1 s'), \
             lease_until = case when lease_until is not null then now() - interval '1 s' end \
             where job_id = any($1) and wake_at is not null",
        )
        .bind(ids)
        .execute(self.store.pool())
        .await
        .expect("moves");
    }

    /// Makes the database's last start fall into these leases.
    pub(crate) async fn let_it_have_restarted(&self, ids: &[JobId]) {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.uuid()).collect();
        sqlx::query(
            "update jobs set locked_at = pg_postmaster_start_time() - interval '1 s' \
             where job_id = any($1) and status = 'running'",
        )
        .bind(ids)
        .execute(self.store.pool())
        .await
        .expect("moves");
    }

    /// Wakes rows, leases included; answers (job, was, target).
    pub(crate) async fn wake(&self, ids: &[JobId]) -> Vec<(JobId, String, String)> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let woken = self.store.wake(&ids, true, POISON_LIMIT).await;
        woken
            .expect("a wake")
            .iter()
            .map(|w| (w.job_id(), w.was().to_owned(), w.target().to_owned()))
            .collect()
    }

    pub(crate) async fn row(&self, id: JobId) -> Row {
        let mut rows = rows(&self.store, &format!("where job_id = '{id}'")).await;
        rows.pop().expect("the job is there")
    }

    pub(crate) async fn state(&self, id: JobId) -> JobState {
        self.row(id).await.state()
    }

    /// All jobs by id.
    pub(crate) async fn all(&self) -> BTreeMap<JobId, Row> {
        let rows = rows(&self.store, "").await;
        rows.into_iter().map(|row| (row.id(), row)).collect()
    }

    pub(crate) async fn ledger(&self, id: JobId) -> Option<Ledger> {
        sqlx::query_as("select run, status, error_code from processed_events where event_id = $1")
            .bind(id.uuid())
            .fetch_optional(self.store.pool())
            .await
            .expect("reads")
    }

    /// The letter of a job: status, error code, failures.
    pub(crate) async fn letter(&self, id: JobId) -> Option<(String, String, i32)> {
        sqlx::query_as("select status, error_code, failures from dead_letters where job_id = $1")
            .bind(id.uuid())
            .fetch_optional(self.store.pool())
            .await
            .expect("reads")
    }

    /// Runs any SQL, as an operator or a disaster would.
    pub(crate) async fn sql(&self, sql: impl Into<String>) {
        let sql: String = sql.into();
        sqlx::raw_sql(AssertSqlSafe(sql.clone()))
            .execute(self.store.pool())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// One number.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(self.store.pool())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

/// The rows of jobs that a condition chooses.
async fn rows(store: &Store, condition: &str) -> Vec<Row> {
    let sql = format!(
        "select job_id, status, run, life, attempt, max_attempts, lost, sends, rev, parked, held, \
         cancel_requested_at is not null as cancel_requested, \
         extract(epoch from wake_at - now())::float8 as wake_in, \
         extract(epoch from lease_until - now())::float8 as lease_in, locked_by, last_error_code \
         from jobs {condition} order by job_id"
    );
    sqlx::query_as(AssertSqlSafe(sql))
        .fetch_all(store.pool())
        .await
        .expect("reads")
}

/// A diagnostic job of a user.
pub(crate) fn job(user: &str) -> NewJob {
    NewJob {
        job_id: JobId::new(),
        user_id: UserId::from_stored(user.to_owned()),
        job_type: "noop".to_owned(),
        queue: "default".to_owned(),
        lane: Lane::Normal,
        payload: b"{}".to_vec(),
        run_at: None,
        expires_at: None,
        max_attempts: 5,
        timeout: Duration::from_mins(1),
        labels: BTreeMap::new(),
        submitted_by: None,
        trace_parent: None,
        dedupe: None,
        request_id: None,
        line: None,
        fingerprint: [0; 32],
    }
}

/// The same with a dedupe key that is bound for a day; `content` makes its fingerprint.
pub(crate) fn keyed(user: &str, key: &str, content: u8) -> NewJob {
    NewJob {
        dedupe: Some(KeyBinding {
            key: key.to_owned(),
            period: Some(Duration::from_hours(24)),
            after_end: Duration::ZERO,
        }),
        fingerprint: [content; 32],
        ..job(user)
    }
}

pub(crate) fn finish(job_id: JobId, run: i32, goal: Goal) -> Finish {
    Finish {
        job_id,
        run,
        goal,
        progress: None,
    }
}

pub(crate) fn success() -> Goal {
    Goal::Success {
        result: None,
        follow_ups: Vec::new(),
    }
}

pub(crate) fn run_error(class: Class) -> RunError {
    RunError {
        code: "DOWNSTREAM".to_owned(),
        class,
        message: "it did not answer".to_owned(),
    }
}

pub(crate) fn failed() -> Goal {
    Goal::Failed(run_error(Class::Permanent))
}

pub(crate) fn outage(delay: Duration) -> Goal {
    let error = RunError {
        code: "STORE_UNAVAILABLE".to_owned(),
        ..run_error(Class::Temporary)
    };
    Goal::Outage(error, delay)
}

pub(crate) fn retrying(delay: Duration) -> Goal {
    Goal::Retrying(run_error(Class::Temporary), delay)
}

/// What a classified database error was.
pub(crate) fn kind(error: &sqlx::Error) -> tenure_core::storage::DbKind {
    tenure_core::storage::classify(error)
}
