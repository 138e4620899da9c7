-- The coalesce keeps the planner from the index of wake_at: the rows are found by their
-- ids, whatever stale statistics say of how few are due.
with l as materialized (
    select j.job_id, j.run, j.status as was, j.locked_by as worker, j.locked_at as began,
        -- The database itself was away while the lease ran: nobody could renew it.
        coalesce(j.locked_at < pg_postmaster_start_time(), false) as cut_off,
        case
            when j.status = 'running' and j.lease_until > now() then 'running'
            when j.status = 'running' and not $2 then 'unsure'
            when j.status = 'running' and j.cancel_requested_at is not null then 'cancelled'
            when j.status = 'running' and j.locked_at < pg_postmaster_start_time() then 'pending'
            when j.status = 'running' and (j.lost + 1 >= $3 or (j.attempt >= j.max_attempts and j.lost <> 1)) then 'failed'
            when j.expires_at <= now() and (j.status = 'retrying' or (j.status = 'pending' and j.started_at is null)) then 'failed'
            when j.status in ('pending', 'retrying') and j.attempt >= j.max_attempts then 'failed'
            when j.held then 'held'
            else 'pending'
        end as target,
        -- Of a limited line, and ready again: it goes to its front.
        j.line_limit is not null and j.order_seq is null as returns,
        case
            when j.status = 'running' and j.locked_at < pg_postmaster_start_time() then 'LEASE_EXPIRED'
            when j.status = 'running' and j.lost + 1 >= $3 then 'POISON'
            when j.status = 'running' then 'LEASE_EXPIRED'
            when j.expires_at <= now() and (j.status = 'retrying' or j.started_at is null) then 'EXPIRED'
            -- Its most attempts were lowered while a worker ran it that did not look again.
            -- No claim may take it: it has failed with what its last run ended with.
            when j.attempt >= j.max_attempts then coalesce(j.last_error_code, 'INTERNAL')
        end as code,
        case
            when j.status = 'running' and j.locked_at < pg_postmaster_start_time() then 'the database restarted during its lease; no attempt is spent'
            when j.status = 'running' and j.lost + 1 >= $3 then 'its workers died ' || (j.lost + 1) || ' times in a row while they ran it'
            when j.status = 'running' and j.lost = 1 then 'the lease of its worker ran out again; no attempt is spent, since a job beside it may be the cause'
            when j.status = 'running' then 'the lease of its worker ran out'
            when j.expires_at <= now() and (j.status = 'retrying' or j.started_at is null) then 'it had not started by its expiry time'
            when j.attempt >= j.max_attempts then coalesce(j.last_error_message || ' ', '') || '(its most attempts were lowered while it ran, and it has had them all)'
        end as message
    from unnest($1::uuid[]) c (job_id) join jobs j on j.job_id = c.job_id
    where coalesce(j.wake_at <= now(), false)
    order by j.job_id
    for no key update of j skip locked
),
u as (
    update jobs j
    set status = case when l.target in ('unsure', 'held') then j.status else l.target end,
        run = j.run + (l.was = 'running' and l.target = 'pending')::int,
        attempt = j.attempt - (l.was = 'running' and l.target = 'pending' and (l.cut_off or j.lost = 1))::int,
        lost = j.lost + (l.was = 'running' and l.target in ('pending', 'failed', 'cancelled') and not l.cut_off)::int,
        snoozes = case when l.target = 'failed' then 0 else j.snoozes end,
        outage_since = case when l.target not in ('failed', 'cancelled') then j.outage_since end,
        sends = case when l.was = 'pending' then j.sends else 0 end,
        parked = (l.target = 'pending' and not l.returns),
        held = case when l.target in ('failed', 'cancelled') then false else j.held or (l.target = 'pending' and l.returns) end,
        order_seq = case when l.target = 'pending' and l.returns then 0 else j.order_seq end,
        wake_at = case l.target
            when 'running' then j.lease_until
            when 'unsure' then now() + interval '1 s'
            when 'held' then least(case when j.started_at is null then j.expires_at end, now() + interval '5 min' + random() * interval '5 min')
            when 'pending' then least(case when j.started_at is null then j.expires_at end, now() + case when l.returns then interval '5 min' else interval '1 day' end)
        end,
        finished_at = case when l.target in ('failed', 'cancelled') then now() end,
        locked_by = case when l.target in ('running', 'unsure') then j.locked_by end,
        locked_at = case when l.target in ('running', 'unsure') then j.locked_at end,
        lease_until = case when l.target in ('running', 'unsure') then j.lease_until end,
        last_error_code = case when l.target = 'cancelled' then 'CANCELLED' when l.target = 'failed' or (l.was = 'running' and l.target = 'pending') then l.code else j.last_error_code end,
        last_error_class = case
            when l.target in ('failed', 'cancelled') then 'permanent'
            when l.was = 'running' and l.target = 'pending' then 'temporary'
            else j.last_error_class
        end,
        last_error_message = case when l.target = 'cancelled' then coalesce(j.cancel_reason, 'cancelled') when l.target = 'failed' or (l.was = 'running' and l.target = 'pending') then l.message else j.last_error_message end,
        rev = j.rev + (l.was <> l.target and l.target not in ('unsure', 'held'))::int
    from l
    where j.job_id = l.job_id and j.run = l.run and j.status = l.was
    returning j.job_id, l.run as ran, l.was, l.target, l.worker, l.began, l.cut_off, j.lost, j.attempt, j.life, j.user_id, j.queue, j.job_type, j.labels,
        j.payload, j.trace_parent, l.code, l.message, j.ordering_key, j.line_block,
        j.ordering_key is not null and (l.target = 'held' or (l.target = 'pending' and l.returns) or l.target in ('failed', 'cancelled')) as line,
        j.ordering_key is not null and (l.target = 'pending' and l.returns or l.target in ('failed', 'cancelled') and j.order_seq < 0) as noted
),
p as (
    update processed_events p
    set status = case u.target when 'pending' then 'retryable' else u.target end, error_code = u.code, processed_at = now()
    from u
    where u.was = 'running' and u.target in ('pending', 'failed', 'cancelled')
        and p.event_id = u.job_id and p.run = u.ran and p.status = 'running'
    returning 1
),
x as (
    insert into processed_events as p (event_id, run, status, error_code)
    select job_id, ran, 'failed', code from u where was <> 'running' and target = 'failed'
    on conflict (event_id) do update set status = 'failed', run = excluded.run, error_code = excluded.error_code, processed_at = now()
        where p.status = 'retryable'
    returning 1
),
d as (
    insert into dead_letters as d (id, job_id, message_key, queue_name, job_type, user_id, labels, payload,
        error_code, error_class, error_message, attempts, replayable, trace_parent, status_changed_at)
    select job_id, job_id, job_id::text, queue, job_type, user_id, labels, payload, code, 'permanent', message, attempt, true, trace_parent, now()
    from u where target = 'failed'
    on conflict (job_id) do update
        set status = 'open', last_failed_at = now(), failures = d.failures + 1, error_code = excluded.error_code,
            error_class = excluded.error_class, error_message = excluded.error_message,
            attempts = d.attempts + excluded.attempts, status_changed_at = now()
    returning d.id, d.user_id, d.failures, d.replay_id, d.bulk_replay_id
),
b as (
    insert into blocked_lines (job_id, queue, ordering_key)
    -- What expired has not run: those behind it wait for nothing.
    select job_id, queue, ordering_key from u
    where target = 'failed' and line_block and ordering_key is not null and code is distinct from 'EXPIRED'
    on conflict do nothing
),
n as (
    insert into line_turns (queue, ordering_key)
    select distinct queue, ordering_key from u where noted
),
-- As in finish.sql.
e as (
    update dead_letters d set status = 'resolved', status_changed_at = now()
    from u where u.life > 1 and u.target = 'cancelled' and d.job_id = u.job_id and d.status = 'replayed'
    returning d.id, d.user_id, d.replay_id, d.bulk_replay_id
),
a as (
    insert into dead_letter_actions (action_id, letter_id, action, user_id, status_before, status_after, replay_id, bulk_replay_id)
    select tenure_uuid7(), id, 'cancelled', user_id, 'replayed', 'resolved', replay_id, bulk_replay_id from e
    union all
    select tenure_uuid7(), id, 'failed_again', user_id, 'replayed', 'open', replay_id, bulk_replay_id from d where failures > 1
)
select u.job_id, u.ran, u.was, u.target, u.worker, u.began, u.cut_off, u.lost, u.attempt, u.code, u.message,
    case when u.line then u.queue end as line_queue, case when u.line then u.ordering_key end as line_key
from u
cross join (
    select case when (select count(*) from u where was = 'running' and target in ('pending', 'failed', 'cancelled')) <> (select count(*) from p)
            or (select count(*) from u where was <> 'running' and target = 'failed') <> (select count(*) from x)
            or (select count(*) from u where target = 'failed') <> (select count(*) from d)
        then tenure_fail('wake: job, ledger and dead letter disagree') end as checked
) k
where k.checked is null
