//! Files through the running product: room, lists, expiry, and stores in every state.

mod bucket;
mod full_disk;
mod lists;
mod paths;
mod prune;
mod room;

use std::path::Path;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tenure_tests::Stack;

/// The longest that any wait here may take.
const BOUND: Duration = Duration::from_secs(90);

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("a name")
        })
        .collect();
    names.sort();
    names
}

/// The ids of all described files, sorted.
async fn described(stack: &Stack) -> Vec<String> {
    sqlx::query_scalar("select file_id::text from files order by 1")
        .fetch_all(stack.pool())
        .await
        .expect("ids")
}

/// Changes the database behind the product's back.
async fn change(stack: &Stack, statement: String) {
    sqlx::query(AssertSqlSafe(statement))
        .execute(stack.pool())
        .await
        .expect("a statement");
}
