//! Submits of users whose credit does not suffice: the jobs are counted, and as many are
//! written as fit under the limit (PROTOCOL.md §5c).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use sqlx::PgConnection;

use super::admission::{self, Count, JobLimit, Load, too_many};
use super::pool::Held;
use super::submit::{Row, Submitted, Written, fresh, insert};
use super::submit_keys::{answer_followers, bind_keys, collapse, keys_of, unbind};
use super::{Store, repeats, submit_lines};
use crate::domain::ids::JobId;
use crate::error::{Error, Result};

type Outcomes = [Option<Result<Submitted>>];

/// Refuses the rows of users who were at their limit a moment ago, but for those that
/// repeat a key: their answer is a job that is there. Answers with the other rows.
pub(super) async fn refuse_at_once(
    held: &mut Held,
    rows: &[Row],
    leaders: Vec<usize>,
    limit: &JobLimit,
    outcomes: &mut Outcomes,
) -> Result<Vec<usize>, sqlx::Error> {
    let mut refusals: Vec<(usize, Error)> = Vec::new();
    let mut others = Vec::with_capacity(leaders.len());
    for index in leaders {
        match limit.refused(rows[index].job.user_id.as_str()) {
            Some(refusal) => refusals.push((index, refusal)),
            None => others.push(index),
        }
    }
    if refusals.is_empty() {
        return Ok(others);
    }
    let jobs: Vec<_> = refusals
        .iter()
        .map(|(index, _)| &rows[*index].job)
        .collect();
    let repeats = repeats::find(held.connection(), &jobs).await?;
    for ((index, refusal), repeat) in refusals.into_iter().zip(repeats) {
        outcomes[index] = Some(repeat.unwrap_or(Err(refusal)));
    }
    Ok(others)
}

/// Lets go of the keys of rows that are not written.
pub(super) async fn unbind_rows(
    connection: &mut PgConnection,
    rows: &[Row],
    which: &[usize],
) -> Result<(), sqlx::Error> {
    let keys: Vec<_> = which
        .iter()
        .flat_map(|index| keys_of(&rows[*index].job).map(|key| (key, rows[*index].job.job_id)))
        .collect();
    if keys.is_empty() {
        return Ok(());
    }
    unbind(connection, &keys).await
}

/// What one user may add.
struct Grant {
    left: usize,
    limit: i64,
    wait: Duration,
    /// Not known: there are too many jobs to count them beside those of others.
    undecided: bool,
}

