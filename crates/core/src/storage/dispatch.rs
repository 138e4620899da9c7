//! Dispatching the backlog (PROTOCOL.md §13): parked → sent, fairly over users, by any
//! number of dispatchers. A lane's row is the lock of its tick.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::dispatch_known::KnownUsers;
use super::fairness::{self, User};
use super::pool::{Held, answered};
use super::{Store, db_error};
use crate::domain::ids::JobId;
use crate::domain::job::{INLINE_PAYLOAD_BYTES, Lane};
use crate::error::Result;

// Not `exists`: where stale statistics know of no parked rows, that is made by reading all
// of them into a hash table.
const LANES_DUE: &str = "select queue, lane, window_msgs, bundle_max, cursor_user, \
     (extract(epoch from now() - last_tick_at) * 1000)::bigint as since_ms, last_tick_msgs, \
     bundle_max < 32 and bundle_changed_at < now() - interval '1 minute' as may_grow, \
     q.paused as by_hand, q.system_paused as by_system, \
     l.busy_at between now() - interval '2 s' and now() as was_busy, \
     l.queue || '/' || l.lane = any($2) or coalesce((select true from jobs j where j.parked and j.queue = l.queue and j.lane = l.lane limit 1), false) as backlog \
     from lanes l join queues q on q.name = l.queue \
     where (l.next_tick_at <= now() or l.next_tick_at > now() + interval '1 minute') and l.queue || '/' || l.lane = any($1) \
     order by l.queue, l.lane for no key update of l skip locked";
const USERS: &str = include_str!("sql/dispatch_users.sql");
const USERS_KNOWN: &str = include_str!("sql/dispatch_users_known.sql");
const PICK: &str = include_str!("sql/dispatch_pick.sql");
const TICKED: &str = "update lanes l set cursor_user = t.cursor_user, next_tick_at = now() + t.pause_ms * interval '1 ms', \
     last_tick_at = case when l.last_tick_at < now() - interval '200 ms' or l.last_tick_at > now() then now() else l.last_tick_at end, \
     last_tick_msgs = case when l.last_tick_at < now() - interval '200 ms' or l.last_tick_at > now() then t.msgs else l.last_tick_msgs + t.msgs end, \
     direct = t.direct, hint_at = now(), window_msgs = t.window_msgs, \
     bundle_max = case when t.grow then least(l.bundle_max * 2, 32) else l.bundle_max end, \
     bundle_changed_at = case when t.grow then now() else l.bundle_changed_at end, \
     busy_at = case when t.busy then now() else l.busy_at end \
     from unnest($1::text[], $2::smallint[], $3::text[], $4::bigint[], $5::int[], $6::bool[], $7::bool[], $8::int[], $9::bool[]) \
     t (queue, lane, cursor_user, pause_ms, msgs, direct, grow, window_msgs, busy) where l.queue = t.queue and l.lane = t.lane";
const HINTS: &str = "select l.queue, l.lane, l.direct, l.bundle_max, l.window_msgs, l.hint_at < now() - interval '1 s' as stale, \
     (extract(epoch from greatest(l.hint_at, 'epoch')) * 1000)::bigint as hinted_ms, q.paused or q.system_paused as paused, \
     l.backlog, (extract(epoch from now() - greatest(l.backlog_at, now() - interval '1 hour')) * 1000)::bigint \
     as backlog_age_ms, (extract(epoch from greatest(l.backlog_at, 'epoch')) * 1000000)::bigint as backlog_stamp, \
     q.max_backlog from lanes l join queues q on q.name = l.queue";
const LANES: &str = "select q.name from queues q order by q.name";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("lanes_due", LANES_DUE),
    ("dispatch_users", USERS),
    ("dispatch_users_known", USERS_KNOWN),
    ("dispatch_pick", PICK),
    ("lanes_ticked", TICKED),
    ("lane_hints", HINTS),
    ("queue_names", LANES),
];

/// The most users that one pass looks at.
const USERS_PER_PASS: usize = 500;
/// The most passes of a tick over one lane.
const PASSES_MAX: usize = 6;

