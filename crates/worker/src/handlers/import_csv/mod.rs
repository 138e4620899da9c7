//! `import_csv`: stores the rows of an uploaded CSV file.
//!
//! 1. The whole file is unpacked and decoded once, and the plan is made from its header.
//!    Up to here nothing is stored, so a file that is refused leaves nothing.
//! 2. The plan becomes the import's checkpoint.
//! 3. Records are read, judged and written in batches, each in one transaction with
//!    the checkpoint. The next batch is read meanwhile, and batches of a data set may be
//!    stored while those in front of them are being committed.
//! 4. Report and rejects are stored, the rows become part of their data set, and a
//!    notification follows in the finishing statement.
//!
//! A run that finds a checkpoint goes on behind it. Rows are identified by the line on
//! which they begin; what is in them is not compared.

mod batch;
mod decode;
mod detect;
mod end;
#[cfg(test)]
mod files_test;
mod judge;
mod name;
mod patience;
mod payload;
mod plan;
mod policy;
mod reader;
mod report;
#[cfg(test)]
mod rules_test;
mod slots;
mod target;
mod types;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::config::{Config, ImportTable};
use tenure_core::error::{Code, Error, Result as CoreResult};
use tenure_core::files::FileStore;
use tenure_core::storage::imports::{
    Batch, Beginning, Checkpoint, Destination, Position, WriteError,
};
use tenure_core::storage::{self, Store};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use self::batch::Batcher;
use self::decode::{Checked, Source, Wishes};
use self::name::dataset_name;
use self::patience::patiently;
use self::payload::Payload;
use self::plan::{DECIMAL_COMMA, Plan, Planned};
use self::report::Home;
use self::slots::{Place, Slots};
use crate::handler::{JobContext, JobError, JobHandler, LogLevel, Outcome};

/// Batches that wait for the writer while the next is read.
const QUEUED: usize = 1;

/// The handler.
#[derive(Debug)]
pub(super) struct ImportCsv {
    store: Store,
    files: FileStore,
    tables: Vec<ImportTable>,
    report_retention: Duration,
    /// The most bytes that an archive may unpack to.
    max_unpacked: u64,
    slots: Slots,
}

impl ImportCsv {
    /// An importer from this object store into this database.
    ///
    /// # Errors
    /// `CONFIG_INVALID` where a table's entry cannot be read.
    pub(super) fn new(store: Store, files: FileStore, config: &Config) -> CoreResult<Self> {
        let tables: Vec<ImportTable> = config
            .imports
            .tables
            .iter()
            .map(|entry| ImportTable::parse(entry))
            .collect::<Result<_, _>>()
            .map_err(|why| Error::new(Code::ConfigInvalid, format!("imports.tables: {why}")))?;
        let connections = store.pool().options().get_max_connections();
        Ok(Self {
            store,
            files,
            slots: Slots::new(tables.len(), connections, config.retry.max_snoozes),
            tables,
            report_retention: config.files.report_retention,
            max_unpacked: config.imports.max_unpacked_bytes,
        })
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
        let table = self.table_place(&payload)?;
        let _permits = match self.slots.take(&context, table).await? {
            Place::Taken(permits) => permits,
            Place::PutOff(delay) => return Ok(Outcome::Snooze(delay)),
        };
        let (size, file_name) = self.file(&context, &payload).await?;
        let mut import = Import {
            store: &self.store,
            files: &self.files,
            tables: &self.tables,
            report_retention: self.report_retention,
            context: &context,
            payload: &payload,
            slots: &self.slots,
            size,
            dataset: dataset_name(&payload, &file_name),
            file_name,
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
        // It was checked under the limit of that time. An encoding may take more bytes than
        // UTF-8, but not four times as many.
        let wishes = &mut import.source.wishes;
        wishes.max_unpacked = wishes.max_unpacked.max(plan.text_bytes.saturating_mul(4));
        let to = Arc::new(import.destination(&plan).await?);
        if !to.is_exceeded(checkpoint.position.rows_rejected) {
            import.rows(&plan, checkpoint.position, to).await?;
        }
        import.end(&plan).await
    }
}

impl ImportCsv {
    /// Which of the tables its rows go to.
    ///
    /// # Errors
    /// Permanent, where the target is none of them.
    fn table_place(&self, payload: &Payload) -> Result<Option<usize>, JobError> {
        let Some(target) = &payload.target else {
            return Ok(None);
        };
        // Before the file is read: a table that is not allowed does not need it.
        target::allowed(&self.tables, target)?;
        let mut tables = self.tables.iter();
        let place = tables.position(|entry| entry.name() == target.table);
        Ok(place.filter(|_| !payload.validate_only))
    }

