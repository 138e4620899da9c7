//! `import_csv`: stores the rows of an uploaded CSV file.
//!
//! 1. The whole file is unpacked and decoded once, and the plan is made from its header.
//!    Up to here nothing is stored, so a file that is refused leaves nothing.
//! 2. The plan becomes the import's checkpoint.
//! 3. Records are read, judged and written in batches, each in one transaction with
//!    the checkpoint. Reading and writing overlap by one batch.
//! 4. A report is stored, and a notification follows in the finishing statement.
//!
//! A run that finds a checkpoint goes on behind it. Rows are identified by the line on
//! which they begin; what is in them is not compared.

mod batch;
mod decode;
mod detect;
#[cfg(test)]
mod files_test;
mod judge;
mod payload;
mod plan;
mod reader;
mod report;
#[cfg(test)]
mod rules_test;
mod types;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryFutureExt;
use tenure_core::error::{Code, Error, Result as CoreResult};
use tenure_core::files::FileStore;
use tenure_core::storage::files::{FileKind, NewFile};
use tenure_core::storage::imports::{Batch, Checkpoint, Position};
use tenure_core::storage::{self, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::batch::Batcher;
use self::decode::{Checked, Source, Wishes};
use self::payload::Payload;
use self::plan::Plan;
use self::report::{Finished, REPORT_REJECTS};
use crate::handler::{FollowUp, JobContext, JobError, JobHandler, LogLevel, Outcome, Success};

/// Batches that wait for the writer while the next is read.
const AHEAD: usize = 1;

/// The waits before the database is tried again within a run, in milliseconds: a
/// short outage should not cost an attempt, nor the way back through the file.
const WAITS_MS: [u64; 5] = [50, 200, 1_000, 2_000, 4_000];

/// The handler.
#[derive(Debug)]
pub(super) struct ImportCsv {
    store: Store,
    files: FileStore,
    max_unpacked: u64,
}

impl ImportCsv {
    /// An importer from this object store into this database, of archives that unpack to
    /// no more than `max_unpacked` bytes.
    pub(super) fn new(store: Store, files: FileStore, max_unpacked: u64) -> Self {
        Self {
            store,
            files,
            max_unpacked,
        }
    }
}

#[async_trait]
impl JobHandler for ImportCsv {
    fn job_type(&self) -> &'static str {
        "import_csv"
    }

    async fn run(&self, context: JobContext, payload: Bytes) -> Result<Outcome, JobError> {
        // Compiling patterns may take a while.
        let payload = context.blocking(move |_| Payload::parse(&payload)).await?;
        let size = self.size(&context, &payload).await?;
        let import = Import {
            store: &self.store,
            files: &self.files,
            context: &context,
            payload: &payload,
            size,
            source: Source {
                files: self.files.clone(),
                id: payload.file_id,
                size: size as u64,
                wishes: Wishes {
                    encoding: payload.declared_encoding()?,
                    max_unpacked: self.max_unpacked,
                },
            },
        };
        let stored =
            patiently(|| storage::imports::load_checkpoint(&self.store, context.job_id())).await?;
        let checkpoint = match stored {
            Some(checkpoint) => checkpoint,
            None => import.begin().await?,
        };
        let plan = stored_plan(&checkpoint)?;
        import.rows(&plan, checkpoint.position).await?;
        import.end(&plan).await
    }
}

impl ImportCsv {
    /// The file's size, where it is the user's.
    async fn size(&self, context: &JobContext, payload: &Payload) -> Result<i64, JobError> {
        let id = payload.file_id;
        let row = patiently(|| storage::files::get(&self.store, id)).await?;
        let Some(row) = row.filter(|row| row.file.user_id == *context.user_id()) else {
            return Err(JobError::permanent(
                Code::FileNotFound.as_str(),
                format!("there is no file {id}; upload it first"),
            ));
        };
        // The row says that the content is whole: if it is not there, the store is at
        // fault (perhaps not mounted), and a later run may find it.
        let stored = self
            .files
            .size(id)
            .await
            .map_err(|error| match error.code() {
                Code::FileNotFound => unavailable(format!(
                    "the content of file {id} is not in the object store"
                )),
                _ => error.into(),
            })?;
        if stored != row.file.size_bytes as u64 {
            return Err(unavailable(format!(
                "the object store holds {stored} bytes of file {id} instead of {}",
                row.file.size_bytes
            )));
        }
        Ok(row.file.size_bytes)
    }
}

fn unavailable(message: String) -> JobError {
    JobError::temporary(Code::StoreUnavailable.as_str(), message)
}

/// Repeats what is safe to repeat while the database cannot be reached, a few times.
async fn patiently<T, F>(work: impl Fn() -> F + Send) -> Result<T, JobError>
where
    F: Future<Output = CoreResult<T>> + Send,
{
    for wait in WAITS_MS {
        match work().await {
            Err(error) if error.code() == Code::DatabaseUnavailable => {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            result => return result.map_err(JobError::from),
        }
    }
    work().await.map_err(JobError::from)
}

/// One run of an import.
struct Import<'i> {
    store: &'i Store,
    files: &'i FileStore,
    context: &'i JobContext,
    payload: &'i Payload,
    size: i64,
    source: Source,
}