/// A lane whose tick is due; this transaction holds its lock.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct DueLane {
    /// The queue.
    pub queue: String,
    lane: i16,
    /// The most messages that the broker should hold ready.
    pub window_msgs: i32,
    /// The most envelopes of one message.
    pub bundle_max: i32,
    /// The user whom the last pass ended with.
    pub cursor_user: String,
    /// Milliseconds since the present 200 ms of counting began.
    pub since_ms: i64,
    /// Messages that were sent since then.
    pub last_tick_msgs: i32,
    /// Whether the bundles may grow again.
    pub may_grow: bool,
    /// Whether the queue is paused by hand.
    pub by_hand: bool,
    /// Whether it is paused by the system.
    pub by_system: bool,
    /// Whether anything is parked.
    pub backlog: bool,
    /// Whether anything was parked at a tick of the last two seconds, by any dispatcher.
    pub was_busy: bool,
}

impl DueLane {
    /// A lane with a backlog and full bundles, for the tests of what a tick decides.
    pub fn for_test(window_msgs: i32, last_tick_msgs: i32, since_ms: i64) -> Self {
        Self {
            queue: "q".to_owned(),
            lane: Lane::Normal.number(),
            window_msgs,
            bundle_max: 32,
            cursor_user: String::new(),
            since_ms,
            last_tick_msgs,
            may_grow: false,
            by_hand: false,
            by_system: false,
            backlog: true,
            was_busy: false,
        }
    }

    /// The lane.
    pub fn lane(&self) -> Lane {
        Lane::from_number(self.lane).unwrap_or(Lane::Normal)
    }

    /// Whether the queue is paused, by whomever.
    pub fn paused(&self) -> bool {
        self.by_hand || self.by_system
    }
}

/// A job that a tick has made "sent".
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Dispatched {
    job_id: uuid::Uuid,
    /// The run.
    pub run: i32,
    /// Starts that counted.
    pub attempt: i32,
    /// Leases lost.
    pub lost: i16,
    /// The owner.
    pub user_id: String,
    /// The job type's name.
    pub job_type: String,
    /// The dedupe key.
    pub dedupe_key: Option<String>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// The caller's `traceparent`.
    pub trace_parent: Option<String>,
    /// The payload where it is small.
    pub payload: Option<Vec<u8>>,
}

impl Dispatched {
    /// A job of a user, for the tests of the order in which jobs go.
    #[cfg(test)]
    pub(super) fn for_test(user: &str) -> Self {
        Self {
            job_id: uuid::Uuid::now_v7(),
            run: 1,
            attempt: 0,
            lost: 0,
            user_id: user.to_owned(),
            job_type: "noop".to_owned(),
            dedupe_key: None,
            created_at: DateTime::UNIX_EPOCH,
            trace_parent: None,
            payload: None,
        }
    }

    /// The job.
    pub fn job_id(&self) -> JobId {
        JobId(self.job_id)
    }
}

/// What a tick has taken from a lane.
#[derive(Clone, Debug)]
pub struct Picked {
    /// The jobs that are "sent" now, in the order in which they go: users in turn.
    pub jobs: Vec<Dispatched>,
    /// The user to go on after.
    pub cursor_user: String,
    /// Whether that was all of the backlog.
    pub exhausted: bool,
}

/// What a tick leaves on its lane.
#[derive(Clone, Debug)]
pub struct Ticked {
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// The user whom the next pass goes on after.
    pub cursor_user: String,
    /// Until the next tick.
    pub pause: Duration,
    /// Messages that this tick sends.
    pub msgs: i32,
    /// Whether gateways publish directly.
    pub direct: bool,
    /// Whether the bundles grow.
    pub grow: bool,
    /// The new window.
    pub window_msgs: i32,
    /// Whether anything was parked.
    pub busy: bool,
}

/// A lane's name in the statement of due lanes.
pub(super) fn lane_name(queue: &str, lane: Lane) -> String {
    format!("{queue}/{}", lane.number())
}

/// The transaction of a tick. Dropped without a commit, its connection is closed, and
/// nothing of the tick counts.
pub struct Tick {
    held: Held,
}