    /// The file's size and name, where it is the user's.
    async fn file(
        &self,
        context: &JobContext,
        payload: &Payload,
    ) -> Result<(i64, String), JobError> {
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
        Ok((row.file.size_bytes, row.file.name))
    }
}

fn unavailable(message: String) -> JobError {
    JobError::temporary(Code::StoreUnavailable.as_str(), message)
}

/// One run of an import.
struct Import<'i> {
    store: &'i Store,
    files: &'i FileStore,
    tables: &'i [ImportTable],
    report_retention: Duration,
    context: &'i JobContext,
    payload: &'i Payload,
    slots: &'i Slots,
    /// The file's size in bytes.
    size: i64,
    file_name: String,
    /// The data set that the rows go to, where they go to one.
    dataset: String,
    source: Source,
}

impl Import<'_> {
    /// Checks the file, makes the plan, and stores it as the first checkpoint.
    async fn begin(&self) -> Result<Checkpoint, JobError> {
        self.context.progress(0, self.size, "checking the text");
        let checked = self.check().await?;
        let payload = self.payload.clone();
        let mut planned = self
            .context
            .blocking(move |_| plan::plan(&payload, &checked, chrono::Utc::now()))
            .await?;
        self.fit(&mut planned).await?;
        let value = serde_json::to_value(&planned.plan)
            .map_err(|error| JobError::permanent(Code::Internal.as_str(), error.to_string()))?;
        let begin = Beginning {
            byte_offset: planned.offset as i64,
            line_no: planned.line as i64,
            plan: &value,
            file_id: self.payload.file_id,
            dataset: self.has_dataset().then_some(self.dataset.as_str()),
        };
        patiently(|| async {
            match storage::imports::start(self.store, self.context.fence(), &begin).await {
                // Stored by a call whose answer was lost: what is there decides.
                Err(WriteError::Moved) => Ok(()),
                other => other.map_err(Error::from),
            }
        })
        .await?;
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

    /// Fits the plan to the table that the rows go to, where they go to one.
    async fn fit(&self, planned: &mut Planned) -> Result<(), JobError> {
        let Some(target) = &self.payload.target else {
            return Ok(());
        };
        let plan = &mut planned.plan;
        let spec = self.table(target, &mut plan.columns).await?;
        plan.scales = spec.fields.iter().map(|field| field.scale).collect();
        // A default that does not fit is told before the first row, too.
        plan.converters()?;
        let guessed = plan.columns.iter().any(|(_, column)| column.guesses_mark());
        let told = plan.warnings.iter().any(|warning| warning == DECIMAL_COMMA);
        if guessed && plan.decimal_comma && !told {
            plan.warnings.push(DECIMAL_COMMA.to_owned());
        }
        Ok(())
    }

    /// Whether the rows go to a data set.
    fn has_dataset(&self) -> bool {
        self.payload.target.is_none() && !self.payload.validate_only
    }

    /// Where the rows go, for people.
    fn home(&self) -> Home<'_> {
        match &self.payload.target {
            Some(target) => Home::Table(&target.table),
            None => Home::Dataset(&self.dataset),
        }
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
    async fn rows(&self, plan: &Plan, at: Position, to: Arc<Destination>) -> Result<(), JobError> {
        if at.byte_offset >= plan.end() {
            return Ok(());
        }
        let (sender, receiver) = mpsc::channel(QUEUED);
        let work =
            async { tokio::try_join!(self.read(plan, at, sender), self.write(plan, to, receiver)) };
        // Whatever it waits for. A batch that is being written is so in a task of its own.
        tokio::select! {
            biased;
            () = self.context.cancelled() => Err(stopped()),
            done = work => done.map(|_| ()),
        }
    }

    async fn read(
        &self,
        plan: &Plan,
        at: Position,
        batches: mpsc::Sender<Batch>,
    ) -> Result<(), JobError> {
        let to_table = self.payload.target.is_some() && !self.payload.validate_only;
        let mut batcher = Batcher::new(self.context.job_id(), plan, at, to_table)?;
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
                    .blocking(move |context| {
                        batcher
                            .feed(&mut block, &|| context.is_cancelled())
                            .map(|full| (batcher, block, full))
                    })
                    .await?;
                if let Some(batch) = full
                    && batches.send(batch).await.is_err()
                {
                    // The writer has failed and tells why, or takes no more.
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

    async fn checkpoint(&self) -> Result<Checkpoint, JobError> {
        patiently(|| storage::imports::load_checkpoint(self.store, self.context.job_id()))
            .await?
            .ok_or_else(|| {
                JobError::temporary(
                    Code::LeaseExpired.as_str(),
                    "the import's checkpoint is gone",
                )
                .by_tenure()
            })
    }
}

fn stopped() -> JobError {
    // Temporary: where the user asked for it the job ends as cancelled, and where this
    // process stops it goes on elsewhere.
    JobError::temporary(
        Code::Cancelled.as_str(),
        "the import was stopped between two batches",
    )
    .by_tenure()
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
