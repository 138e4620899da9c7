//! Decides on every envelope: claim it, put it off, or drop it (PROTOCOL.md §6, §7, §11).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::broker::consumer::Delivery;
use tenure_core::broker::envelope::{self, Decoded, Envelope};
use tenure_core::clock::boottime;
use tenure_core::domain::ids::JobId;
use tenure_core::domain::job::Lane;
use tenure_core::storage::claim::{Claimed, Unmatched};
use tenure_core::storage::dead_letters::Unreadable;
use tenure_core::storage::lines::Turned;
use tenure_core::storage::{DbKind, classify};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::execute;
use super::finisher::Finisher;
use super::inbox::{Inbox, Ticket, Waiting};
use super::running::Running;
use super::suspects::Suspects;

/// The most runs of one claim.
const CLAIM_MAX: usize = 1000;
/// How often a run is claimed that is there but was not matched (a lock, a race).
const CLAIM_TRIES: u8 = 3;
/// A job that this worker has no handler for is put off by this.
const UNHANDLED_DELAY: Duration = Duration::from_secs(5);
/// The most job types that are told of.
const UNHANDLED_MAX: usize = 100;
/// So is a message of a newer release.
const NEWER_DELAY: Duration = Duration::from_secs(5);
/// When messages come again after all slots were taken, those of one lane are here before
/// the others': for so long the lanes that had some before are waited for, so that each gets
/// its share.
const GATHER: Duration = Duration::from_millis(100);
/// A job that may not start beside what runs here is put off by this.
const SUSPECT_DELAY: Duration = Duration::from_secs(1);

/// The task that owns the inbox.
pub(super) struct Intake {
    shared: Arc<Shared>,
    finisher: Finisher,
    wanted: watch::Sender<bool>,
    inbox: Inbox,
    /// Since when no slot has been free.
    full_since: Option<Instant>,
    /// Which lanes are waited for, and until when.
    gathers: Option<([bool; 3], Instant)>,
    /// Jobs that have lost leases.
    suspects: Suspects,
    /// Job types without a handler that have been told of.
    unhandled: HashSet<String>,
    /// Runs whose claim had no answer: it may have taken effect.
    unknown: HashSet<(JobId, i32)>,
    /// When a lane's bundles were last halved.
    halved: HashMap<(Arc<str>, Lane), Instant>,
}

impl Intake {
    pub(super) fn new(
        shared: Arc<Shared>,
        finisher: Finisher,
        wanted: watch::Sender<bool>,
    ) -> Self {
        Self {
            inbox: Inbox::new(&shared.config.worker.lane_weights),
            shared,
            finisher,
            wanted,
            full_since: None,
            gathers: None,
            suspects: Suspects::default(),
            unhandled: HashSet::new(),
            unknown: HashSet::new(),
            halved: HashMap::new(),
        }
    }

