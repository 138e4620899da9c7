//! How many jobs wait in the database for each lane, counted now and then by the sweepers
//! and read by the gateways with the hints of the lanes (docs/adr/0004).

use std::time::Duration;

use super::{Store, db_error};
use crate::domain::job::Lane;
use crate::error::Result;

const LANES: &str = "select l.queue, l.lane, q.max_backlog, \
     (extract(epoch from now() - greatest(l.backlog_at, now() - interval '1 hour')) * 1000)::bigint as age_ms \
     from lanes l join queues q on q.name = l.queue order by l.queue, l.lane";
/// Along the index of parked jobs, and no further than it matters.
const COUNT: &str = "select count(*) from (select 1 from jobs j \
     where j.parked and j.queue = $1 and j.lane = $2 limit $3) x";
/// Dated back to when the count began. A count that began before the stored one is dropped.
const STORE: &str = "update lanes set backlog = $3, backlog_at = now() - $4 * interval '1 ms' \
     where queue = $1 and lane = $2 and backlog_at < now() - $4 * interval '1 ms'";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("backlog_lanes", LANES),
    ("backlog_count", COUNT),
    ("backlog_store", STORE),
];

/// A lane whose backlog is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountedLane {
    /// The queue.
    pub queue: String,
    /// The lane.
    pub lane: Lane,
    /// The queue's own threshold.
    pub max_backlog: Option<i64>,
    /// How long ago the stored count began, by whoever made it; an hour at most.
    pub age: Duration,
}

impl Store {
    /// The lanes, with how old their counts are.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn counted_lanes(&self) -> Result<Vec<CountedLane>> {
        let rows: Vec<(String, i16, Option<i64>, i64)> = sqlx::query_as(LANES)
            .fetch_all(self.pool())
            .await
            .map_err(db_error)?;
        Ok(rows
            .into_iter()
            .filter_map(|(queue, lane, max_backlog, age_ms)| {
                Some(CountedLane {
                    queue,
                    lane: Lane::from_number(lane)?,
                    max_backlog,
                    age: Duration::from_millis(u64::try_from(age_ms).unwrap_or_default()),
                })
            })
            .collect())
    }

    /// Counts the parked jobs of a lane, up to `most`, and stores the count.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE.
    pub async fn count_backlog(&self, queue: &str, lane: Lane, most: i64) -> Result<i64> {
        let began = std::time::Instant::now();
        let count: i64 = sqlx::query_scalar(COUNT)
            .bind(queue)
            .bind(lane.number())
            .bind(most)
            .fetch_one(self.pool())
            .await
            .map_err(db_error)?;
        sqlx::query(STORE)
            .bind(queue)
            .bind(lane.number())
            .bind(count)
            .bind(began.elapsed().as_millis() as i64)
            .execute(self.pool())
            .await
            .map_err(db_error)?;
        Ok(count)
    }
}
