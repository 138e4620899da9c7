//! Rows that go to a table of their own.
//!
//! The statement is made from names of the database's catalog, each quoted; values are
//! parameters. They are cast to a type without its length, and the assignment judges them as
//! in any other statement. A row that the table refuses is found by halving, each half behind a
//! savepoint, so the rows beside it go in.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{AssertSqlSafe, PgConnection};

use super::refusal::Refusal;
use super::{Reject, WriteError, database};
use crate::error::{Code, Error, clean_text};
use crate::storage::error::{DbKind, classify};

/// How much of a bad value is kept, in characters.
const VALUE_CHARS: usize = 200;

/// A column of a table that rows fill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableField {
    /// The column of the import.
    pub from: String,
    /// The column of the table.
    pub to: String,
    /// The schema of the column's type; of the type below, where it is a domain.
    pub type_schema: String,
    /// The name of that type.
    pub type_name: String,
    /// The places behind the point that the column keeps; `None`: all. Whoever judges the
    /// rows refuses more: PostgreSQL would round.
    pub scale: Option<i16>,
}

/// How rows go to a table. All names are those of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSpec {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// What is filled from the rows.
    pub fields: Vec<TableField>,
    /// The column that is the user's id in each row, and that id.
    pub user: Option<(String, String)>,
    /// The columns of the table by which a row is found that is there already and is
    /// changed; empty: rows are only inserted.
    pub key: Vec<String>,
}

/// A table that rows are written to.
#[derive(Debug, Clone)]
pub struct Table {
    spec: TableSpec,
    insert: String,
    /// The most rows of one statement: less than a batch where the table is too slow for it.
    part: Arc<AtomicUsize>,
}

/// A name, quoted.
fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text, quoted so that it is the same whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

impl Table {
    /// Makes the statement.
    pub fn new(spec: TableSpec) -> Self {
        let value = |field: &TableField| {
            // Without the length of a type, and not to a domain that has one: a cast to it
            // would cut a text, where the assignment refuses it.
            let kind = format!("{}.{}", name(&field.type_schema), name(&field.type_name));
            format!("(d ->> {})::{kind}", literal(&field.from))
        };
        let mut columns: Vec<String> = spec.fields.iter().map(|f| name(&f.to)).collect();
        let mut values: Vec<String> = spec.fields.iter().map(value).collect();
        if let Some((column, _)) = &spec.user {
            columns.push(name(column));
            values.push("$3::text".to_owned());
        }
        // The user is the same in all rows.
        let keys: Vec<String> = spec
            .fields
            .iter()
            .filter(|f| spec.key.contains(&f.to))
            .map(value)
            .collect();
        let mut insert = format!(
            "with r as materialized (select line, j::jsonb as d from unnest($1::bigint[], $2::text[]) as u (line, j)) \
             insert into {}.{} ({}) select ",
            name(&spec.schema),
            name(&spec.table),
            columns.join(", ")
        );
        if spec.key.is_empty() {
            let _ = write!(insert, "{} from r order by line", values.join(", "));
        } else {
            if !keys.is_empty() {
                let _ = write!(insert, "distinct on ({}) ", keys.join(", "));
            }
            let _ = write!(insert, "{} from r order by ", values.join(", "));
            for key in &keys {
                let _ = write!(insert, "{key}, ");
            }
            // The last row of a key counts.
            insert.push_str("line desc");
            let quoted: Vec<String> = spec.key.iter().map(|column| name(column)).collect();
            let _ = write!(insert, " on conflict ({}) do ", quoted.join(", "));
            let changed: Vec<String> = columns
                .iter()
                .filter(|column| !quoted.contains(column))
                .map(|column| format!("{column} = excluded.{column}"))
                .collect();
            if changed.is_empty() {
                insert.push_str("nothing");
            } else {
                let _ = write!(insert, "update set {}", changed.join(", "));
            }
        }
        Self {
            spec,
            insert,
            part: Arc::new(AtomicUsize::new(usize::MAX)),
        }
    }

