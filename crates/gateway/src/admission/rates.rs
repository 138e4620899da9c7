//! How many submits a user makes in a second, over all gateways: tokens that each gateway
//! takes from Redis in small portions. What a portion holds costs no call. Where Redis is
//! away or slow, each gateway gives out its share by itself: the rate divided by the
//! gateways that were last known of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::cache::rates::{Lease, Rate, SharedRates};
use tenure_core::telemetry::metrics::Metrics;
use tenure_core::{Code, Error};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::limits::Limits;
use super::local::LocalBucket;

/// How long a submit waits for Redis.
const PATIENCE: Duration = Duration::from_millis(20);
/// A portion is what comes in during this time, if that is more than what is asked for.
const PORTION: f64 = 0.05;
/// What is left of a portion after this time is given up, since it was meant for now.
const PORTION_KEPT: Duration = Duration::from_secs(1);
/// A refused user is not asked for again before this time has passed, at the longest.
const REFUSED_FOR: Duration = Duration::from_millis(250);
/// The least delay that a refusal recommends.
const RETRY_AT_LEAST: Duration = Duration::from_millis(10);
/// How often Redis is tried while it is away.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// How long it may take to answer then.
const PROBE_PATIENCE: Duration = Duration::from_millis(200);
/// After so many tries in vain a new connection is made.
const RECONNECT_AFTER: u32 = 4;
/// How often the gateways tell of themselves, and for how long one counts.
const PRESENT_EVERY: Duration = Duration::from_secs(2);
const PRESENT_FOR: Duration = Duration::from_secs(10);
/// The most users that are remembered; beyond, those are forgotten who did not come lately.
const REMEMBERED: usize = 10_000;
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);

/// What a user got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Submits that may go on.
    pub(super) granted: usize,
    /// Until there may be another one.
    wait: Duration,
    rate: Option<Rate>,
}

impl Taken {
    /// The refusal of the others.
    pub(super) fn refusal(&self, user: &str) -> Error {
        let (per_second, burst) = self
            .rate
            .map_or((0.0, 0.0), |rate| (rate.per_second, rate.burst));
        let limit = if per_second > 0.0 {
            let one = (per_second - 1.0).abs() < f64::EPSILON;
            let submits = if one { "submit" } else { "submits" };
            format!("{per_second} {submits} in a second, and {burst} at once")
        } else {
            "no submits at all".to_owned()
        };
        let what = if per_second > 0.0 {
            format!("user {user:?} submits too fast: allowed are {limit}")
        } else {
            format!("user {user:?} may not submit jobs: the rate or the burst of submits is 0")
        };
        let error = Error::new(Code::RateLimited, what)
            .with_quota(format!("user:{user}"), format!("at most {limit}"))
            .with_meta("user_id", user)
            .with_meta("submits_per_second", per_second.to_string());
        if per_second > 0.0 {
            error.with_retry_after(self.wait.max(RETRY_AT_LEAST))
        } else {
            // Waiting helps nobody.
            error.lasting()
        }
    }
}

/// Gives out tokens.
pub(super) struct Rates {
    limits: Arc<Limits>,
    shared: Option<SharedRates>,
    users: Mutex<HashMap<String, Arc<User>>>,
    away: AtomicBool,
    gateways: AtomicU64,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct User {
    state: Mutex<State>,
    /// One call asks; the others wait for what it gets.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    rate: Option<Rate>,
    leased: usize,
    leased_at: Option<Instant>,
    refused_until: Option<Instant>,
    local: Option<LocalBucket>,
    used_at: Option<Instant>,
}

impl State {
    /// Takes from the portion; `Some`: that decides.
    fn take_from_portion(
        &mut self,
        rate: Rate,
        want: usize,
        now: Instant,
    ) -> Option<(usize, Duration)> {
        self.used_at = Some(now);
        if self.rate != Some(rate) {
            // The limit has changed, and what was known goes with the old one.
            *self = Self {
                rate: Some(rate),
                used_at: self.used_at,
                ..Self::default()
            };
        }
        if self
            .leased_at
            .is_none_or(|at| now.duration_since(at) > PORTION_KEPT)
        {
            self.leased = 0;
        }
        if self.leased >= want {
            self.leased -= want;
            return Some((want, Duration::ZERO));
        }
        let wait = self.refused_until?.checked_duration_since(now)?;
        if wait.is_zero() {
            return None;
        }
        Some((std::mem::take(&mut self.leased), wait))
    }
}

impl Rates {
    /// Starts what looks after Redis until `stop`.
    pub(super) fn start(
        limits: Arc<Limits>,
        shared: Option<SharedRates>,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let rates = Arc::new(Self {
            limits,
            shared,
            users: Mutex::default(),
            away: AtomicBool::new(false),
            gateways: AtomicU64::new(1),
            metrics,
        });
        if rates.shared.is_some() {
            tokio::spawn(rates.clone().look_after(stop));
        }
        rates
    }

