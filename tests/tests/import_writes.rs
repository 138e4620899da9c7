//! How an import writes its batches: what one failure costs, and when a cancel is heard.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use tenure_tests::{JobState, Stack, wait_until};

const BOUND: Duration = Duration::from_mins(2);

/// The rows of a batch, and a number of batches that is more than are written at once.
const BATCH_ROWS: usize = 2_000;
const BATCHES: usize = 12;
/// The batches that may be stored before their turn.
const AHEAD: i64 = 2;

fn content(rows: usize) -> String {
    let mut content = String::from("n\n");
    for n in 0..rows {
        let _ = writeln!(content, "{n}");
    }
    content
}

/// Has the database refuse the first row of the first batch so often, as a conflict with others
/// that passes, and count the tries of that batch and those of all.
async fn refuse(stack: &Stack, times: i64) {
    let sql = format!(
        "create sequence tries; create sequence copies;
         create function refuse() returns trigger language plpgsql as $$ begin
             if new.line_no = 2 and nextval('tries') <= {times} then
                 raise exception 'busy' using errcode = '55P03';
             end if;
             return new;
         end $$;
         create function count_copy() returns trigger language plpgsql as $$ begin
             perform nextval('copies');
             return null;
         end $$;
         create trigger refuse before insert on import_rows for each row execute function refuse();
         create trigger count_copy before insert on import_rows for each statement execute function count_copy();"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(stack.pool())
        .await
        .expect("made");
}

async fn drawn(stack: &Stack, sequence: &'static str) -> i64 {
    let sql = format!("select case when is_called then last_value else 0 end from {sequence}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_one(stack.pool())
        .await
        .expect("a number")
}

#[tokio::test]
async fn a_batch_that_failed_once_slows_no_batch_behind_those_that_were_under_way() {
    let stack = Stack::builder().start().await;
    refuse(&stack, 1).await;
    let ann = stack.user("ann");
    let rows = BATCH_ROWS * BATCHES;
    let job = ann
        .import("n.csv", content(rows).as_bytes(), json!({"delimiter": ","}))
        .await;
    let job = ann.wait_state(&job, JobState::Success, BOUND).await;
    assert_eq!(job.run, 1);
    let stored: i64 = sqlx::query_scalar("select count(*) from import_rows")
        .fetch_one(stack.pool())
        .await
        .expect("a count");
    assert_eq!(stored, rows as i64);
    assert_eq!(drawn(&stack, "tries").await, 2);
    // The first batch was tried twice, and so were those that were being written with it.
    let copies = drawn(&stack, "copies").await;
    let batches = BATCHES as i64;
    assert!(
        (batches + 1..=batches + 1 + AHEAD).contains(&copies),
        "{copies}"
    );
}

#[tokio::test]
async fn a_cancel_is_heard_while_a_batch_is_tried_again() {
    let stack = Stack::builder()
        .env("TENURE_WORKER__CANCEL_GRACE", "1m")
        .start()
        .await;
    refuse(&stack, 1_000).await;
    let ann = stack.user("ann");
    let job = ann
        .import("n.csv", content(10).as_bytes(), json!({"delimiter": ","}))
        .await;
    wait_until("a first try", BOUND, || async {
        (drawn(&stack, "tries").await > 0).then_some(())
    })
    .await;
    ann.cancel(&job, "enough").await.expect("asked for");
    ann.wait_state(&job, JobState::Cancelled, BOUND).await;
    // Six would be all that there are within a run, over more than seven seconds.
    let tries = drawn(&stack, "tries").await;
    assert!(tries < 6, "{tries}");
}
