//! A statement's plan as PostgreSQL makes it for the hot connections, read from EXPLAIN.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

/// One node of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: String,
    pub(crate) table: Option<String>,
    pub(crate) index: Option<String>,
    /// Rows that it read and threw away, over all loops (with ANALYZE).
    pub(crate) thrown_away: f64,
}

/// A whole plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<Node>,
    /// Pages touched; what is done beside the main query may count twice.
    pub(crate) pages: f64,
}

impl Plan {
    /// Scans of a table without an index.
    pub(crate) fn scanned(&self) -> Vec<&str> {
        self.nodes
            .iter()
            .filter(|node| node.kind.ends_with("Seq Scan"))
            .filter_map(|node| node.table.as_deref())
            .collect()
    }

    /// The indexes that are looked into.
    pub(crate) fn indexes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .nodes
            .iter()
            .filter_map(|n| n.index.as_deref())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(crate) fn thrown_away(&self) -> f64 {
        self.nodes.iter().map(|node| node.thrown_away).sum()
    }
}

/// Prepares a statement with the types by which the services send its parameters.
pub(crate) async fn prepare(connection: &mut PgConnection, name: &str, types: &str, sql: &str) {
    let sql = format!("deallocate all; prepare {name} ({types}) as {sql}");
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// The plan of a prepared statement, not run.
pub(crate) async fn explain(connection: &mut PgConnection, name: &str, arguments: &str) -> Plan {
    let sql = format!("explain (format json) execute {name} ({arguments})");
    read(&fetch(connection, name, sql).await)
}

/// The same, run and rolled back.
pub(crate) async fn explain_analyze(
    connection: &mut PgConnection,
    name: &str,
    arguments: &str,
) -> Plan {
    let sql =
        format!("explain (analyze, buffers, timing off, format json) execute {name} ({arguments})");
    let mut tx = connection.begin().await.expect("a transaction");
    let plan = read(&fetch(&mut tx, name, sql).await);
    tx.rollback().await.expect("rolls back");
    plan
}

async fn fetch(connection: &mut PgConnection, name: &str, sql: String) -> Value {
    sqlx::query_scalar(AssertSqlSafe(sql))
        .persistent(false)
        .fetch_one(connection)
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read(explained: &Value) -> Plan {
    let root = &explained[0]["Plan"];
    let mut plan = Plan {
        nodes: Vec::new(),
        pages: pages(root),
    };
    walk(root, &mut plan);
    plan
}

fn pages(node: &Value) -> f64 {
    let number = |key: &str| node[key].as_f64().unwrap_or_default();
    number("Shared Hit Blocks") + number("Shared Read Blocks")
}

fn walk(node: &Value, plan: &mut Plan) {
    let text = |key: &str| node[key].as_str().map(ToOwned::to_owned);
    let number = |key: &str| node[key].as_f64().unwrap_or_default();
    let removed = number("Rows Removed by Filter")
        + number("Rows Removed by Join Filter")
        + number("Rows Removed by Index Recheck");
    plan.nodes.push(Node {
        kind: text("Node Type").unwrap_or_default(),
        table: text("Relation Name"),
        index: text("Index Name"),
        thrown_away: removed * number("Actual Loops").max(1.0),
    });
    // What a data-modifying CTE does after the main query is not in the root's count.
    if text("Parent Relationship").as_deref() == Some("InitPlan") {
        plan.pages += pages(node);
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        walk(child, plan);
    }
}
