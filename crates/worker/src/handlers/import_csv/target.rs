//! Whether rows fit the table that they are to go to: decided from the database's catalog
//! before the first row.

use std::collections::BTreeSet;

use tenure_core::config::ImportTable;
use tenure_core::domain::ids::UserId;
use tenure_core::error::Code;
use tenure_core::storage::imports::{TableColumn, TableField, TableInfo, TableSpec};

use super::payload::{Column, Target, TargetMode, key, shown};
use super::types::ColumnType;
use crate::handler::JobError;

fn refuse(message: impl std::fmt::Display) -> JobError {
    JobError::permanent(
        Code::ImportTargetInvalid.as_str(),
        format!("target.{message}"),
    )
}

/// The entry of the configuration that allows this table.
///
/// # Errors
/// Permanent `IMPORT_TARGET_INVALID`.
pub(super) fn allowed<'t>(
    tables: &'t [ImportTable],
    target: &Target,
) -> Result<&'t ImportTable, JobError> {
    tables
        .iter()
        .find(|entry| entry.name() == target.table)
        .ok_or_else(|| not_allowed(target))
}

/// A table that is not there is answered like one that is not allowed.
pub(super) fn not_allowed(target: &Target) -> JobError {
    refuse(format!(
        "table: imports may not write to '{}'; ask your operator, who names the tables in `imports.tables`",
        shown(&target.table)
    ))
}

/// Finds the table's column for each column of the import, and what is needed beside them.
/// Columns without a type take it from the table.
///
/// # Errors
/// Permanent `IMPORT_TARGET_INVALID`.
pub(super) fn fit(
    target: &Target,
    entry: &ImportTable,
    info: &TableInfo,
    columns: &mut [(usize, Column)],
    user: &UserId,
) -> Result<TableSpec, JobError> {
    rights(target, entry, info)?;
    let key = whole_key(target, entry, info)?;
    for from in target.columns.keys() {
        if !columns.iter().any(|(_, column)| same(&column.name, from)) {
            return Err(refuse(format!(
                "columns: '{}' is not a column of the import",
                shown(from)
            )));
        }
    }
    let mut fields: Vec<TableField> = Vec::with_capacity(columns.len());
    for (_, column) in columns.iter_mut() {
        let to = home(target, entry, info, column)?;
        if let Some(other) = fields.iter().find(|field| field.to == to.name) {
            return Err(refuse(format!(
                "columns: '{}' and '{}' both go to the column '{}' of the table",
                shown(&other.from),
                shown(&column.name),
                to.name
            )));
        }
        column.kind = Some(kind(column, to)?);
        let in_key = key.contains(&to.name);
        column.required |= in_key || (to.not_null && column.default.is_none());
        fields.push(TableField {
            from: column.name.clone(),
            to: to.name.clone(),
            type_schema: to.type_schema.clone(),
            type_name: to.type_name.clone(),
            scale: to.scale(),
        });
    }
    let user_column = entry.user_column.as_deref();
    let filled =
        |name: &str| user_column == Some(name) || fields.iter().any(|field| field.to == name);
    if let Some(missing) = key.iter().find(|name| !filled(name)) {
        return Err(refuse(format!(
            "key: no column of the import goes to '{}'",
            shown(missing)
        )));
    }
    let missing: Vec<String> = info
        .columns
        .iter()
        .filter(|c| c.not_null && !c.has_default && !c.generated && !filled(&c.name))
        .map(|c| format!("'{}'", c.name))
        .collect();
    if !missing.is_empty() {
        return Err(refuse(format!(
            "columns: the table must have a value in {}, and no column of the import goes there",
            missing.join(", ")
        )));
    }
    Ok(TableSpec {
        schema: entry.schema.clone(),
        table: entry.table.clone(),
        fields,
        user: user_column.map(|column| (column.to_owned(), user.as_str().to_owned())),
        key,
    })
}

/// Whether the table may be written to, and keeps the users apart.
fn rights(target: &Target, entry: &ImportTable, info: &TableInfo) -> Result<(), JobError> {
    let table = shown(&target.table);
    if info.has_rules {
        return Err(refuse(format!(
            "table: '{table}' has rules, which may do anything with a row; ask your operator to make triggers of them"
        )));
    }
    if let Some(name) = &entry.user_column {
        let fits = |c: &TableColumn| {
            let text = matches!(c.type_name.as_str(), "text" | "varchar");
            c.name == *name && text && in_catalog(c) && c.exact && !c.generated
        };
        if !info.columns.iter().any(fits) {
            return Err(refuse(format!(
                "table: '{table}' has no column '{name}' for the user's id that is text or varchar with a deterministic collation; \
                 ask your operator to mend the table or its entry in `imports.tables`"
            )));
        }
    }
    let upsert = target.mode == TargetMode::Upsert;
    if upsert && entry.user_column.is_none() && !entry.shared {
        return Err(refuse(format!(
            "mode: an upsert could change rows of other users in '{table}'; ask your operator, who names the column of the user's id \
             in `imports.tables`, such as `{table}(owner)`, or says that all may change all with `{table}(*)`"
        )));
    }
    if !info.may_insert || (upsert && !info.may_update) {
        return Err(refuse(format!(
            "table: Tenure's database user may not {} '{}'; ask your operator to grant it",
            if upsert {
                "insert into and update"
            } else {
                "insert into"
            },
            table
        )));
    }
    Ok(())
}