/// What the gateways and the dispatcher know of a lane.
#[derive(Clone, Debug)]
pub struct LaneHint {
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// Whether to publish directly; a hint older than a second counts as that.
    pub direct: bool,
    /// The most envelopes of one message.
    pub bundle_max: usize,
    /// The most messages that the broker should hold ready.
    pub window_msgs: usize,
    /// Whether the hint is older than a second.
    pub stale: bool,
    /// When a dispatcher gave the hint, in milliseconds.
    pub hinted_ms: i64,
    /// Whether the queue is paused.
    pub paused: bool,
    /// The parked jobs when they were last counted.
    pub backlog: i64,
    /// How long before the reading that count began; an hour at most.
    pub backlog_age: Duration,
    /// Tells one count from another; 0: there was none.
    pub backlog_stamp: i64,
    /// The queue's own threshold.
    pub max_backlog: Option<i64>,
}

#[derive(sqlx::FromRow)]
struct HintRow {
    queue: String,
    lane: i16,
    direct: bool,
    bundle_max: i32,
    window_msgs: i32,
    stale: bool,
    hinted_ms: i64,
    paused: bool,
    backlog: i64,
    backlog_age_ms: i64,
    backlog_stamp: i64,
    max_backlog: Option<i64>,
}

impl Store {
    /// Begins a tick: locks those of the given lanes that are due and that no other
    /// dispatcher holds. `known`: what this dispatcher remembers of their backlogs.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn begin_tick(
        &self,
        lanes: &[(String, Lane)],
        known: &KnownUsers,
    ) -> Result<(Tick, Vec<DueLane>)> {
        let names: Vec<String> = lanes
            .iter()
            .map(|(queue, lane)| lane_name(queue, *lane))
            .collect();
        let mut held = self.hold().await.map_err(db_error)?;
        held.run("begin").await.map_err(db_error)?;
        let limit = held.limit();
        let due = sqlx::query_as(LANES_DUE)
            .bind(names)
            .bind(known.waiting())
            .fetch_all(held.connection());
        let due = answered(limit, due).await.map_err(db_error)?;
        Ok((Tick { held }, due))
    }

    /// Reads the hints of all lanes.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn lane_hints(&self) -> Result<Vec<LaneHint>> {
        let rows: Vec<HintRow> = sqlx::query_as(HINTS)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                Some(LaneHint {
                    lane: Lane::from_number(row.lane)?,
                    queue: row.queue,
                    direct: row.direct || row.stale,
                    bundle_max: row.bundle_max.clamp(1, 32) as usize,
                    window_msgs: row.window_msgs.max(1) as usize,
                    stale: row.stale,
                    hinted_ms: row.hinted_ms,
                    paused: row.paused,
                    backlog: row.backlog,
                    backlog_age: Duration::from_millis(
                        u64::try_from(row.backlog_age_ms).unwrap_or_default(),
                    ),
                    backlog_stamp: row.backlog_stamp,
                    max_backlog: row.max_backlog,
                })
            })
            .collect())
    }

    /// The names of all queues.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn queue_names(&self) -> Result<Vec<String>> {
        sqlx::query_scalar(LANES)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)
    }
}

