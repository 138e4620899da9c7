//! What the database says of a table that an import may write to.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Result;
use crate::storage::{Store, db_error};

/// The statements of this module, by name.
pub(crate) const STATEMENTS: &[(&str, &str)] = &[
    ("import_table_find", FIND),
    ("import_table_columns", COLUMNS),
    ("import_table_keys", KEYS),
];

/// Tables only, partitioned ones included: what a view does with a row is its own affair.
const FIND: &str = "\
select c.oid, has_table_privilege(c.oid, 'INSERT') as may_insert,
    has_table_privilege(c.oid, 'SELECT') and has_table_privilege(c.oid, 'UPDATE') as may_update,
    exists (select 1 from pg_rewrite r where r.ev_class = c.oid) as has_rules
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p')";

/// Goes down from domain to domain to the type below, and takes its modifier along.
const COLUMNS: &str = "\
with recursive b as (
    select a.attnum, a.atttypid as type, a.atttypmod as modifier, a.attnotnull as not_null
    from pg_attribute a where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
    union all
    select b.attnum, d.typbasetype, greatest(b.modifier, d.typtypmod), b.not_null or d.typnotnull
    from b join pg_type d on d.oid = b.type and d.typtype = 'd')
select a.attname::text as name, n.nspname::text as type_schema, t.typname::text as type_name, b.modifier, b.not_null,
    a.atthasdef or a.attidentity <> '' as has_default, a.attgenerated <> '' or a.attidentity = 'a' as generated,
    coalesce(o.collisdeterministic, true) as exact
from b join pg_type t on t.oid = b.type and t.typtype <> 'd' join pg_namespace n on n.oid = t.typnamespace
join pg_attribute a on a.attrelid = $1 and a.attnum = b.attnum
left join pg_collation o on o.oid = a.attcollation order by a.attnum";

/// Unique indexes that `on conflict` can name by their columns.
const KEYS: &str = "\
select array(select a.attname::text from generate_series(0, i.indnkeyatts - 1) k
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[k]) as columns
from pg_index i
where i.indrelid = $1 and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null";

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Its columns in their order.
    pub columns: Vec<TableColumn>,
    /// The columns of each of its unique indexes.
    pub keys: Vec<Vec<String>>,
    /// Whether Tenure's user may insert.
    pub may_insert: bool,
    /// Whether Tenure's user may update, and read what `on conflict` compares.
    pub may_update: bool,
    /// Whether it has rules, which may do anything with a row.
    pub has_rules: bool,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// The schema of its type; of the type below, where it is a domain.
    pub type_schema: String,
    /// The name of that type.
    pub type_name: String,
    /// The modifier of that type, such as a length; -1: none.
    pub modifier: i32,
    /// Whether it must have a value.
    pub not_null: bool,
    /// Whether it gets a value where none is named.
    pub has_default: bool,
    /// Whether it cannot be written.
    pub generated: bool,
    /// Whether only equal values compare as equal in it: not so where its collation takes
    /// different texts for one.
    pub exact: bool,
}

impl TableColumn {
    /// The places behind the point that a `numeric` keeps; negative: before it. `None`: all.
    pub fn scale(&self) -> Option<i16> {
        if self.type_schema != "pg_catalog" || self.type_name != "numeric" || self.modifier < 4 {
            return None;
        }
        // Eleven bits with their sign.
        let bits = (self.modifier - 4) & 0x7ff;
        i16::try_from((bits ^ 0x400) - 0x400).ok()
    }
}

/// Looks a table up; `None`: there is none of this name.
///
/// # Errors
/// `DATABASE_UNAVAILABLE` and its kin.
pub async fn describe(store: &Store, schema: &str, table: &str) -> Result<Option<TableInfo>> {
    read(store, schema, table).await.map_err(db_error)
}

async fn read(store: &Store, schema: &str, table: &str) -> Result<Option<TableInfo>, sqlx::Error> {
    let found = sqlx::query(FIND)
        .bind(schema)
        .bind(table)
        .fetch_optional(store.pool())
        .await?;
    let Some(found) = found else { return Ok(None) };
    let oid: sqlx::postgres::types::Oid = found.try_get("oid")?;
    let columns = sqlx::query(COLUMNS)
        .bind(oid)
        .fetch_all(store.pool())
        .await?;
    let keys = sqlx::query_scalar(KEYS)
        .bind(oid)
        .fetch_all(store.pool())
        .await?;
    Ok(Some(TableInfo {
        columns: columns.iter().map(column).collect::<Result<_, _>>()?,
        keys,
        may_insert: found.try_get("may_insert")?,
        may_update: found.try_get("may_update")?,
        has_rules: found.try_get("has_rules")?,
    }))
}

fn column(row: &PgRow) -> Result<TableColumn, sqlx::Error> {
    Ok(TableColumn {
        name: row.try_get("name")?,
        type_schema: row.try_get("type_schema")?,
        type_name: row.try_get("type_name")?,
        modifier: row.try_get("modifier")?,
        not_null: row.try_get("not_null")?,
        has_default: row.try_get("has_default")?,
        generated: row.try_get("generated")?,
        exact: row.try_get("exact")?,
    })
}
