//! The end of an import: its files, and its rows becoming part of their data set.

use chrono::TimeDelta;
use tenure_core::error::{Code, Error};
use tenure_core::files::{Expected, Stored};
use tenure_core::storage;
use tenure_core::storage::files::{FileKind, NewFile};
use tenure_core::storage::imports::WriteError;

use super::payload::Mode;
use super::plan::Plan;
use super::report::{Finished, Part, REPORT_GROUPS, REPORT_REJECTS, RejectsCsv};
use super::{Import, patiently, policy, stopped, unavailable};
use crate::handler::{FollowUp, JobError, Outcome, Success};

impl Import<'_> {
    /// Stores the report and the rejects, and makes the rows seen, in this order: a run
    /// that is killed in between is done again, to the same end.
    pub(super) async fn end(&self, plan: &Plan) -> Result<Outcome, JobError> {
        let checkpoint = self.checkpoint().await?;
        let position = checkpoint.position;
        let failure = policy::failure(self.payload, &position);
        if failure.is_none() && position.byte_offset < plan.end() {
            return Err(unavailable("the file's content ended early".to_owned()));
        }
        let job_id = self.context.job_id();
        let rejects = patiently(|| {
            storage::imports::reject_samples(self.store, job_id, REPORT_REJECTS as i64)
        })
        .await?;
        let groups =
            patiently(|| storage::imports::reject_groups(self.store, job_id, REPORT_GROUPS as i64))
                .await?;
        let finished = Finished {
            job_id,
            bytes: self.size,
            file_name: &self.file_name,
            home: self.home(),
            payload: self.payload,
            plan,
            checkpoint: &checkpoint,
            rejects: &rejects,
            groups: &groups,
            failure: failure.as_deref(),
            event_id: self.context.event_id(),
        };
        self.store_files(&finished).await?;
        self.progress(plan, &position);
        if let Some(failure) = &failure {
            let report = Part::Json.file_id(self.context.event_id()).to_string();
            return Err(JobError::permanent(
                Code::ImportTooManyRejects.as_str(),
                policy::message(failure, rejects.first(), &report),
            ));
        }
        if self.has_dataset() {
            self.complete(position.rows_accepted).await?;
        }
        let follow_up = |job_type: &str, payload: serde_json::Value| FollowUp {
            job_type: job_type.to_owned(),
            payload: payload.to_string().into_bytes(),
        };
        let mut success = Success::with_result(&finished.result())
            .follow_up(follow_up("notify", finished.notification()));
        if let Some(url) = &self.payload.webhook {
            success = success.follow_up(follow_up("notify_webhook", finished.webhook(url)));
        }
        Ok(Outcome::Done(success))
    }

    /// Makes the rows part of their data set.
    async fn complete(&self, rows: i64) -> Result<(), JobError> {
        let replace = self.payload.mode == Mode::Replace;
        let fence = self.context.fence();
        // A cancel is no error that is tried again, so it is taken out.
        let done = patiently(|| async {
            match storage::imports::complete(self.store, fence, rows, replace).await {
                Err(WriteError::Cancelled) => Ok(false),
                other => other.map(|_| true).map_err(Error::from),
            }
        });
        if done.await? { Ok(()) } else { Err(stopped()) }
    }

    async fn store_files(&self, finished: &Finished<'_>) -> Result<(), JobError> {
        let id = |part: Part| part.file_id(self.context.event_id());
        let json = finished.json();
        let stored = self.files.put_bytes(id(Part::Json), json).await?;
        self.describe(Part::Json, stored).await?;
        let html = finished.html()?;
        let stored = self.files.put_bytes(id(Part::Html), html).await?;
        self.describe(Part::Html, stored).await?;
        if finished.checkpoint.position.rows_rejected > 0 {
            let rejects = RejectsCsv::new(self.store.clone(), finished.job_id);
            let any_size = Expected::at_most(u64::MAX);
            let stored = patiently(|| {
                self.files
                    .put(id(Part::Rejects), rejects.content(), any_size)
            })
            .await?;
            self.describe(Part::Rejects, stored).await?;
        }
        Ok(())
    }

    async fn describe(&self, part: Part, stored: Stored) -> Result<(), JobError> {
        let job_id = self.context.job_id();
        let kept = TimeDelta::from_std(self.report_retention).unwrap_or(TimeDelta::MAX);
        let file = NewFile {
            file_id: part.file_id(self.context.event_id()),
            user_id: self.context.user_id().clone(),
            name: part.name(job_id),
            content_type: part.content_type().to_owned(),
            size_bytes: stored.size as i64,
            sha256: stored.sha256,
            kind: match part {
                Part::Json | Part::Html => FileKind::Report,
                Part::Rejects => FileKind::Rejects,
            },
            job_id: Some(job_id),
            expires_at: chrono::Utc::now().checked_add_signed(kept),
        };
        patiently(|| storage::files::insert(self.store, &file)).await?;
        Ok(())
    }
}
