//! V4 as queries: every way in which jobs, ledger and dead letters could disagree.

use crate::world::World;

/// Each answers the jobs that break it. PROTOCOL.md §3.
const DISAGREEMENTS: &[(&str, &str)] = &[
    (
        "the ledger does not fit the job's state",
        "select j.job_id::text || ': ' || j.status || ' run ' || j.run || ', ledger ' || \
         coalesce(p.status || ' run ' || p.run, 'none') \
         from jobs j left join processed_events p on p.event_id = j.job_id \
         where not coalesce(case \
             when j.started_at is null and j.life = 1 and j.status in ('pending', 'retrying', 'cancelled') then p.event_id is null \
             when j.status = 'running' then p.status = 'running' and p.run = j.run and p.worker = j.locked_by \
             when j.status = 'success' then p.status = 'done' and p.run = j.run \
             when j.status = 'failed' then p.status = 'failed' and p.run = j.run \
             when j.status = 'cancelled' then p.status = 'cancelled' and p.run <= j.run \
             when j.status in ('pending', 'retrying') then p.status = 'retryable' and p.run < j.run \
             else false end, false)",
    ),
    (
        "a letter that does not fit the job's state",
        "select coalesce(j.job_id, d.job_id)::text || ': ' || coalesce(j.status, 'no job') || ', letter ' || \
         coalesce(d.status, 'none') \
         from jobs j full join (select * from dead_letters where job_id is not null) d on d.job_id = j.job_id \
         where not coalesce(case coalesce(d.status, 'none') \
             when 'none' then j.status <> 'failed' \
             when 'replayed' then j.life > 1 and j.finished_at is null \
             when 'resolved' then j.status = 'failed' or (j.life > 1 and j.status in ('success', 'cancelled')) \
             else j.status = 'failed' end, false)",
    ),
    (
        "another number of replays than of lives, or of replays in the audit",
        "select job_id::text || ': life ' || life from jobs j where life - 1 <> \
         (select count(*) from replays r where r.job_id = j.job_id) or life - 1 <> \
         (select count(*) from dead_letter_actions a where a.letter_id = j.job_id and a.action = 'replay')",
    ),
    (
        "a ledger row of a job that is not there",
        "select p.event_id::text from processed_events p left join jobs j on j.job_id = p.event_id \
         where j.job_id is null",
    ),
    (
        "a state in which nobody would ever look at the job again",
        "select job_id::text || ': ' || status from jobs \
         where finished_at is null and (wake_at is null or wake_at > now() + interval '2 days')",
    ),
    (
        "more attempts than the most, or fewer than none",
        "select job_id::text from jobs where attempt < 0 or attempt > max_attempts",
    ),
];

/// Panics where anything disagrees (V4, V5, V6).
pub(crate) async fn v4_holds(world: &World, after: &str) {
    for (what, sql) in DISAGREEMENTS {
        let broken: Vec<String> = sqlx::query_scalar(*sql)
            .fetch_all(world.store.pool())
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(broken.is_empty(), "after {after}: {what}: {broken:?}");
    }
}

#[tokio::test]
async fn the_audit_sees_a_ledger_that_disagrees() {
    let world = World::new().await;
    let session = tenure_core::domain::ids::SessionId::new();
    let id = world.running(session).await;
    v4_holds(&world, "a claim").await;
    for damage in [
        format!("update processed_events set status = 'done' where event_id = '{id}'"),
        format!("update processed_events set run = 2 where event_id = '{id}'"),
        format!("delete from processed_events where event_id = '{id}'"),
        format!(
            "insert into dead_letters (id, job_id, message_key, queue_name, payload, error_code, error_class, \
             attempts, replayable) values ('{id}', '{id}', '{id}', 'default', '{{}}', 'X', 'permanent', 1, true)"
        ),
    ] {
        world.sql(format!("begin; {damage}; commit")).await;
        let found = std::panic::AssertUnwindSafe(v4_holds(&world, "damage"));
        let seen = futures::FutureExt::catch_unwind(found).await.is_err();
        assert!(seen, "not seen: {damage}");
        world
            .sql(format!(
                "delete from dead_letters; delete from processed_events; \
                 insert into processed_events (event_id, run, status, worker) values ('{id}', 1, 'running', '{session}')"
            ))
            .await;
        v4_holds(&world, "the repair").await;
    }
}
