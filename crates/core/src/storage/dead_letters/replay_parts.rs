//! Replaying letters inside a transaction: all at once, or in halves where one of them cannot
//! be written.
//!
//! In halves or not, locks are taken in the order of the protocol: all jobs and letters
//! before anything is written, keys in their order, and the users at the end.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::facts::{Facts, lock, places};
use super::replay::{By, Replayed, Target, replay_batch};
use super::{LetterResult, Outcome};
use crate::storage::{DbKind, admission, classify};

/// Replays letters, with a result for each, in their order. A row that cannot be written is
/// found by bisection and left as it is; the others go on.
pub(super) async fn replay_each(
    connection: &mut PgConnection,
    targets: &[Target],
    by: By<'_>,
) -> Result<Vec<LetterResult>, sqlx::Error> {
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let facts = lock(connection, &ids(targets)).await?;
    let done = attempt(connection, targets, &facts, by).await?;
    let done = match done {
        Ok(done) => done,
        Err(error) => halves(connection, targets, &facts, by, error).await?,
    };
    // Never refused, and counted.
    let owners: Vec<&str> = done.owners.iter().map(String::as_str).collect();
    if !owners.is_empty() {
        admission::debit(connection, &owners).await?;
    }
    Ok(done.results)
}

fn ids(targets: &[Target]) -> Vec<Uuid> {
    targets.iter().map(|target| target.id).collect()
}

/// Tries a part; `Ok(Err)`: one of it cannot be written, and none of it is.
async fn attempt(
    connection: &mut PgConnection,
    part: &[Target],
    facts: &[Facts],
    by: By<'_>,
) -> Result<Result<Replayed, sqlx::Error>, sqlx::Error> {
    sqlx::query("savepoint replay")
        .execute(&mut *connection)
        .await?;
    let answer = replay_batch(connection, part, facts, by).await;
    let end = match &answer {
        Ok(_) => "release savepoint replay",
        Err(error)
            if matches!(
                classify(error),
                DbKind::Data | DbKind::Invariant | DbKind::Defect
            ) =>
        {
            "rollback to savepoint replay"
        }
        Err(_) => return answer.map(Ok),
    };
    sqlx::query(end).execute(connection).await?;
    Ok(answer)
}

/// Replays the parts of what failed as a whole, in the order of the keys that they bind.
async fn halves(
    connection: &mut PgConnection,
    targets: &[Target],
    facts: &[Facts],
    by: By<'_>,
    error: sqlx::Error,
) -> Result<Replayed, sqlx::Error> {
    let order: HashMap<Uuid, usize> = targets
        .iter()
        .enumerate()
        .map(|(place, target)| (target.id, place))
        .collect();
    let places = places(facts);
    let mut sorted = targets.to_vec();
    sorted.sort_by_key(|target| {
        let fact = places.get(&target.id).map(|place| &facts[*place]);
        fact.map(|fact| (&fact.owner, &fact.job_type, &fact.dedupe_key))
    });
    let mut all = Replayed::default();
    // Parts that are still to be tried, the first one on top.
    let mut work: Vec<&[Target]> = Vec::new();
    let mut failed = Some((&sorted[..], error));
    loop {
        match failed.take() {
            Some(([target], error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, letter = %target.id, "a letter cannot be replayed");
                all.results.push(cannot_be_replayed(target.id));
            }
            Some((part, _)) => {
                let (first, rest) = part.split_at(part.len() / 2);
                work.push(rest);
                work.push(first);
            }
            None => {}
        }
        let Some(part) = work.pop() else {
            break;
        };
        // Read again: a part before it may have replayed the same letter.
        let facts = lock(connection, &ids(part)).await?;
        match attempt(connection, part, &facts, by).await? {
            Ok(done) => {
                all.results.extend(done.results);
                all.owners.extend(done.owners);
            }
            Err(error) => failed = Some((part, error)),
        }
    }
    all.results
        .sort_by_key(|result| order.get(&result.id).copied());
    Ok(all)
}

fn cannot_be_replayed(id: Uuid) -> LetterResult {
    LetterResult {
        id,
        outcome: Outcome::Changed,
        status: None,
        job_id: None,
        replay_id: None,
        message: "it could not be replayed; the log of dead-letter-admin has the cause".to_owned(),
    }
}
