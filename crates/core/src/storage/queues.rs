//! How full the queues are, for people: index look-ups only, bounded by caps whatever
//! the size of the backlog.

use std::collections::HashMap;
use std::time::Duration;

use super::pool::on_hot;
use super::queue_pause::{Pause, PauseRow};
use super::{Store, db_error};
use crate::domain::job::Lane;
use crate::error::Result;

/// Every count stops here.
pub const COUNT_CAP: i64 = 10_000;

/// The most rows that each look at the live jobs of all lanes together takes.
const LIVE_SCAN: i64 = 3 * COUNT_CAP;

/// The most users whose first parked job is looked at for the age of the oldest.
const USERS_SCAN: i32 = 1000;

const QUEUES: &str = "select name, paused, pause_reason, paused_by, paused_at, \
     system_paused, system_pause_reason, system_paused_at from queues order by name";
const PARKED: &str = include_str!("sql/queues_parked.sql");
const LIVE: &str = include_str!("sql/queues_live.sql");

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("queues_list", QUEUES),
    ("queues_parked", PARKED),
    ("queues_live", LIVE),
];

/// A queue with its lanes.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueStatus {
    /// The name.
    pub name: String,
    /// Its lanes, high first.
    pub lanes: Vec<LaneStatus>,
    /// The pause by hand.
    pub pause: Option<Pause>,
    /// The pause by the system.
    pub system_pause: Option<Pause>,
}

impl QueueStatus {
    /// Whether its jobs are kept from starting.
    pub fn paused(&self) -> bool {
        self.pause.is_some() || self.system_pause.is_some()
    }
}

/// How full a lane is. A count that equals [`COUNT_CAP`] means "at least".
#[derive(Clone, PartialEq, Debug)]
pub struct LaneStatus {
    /// Which lane.
    pub lane: Lane,
    /// Jobs ready to start that no worker has.
    pub waiting: i64,
    /// Jobs that run.
    pub running: i64,
    /// Jobs that wait for a later time.
    pub scheduled: i64,
    /// For how long the oldest of the waiting has been ready.
    pub oldest_age: Option<Duration>,
}

#[derive(sqlx::FromRow)]
struct ParkedRow {
    queue: String,
    lane: i16,
    parked: i64,
    age: Option<f64>,
}

#[derive(sqlx::FromRow)]
struct LiveRow {
    queue: String,
    lane: i16,
    sent: i64,
    running: i64,
    scheduled: i64,
    age: Option<f64>,
}

impl Store {
    /// The queues by name, with their lanes and how full those are.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn list_queues(&self) -> Result<Vec<QueueStatus>> {
        let queues: Vec<PauseRow> = sqlx::query_as(QUEUES)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        let parked: Vec<ParkedRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(PARKED).bind(COUNT_CAP).bind(USERS_SCAN)
        )
        .map_err(db_error)?;
        let live: Vec<LiveRow> = on_hot!(
            self,
            fetch_all,
            sqlx::query_as(LIVE).bind(LIVE_SCAN).bind(COUNT_CAP)
        )
        .map_err(db_error)?;
        let queues = queues.into_iter().map(PauseRow::into_status).collect();
        Ok(join(queues, parked, live))
    }
}

fn join(queues: Vec<QueueStatus>, parked: Vec<ParkedRow>, live: Vec<LiveRow>) -> Vec<QueueStatus> {
    let mut live: HashMap<(String, i16), LiveRow> = live
        .into_iter()
        .map(|row| ((row.queue.clone(), row.lane), row))
        .collect();
    let mut lanes: HashMap<String, Vec<LaneStatus>> = HashMap::new();
    for row in parked {
        let Some(lane) = Lane::from_number(row.lane) else {
            continue;
        };
        let now = live.remove(&(row.queue.clone(), row.lane));
        let (sent, running, scheduled, age) =
            now.map_or((0, 0, 0, None), |l| (l.sent, l.running, l.scheduled, l.age));
        lanes.entry(row.queue).or_default().push(LaneStatus {
            lane,
            waiting: (row.parked + sent).min(COUNT_CAP),
            running: running.min(COUNT_CAP),
            scheduled: scheduled.min(COUNT_CAP),
            oldest_age: seconds(row.age).max(seconds(age)),
        });
    }
    queues
        .into_iter()
        .map(|queue| QueueStatus {
            lanes: lanes.remove(&queue.name).unwrap_or_default(),
            ..queue
        })
        .collect()
}

fn seconds(age: Option<f64>) -> Option<Duration> {
    age.and_then(|age| Duration::try_from_secs_f64(age.max(0.0)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parked_and_sent_jobs_wait_together_up_to_the_cap() {
        let queue = |name: &str| QueueStatus {
            name: name.into(),
            lanes: Vec::new(),
            pause: None,
            system_pause: None,
        };
        let parked = |lane, parked, age| ParkedRow {
            queue: "q".into(),
            lane,
            parked,
            age,
        };
        let live = |lane, sent, age| LiveRow {
            queue: "q".into(),
            lane,
            sent,
            running: 2,
            scheduled: 3,
            age,
        };
        let queues = join(
            vec![queue("empty"), queue("q")],
            vec![
                parked(1, 0, None),
                parked(2, 9_999, Some(4.0)),
                parked(3, 1, Some(2.0)),
            ],
            vec![live(2, 7, Some(1.0)), live(3, 1, Some(5.5))],
        );
        assert_eq!(queues[0], queue("empty"));
        let lanes: Vec<_> = queues[1]
            .lanes
            .iter()
            .map(|l| (l.lane, l.waiting, l.running, l.scheduled, l.oldest_age))
            .collect();
        assert_eq!(
            lanes,
            [
                (Lane::High, 0, 0, 0, None),
                (Lane::Normal, COUNT_CAP, 2, 3, Some(Duration::from_secs(4))),
                (Lane::Low, 2, 2, 3, Some(Duration::from_millis(5_500))),
            ]
        );
    }
}
