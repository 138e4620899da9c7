-- Each user's credit is taken first (PROTOCOL.md 5c), in the order of the users. These come
-- counted: doing that here would cost as much as the rest of it. A row that
-- is new owes what was taken and has no limit yet; it, and one with too little credit, give
-- nothing, and none of that user's jobs is written.
with d as (
    insert into user_load as l (user_id, job_limit, credit)
    select u.user_id, 0, -u.jobs from unnest($16::text[], $17::int[]) u (user_id, jobs) order by u.user_id
    on conflict (user_id) do update set credit = l.credit + excluded.credit where l.credit + excluded.credit >= 0
    returning l.user_id, l.job_limit
)
insert into jobs (job_id, user_id, queue, lane, job_type, payload, run_at, wake_at, parked, max_attempts, timeout_ms,
    expires_at, labels, dedupe_key, submitted_by, trace_parent, ordering_key, line_limit, line_block, held, order_seq)
select i.job_id, i.user_id, i.queue, i.lane, i.job_type, i.payload, coalesce(i.run_at, now()),
    least(i.expires_at, case
        when i.line_key is not null and (i.line_limit is null or coalesce(i.run_at <= now(), true)) then now() + interval '5 min'
        when i.run_at > now() then i.run_at
        when i.parked then now() + interval '1 day'
        else now() + interval '5 s'
    end),
    i.parked and i.line_key is null and coalesce(i.run_at <= now(), true),
    i.max_attempts, i.timeout_ms, i.expires_at, i.labels::jsonb, i.dedupe_key, i.submitted_by, i.trace_parent,
    i.line_key, i.line_limit, i.line_block,
    -- All are held until turns are given, later in the transaction. Of a limited line only
    -- what is ready has a place.
    i.line_key is not null and (i.line_limit is null or coalesce(i.run_at <= now(), true)),
    case when i.line_key is not null and (i.line_limit is null or coalesce(i.run_at <= now(), true)) then nextval('job_order_seq') end
from unnest($1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::bytea[], $7::timestamptz[], $8::bool[],
        $9::int[], $10::bigint[], $11::timestamptz[], $12::text[], $13::text[], $14::text[], $15::text[],
        $18::text[], $19::int[], $20::bool[])
    i (job_id, user_id, queue, lane, job_type, payload, run_at, parked, max_attempts, timeout_ms, expires_at, labels,
        dedupe_key, submitted_by, trace_parent, line_key, line_limit, line_block)
where (i.user_id in (select d.user_id from d where d.job_limit > 0)) is true
on conflict (job_id) do nothing
returning job_id, created_at, run_at > now() as later
