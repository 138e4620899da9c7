//! Ignoring, resolving and reopening letters: a status, and a line in the audit.

use std::future::Future;
use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::facts::{Facts, Verdict, lock, places};
use super::{DeadLetterStatus, Decision, LetterResult, Outcome};
use crate::domain::ids::JobId;
use crate::domain::state::JobState;
use crate::error::{Code, Error, Result};
use crate::storage::{DbKind, Store, classify, db_error};

const SET_STATUS: &str = "with i as materialized (select * from unnest($1::uuid[], $2::text[]) i (id, before)), \
     u as (update dead_letters d set status = $3, status_changed_at = now() from i \
     where d.id = i.id and d.status = i.before returning d.id, d.user_id, i.before), \
     a as (insert into dead_letter_actions (action_id, letter_id, action, actor, user_id, reason, status_before, status_after) \
     select tenure_uuid7(), id, $4, $5, user_id, $6, before, $3 from u returning 1) \
     select case when (select count(*) from u) <> (select count(*) from i) \
     or (select count(*) from u) <> (select count(*) from a) \
     then tenure_fail('a decision: letters and audit disagree') end";

pub(super) const STATEMENTS: &[(&str, &str)] = &[("dead_letters_set_status", SET_STATUS)];

/// How often what another transaction was in the way of is tried.
const TRIES: u32 = 4;

/// The longest that one try may take, its commit included.
const TRY_LIMIT: Duration = Duration::from_secs(20);

/// What an operator decides about letters, but for a replay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verb {
    /// Open letters are set aside.
    Ignore,
    /// Open and ignored letters are dealt with.
    Resolve,
    /// Ignored letters, and resolved ones whose job has not ended well, are open again.
    Reopen,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Resolve => "resolve",
            Self::Reopen => "reopen",
        }
    }

    const fn target(self) -> DeadLetterStatus {
        match self {
            Self::Ignore => DeadLetterStatus::Ignored,
            Self::Resolve => DeadLetterStatus::Resolved,
            Self::Reopen => DeadLetterStatus::Open,
        }
    }

    fn verdict(self, fact: &Facts) -> Verdict {
        use DeadLetterStatus::{Ignored, Open, Replayed, Resolved};
        let changed = |message: String| Verdict::new(Outcome::Changed, message);
        let Some(status) = fact.status() else {
            return changed("its status is not known to this version".to_owned());
        };
        if status == self.target() {
            return Verdict::new(Outcome::AlreadyDone, "");
        }
        match (self, status) {
            (_, Replayed) => changed("it was replayed, and its job has not ended yet".to_owned()),
            (Self::Reopen, Resolved) => match (fact.job_id, fact.job()) {
                (None, _) | (Some(_), Some(JobState::Failed)) => Verdict::done(),
                (Some(_), Some(state)) => {
                    changed(format!("its job was replayed, and has ended in {state}"))
                }
                (Some(_), None) => changed("its job is not there any more".to_owned()),
            },
            (Self::Ignore, Open) | (Self::Resolve, Open | Ignored) | (Self::Reopen, Ignored) => {
                Verdict::done()
            }
            (_, status) => changed(format!("it is {}", status.as_str())),
        }
    }
}

impl Store {
    /// Does this to each letter that allows it, in one transaction; answers with an outcome
    /// for each id, which may be a letter's or its job's.
    ///
    /// # Errors
    /// DATABASE_UNAVAILABLE. Repeating is safe: what was done is ALREADY_DONE.
    pub async fn decide_dead_letters(
        &self,
        verb: Verb,
        ids: &[Uuid],
        decision: &Decision,
    ) -> Result<Vec<LetterResult>> {
        persist(|| self.decide_once(verb, ids, decision)).await
    }

    async fn decide_once(
        &self,
        verb: Verb,
        ids: &[Uuid],
        decision: &Decision,
    ) -> Result<Vec<LetterResult>, sqlx::Error> {
        let mut held = self.hold().await?;
        held.run("begin").await?;
        let results = decide(held.connection(), verb, ids, decision).await?;
        held.run("commit").await?;
        held.done();
        Ok(results)
    }
}

async fn decide(
    connection: &mut PgConnection,
    verb: Verb,
    ids: &[Uuid],
    decision: &Decision,
) -> Result<Vec<LetterResult>, sqlx::Error> {
    let facts = lock(connection, ids).await?;
    let verdicts: Vec<Verdict> = facts.iter().map(|fact| verb.verdict(fact)).collect();
    let done: Vec<&Facts> = facts
        .iter()
        .zip(&verdicts)
        .filter(|(_, verdict)| verdict.outcome == Outcome::Done)
        .map(|(fact, _)| fact)
        .collect();
    if !done.is_empty() {
        let before = done.iter().filter_map(|fact| fact.status());
        sqlx::query(SET_STATUS)
            .bind(done.iter().map(|fact| fact.id).collect::<Vec<_>>())
            .bind(before.map(DeadLetterStatus::as_str).collect::<Vec<_>>())
            .bind(verb.target().as_str())
            .bind(verb.as_str())
            .bind(&decision.actor)
            .bind(&decision.reason)
            .execute(connection)
            .await?;
    }
    let places = places(&facts);
    Ok(ids
        .iter()
        .map(|id| {
            let Some(place) = places.get(id) else {
                return not_found(*id);
            };
            let (fact, verdict) = (&facts[*place], &verdicts[*place]);
            LetterResult {
                id: *id,
                outcome: verdict.outcome,
                status: if verdict.outcome == Outcome::Done {
                    Some(verb.target())
                } else {
                    fact.status()
                },
                job_id: fact.job_id.map(JobId),
                replay_id: None,
                message: verdict.message.clone(),
            }
        })
        .collect())
}

/// The result of an id that names no letter.
pub(super) fn not_found(id: Uuid) -> LetterResult {
    LetterResult {
        id,
        outcome: Outcome::NotFound,
        status: None,
        job_id: None,
        replay_id: None,
        message: "there is no dead letter with this id, and no job of this id has one".to_owned(),
    }
}

/// Tries until it is done: who was in the way has gone, or another connection is there.
/// What is tried must be safe to repeat after a commit whose answer was lost.
pub(super) async fn persist<T, F>(mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    let mut pause = Duration::from_millis(20);
    for tried in 1.. {
        let Ok(answer) = tokio::time::timeout(TRY_LIMIT, attempt()).await else {
            break;
        };
        let error = match answer {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if tried == TRIES || !matches!(classify(&error), DbKind::Retry | DbKind::Lost) {
            return Err(db_error(error));
        }
        tokio::time::sleep(pause).await;
        pause *= 3;
    }
    Err(Error::new(
        Code::DatabaseUnavailable,
        "the database did not answer in time; try again",
    ))
}
