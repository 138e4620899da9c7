//! Operations of the protocol chosen by a random number, as workers, sweepers,
//! dispatchers and callers would make them, stale and doubled ones included.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::job::Lane;
use tenure_core::domain::state::{Event, JobState};
use tenure_core::storage::DbKind;
use tenure_core::storage::cancel::Cancelled;
use tenure_core::storage::dead_letters::{Decision, Outcome, Verb};
use tenure_core::storage::dispatch::Ticked;
use tenure_core::storage::dispatch_known::KnownUsers;
use tenure_core::storage::finish::{Finish, Goal};
use tenure_core::storage::job_actions::{Acted, Action};
use tenure_core::storage::renew::Renewal;

use crate::world::{
    LEASE, POISON_LIMIT, Row, World, failed, finish, job, kind, outage, retrying, success,
};

/// The jobs of a step before it was made.
pub(crate) type Before = BTreeMap<JobId, Row>;

/// What a step did, as far as its answers say.
pub(crate) struct Step {
    /// For the message of a failed check.
    pub(crate) what: String,
    /// The events that took effect.
    pub(crate) events: Vec<(JobId, Event)>,
    /// Runs that were claimed.
    pub(crate) claimed: Vec<(JobId, i32)>,
}

impl Step {
    fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            events: Vec::new(),
            claimed: Vec::new(),
        }
    }
}

/// One actor: a source of operations.
pub(crate) struct Actor {
    random: StdRng,
    sessions: [SessionId; 2],
}

