-- What is around waiting jobs, for a whole page at once. `ahead` is counted for parked
-- jobs alone, up to $10; the ledger is looked at for those that have run.
with w as materialized (
    select * from unnest($1::uuid[], $2::text[], $3::smallint[], $4::text[], $5::text[], $6::text[], $7::bool[], $8::bool[])
        w (job_id, queue, lane, job_type, user_id, held_key, parked, started)
),
kinds as materialized (
    select k.queue, k.job_type, q.paused, q.pause_reason, q.paused_by, q.system_paused, q.system_pause_reason,
        exists (select 1 from workers r
            where r.last_contact_at > now() - $9 * interval '1 ms' and not r.draining
                and k.queue = any(r.queues) and k.job_type = any(r.job_types)) as has_worker
    from (select distinct queue, job_type from w) k
    left join queues q on q.name = k.queue
),
swept as materialized (
    select (extract(epoch from now() - greatest(max(hint_at), 'epoch')) * 1000)::bigint as ms from lanes
)
select w.job_id, coalesce(kinds.paused, false) as paused, kinds.pause_reason, kinds.paused_by,
    coalesce(kinds.system_paused, false) as system_paused, kinds.system_pause_reason, kinds.has_worker,
    coalesce(blocker.job_id, first.job_id) as blocked_by, blocker.job_id is not null as blocked_by_failed,
    ahead.n as ahead, p.processed_at as ended_at, p.error_code as ended_with,
    coalesce(swept.ms, 0) as swept_ms
from w
join kinds on kinds.queue = w.queue and kinds.job_type = w.job_type
left join lateral (
    select b.job_id from blocked_lines b
    where w.held_key is not null and b.queue = w.queue and b.ordering_key = w.held_key
    limit 1
) blocker on true
left join lateral (
    select j.job_id from jobs j
    where w.held_key is not null and j.queue = w.queue and j.ordering_key = w.held_key and j.finished_at is null
    order by j.order_seq
    limit 1
) first on first.job_id <> w.job_id
cross join lateral (
    select count(*) as n
    from (select 1 from jobs j
        where w.parked and j.parked and j.queue = w.queue and j.lane = w.lane and j.user_id = w.user_id
            and j.job_id < w.job_id
        order by j.job_id limit $10) x
) ahead
cross join swept
left join processed_events p on w.started and p.event_id = w.job_id and p.status = 'retryable'