    /// Whether a row may change one that is there already: the last one with a key counts.
    pub(super) fn changes_rows(&self) -> bool {
        !self.spec.key.is_empty()
    }

    /// Writes rows, in order; those that the table refuses, as rejects. Ends early where
    /// these are more than `most`.
    pub(super) async fn write(
        &self,
        connection: &mut PgConnection,
        rows: &[(i64, &str)],
        originals: &HashMap<i64, &str>,
        most: Option<usize>,
    ) -> Result<Vec<Reject>, WriteError> {
        let mut rejects = Vec::new();
        let mut waiting = self.parts(rows.len());
        while let Some(range) = waiting.pop() {
            if most.is_some_and(|most| rejects.len() > most) {
                break;
            }
            simple(connection, "savepoint part").await?;
            let refusal = match self.insert(connection, &rows[range.clone()]).await {
                // An upsert may write fewer: the last row of a key counts.
                Ok(written) if self.changes_rows() || written == range.len() as u64 => {
                    simple(connection, "release savepoint part").await?;
                    continue;
                }
                Ok(_) => Refusal::skipped(),
                // Fewer rows may be fast enough, in the batches after this one too.
                Err(error) if is_timeout(&error) && range.len() > 1 => {
                    self.part.store(range.len() / 2, Ordering::Relaxed);
                    Refusal::skipped()
                }
                Err(error) => match Refusal::of(&error) {
                    Some(refusal) => refusal,
                    None => return Err(self.unfit(error)),
                },
            };
            simple(
                connection,
                "rollback to savepoint part; release savepoint part",
            )
            .await?;
            if range.len() == 1 {
                let (line, json) = rows[range.start];
                rejects.push(self.reject(line, json, refusal, originals.get(&line)));
            } else {
                let middle = usize::midpoint(range.start, range.end);
                waiting.push(middle..range.end);
                waiting.push(range.start..middle);
            }
        }
        Ok(rejects)
    }

    /// The rows in parts, the last one first.
    fn parts(&self, rows: usize) -> Vec<std::ops::Range<usize>> {
        let part = self.part.load(Ordering::Relaxed).clamp(1, rows.max(1));
        let parts = (0..rows).step_by(part);
        parts.map(|at| at..rows.min(at + part)).rev().collect()
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        rows: &[(i64, &str)],
    ) -> Result<u64, sqlx::Error> {
        let (lines, json): (Vec<i64>, Vec<&str>) = rows.iter().copied().unzip();
        let mut query = sqlx::query(AssertSqlSafe(self.insert.as_str()))
            .bind(lines)
            .bind(json);
        if let Some((_, user)) = &self.spec.user {
            query = query.bind(user);
        }
        query
            .execute(connection)
            .await
            .map(|done| done.rows_affected())
    }

    fn reject(&self, line: i64, json: &str, refusal: Refusal, original: Option<&&str>) -> Reject {
        let field = refusal
            .column
            .and_then(|column| self.spec.fields.iter().find(|field| field.to == column));
        let value = field.and_then(|field| {
            let row: serde_json::Value = serde_json::from_str(json).ok()?;
            match row.get(&field.from)? {
                serde_json::Value::Null => None,
                serde_json::Value::String(text) => Some(clean_text(text, VALUE_CHARS)),
                other => Some(clean_text(&other.to_string(), VALUE_CHARS)),
            }
        });
        Reject {
            line,
            column: field.map(|field| field.from.clone()).unwrap_or_default(),
            reason: "TABLE_REFUSED".to_owned(),
            message: refusal.message,
            value,
            original: original.map(|text| (*text).to_owned()),
        }
    }