impl Store {
    /// Writes rows of users whose credit did not suffice. Rows without an outcome belong to
    /// users who have so many jobs that they must be counted alone: one user's rows are
    /// always decided.
    ///
    /// Safe to repeat with the same rows after an unknown commit.
    pub(super) async fn write_scarce(
        &self,
        rows: &[Row],
        limit: &JobLimit,
    ) -> Result<Written, sqlx::Error> {
        let (leaders, followers) = collapse(rows);
        let mut outcomes: Vec<Option<Result<Submitted>>> = rows.iter().map(|_| None).collect();
        let mut held = self.hold().await?;
        // Since these rows were put aside, their users may have been found at the limit.
        let leaders = refuse_at_once(&mut held, rows, leaders, limit, &mut outcomes).await?;
        let lines = submit_lines::of(rows, &leaders);
        held.run("begin").await?;
        let connection = held.connection();
        submit_lines::lock(connection, &lines).await?;
        let accepted = if leaders
            .iter()
            .any(|index| keys_of(&rows[*index].job).next().is_some())
        {
            bind_keys(connection, rows, &leaders, &mut outcomes).await?
        } else {
            leaders
        };
        let ids: Vec<JobId> = accepted
            .iter()
            .map(|index| rows[*index].job.job_id)
            .collect();
        let there: HashSet<JobId> = admission::existing(connection, &ids)
            .await?
            .into_iter()
            .collect();
        let (old, new): (Vec<usize>, Vec<usize>) = accepted
            .into_iter()
            .partition(|index| there.contains(&rows[*index].job.job_id));
        for index in old {
            outcomes[index] = Some(Ok(fresh(&rows[index].job)));
        }
        let (mut grants, counts) = grants(connection, rows, &new, limit).await?;
        let (mut granted, mut refused, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
        for index in new.iter().copied() {
            let user = rows[index].job.user_id.as_str();
            let Some(grant) = grants.get_mut(user) else {
                continue;
            };
            if grant.left > 0 {
                grant.left -= 1;
                granted.push(index);
            } else {
                refused.push(index);
                if grant.undecided {
                    undecided.push(index);
                } else {
                    outcomes[index] = Some(Err(too_many(user, grant.limit, grant.wait)));
                }
            }
        }
        // They are written later, and so is what comes behind them in their lines.
        let late = submit_lines::behind(rows, &new, &undecided);
        granted.retain(|index| !late.contains(index));
        refused.extend(late.iter().filter(|index| outcomes[**index].is_none()));
        let mut inserted = if granted.is_empty() {
            HashMap::new()
        } else {
            // Takes the credit that was given above, under the same locks.
            insert(connection, rows, &granted).await?
        };
        unbind_rows(connection, rows, &refused).await?;
        submit_lines::give_turns(connection, rows, &granted, &lines, &mut inserted).await?;
        held.run("commit").await?;
        held.done();
        // Not before: what a transaction counted that came to nothing is counted again.
        for (user, count) in &counts {
            limit.counted(user, count);
        }
        for index in granted {
            // What was not inserted in spite of its grant has no outcome, and is tried again.
            if inserted.contains_key(&rows[index].job.job_id) {
                outcomes[index] = Some(Ok(fresh(&rows[index].job)));
            }
        }
        answer_followers(rows, followers, &mut outcomes);
        Ok(Written { outcomes, inserted })
    }
}

/// Locks the users' rows, counts where the credit does not suffice, and says what each of
/// them may add.
async fn grants(
    connection: &mut PgConnection,
    rows: &[Row],
    which: &[usize],
    limit: &JobLimit,
) -> Result<(HashMap<String, Grant>, Vec<(String, Count)>), sqlx::Error> {
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for index in which {
        *wanted.entry(rows[*index].job.user_id.as_str()).or_default() += 1;
    }
    if wanted.is_empty() {
        return Ok((HashMap::new(), Vec::new()));
    }
    let users: Vec<&str> = wanted.keys().copied().collect();
    let mut loads = admission::lock(connection, &users).await?;
    let mut waits: HashMap<&str, Duration> = HashMap::new();
    let mut short: Vec<&str> = Vec::new();
    for (user, want) in &wanted {
        let enough = |load: &Load| load.credit >= *want as i64;
        if loads.get(*user).is_some_and(enough) {
            continue;
        }
        match limit.may_count(user) {
            Ok(()) => short.push(user),
            Err(wait) => {
                waits.insert(user, wait);
            }
        }
    }
    let mut counts = Vec::new();
    if !short.is_empty() {
        let began = Instant::now();
        loads.extend(admission::renew(connection, &short, limit).await?);
        let took = began.elapsed() / short.len() as u32;
        for user in &short {
            let Some(load) = loads.get(*user).filter(|load| load.credit >= 0) else {
                continue;
            };
            let count = Count {
                limit: load.limit,
                jobs: load.limit - load.credit,
                took,
                full: load.credit < wanted[user] as i64,
            };
            waits.insert(user, count.pause());
            counts.push(((*user).to_owned(), count));
        }
    }
    let grants = wanted.keys().map(|user| {
        let load = loads.get(*user).copied();
        let credit = load.map_or(0, |load| load.credit);
        let grant = Grant {
            left: usize::try_from(credit).unwrap_or_default(),
            limit: load.map_or(0, |load| load.limit),
            wait: waits.get(user).copied().unwrap_or_default(),
            undecided: credit < 0 && short.contains(user),
        };
        ((*user).to_owned(), grant)
    });
    Ok((grants.collect(), counts))
}
