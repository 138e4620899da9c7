//! Turns the text of a file into batches of rows and rejects, by the plan.

use bytes::{Buf, Bytes};
use tenure_core::domain::ids::JobId;
use tenure_core::error::Code;
use tenure_core::storage::imports::{Batch, Candidate, Position, Reject, RowBatch};

use super::judge::{Judge, Row, VALUE_CHARS};
use super::plan::Plan;
use super::reader::{Reader, Record};
use super::stopped;
use crate::handler::JobError;

/// The most rows of a batch, rejects included.
pub(crate) const BATCH_ROWS: usize = 2_000;

/// The same where rows go to a table: it may refuse each of them, and finding that out takes
/// several statements, all of them in one transaction that has its bound.
const TABLE_BATCH_ROWS: usize = 250;

/// The records that are judged before somebody asks whether to stop.
const STOP_EVERY: usize = 64;

/// A batch is closed when it holds this many bytes.
pub(crate) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Rows may be stored in this many times the bytes that they take in the file, beside
/// [`FREE_BYTES`]: names and defaults come with each, and a small file must not fill the
/// database.
const MAX_GROWTH: u64 = 64;
const FREE_BYTES: u64 = 256 * 1024 * 1024;

/// Reads records and fills batches.
#[derive(Debug)]
pub(crate) struct Batcher {
    reader: Reader,
    judge: Judge,
    filling: Filling,
    from: Position,
    /// Where this run began to read, and the bytes of rows that it has made since.
    began: u64,
    made: u64,
}

impl Batcher {
    /// Goes on at a position. With `to_table` each row may yet be refused, so its record is
    /// kept with it.
    ///
    /// # Errors
    /// Permanent `CSV_SCHEMA_INVALID`: see [`Plan::converters`].
    pub(crate) fn new(
        job_id: JobId,
        plan: &Plan,
        at: Position,
        to_table: bool,
    ) -> Result<Self, JobError> {
        let delimiter = u8::try_from(plan.delimiter).unwrap_or(b',');
        Ok(Self {
            reader: Reader::new(
                delimiter,
                plan.quote.byte(),
                at.byte_offset as u64,
                at.line_no as u64,
            ),
            judge: Judge::new(plan)?,
            filling: Filling::new(job_id, at, to_table),
            from: at,
            began: at.byte_offset as u64,
            made: 0,
        })
    }

    /// Reads on in `chunk` until a batch is full or the chunk is used up.
    ///
    /// # Errors
    /// Permanent `CSV_ENCODING` where the content is not what was checked before; the
    /// temporary one of a stopped import where `stop` says so.
    pub(crate) fn feed(
        &mut self,
        chunk: &mut Bytes,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Batch>, JobError> {
        let mut input = &chunk[..];
        let before = input.len();
        let mut full = false;
        let mut judged = 0;
        while !full && let Some(record) = self.reader.next(&mut input) {
            let row = self.judge.row(&record)?;
            let size = row.as_ref().map_or(0, |row| row.json.len() as u64);
            self.filling.add(&record, row);
            full = self.filling.is_full();
            self.made += size;
            if self.made > FREE_BYTES {
                grown(self.made, self.reader.offset().saturating_sub(self.began))?;
            }
            judged += 1;
            // Patterns may take their time.
            if judged % STOP_EVERY == 0 && stop() {
                return Err(stopped());
            }
        }
        let used = before - input.len();
        chunk.advance(used);
        Ok(full.then(|| self.close()))
    }

    /// The last batch, which brings the position to the end of the text; `None`: it
    /// is there already.
    ///
    /// # Errors
    /// As [`Self::feed`].
    pub(crate) fn finish(&mut self) -> Result<Option<Batch>, JobError> {
        if let Some(record) = self.reader.finish() {
            let row = self.judge.row(&record)?;
            self.filling.add(&record, row);
        }
        let moved = self.reader.offset() as i64 > self.from.byte_offset;
        Ok(moved.then(|| self.close()))
    }

    fn close(&mut self) -> Batch {
        let mut now = self.filling.now;
        now.byte_offset = self.reader.offset() as i64;
        now.line_no = self.reader.line() as i64;
        now.batch_no = self.from.batch_no + 1;
        let from = std::mem::replace(&mut self.from, now);
        let (job_id, to_table) = (self.filling.job_id, self.filling.to_table);
        let filled = std::mem::replace(&mut self.filling, Filling::new(job_id, now, to_table));
        Batch {
            from,
            to: now,
            rows: filled.rows,
            rejects: filled.rejects,
            candidates: filled.candidates,
        }
    }
}

/// Refuses rows that grow out of proportion.
fn grown(made: u64, read: u64) -> Result<(), JobError> {
    if made <= FREE_BYTES + read.saturating_mul(MAX_GROWTH) {
        return Ok(());
    }
    Err(JobError::permanent(
        Code::CsvTooLarge.as_str(),
        format!(
            "the rows take {made} bytes as they are stored, and {read} in the file; more than {MAX_GROWTH} times that is \
             refused: declare fewer `columns`, shorter names, or shorter defaults"
        ),
    ))
}

/// The batch that is being filled.
#[derive(Debug)]
struct Filling {
    job_id: JobId,
    to_table: bool,
    now: Position,
    rows: RowBatch,
    rejects: Vec<Reject>,
    candidates: Vec<Candidate>,
    /// What rejects and candidates take, about.
    more_bytes: usize,
}

impl Filling {
    fn new(job_id: JobId, now: Position, to_table: bool) -> Self {
        Self {
            job_id,
            to_table,
            now,
            rows: RowBatch::new(job_id),
            rejects: Vec::new(),
            candidates: Vec::new(),
            more_bytes: 0,
        }
    }

    fn is_full(&self) -> bool {
        let most = if self.to_table {
            TABLE_BATCH_ROWS
        } else {
            BATCH_ROWS
        };
        self.rows.len() + self.rejects.len() >= most
            || self.rows.bytes() + self.more_bytes >= BATCH_BYTES
    }

    fn add(&mut self, record: &Record<'_>, row: Result<Row<'_>, Box<Reject>>) {
        let line = record.line as i64;
        match row {
            Ok(Row { json, unique }) => {
                self.rows.push(line, json);
                self.now.rows_accepted += 1;
                if self.to_table || !unique.is_empty() {
                    let original = record.original();
                    self.more_bytes += original.len() + unique.len() * VALUE_CHARS;
                    self.candidates.push(Candidate {
                        line,
                        original,
                        values: unique,
                    });
                }
            }
            Err(reject) => {
                self.more_bytes += reject.column.len()
                    + reject.message.len()
                    + reject.original.as_ref().map_or(0, String::len)
                    + 4 * VALUE_CHARS;
                self.rejects.push(*reject);
                self.now.rows_rejected += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_grow_and_not_without_end() {
        assert!(grown(FREE_BYTES, 0).is_ok());
        let refused = grown(FREE_BYTES + 1, 0).expect_err("is too much");
        assert_eq!(refused.code, Code::CsvTooLarge.as_str());
        let file = 1 << 30;
        assert!(grown(FREE_BYTES + file * MAX_GROWTH, file).is_ok());
        assert!(grown(FREE_BYTES + file * MAX_GROWTH + 1, file).is_err());
    }
}