/// The columns by which a row is found that is there already; none for an insert. The
/// user's column is always one of them, so that nobody changes another's rows.
fn whole_key(
    target: &Target,
    entry: &ImportTable,
    info: &TableInfo,
) -> Result<Vec<String>, JobError> {
    if target.mode == TargetMode::Insert {
        return if target.key.is_empty() {
            Ok(Vec::new())
        } else {
            Err(refuse("key: belongs to the mode `upsert`"))
        };
    }
    if target.key.is_empty() {
        return Err(refuse(
            "key: the mode `upsert` needs the columns of the table that tell one row from another",
        ));
    }
    let mut key: BTreeSet<&str> = target.key.iter().map(String::as_str).collect();
    if let Some(column) = &entry.user_column {
        key.insert(column);
    }
    let unique = info
        .keys
        .iter()
        .any(|index| index.iter().map(String::as_str).collect::<BTreeSet<_>>() == key);
    if !unique {
        let names: Vec<String> = key
            .iter()
            .map(|name| format!("'{}'", shown(name)))
            .collect();
        return Err(refuse(format!(
            "key: the table has no unique index over just {}",
            names.join(", ")
        )));
    }
    Ok(key.into_iter().map(str::to_owned).collect())
}

/// The table's column that a column of the import goes to.
fn home<'i>(
    target: &Target,
    entry: &ImportTable,
    info: &'i TableInfo,
    column: &Column,
) -> Result<&'i TableColumn, JobError> {
    let mapped = target
        .columns
        .iter()
        .find(|(from, _)| same(from, &column.name))
        .map(|(_, to)| to.as_str());
    let exact = |name: &str| info.columns.iter().find(|c| c.name == name);
    let name = mapped.unwrap_or(&column.name);
    let found = exact(name).or_else(|| {
        let mut alike = info.columns.iter().filter(|c| same(&c.name, name));
        alike
            .next()
            .filter(|_| mapped.is_none() && alike.next().is_none())
    });
    let Some(to) = found else {
        return Err(refuse(match mapped {
            Some(to) => format!("columns: the table has no column '{}'", shown(to)),
            None => format!(
                "columns: the table has no column '{}'; name its column here, or leave it out of the `columns` of the import",
                shown(&column.name)
            ),
        }));
    };
    if entry.user_column.as_ref() == Some(&to.name) {
        return Err(refuse(format!(
            "columns: '{}' of the table is filled with the user's id; leave it out of the `columns` of the import",
            to.name
        )));
    }
    if to.generated {
        return Err(refuse(format!(
            "columns: '{}' of the table is generated and cannot be written",
            to.name
        )));
    }
    Ok(to)
}

fn same(one: &str, other: &str) -> bool {
    key(one) == key(other)
}

fn in_catalog(column: &TableColumn) -> bool {
    column.type_schema == "pg_catalog"
}

/// What the column of the import holds: what was declared, if the table's column takes that
/// as it is; else what the table's column holds. What has no type here goes to the table as
/// text, and the table judges it.
fn kind(column: &Column, to: &TableColumn) -> Result<ColumnType, JobError> {
    use ColumnType as Is;
    if in_catalog(to)
        && let Some(why) = unfit(&to.type_name, to.modifier)
    {
        return Err(refuse(format!(
            "columns: '{}' of the table is of the type {}, {why}",
            to.name,
            spelled(&to.type_name)
        )));
    }
    let natural = match to.type_name.as_str() {
        _ if !in_catalog(to) => Is::Text,
        "int2" | "int4" | "int8" => Is::Integer,
        "numeric" => Is::Decimal,
        "float4" | "float8" => Is::Float,
        "bool" => Is::Boolean,
        "date" => Is::Date,
        "timestamptz" => Is::Timestamp,
        _ => Is::Text,
    };
    let Some(declared) = column.kind else {
        return Ok(natural);
    };
    let number = |kind| matches!(kind, Is::Integer | Is::Decimal | Is::Float);
    if natural == Is::Text || declared == natural || (number(natural) && number(declared)) {
        return Ok(declared);
    }
    // PostgreSQL would guess, by the settings of the day: what is 1/2/2024?
    Err(refuse(format!(
        "columns: '{}' is declared as {} and goes to '{}', which is of the type {}; declare it as {}, or leave its type out",
        shown(&column.name),
        declared.name(),
        to.name,
        spelled(&to.type_name),
        natural.name()
    )))
}

/// Why rows cannot go to a column of this type of PostgreSQL's as they are, and what to do.
fn unfit(type_name: &str, modifier: i32) -> Option<&'static str> {
    let zoned = "which tells no time zone; ask your operator to make it timestamp with time zone, or leave it out of the import";
    let guessed = "whose values are read differently by the settings of the day; ask your operator to make it text, or leave it out of the import";
    let element = type_name.strip_prefix('_');
    match element.unwrap_or(type_name) {
        "timestamp" => Some(zoned),
        "time" | "timetz" | "interval" | "money" | "daterange" | "tsrange" | "tstzrange"
        | "datemultirange" | "tsmultirange" | "tstzmultirange" => Some(guessed),
        "date" | "timestamptz" if element.is_some() => Some(guessed),
        "numeric" if element.is_some() && modifier >= 0 => Some(
            "which rounds its numbers; ask your operator to take the scale away, or leave it out of the import",
        ),
        "char" => Some(
            "which keeps one byte of each value; ask your operator to make it text, or leave it out of the import",
        ),
        _ => None,
    }
}

/// The name of a type as people know it.
fn spelled(type_name: &str) -> &str {
    match type_name {
        "timestamp" => "timestamp without time zone",
        "timestamptz" => "timestamp with time zone",
        "timetz" => "time with time zone",
        "char" => "\"char\"",
        "bool" => "boolean",
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "float4" => "real",
        "float8" => "double precision",
        other => other,
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
