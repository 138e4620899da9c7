//! Batches that are stored before their turn: committed in their order, or not at all.

use std::sync::Arc;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::lease::Fence;
use tenure_core::storage::imports::{
    Batch, Turns, WriteError, load_checkpoint, write_batch, write_batch_in_turn,
};

use crate::import_world::{Begun, batch, counts, position, reject};

/// The batch with this number, from 0: two rows and a reject.
fn numbered(job_id: JobId, number: i32) -> Arc<Batch> {
    let line = 2 + 3 * i64::from(number);
    let count = i64::from(number);
    batch(
        job_id,
        position(number, 2 * count, count),
        &[(line, "{}"), (line + 1, "{}")],
        vec![reject(line + 2)],
        vec![],
    )
}

/// Whether a session has stored rows and rejects of a batch and waits for its turn.
const STORED_AHEAD: &str = "select exists (select 1 from pg_stat_activity where datname = current_database() \
     and state = 'idle in transaction' and query like '%import_rejects%')";

#[tokio::test]
async fn a_batch_is_stored_before_its_turn_and_committed_in_it() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let job_id = import.job_id();
    let to = import.to.clone();
    // Keeps the first batch from its commit.
    let mut other = store.pool().begin().await.expect("begun");
    sqlx::query("select 1 from import_checkpoints where job_id = $1 for update")
        .bind(job_id.uuid())
        .execute(&mut *other)
        .await
        .expect("locked");
    let mut turns = Turns::default();
    let mut write = |number| {
        let batch = numbered(job_id, number);
        write_batch_in_turn(store, fence, batch, to.clone(), turns.draw())
    };
    let (first, second) = (write(0), write(1));
    import
        .db
        .wait_for("the second batch is stored", STORED_AHEAD)
        .await;
    assert_eq!(counts(store, job_id).await, (0, 0));
    other.rollback().await.expect("let go");
    assert_eq!(second.await.expect("written").batch_no, 2);
    assert_eq!(first.await.expect("written").batch_no, 1);
    assert_eq!(counts(store, job_id).await, (4, 2));
}

#[tokio::test]
async fn nothing_is_left_of_a_batch_whose_front_was_not_written() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let stranger = Fence {
        session: SessionId::new(),
        ..fence
    };
    let to = import.to.clone();
    let mut turns = Turns::default();
    let mut write = |fence: Fence, number| {
        let batch = numbered(fence.job_id, number);
        write_batch_in_turn(store, fence, batch, to.clone(), turns.draw())
    };
    let (first, second, third) = (write(stranger, 0), write(fence, 1), write(fence, 2));
    let first = first.await;
    assert!(matches!(first, Err(WriteError::LeaseLost)), "{first:?}");
    let second = second.await;
    assert!(matches!(second, Err(WriteError::Behind)), "{second:?}");
    let third = third.await;
    assert!(matches!(third, Err(WriteError::Behind)), "{third:?}");
    assert_eq!(counts(store, fence.job_id).await, (0, 0));
}

#[tokio::test]
async fn a_batch_that_another_run_wrote_is_found_by_its_rows() {
    let import = Begun::new().await;
    let (store, fence) = (import.store(), import.fence);
    let job_id = import.job_id();
    let to = import.to.clone();
    for number in 0..2 {
        write_batch(store, fence, numbered(job_id, number), to.clone())
            .await
            .expect("written");
    }
    // Late copies of both: of the second the rows tell, before its turn has come.
    let mut turns = Turns::default();
    let mut write = |number| {
        let batch = numbered(job_id, number);
        write_batch_in_turn(store, fence, batch, to.clone(), turns.draw())
    };
    let (first, second) = (write(0), write(1));
    let first = first.await;
    assert!(matches!(first, Err(WriteError::Moved)), "{first:?}");
    let second = second.await.expect("known to be written");
    assert_eq!(second, position(2, 4, 2));
    assert_eq!(counts(store, job_id).await, (4, 2));
    let checkpoint = load_checkpoint(store, job_id).await.expect("read");
    assert_eq!(checkpoint.expect("there").position, position(2, 4, 2));
}
