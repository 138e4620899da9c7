//! Replaying failed jobs (PROTOCOL.md §15): job, ledger, key, letter, replay and audit in
//! one transaction, so that a letter is open with no new run or replayed with exactly one.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;
use uuid::Uuid;

use super::facts::{Facts, Verdict, places};
use super::replay_parts::replay_each;
use super::verbs::{not_found, persist};
use super::{DeadLetterStatus, Decision, LetterResult, Outcome};
use crate::domain::ids::JobId;
use crate::domain::state::JobState;
use crate::error::Result;
use crate::storage::Store;

const REPLAY: &str = include_str!("../sql/replay.sql");

/// A key that is free, ours, or no longer bound (PROTOCOL.md §5b) is bound as a submit would
/// bind it. A submit that waits for this row looks at `bound_until` again and finds it in
/// the future, whatever it has read of the job before.
const BIND: &str = "insert into job_dedupe as d (user_id, scope, key, job_id, fingerprint, bound_until, after_end) \
     select i.u, i.s, i.k, i.j, '\\x', case t.dedupe_policy when 'forever' then 'infinity'::timestamptz \
     when 'period' then now() + greatest(t.dedupe_period_ms, 600000) * interval '1 ms' \
     else now() + interval '10 minutes' end, \
     case t.dedupe_policy when 'after_end' then t.dedupe_period_ms * interval '1 ms' else interval '0' end \
     from unnest($1::text[], $2::text[], $3::text[], $4::uuid[]) i (u, s, k, j) \
     left join job_types t on t.name = i.s order by i.u, i.s, i.k \
     on conflict (user_id, scope, key) do update set job_id = excluded.job_id, ended = null, \
     bound_until = greatest(excluded.bound_until, case when d.job_id = excluded.job_id then d.bound_until end), \
     after_end = case when d.job_id = excluded.job_id then d.after_end else excluded.after_end end \
     where d.job_id = excluded.job_id or (d.bound_until <= now() and (select j.finished_at is not null \
     and j.finished_at + coalesce(d.after_end, interval '0') <= now() from jobs j where j.job_id = d.job_id)) \
     returning user_id, scope, key";
const HOLDERS: &str = "select k.user_id, k.scope, k.key, k.job_id, coalesce(j.status, k.ended) as status \
     from unnest($1::text[], $2::text[], $3::text[]) i (u, s, k) \
     join job_dedupe k on k.user_id = i.u and k.scope = i.s and k.key = i.k left join jobs j on j.job_id = k.job_id";

pub(super) const STATEMENTS: &[(&str, &str)] = &[
    ("replay", REPLAY),
    ("replay_bind_keys", BIND),
    ("replay_key_holders", HOLDERS),
];

/// The letters of one transaction.
const BATCH: usize = 100;

/// A letter that is to be replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Its id, or its job's.
    pub(super) id: Uuid,
    /// The replay that it is going to be. The same at each try, so that a commit whose
    /// answer was lost is found again.
    pub(super) replay_id: Uuid,
}

impl Target {
    pub(super) fn new(id: Uuid) -> Self {
        Self {
            id,
            replay_id: Uuid::now_v7(),
        }
    }
}

/// Who replays: an operator who names letters, or a bulk replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub(super) decision: &'a Decision,
    pub(super) bulk: Option<Uuid>,
}

type Key = (String, String, String);

impl Store {
    /// Runs the jobs of letters again; answers with an outcome for each id, which may be a
    /// letter's or its job's. Open letters are replayed, and ignored or resolved ones whose
    /// job has failed.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE; a part may be done then. Repeating is safe: what was replayed
    /// is ALREADY_DONE.
    pub async fn replay_dead_letters(
        &self,
        ids: &[Uuid],
        decision: &Decision,
    ) -> Result<Vec<LetterResult>> {
        let by = By {
            decision,
            bulk: None,
        };
        let mut results = Vec::with_capacity(ids.len());
        for part in ids.chunks(BATCH) {
            let targets: Vec<Target> = part.iter().copied().map(Target::new).collect();
            results.extend(persist(|| self.replay_once(&targets, by)).await?);
        }
        Ok(results)
    }

