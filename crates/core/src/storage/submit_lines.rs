//! The lines of submitted jobs: their locks before anything else, their turns at the end.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::lines::{self, LineKey};
use super::submit::Row;
use crate::domain::ids::JobId;
use crate::domain::job::NewJob;
use crate::domain::line::Line;

/// The lines that these rows stand in.
pub(super) fn of(rows: &[Row], which: &[usize]) -> BTreeSet<LineKey> {
    let jobs = which.iter().map(|index| &rows[*index].job);
    jobs.filter_map(|job| {
        Some(LineKey {
            queue: job.queue.clone(),
            key: job.line.as_ref()?.stored_key(),
        })
    })
    .collect()
}

/// The line of a job that must be written after those before it.
pub(super) fn ordered(job: &NewJob) -> Option<LineKey> {
    let line = job.line.as_ref()?;
    matches!(line, Line::Ordered { .. }).then(|| LineKey {
        queue: job.queue.clone(),
        key: line.stored_key(),
    })
}

/// Which of these rows, which are in the order of their submits, come behind one of `aside`
/// in its line.
pub(super) fn behind(rows: &[Row], which: &[usize], aside: &[usize]) -> Vec<usize> {
    if aside.is_empty() {
        return Vec::new();
    }
    let aside: HashSet<usize> = aside.iter().copied().collect();
    let mut waiting: HashSet<LineKey> = HashSet::new();
    let mut late = Vec::new();
    for index in which {
        let Some(line) = ordered(&rows[*index].job) else {
            continue;
        };
        if aside.contains(index) {
            waiting.insert(line);
        } else if waiting.contains(&line) {
            late.push(*index);
        }
    }
    late
}

/// Takes the locks of lines, first in the transaction: numbers are committed in the order
/// in which they are drawn.
pub(super) async fn lock(
    connection: &mut PgConnection,
    lines: &BTreeSet<LineKey>,
) -> Result<(), sqlx::Error> {
    if lines.is_empty() {
        return Ok(());
    }
    lines::lock(connection, &lines.iter().collect::<Vec<_>>()).await
}

/// Gives the inserted jobs their turn that are the next in their lines; the others are not
/// to be sent.
pub(super) async fn give_turns(
    connection: &mut PgConnection,
    rows: &[Row],
    which: &[usize],
    lines: &BTreeSet<LineKey>,
    inserted: &mut HashMap<JobId, (DateTime<Utc>, bool)>,
) -> Result<(), sqlx::Error> {
    if lines.is_empty() || inserted.is_empty() {
        return Ok(());
    }
    let in_line = || {
        let rows = which.iter().map(|index| &rows[*index]);
        rows.filter(|row| row.job.line.is_some())
    };
    let direct: Vec<_> = in_line()
        .filter(|row| !row.parked)
        .map(|row| row.job.job_id.uuid())
        .collect();
    let lines: Vec<&LineKey> = lines.iter().collect();
    let turned = lines::give(connection, &lines, &direct).await?;
    let turned: HashSet<JobId> = turned.into_iter().map(|turned| turned.job_id).collect();
    for row in in_line() {
        if let Some((_, waits)) = inserted.get_mut(&row.job.job_id)
            && !turned.contains(&row.job.job_id)
        {
            *waits = true;
        }
    }
    Ok(())
}
