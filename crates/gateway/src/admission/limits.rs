//! The limits of single users, as this gateway knows them: a copy of those that have any,
//! renewed every second by what has changed. No submit asks the database.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::RwLock;
use tenure_core::Result;
use tenure_core::cache::rates::Rate;
use tenure_core::config::AdmissionConfig;
use tenure_core::storage::Store;
use tenure_core::storage::admission::JobLimit;
use tenure_core::storage::user_limits::UserLimits;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often changes are looked for. With what a look takes, all gateways have seen a change
/// within two seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a look may take.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// The limits. Shared by all that decide.
pub(crate) struct Limits {
    store: Store,
    defaults: UserLimits,
    job_limit: Arc<JobLimit>,
    users: RwLock<HashMap<String, UserLimits>>,
    looked: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    /// When the last look that was answered began.
    at: Option<Instant>,
    /// What it saw, to tell a change from one that was seen before.
    seen: HashMap<String, DateTime<Utc>>,
}

impl Limits {
    /// Looks at once, and then every second until `stop`.
    pub(crate) fn start(
        store: Store,
        config: &AdmissionConfig,
        job_limit: Arc<JobLimit>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let limits = Arc::new(Self {
            store,
            defaults: UserLimits {
                max_jobs: Some(job_limit.default_limit()),
                submits_per_second: (config.submits_per_second > 0.0)
                    .then_some(config.submits_per_second),
                submit_burst: (config.submit_burst > 0).then_some(config.submit_burst),
                weight: Some(1),
            },
            job_limit,
            users: RwLock::default(),
            looked: Mutex::default(),
        });
        let background = limits.clone();
        tokio::spawn(async move {
            background.apply_default(&stop).await;
            let mut healthy = true;
            loop {
                let looked = background.look().await;
                if let Err(error) = &looked
                    && healthy
                {
                    tracing::warn!(
                        error = error as &dyn std::error::Error,
                        "the limits of users could not be read; the last ones known stay"
                    );
                }
                healthy = looked.is_ok();
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        });
        limits
    }

    /// Until the database has it: a lower default must hold for what was promised before.
    async fn apply_default(&self, stop: &CancellationToken) {
        while let Err(error) = self.store.apply_default_job_limit(&self.job_limit).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the default limit of jobs is applied later"
            );
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Looks for changes now.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; what was known stays.
    pub(crate) async fn look(&self) -> Result<()> {
        let mut looked = self.looked.lock().await;
        let began = Instant::now();
        let since = looked
            .at
            .map_or(Duration::MAX, |at| began.duration_since(at));
        let changed = tokio::time::timeout(LOOK_FOR, self.store.changed_user_limits(since))
            .await
            .map_err(|_| {
                tenure_core::Error::new(
                    tenure_core::Code::DatabaseUnavailable,
                    "the database does not answer; try again",
                )
            })??;
        let mut seen = HashMap::with_capacity(changed.len());
        {
            let mut users = self.users.write();
            for entry in changed {
                if looked.seen.get(&entry.user_id) != Some(&entry.updated_at) {
                    self.job_limit.forget(&entry.user_id);
                }
                let rated = entry.limits.submits_per_second.is_some()
                    || entry.limits.submit_burst.is_some();
                if rated {
                    users.insert(entry.user_id.clone(), entry.limits);
                } else {
                    users.remove(&entry.user_id);
                }
                seen.insert(entry.user_id, entry.updated_at);
            }
        }
        *looked = Looked {
            at: Some(began),
            seen,
        };
        Ok(())
    }

    /// Whether any rate is limited.
    pub(crate) fn any_rate(&self) -> bool {
        self.defaults.submits_per_second.is_some() || !self.users.read().is_empty()
    }

    /// The rate of a user; `None`: any. A rate of 0 refuses everything.
    pub(crate) fn rate(&self, user: &str) -> Option<Rate> {
        let own = self.users.read().get(user).copied();
        rate(&self.effective(&own.unwrap_or_default()))
    }

    /// What holds where this was set.
    pub(crate) fn effective(&self, own: &UserLimits) -> UserLimits {
        let per_second = own.submits_per_second.or(self.defaults.submits_per_second);
        UserLimits {
            max_jobs: own.max_jobs.or(self.defaults.max_jobs),
            submits_per_second: per_second,
            submit_burst: own
                .submit_burst
                .or(self.defaults.submit_burst)
                .or_else(|| per_second.map(|rate| rate.ceil().max(1.0) as i64)),
            weight: own.weight.or(self.defaults.weight),
        }
    }
}

/// The rate that effective limits mean.
fn rate(limits: &UserLimits) -> Option<Rate> {
    let per_second = limits.submits_per_second?;
    let burst = limits.submit_burst.unwrap_or(1);
    // A bucket that holds nothing gives nothing.
    let per_second = if burst == 0 { 0.0 } else { per_second };
    Some(Rate {
        per_second,
        burst: burst.max(1) as f64,
    })
}