    async fn replay_once(
        &self,
        targets: &[Target],
        by: By<'_>,
    ) -> Result<Vec<LetterResult>, sqlx::Error> {
        let mut held = self.hold().await?;
        held.run("begin").await?;
        let results = replay_each(held.connection(), targets, by).await?;
        held.run("commit").await?;
        held.done();
        Ok(results)
    }
}

/// What a batch of replays came to.
#[derive(Default)]
pub(super) struct Replayed {
    pub(super) results: Vec<LetterResult>,
    /// The users whose jobs run again, one for each job.
    pub(super) owners: Vec<String>,
}

/// Replays letters that are locked with their jobs. Their owners are not debited yet.
pub(super) async fn replay_batch(
    connection: &mut PgConnection,
    targets: &[Target],
    facts: &[Facts],
    by: By<'_>,
) -> Result<Replayed, sqlx::Error> {
    let places = places(facts);
    // A letter that is named twice, by its id and its job's, is replayed once.
    let mut replays: Vec<Option<Uuid>> = vec![None; facts.len()];
    for target in targets {
        if let Some(place) = places.get(&target.id) {
            replays[*place].get_or_insert(target.replay_id);
        }
    }
    let mut verdicts: Vec<Verdict> = facts
        .iter()
        .zip(&replays)
        .map(|(fact, replay)| verdict(fact, *replay, by.bulk))
        .collect();
    bind_keys(connection, facts, &replays, &mut verdicts).await?;
    let fresh: Vec<usize> = (0..facts.len())
        .filter(|place| is_fresh(&facts[*place], replays[*place], &verdicts[*place]))
        .collect();
    write(connection, facts, &replays, &fresh, by).await?;
    let results = targets
        .iter()
        .map(|target| {
            let Some(place) = places.get(&target.id) else {
                return not_found(target.id);
            };
            let (fact, verdict) = (&facts[*place], &verdicts[*place]);
            LetterResult {
                id: target.id,
                outcome: verdict.outcome,
                status: if fresh.contains(place) {
                    Some(DeadLetterStatus::Replayed)
                } else {
                    fact.status()
                },
                job_id: fact.job_id.map(JobId),
                replay_id: replays[*place].filter(|_| verdict.outcome == Outcome::Done),
                message: verdict.message.clone(),
            }
        })
        .collect();
    let owners = fresh.iter().filter_map(|place| facts[*place].owner.clone());
    Ok(Replayed {
        results,
        owners: owners.collect(),
    })
}

/// Whether a letter is replayed now, and not by a try whose commit was not known.
fn is_fresh(fact: &Facts, replay: Option<Uuid>, verdict: &Verdict) -> bool {
    verdict.outcome == Outcome::Done && fact.replay_id != replay
}

/// What may be done about a letter, but for its key.
fn verdict(fact: &Facts, replay: Option<Uuid>, bulk: Option<Uuid>) -> Verdict {
    use DeadLetterStatus::{Ignored, Open, Replayed, Resolved};
    if replay.is_some() && fact.replay_id == replay {
        return Verdict::done();
    }
    if fact.job_id.is_none() || !fact.replayable {
        return Verdict::new(
            Outcome::NotReplayable,
            "a message that could not be read has no job",
        );
    }
    match (fact.job(), fact.status()) {
        (None, _) => Verdict::new(Outcome::NotReplayable, "its job is not there any more"),
        (Some(JobState::Failed), Some(Open)) if bulk.is_some() && fact.bulk_replay_id == bulk => {
            Verdict::new(Outcome::Changed, "this bulk replay has replayed it before")
        }
        (Some(JobState::Failed), Some(Ignored | Resolved)) if bulk.is_some() => {
            Verdict::new(Outcome::AlreadyDone, "somebody has dealt with it")
        }
        (Some(JobState::Failed), Some(Open | Ignored | Resolved)) => Verdict::done(),
        (Some(JobState::Success), _) => {
            Verdict::new(Outcome::AlreadyDone, "its job has succeeded since")
        }
        (Some(JobState::Cancelled), _) => {
            Verdict::new(Outcome::Changed, "its job was replayed and cancelled")
        }
        (Some(state), Some(Replayed)) => Verdict::new(
            Outcome::AlreadyDone,
            format!("it was replayed, and its job is {state}"),
        ),
        (Some(state), _) => Verdict::new(Outcome::Changed, format!("its job is {state}")),
    }
}

