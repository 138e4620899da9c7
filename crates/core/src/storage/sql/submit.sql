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
        $16::text[], $17::int[], $18::bool[])
    i (job_id, user_id, queue, lane, job_type, payload, run_at, parked, max_attempts, timeout_ms, expires_at, labels,
        dedupe_key, submitted_by, trace_parent, line_key, line_limit, line_block)
on conflict (job_id) do nothing
returning job_id, created_at, run_at > now() as later
