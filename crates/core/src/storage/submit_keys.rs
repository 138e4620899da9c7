//! The keys of submits (PROTOCOL.md §5b): request ids and dedupe keys.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;

use super::submit::{Follower, Row, Submitted};
use crate::domain::ids::JobId;
use crate::domain::job::NewJob;
use crate::domain::state::JobState;
use crate::error::{Code, Error, Result};

/// A key is bound anew only on evidence that its job has ended: the job's row, what retention
/// left in the key when it removed the job, or the ledger. A job that this statement cannot
/// see yet is in none of them.
const BIND_KEYS: &str = "insert into job_dedupe as d (user_id, scope, key, job_id, fingerprint, bound_until, after_end) \
     select u, s, k, j, f, coalesce(now() + p, 'infinity'), a \
     from unnest($1::text[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], $6::interval[], $7::interval[]) t (u, s, k, j, f, p, a) \
     order by u, s, k \
     on conflict (user_id, scope, key) do update set job_id = excluded.job_id, fingerprint = excluded.fingerprint, \
     bound_until = excluded.bound_until, after_end = excluded.after_end, ended = null \
     where d.bound_until <= now() and coalesce((select j.finished_at is not null \
     and j.finished_at + coalesce(d.after_end, interval '0') <= now() from jobs j where j.job_id = d.job_id), \
     d.ended is not null or coalesce((select p.status in ('done', 'failed', 'cancelled') \
     from processed_events p where p.event_id = d.job_id), false)) \
     returning user_id, scope, key";
/// Where retention has removed the job, the key itself tells its end, or the ledger, which is
/// kept for longer. One that is in neither was cancelled before it was ever claimed; of a
/// key that is bound for ever it may be that the ledger has let go of it, too.
const READ_KEYS: &str = "select t.ord, d.job_id, d.fingerprint, coalesce(j.status, d.ended, \
     (select case p.status when 'done' then 'success' when 'failed' then 'failed' when 'cancelled' then 'cancelled' end \
     from processed_events p where p.event_id = d.job_id), \
     case when d.bound_until < 'infinity' then 'cancelled' else 'success' end) \
     from unnest($1::text[], $2::text[], $3::text[]) with ordinality t (u, s, k, ord) \
     join job_dedupe d on d.user_id = t.u and d.scope = t.s and d.key = t.k left join jobs j on j.job_id = d.job_id";
const UNBIND: &str = "delete from job_dedupe d using unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) t (u, s, k, j) \
     where d.user_id = t.u and d.scope = t.s and d.key = t.k and d.job_id = t.j";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("bind_keys", BIND_KEYS),
    ("read_keys", READ_KEYS),
    ("unbind_keys", UNBIND),
];

/// How often a key that vanished between two statements is asked for again.
const KEY_ROUNDS: usize = 3;

/// A key of a row: the scope is the job type, or empty for a request id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) user: String,
    pub(super) scope: String,
    pub(super) key: String,
}

pub(super) fn keys_of(job: &NewJob) -> impl Iterator<Item = Key> + '_ {
    let user = job.user_id.as_str();
    let request = job.request_id.as_ref().map(|key| (String::new(), key));
    let dedupe = job
        .dedupe
        .as_ref()
        .map(|binding| (job.job_type.clone(), &binding.key));
    request
        .into_iter()
        .chain(dedupe)
        .map(move |(scope, key)| Key {
            user: user.to_owned(),
            scope,
            key: key.clone(),
        })
}

/// What a repeated key answers: the job of the first, or that it was another request.
pub(super) fn answer_repeat(
    job: &NewJob,
    scope: &str,
    first: JobId,
    fingerprint: &[u8],
    state: JobState,
) -> Result<Submitted> {
    if fingerprint == job.fingerprint {
        return Ok(Submitted {
            job_id: first,
            duplicate: first != job.job_id,
            state,
        });
    }
    let (code, what) = if scope.is_empty() {
        (Code::RequestIdConflict, "request_id")
    } else {
        (Code::DedupeConflict, "dedupe_key")
    };
    Err(Error::new(
        code,
        format!("this {what} belongs to job {first}, which was submitted with another content"),
    )
    .with_meta("job_id", first.to_string()))
}

/// Answers those that repeat a key as the first one was; not where that has no answer yet.
pub(super) fn answer_followers(
    rows: &[Row],
    followers: Vec<Follower>,
    outcomes: &mut [Option<Result<Submitted>>],
) {
    for (index, leader, scope) in followers {
        outcomes[index] = outcomes[leader].as_ref().map(|outcome| match outcome {
            Ok(first) => answer_repeat(
                &rows[index].job,
                &scope,
                first.job_id,
                &rows[leader].job.fingerprint,
                first.state,
            ),
            // The leader was refused; so is who says the same.
            Err(error) => Err(error.again()),
        });
    }
}

/// Splits a batch into the first of each key and those that repeat one of them.
pub(super) fn collapse(rows: &[Row]) -> (Vec<usize>, Vec<Follower>) {
    let mut first: HashMap<Key, usize> = HashMap::new();
    let (mut leaders, mut followers) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        let earlier =
            keys_of(&row.job).find_map(|key| first.get(&key).map(|leader| (*leader, key.scope)));
        if let Some((leader, scope)) = earlier {
            followers.push((index, leader, scope));
        } else {
            for key in keys_of(&row.job) {
                first.insert(key, index);
            }
            leaders.push(index);
        }
    }
    (leaders, followers)
}

