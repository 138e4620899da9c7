//! The writing side: where the rows go, batch by batch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tenure_core::config::ImportTable;
use tenure_core::error::Error;
use tenure_core::storage;
use tenure_core::storage::imports::{
    Batch, Destination, Position, Sink, Table, TableSpec, Turns, WriteError, write_batch,
    write_batch_in_turn,
};
use tokio::sync::mpsc;

use super::payload::{Column, Target};
use super::plan::Plan;
use super::{Import, patiently, policy, target};
use crate::handler::JobError;

/// The most batches of an import that are being written at once, each on a connection.
const WRITING: usize = 3;

/// A batch that is being written.
struct Writing<W> {
    batch: Arc<Batch>,
    /// How that ends.
    first_try: W,
}

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
        let mut turns = Turns::default();
        let mut writing = VecDeque::new();
        while let Some(batch) = batches.recv().await {
            self.stop_if_cancelled()?;
            let batch = Arc::new(batch);
            let beside = if self.ahead && to.allows_ahead(&batch) {
                WRITING - 1
            } else {
                0
            };
            while writing.len() > beside
                && let Some(first) = writing.pop_front()
            {
                if self.settle(plan, &to, first).await? {
                    return Ok(());
                }
            }
            let first_try = write_batch_in_turn(
                self.store,
                self.context.fence(),
                Arc::clone(&batch),
                Arc::clone(&to),
                turns.draw(),
            );
            writing.push_back(Writing { batch, first_try });
        }
        for last in writing {
            if self.settle(plan, &to, last).await? {
                break;
            }
        }
        Ok(())
    }

    /// Waits until a batch is written, and writes it again where it was not; whether too
    /// many rows are rejected now.
    async fn settle<W>(
        &self,
        plan: &Plan,
        to: &Arc<Destination>,
        writing: Writing<W>,
    ) -> Result<bool, JobError>
    where
        W: Future<Output = Result<Position, WriteError>> + Send,
    {
        let Writing { batch, first_try } = writing;
        let first_try = Mutex::new(Some(first_try));
        let at = patiently(|| {
            let first_try = first_try.lock().ok().and_then(|mut it| it.take());
            let (batch, to) = (Arc::clone(&batch), Arc::clone(to));
            async move {
                let written = match first_try {
                    Some(first_try) => first_try.await,
                    None => write_batch(self.store, self.context.fence(), batch, to).await,
                };
                written.map_err(Error::from)
            }
        })
        .await?;
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
