//! Values that may stand in one row of an import only.
//!
//! Which there are is kept in the database, so memory does not grow with the file. A batch
//! looks up its own values and decides in the order of lines; a row that is rejected, for
//! whatever reason, reserves nothing.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, Row};

use super::{Candidate, Reject};
use crate::domain::ids::JobId;

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_unique_find", FIND),
    ("import_unique_insert", INSERT),
];

const FIND: &str = "\
select u.column_no, u.digest, u.line_no
from unnest($2::smallint[], $3::bytea[]) w (column_no, digest)
join import_unique u on u.job_id = $1 and u.column_no = w.column_no and u.digest = w.digest";

const INSERT: &str = "\
insert into import_unique (job_id, column_no, digest, line_no)
select $1, * from unnest($2::smallint[], $3::bytea[], $4::bigint[])";

type Key = (i16, [u8; 16]);

/// The verdict on the candidates of one batch.
#[derive(Debug, Default)]
pub(super) struct Verdict<'b> {
    /// Values that earlier batches have stored, and those of accepted rows of this one.
    taken: HashMap<Key, i64>,
    /// Rows whose value stands in an earlier one: the candidate, which of its values, and
    /// the line of the earlier row.
    duplicates: Vec<(&'b Candidate, usize, i64)>,
}

impl<'b> Verdict<'b> {
    /// Decides over candidates in the order of their lines.
    pub(super) async fn over(
        connection: &mut PgConnection,
        job_id: JobId,
        candidates: &'b [Candidate],
    ) -> Result<Self, sqlx::Error> {
        let mut columns = Vec::new();
        let mut digests: Vec<&[u8]> = Vec::new();
        for value in candidates.iter().flat_map(|c| &c.values) {
            columns.push(value.column_no);
            digests.push(&value.digest);
        }
        let mut verdict = Self::default();
        if columns.is_empty() {
            return Ok(verdict);
        }
        let rows = sqlx::query(FIND)
            .bind(job_id.uuid())
            .bind(columns)
            .bind(digests)
            .fetch_all(connection)
            .await?;
        for row in rows {
            let digest: Vec<u8> = row.try_get("digest")?;
            if let Ok(digest) = digest.try_into() {
                let key = (row.try_get("column_no")?, digest);
                verdict.taken.insert(key, row.try_get("line_no")?);
            }
        }
        verdict.judge(candidates.iter());
        Ok(verdict)
    }

    /// Takes the values of the candidates that have no other row's; their lines.
    fn judge(&mut self, candidates: impl Iterator<Item = &'b Candidate>) -> HashSet<i64> {
        let mut accepted = HashSet::new();
        for candidate in candidates {
            let earlier = candidate.values.iter().enumerate().find_map(|(at, value)| {
                let line = self.taken.get(&(value.column_no, value.digest))?;
                Some((at, *line))
            });
            if let Some((at, line)) = earlier {
                self.duplicates.push((candidate, at, line));
                continue;
            }
            for value in &candidate.values {
                self.taken
                    .insert((value.column_no, value.digest), candidate.line);
            }
            accepted.insert(candidate.line);
        }
        accepted
    }

    /// Frees the values of rows that were refused after all, and decides anew over those
    /// that they had stood in the way of; the lines that are accepted now.
    pub(super) fn without(&mut self, refused: &HashSet<i64>) -> HashSet<i64> {
        self.taken.retain(|_, line| !refused.contains(line));
        let duplicates = std::mem::take(&mut self.duplicates);
        let (again, stay) = duplicates
            .into_iter()
            .partition::<Vec<_>, _>(|(_, _, line)| refused.contains(line));
        self.duplicates = stay;
        self.judge(again.into_iter().map(|(candidate, ..)| candidate))
    }

    /// The lines of the duplicates.
    pub(super) fn lines(&self) -> HashSet<i64> {
        self.duplicates.iter().map(|(c, ..)| c.line).collect()
    }

    /// The duplicates as rejects.
    pub(super) fn rejects(&self) -> Vec<Reject> {
        let reject = |(candidate, at, line): &(&Candidate, usize, i64)| {
            let value = &candidate.values[*at];
            Reject {
                line: candidate.line,
                column: value.column.clone(),
                reason: "DUPLICATE_VALUE".to_owned(),
                message: format!("the value must be unique and stands in line {line} already"),
                value: Some(value.shown.clone()),
                original: Some(candidate.original.clone()),
            }
        };
        self.duplicates.iter().map(reject).collect()
    }

    /// Stores the values of the rows of this batch that were accepted.
    pub(super) async fn store(
        &self,
        connection: &mut PgConnection,
        job_id: JobId,
        candidates: &[Candidate],
    ) -> Result<(), sqlx::Error> {
        let mut columns = Vec::new();
        let mut digests: Vec<&[u8]> = Vec::new();
        let mut lines = Vec::new();
        for candidate in candidates {
            for value in &candidate.values {
                let key = (value.column_no, value.digest);
                if self.taken.get(&key) == Some(&candidate.line) {
                    columns.push(value.column_no);
                    digests.push(&value.digest);
                    lines.push(candidate.line);
                }
            }
        }
        if columns.is_empty() {
            return Ok(());
        }
        sqlx::query(INSERT)
            .bind(job_id.uuid())
            .bind(columns)
            .bind(digests)
            .bind(lines)
            .execute(connection)
            .await
            .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::imports::UniqueValue;

    fn candidate(line: i64, values: &[(i16, u8)]) -> Candidate {
        let value = |(column_no, byte): &(i16, u8)| UniqueValue {
            column_no: *column_no,
            column: format!("c{column_no}"),
            digest: [*byte; 16],
            shown: byte.to_string(),
        };
        Candidate {
            line,
            original: format!("row {line}"),
            values: values.iter().map(value).collect(),
        }
    }

    #[test]
    fn the_first_row_with_a_value_keeps_it_and_a_rejected_one_reserves_nothing() {
        let candidates = [
            candidate(2, &[(0, 1), (1, 1)]),
            // Rejected by its second value, so its first is free for line 4.
            candidate(3, &[(0, 2), (1, 1)]),
            candidate(4, &[(0, 2)]),
            candidate(5, &[(0, 2)]),
        ];
        let mut verdict = Verdict::default();
        let accepted = verdict.judge(candidates.iter());
        assert_eq!(accepted, HashSet::from([2, 4]));
        let told: Vec<_> = verdict
            .rejects()
            .into_iter()
            .map(|r| (r.line, r.column, r.value, r.message))
            .collect();
        let stands = |line| format!("the value must be unique and stands in line {line} already");
        assert_eq!(
            told,
            [
                (3, "c1".into(), Some("1".into()), stands(2)),
                (5, "c0".into(), Some("2".into()), stands(4)),
            ]
        );
        // Line 4 is refused by its table: line 5 may have the value.
        assert_eq!(verdict.without(&HashSet::from([4])), HashSet::from([5]));
        assert_eq!(verdict.lines(), HashSet::from([3]));
        // And line 2: line 3 comes in by its second value, and not by its first.
        assert_eq!(verdict.without(&HashSet::from([2])), HashSet::new());
        assert_eq!(verdict.lines(), HashSet::from([3]));
    }
}
