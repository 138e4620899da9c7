//! The writing side: where the rows go, batch by batch.

use std::sync::Arc;

use tenure_core::config::ImportTable;
use tenure_core::error::Error;
use tenure_core::storage;
use tenure_core::storage::imports::{
    Batch, Destination, Pipeline, Position, Sink, Table, TableSpec, WriteError,
};
use tokio::sync::mpsc;

use super::patience::{WAITS, may_pass, patiently};
use super::payload::{Column, Target};
use super::plan::Plan;
use super::{Import, policy, target};
use crate::handler::JobError;

/// The most batches of an import that are being written at once, each on a connection.
pub(super) const WRITING: usize = 3;

impl Import<'_> {
    /// Where the rows go.
    ///
    /// # Errors
    /// Permanent `IMPORT_TARGET_INVALID`; what the database tells.
    pub(super) async fn destination(&self, plan: &Plan) -> Result<Destination, JobError> {
        let sink = match &self.payload.target {
            // Looked at again, though no row goes there: it may have changed.
            Some(target) => {
                let spec = self.table(target, &mut plan.columns.clone()).await?;
                Sink::Table(Table::new(spec))
            }
            None => Sink::Rows,
        };
        let sink = if self.payload.validate_only {
            Sink::Nothing
        } else {
            sink
        };
        Ok(policy::destination(self.payload, sink))
    }

    /// How the columns go to a table. Those without a type take theirs from it.
    pub(super) async fn table(
        &self,
        target: &Target,
        columns: &mut [(usize, Column)],
    ) -> Result<TableSpec, JobError> {
        let entry: &ImportTable = target::allowed(self.tables, target)?;
        let found =
            patiently(|| storage::imports::describe(self.store, &entry.schema, &entry.table));
        let info = found.await?.ok_or_else(|| target::not_allowed(target))?;
        let user = self.context.user_id();
        target::fit(target, entry, &info, columns, user)
    }

    /// Writes batches as they come; ends early where too many rows are rejected. The rows
    /// of a batch are stored while those in front of it are, where they can be.
    pub(super) async fn write(
        &self,
        plan: &Plan,
        to: Arc<Destination>,
        mut batches: mpsc::Receiver<Batch>,
    ) -> Result<(), JobError> {
        let mut pipeline = Pipeline::new(self.store.clone(), self.context.fence(), Arc::clone(&to));
        let uses_ahead = to.may_go_ahead() && !plan.columns.iter().any(|(_, column)| column.unique);
        let mut ahead = None;
        loop {
            // What becomes of the first batch is heard of at once, and not when another is read.
            let next = tokio::select! {
                biased;
                first_try = pipeline.first() => {
                    if self.settle(plan, &to, &mut pipeline, first_try).await? {
                        return Ok(());
                    }
                    continue;
                }
                next = batches.recv() => next,
            };
            // Only for an import that has a use for it, and again while there is none to be had.
            if ahead.is_none() && uses_ahead {
                ahead = self.slots.ahead();
            }
            let beside = match &next {
                Some(batch) if ahead.is_some() && to.allows_ahead(batch) => WRITING - 1,
                _ => 0,
            };
            while pipeline.len() > beside {
                let first_try = pipeline.first().await;
                if self.settle(plan, &to, &mut pipeline, first_try).await? {
                    return Ok(());
                }
            }
            match next {
                Some(batch) => pipeline.begin(Arc::new(batch)),
                None => return Ok(()),
            }
        }
    }

    /// Writes the first batch again where it was not written, and tells how far the import is;
    /// whether too many rows are rejected now.
    async fn settle(
        &self,
        plan: &Plan,
        to: &Destination,
        pipeline: &mut Pipeline,
        first_try: Result<Position, WriteError>,
    ) -> Result<bool, JobError> {
        let mut written = first_try;
        let mut waits = WAITS.into_iter();
        let at = loop {
            let error = match written {
                Ok(at) => break at,
                Err(error) => Error::from(error),
            };
            let Some(wait) = waits.next().filter(|_| may_pass(&error)) else {
                return Err(error.into());
            };
            tokio::time::sleep(wait).await;
            pipeline.again().await;
            written = pipeline.first().await;
        };
        self.progress(plan, &at);
        Ok(to.is_exceeded(at.rows_rejected))
    }

    /// Tells how far the import is.
    pub(super) fn progress(&self, plan: &Plan, at: &Position) {
        let message = format!(
            "rows {} ({} rejected)",
            at.rows_accepted + at.rows_rejected,
            at.rows_rejected
        );
        let whole = plan.end();
        self.context.progress(at.byte_offset, whole, &message);
    }
}