    /// Whether any rate is limited.
    pub(super) fn any(&self) -> bool {
        self.limits.any_rate()
    }

    /// Takes up to `want` submits of a user. Waits 20 ms at the longest.
    pub(super) async fn take(&self, user: &str, want: usize) -> Taken {
        let Some(rate) = self.limits.rate(user) else {
            return Taken {
                granted: want,
                wait: Duration::ZERO,
                rate: None,
            };
        };
        let taken = |(granted, wait)| Taken {
            granted,
            wait,
            rate: Some(rate),
        };
        if rate.per_second <= 0.0 {
            return taken((0, Duration::from_secs(1)));
        }
        let known = self.user(user);
        if let Some(decided) = known
            .state
            .lock()
            .take_from_portion(rate, want, Instant::now())
        {
            return taken(decided);
        }
        let asking = tokio::time::timeout(PATIENCE, self.ask(&known, user, rate, want)).await;
        if let Ok(Some(decided)) = asking {
            return taken(decided);
        }
        let gateways = self.gateways.load(Ordering::Relaxed).max(1) as f64;
        let share = Rate {
            per_second: rate.per_second / gateways,
            burst: (rate.burst / gateways).max(1.0),
        };
        let now = Instant::now();
        let mut state = known.state.lock();
        let bucket = state
            .local
            .get_or_insert_with(|| LocalBucket::full(share, now));
        taken(bucket.take(share, want, now))
    }

    /// Asks Redis; `None`: it is away.
    async fn ask(
        &self,
        known: &User,
        user: &str,
        rate: Rate,
        want: usize,
    ) -> Option<(usize, Duration)> {
        let shared = self.shared.as_ref()?;
        if self.away.load(Ordering::Relaxed) {
            return None;
        }
        let _one = known.asking.lock().await;
        let missing = {
            let mut state = known.state.lock();
            if let Some(decided) = state.take_from_portion(rate, want, Instant::now()) {
                return Some(decided);
            }
            want - state.leased
        };
        // Another one may have found out meanwhile.
        if self.away.load(Ordering::Relaxed) {
            return None;
        }
        let portion = missing.max((rate.per_second * PORTION).min(rate.burst) as usize);
        let answer = tokio::time::timeout(PATIENCE, shared.lease(user, rate, portion)).await;
        let Ok(Ok(Lease { granted, wait })) = answer else {
            self.gone();
            return None;
        };
        let now = Instant::now();
        let mut state = known.state.lock();
        state.leased += granted;
        state.leased_at = Some(now);
        let got = want.min(state.leased);
        state.leased -= got;
        if got < want {
            state.refused_until = Some(now + wait.min(REFUSED_FOR));
        }
        Some((got, wait))
    }

    fn user(&self, user: &str) -> Arc<User> {
        let mut users = self.users.lock();
        if let Some(known) = users.get(user) {
            return known.clone();
        }
        if users.len() >= REMEMBERED {
            let now = Instant::now();
            users.retain(|_, user| {
                let used_at = user.state.lock().used_at;
                used_at.is_some_and(|at| now.duration_since(at) < FORGOTTEN_AFTER)
            });
        }
        let known = Arc::new(User::default());
        users.insert(user.to_owned(), known.clone());
        known
    }

    fn gone(&self) {
        if !self.away.swap(true, Ordering::Relaxed) {
            self.metrics.rates_shared.set(0);
            tracing::warn!("Redis does not answer; this gateway limits rates by itself");
        }
    }

    /// Tells Redis of this gateway while rates are limited, and finds out when it is back.
    async fn look_after(self: Arc<Self>, stop: CancellationToken) {
        let Some(shared) = &self.shared else {
            return;
        };
        let gateway = Uuid::now_v7();
        let mut in_vain = 0;
        loop {
            let mut pause = PRESENT_EVERY;
            if self.any() {
                let present = shared.present(gateway, PRESENT_FOR);
                if let Ok(Ok(gateways)) = tokio::time::timeout(PROBE_PATIENCE, present).await {
                    in_vain = 0;
                    self.gateways.store(gateways.max(1), Ordering::Relaxed);
                    self.metrics.rates_shared.set(1);
                    if self.away.swap(false, Ordering::Relaxed) {
                        tracing::info!("Redis answers again; rates are shared");
                    }
                } else {
                    self.gone();
                    in_vain += 1;
                    if in_vain % RECONNECT_AFTER == 0 {
                        shared.reconnect();
                    }
                }
                if self.away.load(Ordering::Relaxed) {
                    pause = PROBE_EVERY;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