    /// An error that no single row is the cause of.
    fn unfit(&self, error: sqlx::Error) -> WriteError {
        let code = match &error {
            sqlx::Error::Database(db) => db.code().unwrap_or_default().into_owned(),
            _ => return database(error),
        };
        match classify(&error) {
            DbKind::Lost | DbKind::Full => return database(error),
            // Not an outage of ours: it may be the table's own doing, so attempts count.
            DbKind::Retry => {
                let why = match code.as_str() {
                    "57014" => {
                        "takes too long for a row; ask your operator to look at its triggers"
                    }
                    "55P03" => "is locked by somebody else",
                    _ => "conflicts with other work on it",
                };
                let table = format!("{}.{}", self.spec.schema, self.spec.table);
                return WriteError::Database(
                    Error::new(
                        Code::ImportTargetBusy,
                        format!("target.table: {table} {why}"),
                    )
                    .with_source(error),
                );
            }
            DbKind::Data | DbKind::Invariant | DbKind::Defect => {}
        }
        let why = match code.as_str() {
            "42501" => "Tenure's database user may not write to it",
            "42P01" => "it is not there any more",
            "42703" => "one of its columns is not there any more",
            "42P10" => "the key has no unique index any more",
            code if code.starts_with("42") => {
                "its columns do not take the rows; declare the types in `columns`"
            }
            _ => {
                "it fails on every row, perhaps in a trigger; ask your operator, who finds the error in the worker's log"
            }
        };
        let table = format!("{}.{}", self.spec.schema, self.spec.table);
        WriteError::Database(
            Error::new(
                Code::ImportTargetInvalid,
                format!("target.table: {table}: {why}"),
            )
            .with_source(error),
        )
    }
}

/// Whether a statement was ended for its time limit, not for a lock that it waited for.
fn is_timeout(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(db) if db.code().is_some_and(|code| code == "57014"))
}

/// Runs statements that have no parameters and no rows.
pub(super) async fn simple(
    connection: &mut PgConnection,
    statements: &'static str,
) -> Result<(), WriteError> {
    sqlx::raw_sql(statements)
        .execute(connection)
        .await
        .map(|_| ())
        .map_err(database)
}

/// The lines of rejects.
pub(super) fn lines(rejects: &[Reject]) -> HashSet<i64> {
    rejects.iter().map(|reject| reject.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(from: &str, to: &str, type_name: &str) -> TableField {
        TableField {
            from: from.into(),
            to: to.into(),
            type_schema: "pg_catalog".into(),
            type_name: type_name.into(),
            scale: None,
        }
    }

    fn spec(key: &[&str]) -> TableSpec {
        TableSpec {
            schema: "crm".into(),
            table: "con\"tacts".into(),
            fields: vec![field("E'mail\\", "email", "text"), field("n", "n", "int4")],
            user: Some(("owner".into(), "ada".into())),
            key: key.iter().map(|&k| k.to_owned()).collect(),
        }
    }

    #[test]
    fn names_and_texts_are_quoted() {
        let insert = Table::new(spec(&[])).insert;
        assert!(
            insert.ends_with(
                r#"insert into "crm"."con""tacts" ("email", "n", "owner") select (d ->> E'E''mail\\')::"pg_catalog"."text", (d ->> 'n')::"pg_catalog"."int4", $3::text from r order by line"#
            ),
            "{insert}"
        );
    }

    #[test]
    fn rows_go_in_parts_in_their_order() {
        let table = Table::new(spec(&[]));
        assert_eq!(table.parts(7), vec![0..7; 1]);
        assert!(table.parts(0).is_empty());
        table.part.store(3, Ordering::Relaxed);
        assert_eq!(
            table.parts(7),
            [6..7, 3..6, 0..3],
            "the last is taken first"
        );
    }

    #[test]
    fn an_upsert_changes_what_is_not_its_key() {
        let insert = Table::new(spec(&["email", "owner"])).insert;
        assert!(
            insert.contains(r#"select distinct on ((d ->> E'E''mail\\')::"pg_catalog"."text") "#)
        );
        assert!(
            insert.ends_with(
                r#", line desc on conflict ("email", "owner") do update set "n" = excluded."n""#
            ),
            "{insert}"
        );
        let all = Table::new(spec(&["email", "n", "owner"])).insert;
        assert!(all.ends_with("do nothing"), "{all}");
    }
}