/// Binds the keys of the leaders; answers those whose key is taken, and returns the rest.
pub(super) async fn bind_keys(
    tx: &mut PgConnection,
    rows: &[Row],
    leaders: &[usize],
    outcomes: &mut [Option<Result<Submitted>>],
) -> Result<Vec<usize>, sqlx::Error> {
    // Sorted by (user, scope, key), which is the lock order.
    let mut open: BTreeMap<Key, usize> = BTreeMap::new();
    for index in leaders {
        open.extend(keys_of(&rows[*index].job).map(|key| (key, *index)));
    }
    let mut bound: HashSet<Key> = HashSet::new();
    for _ in 0..KEY_ROUNDS {
        if open.is_empty() {
            break;
        }
        let got = bind(tx, rows, &open).await?;
        bound.extend(got.iter().cloned());
        open.retain(|key, _| !got.contains(key));
        if open.is_empty() {
            break;
        }
        let wanted: Vec<Key> = open.keys().cloned().collect();
        for (ord, job_id, fingerprint, status) in read_keys(tx, &wanted).await? {
            let key = &wanted[ord as usize - 1];
            let Some(index) = open.remove(key) else {
                continue;
            };
            let job = &rows[index].job;
            if job_id == job.job_id.uuid() {
                bound.insert(key.clone());
                continue;
            }
            let Ok(state) = status.parse() else {
                let unknown = Error::new(Code::Internal, "a job has an unknown state");
                outcomes[index] = Some(Err(unknown));
                continue;
            };
            let answer = answer_repeat(job, &key.scope, JobId(job_id), &fingerprint, state);
            // The request id speaks first: it names this very request.
            if outcomes[index].is_none() || key.scope.is_empty() {
                outcomes[index] = Some(answer);
            }
        }
    }
    for index in open.into_values() {
        outcomes[index].get_or_insert(Err(Error::new(
            Code::DatabaseUnavailable,
            "the key changes hands just now; try again",
        )));
    }
    // Who is refused by one key must not keep the other one.
    let orphaned: Vec<(Key, JobId)> = leaders
        .iter()
        .filter(|index| outcomes[**index].is_some())
        .flat_map(|index| keys_of(&rows[*index].job).map(|key| (key, rows[*index].job.job_id)))
        .filter(|(key, _)| bound.contains(key))
        .collect();
    if !orphaned.is_empty() {
        unbind(tx, &orphaned).await?;
    }
    Ok(leaders
        .iter()
        .copied()
        .filter(|index| outcomes[*index].is_none())
        .collect())
}

async fn bind(
    tx: &mut PgConnection,
    rows: &[Row],
    open: &BTreeMap<Key, usize>,
) -> Result<HashSet<Key>, sqlx::Error> {
    let mut columns: [Vec<String>; 3] = Default::default();
    let (mut jobs, mut prints, mut periods, mut after) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (key, index) in open {
        let job = &rows[*index].job;
        columns[0].push(key.user.clone());
        columns[1].push(key.scope.clone());
        columns[2].push(key.key.clone());
        jobs.push(job.job_id.uuid());
        prints.push(job.fingerprint.to_vec());
        // A request id holds for a day, a dedupe key as its type says.
        let (period, after_end) = match (&job.dedupe, key.scope.is_empty()) {
            (Some(binding), false) => (binding.period, binding.after_end),
            _ => (
                Some(std::time::Duration::from_hours(24)),
                std::time::Duration::ZERO,
            ),
        };
        periods.push(period.map(interval));
        after.push(interval(after_end));
    }
    let [users, scopes, keys] = columns;
    let got: Vec<(String, String, String)> = sqlx::query_as(BIND_KEYS)
        .bind(users)
        .bind(scopes)
        .bind(keys)
        .bind(jobs)
        .bind(prints)
        .bind(periods)
        .bind(after)
        .fetch_all(tx)
        .await?;
    Ok(got
        .into_iter()
        .map(|(user, scope, key)| Key { user, scope, key })
        .collect())
}

fn interval(duration: std::time::Duration) -> PgInterval {
    PgInterval {
        months: 0,
        days: 0,
        microseconds: duration.as_micros() as i64,
    }
}

type KeyRow = (i64, uuid::Uuid, Vec<u8>, String);

async fn read_keys(tx: &mut PgConnection, keys: &[Key]) -> Result<Vec<KeyRow>, sqlx::Error> {
    let column = |f: fn(&Key) -> &String| keys.iter().map(f).cloned().collect::<Vec<_>>();
    sqlx::query_as(READ_KEYS)
        .bind(column(|k| &k.user))
        .bind(column(|k| &k.scope))
        .bind(column(|k| &k.key))
        .fetch_all(tx)
        .await
}

pub(super) async fn unbind(
    tx: &mut PgConnection,
    keys: &[(Key, JobId)],
) -> Result<(), sqlx::Error> {
    let column =
        |f: fn(&Key) -> &String| keys.iter().map(|(k, _)| f(k)).cloned().collect::<Vec<_>>();
    sqlx::query(UNBIND)
        .bind(column(|k| &k.user))
        .bind(column(|k| &k.scope))
        .bind(column(|k| &k.key))
        .bind(keys.iter().map(|(_, id)| id.uuid()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}
