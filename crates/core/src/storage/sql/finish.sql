with u as (
    update jobs j
    set status = i.goal,
        run = j.run + (i.goal in ('retrying', 'pending'))::int,
        sends = 0,
        attempt = j.attempt - i.refund::int,
        lost = case when i.goal in ('success', 'failed', 'retrying') or (i.goal = 'pending' and i.delay_ms > 0) then 0 else j.lost end,
        -- A life ends with a failure; a replay begins another.
        snoozes = case when i.goal = 'failed' then 0 else j.snoozes + (i.goal = 'pending' and i.delay_ms > 0)::int end,
        outage_since = case
            when i.goal = 'retrying' and i.refund then coalesce(j.outage_since, now())
            when i.goal = 'retrying' or (i.goal = 'pending' and i.delay_ms = 0) then j.outage_since
        end,
        finished_at = case when i.goal in ('success', 'failed', 'cancelled') then now() end,
        -- A limited line is for those that are ready: what waits for a later time gives its
        -- place up.
        order_seq = case when j.line_limit is not null and (i.goal = 'retrying' or (i.goal = 'pending' and i.delay_ms > 0)) then null else j.order_seq end,
        run_at = case when i.goal in ('retrying', 'pending') then now() + i.delay_ms * interval '1 ms' else j.run_at end,
        wake_at = case when i.goal in ('retrying', 'pending') then least(case when i.goal = 'retrying' then j.expires_at end, now()
            + case when i.goal = 'pending' and i.delay_ms = 0 then interval '1 day' else i.delay_ms * interval '1 ms' end) end,
        parked = (i.goal = 'pending' and i.delay_ms = 0),
        locked_by = null, locked_at = null, lease_until = null,
        last_error_code = case when i.goal = 'cancelled' then 'CANCELLED' else coalesce(i.code, j.last_error_code) end,
        last_error_class = case when i.goal = 'cancelled' then 'permanent' else coalesce(i.class, j.last_error_class) end,
        last_error_message = case
            when i.goal = 'cancelled' then coalesce(j.cancel_reason, 'cancelled')
            when i.code is null then j.last_error_message
            else i.message
        end,
        progress_done = coalesce(i.progress_done, j.progress_done),
        progress_total = coalesce(i.progress_total, j.progress_total),
        progress_message = coalesce(i.progress_message, j.progress_message),
        result = i.result,
        rev = j.rev + 1
    from unnest($1::uuid[], $2::int[], $3::text[], $4::bigint[], $5::bool[], $6::text[], $7::text[], $8::text[],
            $9::bytea[], $10::bigint[], $11::bigint[], $12::text[])
        i (job_id, run, goal, delay_ms, refund, code, class, message, result, progress_done, progress_total, progress_message)
    where j.job_id = i.job_id and j.run = i.run and j.status = 'running' and j.locked_by = $13
        and (j.cancel_requested_at is null or i.goal in ('success', 'cancelled'))
        -- Its most attempts may have been lowered while it ran.
        and (i.goal <> 'retrying' or i.refund or j.attempt < j.max_attempts)
    returning j.job_id, i.run as ran, j.status, j.rev, j.user_id, j.queue, j.job_type, j.labels, j.payload,
        j.attempt, j.life, j.trace_parent, i.code, i.class, i.message, j.ordering_key, j.line_block,
        j.ordering_key is not null and (j.finished_at is not null or j.order_seq is null) as leaves
),
p as (
    update processed_events p
    set status = case u.status when 'success' then 'done' when 'failed' then 'failed' when 'cancelled' then 'cancelled' else 'retryable' end,
        error_code = u.code, processed_at = now()
    from u where p.event_id = u.job_id and p.run = u.ran and p.status = 'running'
    returning 1
),
d as (
    insert into dead_letters as d (id, job_id, message_key, queue_name, job_type, user_id, labels, payload,
        error_code, error_class, error_message, attempts, replayable, trace_parent, status_changed_at)
    select job_id, job_id, job_id::text, queue, job_type, user_id, labels, payload,
        coalesce(code, 'INTERNAL'), coalesce(class, 'permanent'), message, attempt, true, trace_parent, now()
    from u where status = 'failed'
    on conflict (job_id) do update
        set status = 'open', last_failed_at = now(), failures = d.failures + 1, error_code = excluded.error_code,
            error_class = excluded.error_class, error_message = excluded.error_message,
            attempts = d.attempts + excluded.attempts, status_changed_at = now()
    returning d.id, d.user_id, d.failures, d.replay_id, d.bulk_replay_id
),
-- A replayed job's end is its letter's. Nothing else has more than one life.
e as (
    update dead_letters d set status = 'resolved', status_changed_at = now()
    from u where u.life > 1 and u.status in ('success', 'cancelled') and d.job_id = u.job_id and d.status = 'replayed'
    returning d.id, d.user_id, d.replay_id, d.bulk_replay_id, u.status as ended
),
a as (
    insert into dead_letter_actions (action_id, letter_id, action, user_id, status_before, status_after, replay_id, bulk_replay_id)
    select tenure_uuid7(), id, case ended when 'success' then 'succeeded' else 'cancelled' end, user_id, 'replayed', 'resolved', replay_id, bulk_replay_id from e
    union all
    select tenure_uuid7(), id, 'failed_again', user_id, 'replayed', 'open', replay_id, bulk_replay_id from d where failures > 1
),
b as (
    insert into blocked_lines (job_id, queue, ordering_key)
    select job_id, queue, ordering_key from u where leaves and status = 'failed' and line_block
    on conflict do nothing
),
n as (
    insert into line_turns (queue, ordering_key)
    select distinct queue, ordering_key from u where leaves
),
fu as materialized (
    select f.job_id, f.job_type, f.payload, u.job_id as parent, u.user_id, u.trace_parent
    from unnest($14::uuid[], $15::uuid[], $16::text[], $17::bytea[]) f (parent, job_id, job_type, payload)
    join u on u.job_id = f.parent and u.status = 'success'
),
f as (
    insert into jobs (job_id, user_id, queue, lane, job_type, payload, parked, wake_at, max_attempts, timeout_ms,
        submitted_by, trace_parent)
    select fu.job_id, fu.user_id, t.queue, t.lane, t.name, fu.payload, true, now() + interval '1 day', t.max_attempts,
        t.timeout_ms, 'job:' || fu.parent::text, fu.trace_parent
    from fu join job_types t on t.name = fu.job_type
    returning 1
),
-- Follow-ups are never refused, and count.
cr as (
    insert into user_load as l (user_id, job_limit, credit)
    select fu.user_id, 0, -count(*)::int from fu group by fu.user_id order by fu.user_id
    on conflict (user_id) do update set credit = greatest(l.credit + excluded.credit, 0)
)
select u.job_id, u.ran, u.status, u.rev, case when u.leaves then u.queue end as line_queue,
    case when u.leaves then u.ordering_key end as line_key
from u
cross join (
    select case when (select count(*) from u) <> (select count(*) from p)
            or (select count(*) from u where status = 'failed') <> (select count(*) from d)
            or (select count(*) from fu) <> (select count(*) from f)
        then tenure_fail('finish: job, ledger and dead letter disagree') end as checked
) k
where k.checked is null