impl Import<'_> {
    /// Checks the file, makes the plan, and stores it as the first checkpoint.
    async fn begin(&self) -> Result<Checkpoint, JobError> {
        self.context.progress(0, self.size, "checking the text");
        let checked = self.check().await?;
        let payload = self.payload.clone();
        let planned = self
            .context
            .blocking(move |_| plan::plan(&payload, &checked, chrono::Utc::now()))
            .await?;
        let value = serde_json::to_value(&planned.plan)
            .map_err(|error| JobError::permanent(Code::Internal.as_str(), error.to_string()))?;
        storage::imports::start(
            self.store,
            self.context.fence(),
            planned.offset as i64,
            planned.line as i64,
            &value,
        )
        .await
        .map_err(Error::from)?;
        self.context.log(
            LogLevel::Info,
            format!(
                "importing {} columns, delimiter {:?}",
                planned.plan.columns.len(),
                planned.plan.delimiter
            ),
        );
        for warning in &planned.plan.warnings {
            self.context.log(LogLevel::Warn, warning.clone());
        }
        self.checkpoint().await
    }

    /// Decodes the whole file once.
    async fn check(&self) -> Result<Checked, JobError> {
        let source = self.source.clone();
        let runtime = Handle::current();
        let checked = self
            .context
            .blocking(move |context| source.check(runtime, &|| context.is_cancelled()))
            .await?;
        checked.ok_or_else(stopped)
    }

    /// Reads and writes the rows from a position to the end.
    async fn rows(&self, plan: &Plan, at: Position) -> Result<(), JobError> {
        if at.byte_offset >= plan.text_bytes as i64 {
            return Ok(());
        }
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::try_join!(self.read(plan, at, sender), self.write(plan, receiver))?;
        Ok(())
    }

    async fn read(
        &self,
        plan: &Plan,
        at: Position,
        batches: mpsc::Sender<Batch>,
    ) -> Result<(), JobError> {
        let mut batcher = Batcher::new(self.context.job_id(), plan, at)?;
        // The thread keeps the job's slot for as long as it runs.
        let mut blocks = self.source.text(
            Handle::current(),
            at.byte_offset as u64,
            self.context.clone(),
        )?;
        while let Some(mut block) = blocks.next().await? {
            while !block.is_empty() {
                let full;
                (batcher, block, full) = self
                    .context
                    .blocking(move |_| batcher.feed(&mut block).map(|full| (batcher, block, full)))
                    .await?;
                if let Some(batch) = full
                    && batches.send(batch).await.is_err()
                {
                    // The writer has failed, and tells why.
                    return Ok(());
                }
            }
        }
        if let Some(batch) = self.context.blocking(move |_| batcher.finish()).await? {
            // As above.
            let _ = batches.send(batch).await;
        }
        Ok(())
    }

    async fn write(&self, plan: &Plan, mut batches: mpsc::Receiver<Batch>) -> Result<(), JobError> {
        while let Some(batch) = batches.recv().await {
            self.stop_if_cancelled()?;
            let to = batch.to;
            let batch = Arc::new(batch);
            patiently(|| {
                storage::imports::write_batch(self.store, self.context.fence(), Arc::clone(&batch))
                    .map_err(Error::from)
            })
            .await?;
            let message = format!(
                "rows {} ({} rejected)",
                to.rows_accepted + to.rows_rejected,
                to.rows_rejected
            );
            self.context
                .progress(to.byte_offset, plan.text_bytes as i64, &message);
        }
        Ok(())
    }

    /// Stores the report.
    async fn end(&self, plan: &Plan) -> Result<Outcome, JobError> {
        let checkpoint = self.checkpoint().await?;
        if checkpoint.position.byte_offset < plan.text_bytes as i64 {
            return Err(unavailable("the file's content ended early".to_owned()));
        }
        let job_id = self.context.job_id();
        let rejects = patiently(|| {
            storage::imports::reject_samples(self.store, job_id, REPORT_REJECTS as i64)
        })
        .await?;
        let finished = Finished {
            job_id,
            bytes: self.size,
            payload: self.payload,
            plan,
            checkpoint: &checkpoint,
            rejects: &rejects,
        };
        let report = report::file_id(self.context.event_id());
        let stored = self.files.put_bytes(report, finished.report()).await?;
        let file = NewFile {
            file_id: report,
            user_id: self.context.user_id().clone(),
            name: format!("import-{job_id}.json"),
            content_type: "application/json".to_owned(),
            size_bytes: stored.size as i64,
            sha256: stored.sha256,
            kind: FileKind::Report,
            job_id: Some(job_id),
            expires_at: None,
        };
        patiently(|| storage::files::insert(self.store, &file)).await?;
        let position = checkpoint.position;
        self.context.progress(
            plan.text_bytes as i64,
            plan.text_bytes as i64,
            &format!(
                "rows {} ({} rejected)",
                position.rows_accepted + position.rows_rejected,
                position.rows_rejected
            ),
        );
        let success = Success::with_result(&finished.result(report)).follow_up(FollowUp {
            job_type: "notify".to_owned(),
            payload: finished.notification(report).to_string().into_bytes(),
        });
        Ok(Outcome::Done(success))
    }

    async fn checkpoint(&self) -> Result<Checkpoint, JobError> {
        patiently(|| storage::imports::load_checkpoint(self.store, self.context.job_id()))
            .await?
            .ok_or_else(|| {
                JobError::temporary(
                    Code::LeaseExpired.as_str(),
                    "the import's checkpoint is gone",
                )
            })
    }

    fn stop_if_cancelled(&self) -> Result<(), JobError> {
        if self.context.is_cancelled() {
            return Err(stopped());
        }
        Ok(())
    }
}

fn stopped() -> JobError {
    // Temporary: where the user asked for it the job ends as cancelled, and where this
    // process stops it goes on elsewhere.
    JobError::temporary(
        Code::Cancelled.as_str(),
        "the import was stopped between two batches",
    )
}

fn stored_plan(checkpoint: &Checkpoint) -> Result<Plan, JobError> {
    serde_json::from_value(checkpoint.plan.clone()).map_err(|error| {
        // Written by a newer version of this worker: one of those can go on.
        JobError::temporary(
            Code::SchemaMismatch.as_str(),
            format!("the import's plan was made by another version: {error}"),
        )
    })
}
