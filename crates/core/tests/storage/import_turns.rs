//! Batches that are stored before their turn: committed in their order, or not at all.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::domain::ids::{JobId, SessionId};
use tenure_core::domain::lease::Fence;
use tenure_core::error::Code;
use tenure_core::storage::Store;
use tenure_core::storage::imports::{
    Batch, Pipeline, Turns, WriteError, load_checkpoint, write_batch, write_batch_in_turn,
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
    let second = match second.await {
        // The first had given up before this one looked; it is tried again by itself.
        Err(WriteError::Behind) => write_batch(store, fence, numbered(job_id, 1), to).await,
        told => told,
    };
    assert_eq!(second.expect("known to be written"), position(2, 4, 2));
    assert_eq!(counts(store, job_id).await, (4, 2));
    let checkpoint = load_checkpoint(store, job_id).await.expect("read");
    assert_eq!(checkpoint.expect("there").position, position(2, 4, 2));
}

/// Makes the first try of the batch with this line fail, as a conflict that passes.
async fn refuse_once(store: &Store, line: i64) {
    let sql = format!(
        "create sequence tries;
         create function refuse() returns trigger language plpgsql as $$ begin
             if new.line_no = {line} and nextval('tries') = 1 then
                 raise exception 'busy' using errcode = '55P03';
             end if;
             return new;
         end $$;
         create trigger refuse before insert on import_rows for each row execute function refuse();"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(store.pool())
        .await
        .expect("made");
}

#[tokio::test]
async fn batches_behind_one_that_was_written_again_are_stored_ahead_again() {
    let import = Begun::new().await;
    let (store, fence, job_id) = (import.store(), import.fence, import.job_id());
    refuse_once(store, 5).await;
    let mut pipeline = Pipeline::new(store.clone(), fence, import.to.clone());
    for number in 0..3 {
        pipeline.begin(numbered(job_id, number));
    }
    assert_eq!(pipeline.first().await.expect("written").batch_no, 1);
    for _ in 0..2 {
        let failed = pipeline.first().await;
        assert!(
            matches!(failed, Err(WriteError::Database(_) | WriteError::Behind)),
            "{failed:?}"
        );
        assert_eq!(pipeline.len(), 2);
    }
    pipeline.again().await;
    for number in 3..6 {
        pipeline.begin(numbered(job_id, number));
    }
    for number in 1..6 {
        let at = pipeline.first().await.expect("its first try");
        assert_eq!(
            at,
            position(number + 1, 2 * i64::from(number + 1), i64::from(number + 1))
        );
    }
    assert!(pipeline.is_empty());
    assert_eq!(counts(store, job_id).await, (12, 6));
}

#[tokio::test]
async fn a_batch_whose_turn_has_come_takes_the_lock_before_it_stores_a_row() {
    let import = Begun::new().await;
    let (store, fence, job_id) = (import.store(), import.fence, import.job_id());
    let to = import.to.clone();
    let mut turns = Turns::default();
    let mut write = |number| {
        let batch = numbered(job_id, number);
        write_batch_in_turn(store, fence, batch, to.clone(), turns.draw())
    };
    write(0).await.expect("written");
    let mut other = store.pool().begin().await.expect("begun");
    sqlx::query("select 1 from import_checkpoints where job_id = $1 for update")
        .bind(job_id.uuid())
        .execute(&mut *other)
        .await
        .expect("locked");
    let second = write(1);
    import
        .db
        .wait_for(
            "the second batch waits for the checkpoint",
            "select exists (select 1 from pg_stat_activity where datname = current_database() \
         and wait_event_type = 'Lock' and query like '%import_checkpoints%')",
        )
        .await;
    let stored: i64 = sqlx::query_scalar(
        "select count(*) from pg_locks where database = (select oid from pg_database where datname = current_database()) \
         and relation = 'import_rows'::regclass and mode = 'RowExclusiveLock'",
    )
    .fetch_one(&mut *other)
    .await
    .expect("a count");
    assert_eq!(stored, 0);
    other.rollback().await.expect("let go");
    assert_eq!(second.await.expect("written").batch_no, 2);
}

#[tokio::test]
async fn a_row_that_no_run_can_have_stored_is_an_inconsistency() {
    let import = Begun::new().await;
    let (store, fence, job_id) = (import.store(), import.fence, import.job_id());
    sqlx::query("insert into import_rows (job_id, line_no, data) values ($1, 2, '{}')")
        .bind(job_id.uuid())
        .execute(store.pool())
        .await
        .expect("stored");
    let written = write_batch(store, fence, numbered(job_id, 0), import.to.clone()).await;
    assert!(
        matches!(&written, Err(WriteError::Database(error)) if error.code() == Code::Internal),
        "{written:?}"
    );
}

#[tokio::test]
async fn a_batch_of_which_the_checkpoint_cannot_be_asked_is_not_given_up() {
    let import = Begun::new().await;
    let (db, fence, job_id) = (&import.db, import.fence, import.job_id());
    // One connection for the writer.
    let config = tenure_core::config::DatabaseConfig {
        max_connections: 2,
        acquire_timeout: Duration::from_millis(500),
        ..db.config()
    };
    let store = &Store::new(&config, "one", Duration::from_secs(30)).expect("a store");
    let mut other = db.store.pool().begin().await.expect("begun");
    sqlx::query("update import_checkpoints set batch_no = 7 where job_id = $1")
        .bind(job_id.uuid())
        .execute(&mut *other)
        .await
        .expect("moved");
    let written = tokio::spawn(write_batch_in_turn(
        store,
        fence,
        numbered(job_id, 0),
        import.to.clone(),
        Turns::default().draw(),
    ));
    tenure_core::test_util::somebody_waits(&db.store).await;
    // The next in line for the connection, which is kept.
    let mut next = std::pin::pin!(store.pool().acquire());
    assert!(futures::poll!(next.as_mut()).is_pending());
    other.commit().await.expect("committed");
    let _kept = next.await.expect("a connection");
    let written = written.await.expect("no panic");
    assert!(
        matches!(&written, Err(WriteError::Database(error)) if error.code() == Code::DatabaseUnavailable),
        "{written:?}"
    );
}
