//! The writing side: where the rows go, batch by batch.

use std::sync::Arc;

use futures::TryFutureExt;
use tenure_core::config::ImportTable;
use tenure_core::error::Error;
use tenure_core::storage;
use tenure_core::storage::imports::{Batch, Destination, Position, Sink, Table, TableSpec};
use tokio::sync::mpsc;

use super::payload::{Column, Target};
use super::plan::Plan;
use super::{Import, patiently, policy, target};
use crate::handler::JobError;

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

    /// Writes batches as they come; ends early where too many rows are rejected.
    pub(super) async fn write(
        &self,
        plan: &Plan,
        to: Arc<Destination>,
        mut batches: mpsc::Receiver<Batch>,
    ) -> Result<(), JobError> {
        while let Some(batch) = batches.recv().await {
            self.stop_if_cancelled()?;
            let batch = Arc::new(batch);
            let at = patiently(|| {
                let (batch, to) = (Arc::clone(&batch), Arc::clone(&to));
                storage::imports::write_batch(self.store, self.context.fence(), batch, to)
                    .map_err(Error::from)
            })
            .await?;
            self.progress(plan, &at);
            if to.is_exceeded(at.rows_rejected) {
                return Ok(());
            }
        }
        Ok(())
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