    /// Until `stop`; then puts off what has not been claimed.
    pub(super) async fn run(
        mut self,
        mut deliveries: mpsc::Receiver<Delivery>,
        mut turned: mpsc::Receiver<Turned>,
        stop: CancellationToken,
    ) {
        let hold = self.shared.config.worker.hold_unclaimed;
        let mut batch = Vec::new();
        loop {
            // Consumers that are off already need no second look.
            let full = self
                .full_since
                .filter(|_| *self.wanted.borrow())
                .map(|since| since + hold);
            let late = self.suspects.next_look(Instant::now());
            let gathered = self.gathers.map(|(_, until)| until);
            let overdue = [self.inbox.next_overdue(hold), full, late, gathered]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                count = deliveries.recv_many(&mut batch, 256) => if count == 0 { break },
                Some(next) = turned.recv() => self.take_turned(next),
                () = self.shared.runs.changed.notified() => {}
                () = tokio::time::sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {}
            }
            for delivery in batch.drain(..) {
                self.accept(delivery);
            }
            self.work(hold, &stop).await;
        }
        // The consumers stop; what they still hand over is put off like the rest.
        self.wanted.send_replace(false);
        while let Ok(delivery) = deliveries.try_recv() {
            self.accept(delivery);
        }
        let mut left = self.inbox.take_all();
        left.extend(self.suspects.take_all());
        self.put_off(left, Duration::ZERO, "stopping").await;
    }

    async fn work(&mut self, hold: Duration, stop: &CancellationToken) {
        if !self.suspects.is_empty()
            && self.shared.runs.room() > 0
            && let Some(suspect) = self
                .suspects
                .next(self.shared.runs.suspects(), Instant::now())
        {
            self.keep(std::iter::once(suspect));
        }
        loop {
            let room = self.shared.runs.room();
            let gathers = self.gathers();
            if room == 0 || self.inbox.is_empty() || stop.is_cancelled() || gathers {
                break;
            }
            let taken = self.inbox.take(room.min(CLAIM_MAX));
            if !self.claim(taken).await {
                // The database is away: what is in hand stays in hand, and prefetch
                // keeps the rest where another worker may have more luck.
                break;
            }
        }
        self.shared
            .metrics
            .worker_running
            .set(self.shared.runs.busy() as i64);
        let now = Instant::now();
        if self.shared.runs.room() > 0 {
            self.full_since = None;
        } else {
            self.full_since.get_or_insert(now);
        }
        let full_for_long = self
            .full_since
            .is_some_and(|since| now.duration_since(since) >= hold);
        let turned = self
            .wanted
            .send_if_modified(|wanted| std::mem::replace(wanted, !full_for_long) == full_for_long);
        if turned {
            self.gathers = (!full_for_long).then(|| (self.inbox.take_seen(), now + GATHER));
        }
        if !self.suspects.is_empty() {
            let (here, room) = (self.shared.runs.suspects(), self.shared.runs.room() > 0);
            let overdue = self.suspects.take_overdue(here, room, now);
            self.put_off(overdue, SUSPECT_DELAY, "suspect").await;
        }
        let overdue = self.inbox.take_overdue(hold, now);
        if !overdue.is_empty() {
            self.halve_bundles(&overdue, now).await;
            self.put_off(overdue, Duration::ZERO, "no_slot").await;
        }
    }

    /// Whether messages of other lanes may be on their way.
    fn gathers(&mut self) -> bool {
        let over = |(lanes, until)| Instant::now() >= until || self.inbox.has(lanes);
        if self.gathers.is_some_and(over) {
            self.gathers = None;
        }
        self.gathers.is_some()
    }

    /// Reads a message and files its envelopes.
    fn accept(&mut self, delivery: Delivery) {
        let ticket = Ticket::new(delivery.receipt);
        match envelope::decode(&delivery.body) {
            Decoded::Jobs(jobs) => {
                self.shared
                    .metrics
                    .deliveries
                    .inc_by("accepted", jobs.len() as u64);
                let (known, unknown): (Vec<Envelope>, Vec<Envelope>) = jobs
                    .into_iter()
                    .partition(|job| self.shared.registry.get(&job.job_type).is_some());
                for job in known {
                    self.inbox.push(Waiting {
                        job_id: job.job_id,
                        run: job.run,
                        queue: delivery.queue.clone(),
                        lane: delivery.lane,
                        lost: job.lost,
                        arrived: Instant::now(),
                        late_since: None,
                        tries: 0,
                        ticket: ticket.clone(),
                    });
                }
                for job in &unknown {
                    self.tell_unhandled(&job.job_type);
                }
                let runs: Vec<_> = unknown.iter().map(|job| (job.job_id, job.run)).collect();
                self.defer_in_background(runs, UNHANDLED_DELAY, "unhandled_type", ticket);
            }
            Decoded::Newer(runs) => {
                self.defer_in_background(runs, NEWER_DELAY, "newer_schema", ticket);
            }
            Decoded::Unreadable(why) => {
                self.keep_unreadable(
                    delivery.queue,
                    delivery.body,
                    delivery.properties.to_json(),
                    why,
                    ticket,
                );
            }
        }
    }

    /// A job whose line has come to it, since another ended here. It lies in the backlog too:
    /// what is not taken now is dispatched.
    fn take_turned(&mut self, next: Turned) {
        if self.shared.runs.room() > self.inbox.len() {
            self.inbox.push(Waiting {
                job_id: next.job_id,
                run: next.run,
                queue: next.queue.into(),
                lane: next.lane,
                lost: next.lost,
                arrived: Instant::now(),
                late_since: None,
                tries: 0,
                ticket: Ticket::without_message(),
            });
        }
    }

    /// Told once for each job type: a wait that nothing explains costs a night.
    fn tell_unhandled(&mut self, job_type: &str) {
        if self.unhandled.len() < UNHANDLED_MAX && self.unhandled.insert(job_type.to_owned()) {
            tracing::warn!(
                job_type,
                "this worker has no handler for the job type; its jobs wait for another one"
            );
        }
    }

    fn defer_in_background(
        &self,
        runs: Vec<(JobId, i32)>,
        delay: Duration,
        verdict: &'static str,
        ticket: Arc<Ticket>,
    ) {
        if runs.is_empty() {
            return;
        }
        self.shared
            .metrics
            .deliveries
            .inc_by(verdict, runs.len() as u64);
        let store = self.shared.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.defer(&runs, delay).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "jobs could not be put off; their wake_at will pass"
                );
            }
            drop(ticket);
        });
    }

    /// A message that cannot be read becomes a dead letter, and is acknowledged once
    /// that is stored. The queue goes on meanwhile.
    fn keep_unreadable(
        &self,
        queue: Arc<str>,
        body: Vec<u8>,
        properties: serde_json::Value,
        why: String,
        ticket: Arc<Ticket>,
    ) {
        self.shared.metrics.deliveries.inc("unreadable");
        self.shared.metrics.dead_letters.inc("permanent");
        tracing::warn!(%queue, bytes = body.len(), reason = %why, "unreadable message");
        let store = self.shared.store.clone();
        tokio::spawn(async move {
            let mut pause = Duration::from_millis(100);
            loop {
                let kept = store.store_unreadable(
                    &queue,
                    &body,
                    Some(&properties),
                    Unreadable::Unparseable,
                    &why,
                );
                match kept.await {
                    Ok(_) => break,
                    Err(error) if error.is_temporary() => {
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_secs(10));
                    }
                    Err(error) => {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "an unreadable message could not be kept"
                        );
                        break;
                    }
                }
            }
            drop(ticket);
        });
    }

    /// Claims and starts; `false`: the database did not answer.
    async fn claim(&mut self, mut taken: Vec<Waiting>) -> bool {
        let now = Instant::now();
        let mut by_job = BTreeMap::new();
        let mut here = None;
        for waiting in taken.drain(..) {
            if self.shared.runs.contains(waiting.job_id, waiting.run) {
                // A duplicate of what runs here: decided by its being here.
                self.shared.metrics.claims.inc("duplicate");
                continue;
            }
            if waiting.lost > 0 {
                let here = here.get_or_insert_with(|| self.shared.runs.suspects());
                if !self.suspects.admit(waiting.lost, here, now) {
                    self.suspects.wait(waiting, now);
                    continue;
                }
            }
            // Of several copies the highest run counts; the others are stale.
            let slot = by_job
                .entry(waiting.job_id)
                .or_insert_with(|| waiting.clone());
            if slot.run < waiting.run {
                *slot = waiting;
            }
        }
        if by_job.is_empty() {
            return true;
        }
        let runs: Vec<(JobId, i32)> = by_job.values().map(|w| (w.job_id, w.run)).collect();
        self.shared
            .metrics
            .claim_batch_size
            .observe(runs.len() as f64);
        let mut work = vec![runs];
        while let Some(part) = work.pop() {
            let sent = boottime();
            match self
                .shared
                .store
                .claim(&part, self.shared.session, self.shared.lease)
                .await
            {
                Ok(claimed) => {
                    self.shared
                        .metrics
                        .claims
                        .inc_by("claimed", claimed.len() as u64);
                    for claimed in claimed {
                        by_job.remove(&claimed.job_id);
                        self.unknown.remove(&(claimed.job_id, claimed.run));
                        self.start(claimed, sent);
                    }
                }
                Err(error) => match classify(&error) {
                    // The ledger's veto, or a row that cannot be claimed: find the culprit.
                    DbKind::Invariant | DbKind::Data | DbKind::Defect if part.len() > 1 => {
                        let (first, rest) = part.split_at(part.len() / 2);
                        work.push(rest.to_vec());
                        work.push(first.to_vec());
                    }
                    DbKind::Invariant | DbKind::Data | DbKind::Defect => {
                        tracing::error!(error = &error as &dyn std::error::Error, job = %part[0].0, "a claim was vetoed");
                        self.shared.metrics.claims.inc("vetoed");
                        by_job.remove(&part[0].0);
                    }
                    kind @ (DbKind::Retry | DbKind::Lost | DbKind::Full) => {
                        self.shared.metrics.db_errors.inc(kind.as_str());
                        self.unknown.extend(part);
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "a claim failed; it is tried again"
                        );
                        tokio::time::sleep(Duration::from_millis(if kind == DbKind::Retry {
                            5
                        } else {
                            200
                        }))
                        .await;
                    }
                },
            }
        }
        by_job.is_empty() || self.settle_unclaimed(by_job).await
    }

    /// Reads again what was not claimed, and settles each for the right reason; `false`:
    /// the database did not answer, and all of it stays in hand.
    async fn settle_unclaimed(&mut self, mut left: BTreeMap<JobId, Waiting>) -> bool {
        let runs: Vec<(JobId, i32)> = left.values().map(|w| (w.job_id, w.run)).collect();
        let verdicts = match self
            .shared
            .store
            .reread_unclaimed(&runs, self.shared.session)
            .await
        {
            Ok(verdicts) => verdicts,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "claims could not be checked; they are tried again"
                );
                self.keep(left.into_values());
                return false;
            }
        };
        let (mut paused, mut mine) = (Vec::new(), Vec::new());
        for (id, verdict) in verdicts {
            let Some(waiting) = left.remove(&id) else {
                continue;
            };
            let claim_unknown = self.unknown.contains(&(id, waiting.run));
            if verdict != Unmatched::Claimable {
                self.unknown.remove(&(id, waiting.run));
            }
            match verdict {
                Unmatched::Claimable => self.requeue(std::iter::once(waiting)),
                Unmatched::Paused => paused.push(waiting),
                Unmatched::Mine if claim_unknown => mine.push(waiting),
                // A copy of what this session runs, or has given up with its lease.
                Unmatched::Mine => self.shared.metrics.claims.inc("duplicate"),
                Unmatched::Stale => self.shared.metrics.claims.inc("stale"),
                Unmatched::Pruned => self.shared.metrics.claims.inc("pruned"),
                Unmatched::Orphan => {
                    self.shared.metrics.claims.inc("orphan");
                    let body = format!("{{\"job_id\":\"{id}\",\"run\":{}}}", waiting.run);
                    let why = format!("there is no job {id}");
                    let ticket = waiting.ticket.clone();
                    let store = self.shared.store.clone();
                    tokio::spawn(async move {
                        if let Err(error) = store
                            .store_unreadable(
                                &waiting.queue,
                                body.as_bytes(),
                                None,
                                Unreadable::Orphan,
                                &why,
                            )
                            .await
                        {
                            tracing::warn!(
                                error = &error as &dyn std::error::Error,
                                "an orphan message could not be kept"
                            );
                        }
                        drop(ticket);
                    });
                }
            }
        }
        if !paused.is_empty() {
            self.put_off(paused, Duration::ZERO, "paused").await;
        }
        mine.is_empty() || self.adopt(mine).await
    }

    /// A claim whose answer was lost took effect: take the runs on.
    async fn adopt(&mut self, mine: Vec<Waiting>) -> bool {
        let runs: Vec<(JobId, i32)> = mine
            .iter()
            .filter(|w| !self.shared.runs.contains(w.job_id, w.run))
            .map(|w| (w.job_id, w.run))
            .collect();
        let sent = boottime();
        match self
            .shared
            .store
            .adopt(&runs, self.shared.session, self.shared.lease)
            .await
        {
            Ok(claimed) => {
                self.shared
                    .metrics
                    .claims
                    .inc_by("adopted", claimed.len() as u64);
                for claimed in claimed {
                    self.start(claimed, sent);
                }
                true
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "runs could not be adopted; tried again"
                );
                self.unknown.extend(runs);
                self.keep(mine.into_iter());
                false
            }
        }
    }

    fn start(&self, claimed: Claimed, sent: Duration) {
        let running = Arc::new(Running::new(claimed, sent, self.shared.lease));
        self.shared.runs.insert(running.clone());
        execute::spawn(self.shared.clone(), self.finisher.clone(), running);
    }

    /// Keeps envelopes in hand, unacknowledged, for another round.
    fn keep(&mut self, waiting: impl Iterator<Item = Waiting>) {
        let arrived = Instant::now();
        for waiting in waiting {
            self.inbox.push(Waiting { arrived, ..waiting });
        }
    }

    fn requeue(&mut self, waiting: impl Iterator<Item = Waiting>) {
        for mut waiting in waiting {
            waiting.tries += 1;
            if waiting.tries < CLAIM_TRIES {
                self.inbox.push(waiting);
            } else {
                self.unknown.remove(&(waiting.job_id, waiting.run));
                // Dropping it acknowledges the message; wake_at brings the job again.
                self.shared.metrics.claims.inc("given_up");
            }
        }
    }

    /// Puts envelopes off, and so acknowledges them. Where the database does not answer
    /// they stay in hand: acknowledged, they would all wait for their `wake_at`.
    async fn put_off(&mut self, waiting: Vec<Waiting>, delay: Duration, verdict: &'static str) {
        if waiting.is_empty() {
            return;
        }
        let runs: Vec<(JobId, i32)> = waiting.iter().map(|w| (w.job_id, w.run)).collect();
        match self.shared.store.defer(&runs, delay).await {
            Ok(_) => {
                let count = waiting.len() as u64;
                self.shared.metrics.deliveries.inc_by(verdict, count);
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "jobs could not be put off; they stay in hand"
                );
                self.keep(waiting.into_iter());
            }
        }
    }

    async fn halve_bundles(&mut self, overdue: &[Waiting], now: Instant) {
        let lanes: std::collections::BTreeSet<(Arc<str>, Lane)> =
            overdue.iter().map(|w| (w.queue.clone(), w.lane)).collect();
        for (queue, lane) in lanes {
            let last = self.halved.get(&(queue.clone(), lane));
            if last.is_some_and(|at| now.duration_since(*at) < Duration::from_secs(1)) {
                continue;
            }
            if let Err(error) = self.shared.store.halve_bundle(&queue, lane.number()).await {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "bundles were not halved"
                );
            }
            self.halved.insert((queue, lane), now);
        }
    }
}
