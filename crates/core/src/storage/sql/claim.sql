with c as (
    update jobs j
    set status = 'running', attempt = j.attempt + 1, locked_by = $3, locked_at = now(),
        lease_until = now() + $4 * interval '1 ms',
        wake_at = least(j.wake_at, now() + $4 * interval '1 ms'),
        parked = false, started_at = coalesce(j.started_at, now()), rev = j.rev + 1,
        -- Each run tells its own: what the one before it said would fall otherwise.
        progress_done = 0, progress_total = 0, progress_message = null
    from unnest($1::uuid[], $2::int[]) m (job_id, run)
    where j.job_id = m.job_id and j.run = m.run and j.status = 'pending' and not j.held
        -- One that was put off has left its line, and is to come back to it first.
        and (j.ordering_key is null or j.order_seq < 0)
        and j.run_at <= now() and (j.expires_at is null or j.started_at is not null or j.expires_at > now())
        and j.queue <> all (array(select name from queues where paused or system_paused))
    returning j.job_id, j.run, j.attempt, j.max_attempts, j.lost, j.user_id, j.queue, j.job_type,
        j.payload, j.labels, j.timeout_ms, j.trace_parent, j.run_at, j.locked_at, j.snoozes, j.outage_since, j.life
),
n as (
    insert into processed_events (event_id, run, status, worker)
    select job_id, run, 'running', $3 from c where run = 1
    returning 1
),
r as (
    insert into processed_events as p (event_id, run, status, worker)
    select job_id, run, 'running', $3 from c where run > 1
    on conflict (event_id) do update
        set run = excluded.run, status = 'running', worker = excluded.worker, error_code = null, processed_at = now()
        where p.run < excluded.run and p.status = 'retryable'
    returning 1
)
select c.* from c
cross join (
    select case when (select count(*) from c) <> (select count(*) from n) + (select count(*) from r)
        then tenure_fail('claim: the ledger disagrees') end as checked
) k
where k.checked is null