/// Binds the dedupe keys of what is to be replayed; one job for each key. The others get
/// another verdict.
async fn bind_keys(
    connection: &mut PgConnection,
    facts: &[Facts],
    replays: &[Option<Uuid>],
    verdicts: &mut [Verdict],
) -> Result<(), sqlx::Error> {
    let mut first: BTreeMap<Key, usize> = BTreeMap::new();
    let mut rest: Vec<(Key, usize)> = Vec::new();
    for (place, fact) in facts.iter().enumerate() {
        if !is_fresh(fact, replays[place], &verdicts[place]) {
            continue;
        }
        let (Some(user), Some(scope), Some(key)) = (&fact.owner, &fact.job_type, &fact.dedupe_key)
        else {
            continue;
        };
        let key = (user.clone(), scope.clone(), key.clone());
        // Who has the key goes first; where nobody here has it, the oldest job does.
        let replaced = if first.contains_key(&key) && !fact.owns_key {
            Some(place)
        } else {
            first.insert(key.clone(), place)
        };
        rest.extend(replaced.map(|place| (key, place)));
    }
    if first.is_empty() {
        return Ok(());
    }
    let column = |part: fn(&Key) -> &String| first.keys().map(part).cloned().collect::<Vec<_>>();
    let jobs: Vec<Uuid> = first
        .values()
        .filter_map(|place| facts[*place].job_id)
        .collect();
    let bound: Vec<Key> = sqlx::query_as(BIND)
        .bind(column(|key| &key.0))
        .bind(column(|key| &key.1))
        .bind(column(|key| &key.2))
        .bind(jobs)
        .fetch_all(&mut *connection)
        .await?;
    first.retain(|key, _| !bound.contains(key));
    rest.extend(first);
    if rest.is_empty() {
        return Ok(());
    }
    let column = |part: fn(&Key) -> &String| {
        rest.iter()
            .map(|(key, _)| part(key))
            .cloned()
            .collect::<Vec<_>>()
    };
    let holders: Vec<(String, String, String, Uuid, Option<String>)> = sqlx::query_as(HOLDERS)
        .bind(column(|key| &key.0))
        .bind(column(|key| &key.1))
        .bind(column(|key| &key.2))
        .fetch_all(connection)
        .await?;
    let holders: HashMap<Key, (Uuid, Option<String>)> = holders
        .into_iter()
        .map(|(user, scope, key, job, status)| ((user, scope, key), (job, status)))
        .collect();
    for (key, place) in rest {
        verdicts[place] = match holders.get(&key) {
            Some((job, Some(status))) if status == JobState::Success.as_str() => Verdict::new(
                Outcome::AlreadyDone,
                format!("job {job} of the same dedupe key has succeeded"),
            ),
            Some((job, _)) => {
                Verdict::new(Outcome::KeyTaken, format!("job {job} has its dedupe key"))
            }
            None => Verdict::new(Outcome::KeyTaken, "its dedupe key changes hands just now"),
        };
    }
    Ok(())
}

async fn write(
    connection: &mut PgConnection,
    facts: &[Facts],
    replays: &[Option<Uuid>],
    fresh: &[usize],
    by: By<'_>,
) -> Result<(), sqlx::Error> {
    if fresh.is_empty() {
        return Ok(());
    }
    let facts_of = || fresh.iter().map(|place| &facts[*place]);
    sqlx::query(REPLAY)
        .bind(facts_of().map(|fact| fact.id).collect::<Vec<_>>())
        .bind(
            facts_of()
                .filter_map(|fact| fact.job_id)
                .collect::<Vec<_>>(),
        )
        .bind(facts_of().filter_map(|fact| fact.run).collect::<Vec<_>>())
        .bind(
            facts_of()
                .filter_map(|fact| fact.status().map(DeadLetterStatus::as_str))
                .collect::<Vec<_>>(),
        )
        .bind(
            fresh
                .iter()
                .filter_map(|place| replays[*place])
                .collect::<Vec<_>>(),
        )
        .bind(&by.decision.actor)
        .bind(&by.decision.reason)
        .bind(by.bulk)
        .execute(connection)
        .await?;
    Ok(())
}