impl Actor {
    pub(crate) fn new(seed: u64, sessions: [SessionId; 2]) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            sessions,
        }
    }

    /// Makes one operation. An error that the protocol allows (a lock that was not got,
    /// a deadlock) makes a step without events.
    pub(crate) async fn step(&mut self, world: &World, before: &Before) -> Step {
        match self.random.random_range(0..100) {
            0..14 => self.submit(world).await,
            14..42 => self.claim(world, before).await,
            42..66 => self.finish(world, before).await,
            66..80 => self.wake(world, before).await,
            80..85 => self.cancel(world, before).await,
            85..88 => self.act(world, before).await,
            88..90 => self.defer(world, before).await,
            90..92 => self.renew(world, before).await,
            92..94 => self.dispatch(world).await,
            94..97 => self.replay(world, before).await,
            _ => self.decide(world, before).await,
        }
    }

    fn session(&mut self) -> SessionId {
        self.sessions[usize::from(self.random.random_bool(0.5))]
    }

    /// Up to `most` jobs that fit, sorted by id as every batch is.
    fn some(&mut self, before: &Before, most: usize, fits: impl Fn(&Row) -> bool) -> Vec<Row> {
        let mut rows: Vec<Row> = before.values().filter(|row| fits(row)).cloned().collect();
        rows.shuffle(&mut self.random);
        rows.truncate(self.random.random_range(1..=most));
        rows.sort_by_key(Row::id);
        rows
    }

    async fn submit(&mut self, world: &World) -> Step {
        let count = self.random.random_range(1..4);
        let jobs = (0..count)
            .map(|_| {
                let mut job = job(["ada", "bob", "eve"].choose(&mut self.random).expect("one"));
                job.max_attempts = self.random.random_range(1..5);
                if self.random.random_bool(0.2) {
                    job.run_at = Some(chrono::Utc::now() + Duration::from_mins(5));
                }
                if self.random.random_bool(0.2) {
                    job.expires_at = Some(chrono::Utc::now() + Duration::from_mins(5));
                }
                (job, self.random.random_bool(0.5))
            })
            .collect();
        for outcome in world.writer.submit(jobs).await {
            outcome.expect("accepted");
        }
        Step::new("submit")
    }

    async fn claim(&mut self, world: &World, before: &Before) -> Step {
        let session = self.session();
        let any = self.random.random_bool(0.2);
        let rows = self.some(before, 5, |row| any || row.state() == JobState::Pending);
        let runs: Vec<(JobId, i32)> = rows
            .iter()
            .map(|row| {
                // Messages of earlier runs, and of a run that does not exist yet.
                let off = [0, 0, 0, 0, 0, 0, 0, 0, -1, 1];
                let off = off.choose(&mut self.random).copied().unwrap_or(0);
                (row.id(), (row.run + off).max(1))
            })
            .collect();
        let mut step = Step::new(format!("claim {runs:?}"));
        match world.store.claim(&runs, session, LEASE).await {
            Ok(claimed) => {
                for claim in claimed {
                    assert!(runs.contains(&(claim.job_id, claim.run)), "{claim:?}");
                    step.events.push((claim.job_id, Event::Claim));
                    step.claimed.push((claim.job_id, claim.run));
                }
            }
            Err(error) => allowed(&step.what, &error),
        }
        step
    }

    /// What a worker makes of a run: it does not retry a job that has no attempt left,
    /// and sees a cancel only where one was asked for.
    fn goal(&mut self, row: &Row) -> (Goal, Event) {
        let delay = Duration::from_secs(self.random.random_range(0..2) * 300);
        match self.random.random_range(0..7) {
            0 => (failed(), Event::FailPermanently),
            1 if row.attempt < row.max_attempts => (retrying(delay), Event::FailTemporarily),
            2 if delay.is_zero() => (Goal::Pending(delay), Event::HandBack),
            2 => (Goal::Pending(delay), Event::Snooze),
            3 if row.attempt > 0 => (outage(delay), Event::Outage),
            4 | 5 if row.cancel_requested => (Goal::Cancelled, Event::CancelSeen),
            _ => (success(), Event::Succeed),
        }
    }

    async fn finish(&mut self, world: &World, before: &Before) -> Step {
        let session = self.session();
        let zombie = self.random.random_bool(0.2);
        let mine = Some(session.uuid());
        let rows = self.some(before, 4, |row| {
            zombie || (row.state() == JobState::Running && row.locked_by == mine)
        });
        let mut events = BTreeMap::new();
        let items: Vec<Finish> = rows
            .iter()
            .map(|row| {
                let (goal, event) = self.goal(row);
                events.insert(row.id(), event);
                finish(row.id(), row.run, goal)
            })
            .collect();
        let mut step = Step::new(format!("finish {items:?}"));
        match world.store.finish(&items, session).await {
            Ok(done) => step
                .events
                .extend(done.revisions.into_keys().map(|id| (id, events[&id]))),
            Err(error) => allowed(&step.what, &error),
        }
        step
    }

    async fn wake(&mut self, world: &World, before: &Before) -> Step {
        let rows = self.some(before, 4, |row| !row.state().is_final());
        let ids: Vec<JobId> = rows.iter().map(Row::id).collect();
        for id in &ids {
            if self.random.random_bool(0.8) {
                world.let_time_pass(&[*id]).await;
            }
            if self.random.random_bool(0.2) {
                world.let_it_have_restarted(&[*id]).await;
            }
            if self.random.random_bool(0.1) {
                world
                    .sql(format!("update jobs set expires_at = now() - interval '1 s' where job_id = '{id}' and finished_at is null"))
                    .await;
            }
        }
        let take_back = self.random.random_bool(0.9);
        let mut step = Step::new(format!("wake {ids:?} take_back {take_back}"));
        match world.store.wake(&ids, take_back, POISON_LIMIT).await {
            Ok(woken) => {
                for row in woken {
                    let event = match (row.was(), row.target()) {
                        ("running", "pending" | "failed" | "cancelled") if row.is_cut_off() => {
                            Event::LeaseCutOff
                        }
                        ("running", "pending" | "failed" | "cancelled") => Event::LeaseExpired,
                        ("retrying", "pending") => Event::Due,
                        (_, "failed") => Event::Expired,
                        // Parked, renewed or in doubt: no event of the table.
                        _ => continue,
                    };
                    step.events.push((row.job_id(), event));
                }
            }
            Err(error) => allowed(&step.what, &error),
        }
        step
    }

    async fn cancel(&mut self, world: &World, before: &Before) -> Step {
        let Some(row) = self.some(before, 1, |_| true).pop() else {
            return Step::new("cancel of nothing");
        };
        let mut step = Step::new(format!("cancel {}", row.id()));
        match world.store.cancel(row.id(), "random").await {
            Ok(Cancelled::NotWaiting) => {}
            Ok(_) => step.events.push((row.id(), Event::Cancel)),
            Err(error) => assert!(error.is_temporary(), "{}: {error}", step.what),
        }
        step
    }

    /// Replays letters, mostly of jobs that have failed; by hand, so ignored ones as well.
    async fn replay(&mut self, world: &World, before: &Before) -> Step {
        let any = self.random.random_bool(0.2);
        let rows = self.some(before, 4, |row| any || row.state() == JobState::Failed);
        let ids: Vec<_> = rows.iter().map(|row| row.job_id).collect();
        let mut step = Step::new(format!("replay {ids:?}"));
        match world.store.replay_dead_letters(&ids, &decision()).await {
            Ok(results) => {
                let done = results.iter().filter(|r| r.outcome == Outcome::Done);
                step.events
                    .extend(done.map(|result| (JobId(result.id), Event::Replay)));
            }
            Err(error) => assert!(error.is_temporary(), "{}: {error}", step.what),
        }
        step
    }

    /// What an operator does to a job.
    async fn act(&mut self, world: &World, before: &Before) -> Step {
        let Some(row) = self.some(before, 1, |_| true).pop() else {
            return Step::new("an act on nothing");
        };
        let action = match self.random.random_range(0..4) {
            0 => Action::RetryNow,
            1 => Action::Reschedule(chrono::Utc::now() - Duration::from_mins(5)),
            2 => Action::Reschedule(chrono::Utc::now() + Duration::from_mins(5)),
            _ => Action::SetMaxAttempts(self.random.random_range(1..6)),
        };
        let by = tenure_core::storage::job_actions::Actor {
            name: "olga".to_owned(),
            reason: None,
        };
        let mut step = Step::new(format!("{action:?} of {}", row.id()));
        match world.store.act_on_job(row.id(), action, &by).await {
            // Made due, a retry is pending. All else leaves the job in its state.
            Ok(Acted::Done)
                if row.state() == JobState::Retrying
                    && world.state(row.id()).await == JobState::Pending =>
            {
                step.events.push((row.id(), Event::Due));
            }
            Ok(_) => {}
            Err(error) => assert!(error.is_temporary(), "{}: {error}", step.what),
        }
        step
    }

    /// What operators decide about letters is no event of their jobs.
    async fn decide(&mut self, world: &World, before: &Before) -> Step {
        let rows = self.some(before, 4, |_| true);
        let ids: Vec<_> = rows.iter().map(|row| row.job_id).collect();
        let verbs = [Verb::Ignore, Verb::Resolve, Verb::Reopen];
        let verb = verbs[self.random.random_range(0..verbs.len())];
        let step = Step::new(format!("{verb:?} {ids:?}"));
        let decided = world
            .store
            .decide_dead_letters(verb, &ids, &decision())
            .await;
        if let Err(error) = decided {
            assert!(error.is_temporary(), "{}: {error}", step.what);
        }
        step
    }

    async fn defer(&mut self, world: &World, before: &Before) -> Step {
        let rows = self.some(before, 4, |_| true);
        let runs: Vec<_> = rows.iter().map(|row| (row.id(), row.run)).collect();
        let delay = Duration::from_secs(self.random.random_range(0..2));
        if let Err(error) = world.store.defer(&runs, delay).await {
            assert!(error.is_temporary(), "defer: {error}");
        }
        Step::new(format!("defer {runs:?}"))
    }

    async fn renew(&mut self, world: &World, before: &Before) -> Step {
        let session = self.session();
        let rows = self.some(before, 6, |_| true);
        let items: Vec<Renewal> = rows
            .iter()
            .map(|row| Renewal {
                job_id: row.id(),
                run: row.run,
                progress: self
                    .random
                    .random_bool(0.5)
                    .then(|| (1, 2, "half".to_owned())),
            })
            .collect();
        if let Err(error) = world.store.renew(&items, session, LEASE).await {
            assert!(error.is_temporary(), "renew: {error}");
        }
        Step::new("renew")
    }

    async fn dispatch(&mut self, world: &World) -> Step {
        let lanes = [("default".to_owned(), Lane::Normal)];
        let room = self.random.random_range(1..20);
        let tick = async {
            let (mut tick, due) = world
                .store
                .begin_tick(&lanes, &KnownUsers::default())
                .await?;
            let mut ticked = Vec::new();
            for lane in &due {
                let picked = tick.pick(lane, room, &mut KnownUsers::default()).await?;
                ticked.push(Ticked {
                    queue: lane.queue.clone(),
                    lane: Lane::Normal,
                    cursor_user: picked.cursor_user,
                    pause: Duration::ZERO,
                    msgs: picked.jobs.len() as i32,
                    direct: false,
                    grow: false,
                    window_msgs: 128,
                    busy: lane.backlog,
                });
            }
            tick.commit(&ticked).await
        };
        if let Err(error) = tick.await {
            assert!(error.is_temporary(), "dispatch: {error}");
        }
        Step::new(format!("dispatch {room}"))
    }
}

/// Only what the protocol retries may happen.
fn allowed(what: &str, error: &sqlx::Error) {
    assert_eq!(kind(error), DbKind::Retry, "{what}: {error}");
}

fn decision() -> Decision {
    Decision {
        actor: "olga".to_owned(),
        reason: "random".to_owned(),
    }
}
