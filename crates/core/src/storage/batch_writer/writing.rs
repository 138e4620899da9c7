//! Writing a batch: with the credit that there is, and what is left with a count.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Shared;
use crate::error::{Code, Error};
use crate::storage::batch_parts::{Aside, Group, Part, Progress, Replies, Way, answer, finish};
use crate::storage::submit::{Committed, Row, Written};
use crate::storage::{DbKind, classify, db_error};

impl Shared {
    pub(super) async fn write(self: &Arc<Self>, groups: Vec<Group>) {
        let mut part = Part::default();
        let mut replies = Vec::new();
        for group in groups {
            let first = part.rows.len();
            for row in group.rows {
                part.push(part.rows.len(), row);
            }
            replies.push((first..part.rows.len(), group.reply));
        }
        let count = part.rows.len();
        self.metrics.submit_batch_size.observe(count as f64);
        let mut progress = Progress {
            deadline: Instant::now() + self.settings.deadline,
            outcomes: (0..count).map(|_| None).collect(),
            committed: Vec::new(),
        };
        let scarce = self.write_all(part, Way::Credit, &mut progress).await;
        (self.on_committed)(std::mem::take(&mut progress.committed));
        // Who needs no count does not wait for one.
        let waiting = answer(replies, &mut progress);
        if !waiting.is_empty() {
            self.put_aside(scarce, progress, waiting);
        }
    }

    /// Writes what needs a count in a task of its own.
    fn put_aside(self: &Arc<Self>, part: Part, mut progress: Progress, replies: Replies) {
        let count = part.rows.len();
        {
            let mut queue = self.queue.lock();
            if queue.aside + count > self.settings.queue_max.max(count) {
                drop(queue);
                let refusal = Error::new(
                    Code::Overloaded,
                    "too many submits wait until jobs are counted; try again",
                );
                finish(replies, &mut progress, &refusal);
                return;
            }
            queue.aside += count;
            queue.writing += 1;
        }
        let shared = self.clone();
        tokio::spawn(async move {
            shared.count_and_write(part, &mut progress).await;
            let refusal = Error::new(
                Code::DatabaseUnavailable,
                "the jobs of this user could not be counted; try again",
            );
            finish(replies, &mut progress, &refusal);
            {
                let mut queue = shared.queue.lock();
                queue.aside -= count;
                queue.writing -= 1;
            }
            shared.idle.notify_waiters();
        });
    }

    async fn count_and_write(&self, part: Part, progress: &mut Progress) {
        // Closed only with the process.
        let Ok(_permit) = self.scarce.acquire().await else {
            return;
        };
        let left = self.write_all(part, Way::Count, progress).await;
        (self.on_committed)(std::mem::take(&mut progress.committed));
        // Users with many jobs, each alone.
        for part in left.by_user() {
            self.write_all(part, Way::Count, progress).await;
            (self.on_committed)(std::mem::take(&mut progress.committed));
        }
    }

    /// Writes a part, halved where it has to be; answers with the rows that have no outcome.
    /// What comes behind one of those in its line has none either, whichever half it is in.
    async fn write_all(&self, part: Part, way: Way, progress: &mut Progress) -> Part {
        let mut scarce = Aside::default();
        // Halves that are still to be written, the first one on top.
        let mut work = vec![part];
        while let Some(part) = work.pop() {
            let mut part = scarce.take_behind(part);
            if part.rows.is_empty() {
                continue;
            }
            match self.write_part(&part.rows, way, progress.deadline).await {
                Ok(written) => {
                    let rows = part.places.into_iter().zip(part.rows);
                    for ((place, row), outcome) in rows.zip(written.outcomes) {
                        if outcome.is_none() {
                            scarce.push(place, row);
                            continue;
                        }
                        progress.outcomes[place] = outcome;
                        if !row.parked
                            && let Some((created_at, false)) =
                                written.inserted.get(&row.job.job_id).copied()
                        {
                            progress.committed.push(Committed {
                                created_at,
                                job: row.job,
                            });
                        }
                    }
                }
                // One bad row must fail alone, and what is too large for one statement
                // may fit into two.
                Err((DbKind::Data | DbKind::Defect, _)) if part.rows.len() > 1 => {
                    let rest = part.split_off(part.rows.len() / 2);
                    work.push(rest);
                    work.push(part);
                }
                Err((_, error)) => {
                    let error = db_error(error);
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        jobs = part.rows.len(),
                        "submits were not written"
                    );
                    for place in part.places {
                        progress.outcomes[place] = Some(Err(error.again()));
                    }
                }
            }
        }
        scarce.into_part()
    }

    /// Tries until the outcome is known or the deadline has passed. The ids are the
    /// same each time, so that a commit whose answer was lost is found again.
    async fn write_part(
        &self,
        rows: &[Row],
        way: Way,
        deadline: Instant,
    ) -> Result<Written, (DbKind, sqlx::Error)> {
        let mut pause = Duration::from_millis(5);
        loop {
            let writing = async {
                match way {
                    Way::Credit => self.store.write_submits(rows, &self.limit).await,
                    Way::Count => self.store.write_scarce(rows, &self.limit).await,
                }
            };
            let error = match tokio::time::timeout_at(deadline, writing).await {
                Ok(Ok(written)) => return Ok(written),
                Ok(Err(error)) => error,
                Err(_) => return Err((DbKind::Lost, sqlx::Error::PoolTimedOut)),
            };
            let kind = classify(&error);
            self.metrics.db_errors.inc(kind.as_str());
            if !matches!(kind, DbKind::Retry | DbKind::Lost) || Instant::now() + pause >= deadline {
                return Err((kind, error));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}
