//! What PostgreSQL could do at most, in a plain table without any of Tenure's rules:
//! inserts of 1,000 rows, and two updates of 1,000 rows by their ids.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tenure_core::test_util::TestDb;
use uuid::Uuid;

use crate::catalogue::Wanted;
use crate::measure::Effort;
use crate::report::{Report, progress};

const BATCH: usize = 1000;

/// Tenure's worker claims and finishes on connections of their own; so does the limit.
const CONNECTIONS: usize = 2;

const TABLE: &str = "create table plain (id uuid primary key, kind text not null, payload bytea not null, \
     status text not null default 'pending', created_at timestamptz not null default now(), \
     started_at timestamptz, finished_at timestamptz) with (fillfactor = 50)";
const INSERT: &str = "insert into plain (id, kind, payload) select * from unnest($1::uuid[], $2::text[], $3::bytea[])";
const CLAIM: &str = "update plain set status = 'running', started_at = now() where id = any($1) and status = 'pending'";
const FINISH: &str = "update plain set status = 'success', finished_at = now() where id = any($1) and status = 'running'";

/// Measures what is wanted of it.
pub(crate) async fn measure(
    report: &mut Report<'_>,
    wanted: &Wanted,
    effort: Effort,
) -> Result<()> {
    if !wanted.needs_any("limit_pg") {
        return Ok(());
    }
    let database = TestDb::create_empty().await;
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS as u32)
        .acquire_timeout(Duration::from_secs(30))
        .connect(&database.url)
        .await?;
    sqlx::query(TABLE).execute(&pool).await?;
    let mut warm_up = Vec::new();
    insert(&pool, effort.run / 4, &mut warm_up).await?;
    let (mut inserts, mut updates) = (Vec::new(), Vec::new());
    for _ in 0..effort.runs {
        sqlx::query("truncate plain").execute(&pool).await?;
        let mut batches = Vec::new();
        inserts.push(insert(&pool, effort.run, &mut batches).await?);
        updates.push(claim_and_finish(&pool, &batches, effort.run).await?);
    }
    progress(format_args!(
        "limit_pg: inserts {inserts:.0?}, claims and finishes {updates:.0?}"
    ));
    report.add("limit_pg_insert_1000", inserts);
    report.add("limit_pg_claim_finish_1000", updates);
    pool.close().await;
    Ok(())
}

/// Rows per second of one connection; `batches` gets their ids.
async fn insert(pool: &PgPool, time: Duration, batches: &mut Vec<Vec<Uuid>>) -> Result<f64> {
    let payload = crate::payload::noop(0).payload.to_vec();
    let start = Instant::now();
    while start.elapsed() < time {
        let ids: Vec<Uuid> = (0..BATCH).map(|_| Uuid::now_v7()).collect();
        sqlx::query(INSERT)
            .bind(&ids)
            .bind(vec!["noop"; BATCH])
            .bind(vec![payload.as_slice(); BATCH])
            .execute(pool)
            .await?;
        batches.push(ids);
    }
    Ok((batches.len() * BATCH) as f64 / start.elapsed().as_secs_f64())
}

/// Rows per second that two connections bring from pending to success, each batch in two
/// statements and two commits.
async fn claim_and_finish(pool: &PgPool, batches: &[Vec<Uuid>], time: Duration) -> Result<f64> {
    let start = Instant::now();
    let halves = (0..CONNECTIONS).map(|number| {
        let pool = pool.clone();
        let mine: Vec<Vec<Uuid>> = batches
            .iter()
            .skip(number)
            .step_by(CONNECTIONS)
            .cloned()
            .collect();
        tokio::spawn(async move {
            let mut done = 0;
            for ids in mine {
                if start.elapsed() >= time {
                    break;
                }
                for statement in [CLAIM, FINISH] {
                    let result = sqlx::query(statement).bind(&ids).execute(&pool).await?;
                    ensure!(
                        result.rows_affected() == BATCH as u64,
                        "a batch was not there"
                    );
                }
                done += BATCH;
            }
            Ok(done)
        })
    });
    let mut done = 0;
    for half in futures::future::join_all(halves).await {
        done += half??;
    }
    ensure!(done > 0, "nothing was finished");
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
