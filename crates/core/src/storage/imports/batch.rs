//! What is written together: rows, rejected rows, and values that must not repeat.

use std::collections::HashSet;

use super::Position;
use crate::domain::ids::JobId;

/// A row that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The physical line, from 1, on which the row begins.
    pub line: i64,
    /// The column that is at fault; empty where it is the row as a whole.
    pub column: String,
    /// A stable code.
    pub reason: String,
    /// What is wrong, for people.
    pub message: String,
    /// The beginning of the value at fault.
    pub value: Option<String>,
    /// The record as it stands in the file, or its beginning.
    pub original: Option<String>,
}

/// An accepted row that may still be refused: it has values that may stand in one row
/// only, or goes to a table, which judges it by itself. Of a row that goes to a table there
/// is always one, so that its record is known if it is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The physical line, from 1, on which the row begins.
    pub line: i64,
    /// The record as it stands in the file, or its beginning; kept if it is rejected.
    pub original: String,
    /// Its values of `unique` columns; an empty value is not one.
    pub values: Vec<UniqueValue>,
}

/// A value that may stand in one row only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniqueValue {
    /// The column's place among those of the import, from 0.
    pub column_no: i16,
    /// The column's name.
    pub column: String,
    /// The beginning of SHA-256 of the value as it is stored.
    pub digest: [u8; 16],
    /// The beginning of the value as it stands in the file.
    pub shown: String,
}

/// Accepted rows: their lines, and their JSON in one buffer.
#[derive(Debug)]
pub struct RowBatch {
    job_id: JobId,
    json: String,
    /// The line of each row, and where its JSON ends.
    rows: Vec<(i64, usize)>,
}

impl RowBatch {
    /// An empty batch of this job.
    pub fn new(job_id: JobId) -> Self {
        Self {
            job_id,
            json: String::new(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a JSON document without raw control characters, as every JSON
    /// writer makes it.
    pub fn push(&mut self, line: i64, json: &str) {
        self.json.push_str(json);
        self.rows.push((line, self.json.len()));
    }

    /// How many rows it holds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it holds no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.json.len() + self.rows.len() * size_of::<(i64, usize)>()
    }

    /// The rows in their order: line and JSON.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &str)> {
        let mut from = 0;
        self.rows.iter().map(move |(line, end)| {
            let json = &self.json[from..*end];
            from = *end;
            (*line, json)
        })
    }

    /// The rows in the text form of COPY (job, line, JSON), but for those on the lines of
    /// `without`.
    pub(super) fn to_copy(&self, without: &HashSet<i64>) -> Vec<u8> {
        let job = self.job_id.to_string();
        let mut copy = Vec::with_capacity(self.json.len() * 9 / 8 + self.rows.len() * 48);
        for (line, json) in self.iter() {
            if without.contains(&line) {
                continue;
            }
            copy.extend_from_slice(job.as_bytes());
            copy.push(b'\t');
            copy.extend_from_slice(line.to_string().as_bytes());
            copy.push(b'\t');
            // A backslash would be read as an escape; tabs and line ends are already
            // escaped in JSON.
            for (index, part) in json.split('\\').enumerate() {
                if index > 0 {
                    copy.extend_from_slice(b"\\\\");
                }
                copy.extend_from_slice(part.as_bytes());
            }
            copy.push(b'\n');
        }
        copy
    }
}

/// Rows and rejects that are written together, and where they are in the file.
#[derive(Debug)]
pub struct Batch {
    /// Where the import was before: `batch_no` and `byte_offset` tell the batch. What it
    /// counts is the reader's guess, since the writer may reject more.
    pub from: Position,
    /// Where it is afterwards; `batch_no` is the one after that of `from`.
    pub to: Position,
    /// What is to be stored.
    pub rows: RowBatch,
    /// What is not.
    pub rejects: Vec<Reject>,
    /// The rows of `rows` that may still be refused, by line.
    pub candidates: Vec<Candidate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_backslashes_through_copy() {
        let id = JobId::new();
        let mut batch = RowBatch::new(id);
        batch.push(7, r#"{"a":"tab \t, path C:\\x, quote \""}"#);
        batch.push(8, "{}");
        batch.push(9, "{\"b\":1}");
        let copy = |without: &[i64]| {
            let without = without.iter().copied().collect();
            String::from_utf8(batch.to_copy(&without)).expect("UTF-8")
        };
        let first = format!(
            "{id}\t7\t{}\n",
            r#"{"a":"tab \\t, path C:\\\\x, quote \\""}"#
        );
        assert_eq!(copy(&[8]), format!("{first}{id}\t9\t{{\"b\":1}}\n"));
        assert_eq!(copy(&[7, 9]), format!("{id}\t8\t{{}}\n"));
        assert_eq!((batch.len(), batch.iter().count()), (3, 3));
        assert_eq!(batch.iter().nth(1), Some((8, "{}")));
        assert!(batch.bytes() >= batch.json.len());
    }
}