impl Tick {
    /// Takes about `room` parked jobs of a lane: each user in turn as many as its weight
    /// says, each user's oldest first. The last turn is not cut off, so that a small room
    /// does not favour those with small weights.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn pick(
        &mut self,
        lane: &DueLane,
        room: usize,
        known: &mut KnownUsers,
    ) -> Result<Picked> {
        let mut jobs = Vec::new();
        let mut weights = HashMap::new();
        let mut cursor_user = lane.cursor_user.clone();
        let mut exhausted = false;
        let mut passes = 0;
        // A pass that could not fill the room (some users had less than their share)
        // is followed by another one; the bound keeps a tick short.
        while jobs.len() < room && passes < PASSES_MAX {
            passes += 1;
            let left = room - jobs.len();
            let (began, whole) = (Instant::now(), known.of(lane).is_none());
            let mut users = self.users(lane, &cursor_user, left, known).await?;
            if users.len() < left.min(USERS_PER_PASS) {
                let from_start = self.users(lane, "", left, known).await?;
                let have: std::collections::HashSet<String> =
                    users.iter().map(|u| u.user_id.clone()).collect();
                users.extend(
                    from_start
                        .into_iter()
                        .filter(|u| !have.contains(&u.user_id)),
                );
                users.truncate(USERS_PER_PASS);
            }
            if users.is_empty() {
                known.forget(lane);
                if whole {
                    exhausted = true;
                    break;
                }
                continue;
            }
            let turns = fairness::turns(&users, left, users.len() < USERS_PER_PASS);
            users.truncate(turns.len());
            let names: Vec<&str> = users.iter().map(|u| u.user_id.as_str()).collect();
            let sent = if whole {
                vec![Uuid::nil(); names.len()]
            } else {
                known.sent(lane, &names)
            };
            let limit = self.held.limit();
            let picking = sqlx::query_as(PICK)
                .bind(&lane.queue)
                .bind(lane.lane)
                .bind(names)
                .bind(turns)
                .bind(INLINE_PAYLOAD_BYTES as i32)
                .bind(sent)
                .fetch_all(self.held.connection());
            let got: Vec<Dispatched> = answered(limit, picking).await.map_err(db_error)?;
            if got.is_empty() {
                known.forget(lane);
                break;
            }
            known.took(lane, &got, whole.then(|| began.elapsed()));
            if let Some(last) = users.last() {
                cursor_user.clone_from(&last.user_id);
            }
            weights.extend(users.into_iter().map(|u| (u.user_id, u.weight)));
            jobs.extend(got);
        }
        Ok(Picked {
            jobs: fairness::in_turn(jobs, &weights),
            cursor_user,
            exhausted,
        })
    }

    async fn users(
        &mut self,
        lane: &DueLane,
        after: &str,
        limit: usize,
        known: &mut KnownUsers,
    ) -> Result<Vec<User>> {
        let limit_time = self.held.limit();
        let known = known.of(lane);
        let statement = if known.is_some() { USERS_KNOWN } else { USERS };
        let mut asked = sqlx::query_as(statement)
            .bind(&lane.queue)
            .bind(lane.lane)
            .bind(after)
            .bind(limit.min(USERS_PER_PASS) as i32);
        if let Some((users, sent)) = known {
            asked = asked.bind(users).bind(sent);
        }
        let reading = asked.fetch_all(self.held.connection());
        answered(limit_time, reading).await.map_err(db_error)
    }

    /// Stores what the tick leaves and commits. Publish only after it.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE: then nothing of the tick counts, or `wake_at` repairs it.
    pub async fn commit(mut self, ticked: &[Ticked]) -> Result<()> {
        if !ticked.is_empty() {
            let limit = self.held.limit();
            let writing = sqlx::query(TICKED)
                .bind(ticked.iter().map(|t| t.queue.as_str()).collect::<Vec<_>>())
                .bind(ticked.iter().map(|t| t.lane.number()).collect::<Vec<_>>())
                .bind(
                    ticked
                        .iter()
                        .map(|t| t.cursor_user.as_str())
                        .collect::<Vec<_>>(),
                )
                .bind(
                    ticked
                        .iter()
                        .map(|t| t.pause.as_millis() as i64)
                        .collect::<Vec<_>>(),
                )
                .bind(ticked.iter().map(|t| t.msgs).collect::<Vec<_>>())
                .bind(ticked.iter().map(|t| t.direct).collect::<Vec<_>>())
                .bind(ticked.iter().map(|t| t.grow).collect::<Vec<_>>())
                .bind(ticked.iter().map(|t| t.window_msgs).collect::<Vec<_>>())
                .bind(ticked.iter().map(|t| t.busy).collect::<Vec<_>>())
                .execute(self.held.connection());
            answered(limit, writing).await.map_err(db_error)?;
        }
        self.held.run("commit").await.map_err(db_error)?;
        self.held.done();
        Ok(())
    }
}
