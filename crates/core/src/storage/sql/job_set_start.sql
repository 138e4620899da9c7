-- A waiting job's earliest start: $2, or now where that is null or has passed. A job that
-- becomes due is parked, as waking does it; one that is due later leaves the backlog, and
-- a message of it that is under way finds that it is not due. The lock comes first, so
-- that what is decided is decided on the row that is changed.
with l as materialized (
    select j.job_id, j.run, j.status as was, j.run_at as was_at, j.attempt, j.max_attempts, j.expires_at,
        coalesce($2::timestamptz > now(), false) as later,
        case
            when j.status not in ('pending', 'retrying') then 'state'
            when (j.status = 'retrying' or j.started_at is null) and j.expires_at <= greatest($2::timestamptz, now()) then 'expires'
            when j.run_at = $2::timestamptz then 'same'
            when j.status = 'pending' and j.run_at <= now() and coalesce($2::timestamptz <= now(), true) then 'same'
            else 'apply'
        end as verdict
    from jobs j where j.job_id = $1
    for no key update
),
u as (
    update jobs j
    set status = case when l.later then j.status else 'pending' end,
        run_at = case when l.later then $2::timestamptz else least(j.run_at, now()) end,
        -- A limited line is for those that are ready.
        held = case when j.line_limit is null then j.held when l.later then false else j.held or j.order_seq is null end,
        order_seq = case when j.line_limit is null then j.order_seq when l.later then null else coalesce(j.order_seq, 0) end,
        parked = not l.later and not j.held and (j.line_limit is null or j.order_seq is not null),
        wake_at = least(
            case when j.started_at is null or (l.later and j.status = 'retrying') then j.expires_at end,
            case
                when l.later and (j.line_limit is not null or not j.held) then $2::timestamptz
                when j.held or (j.line_limit is not null and j.order_seq is null) then now() + interval '5 min'
                else now() + interval '1 day'
            end),
        sends = case when j.status = 'retrying' then 0 else j.sends end,
        rev = j.rev + 1
    from l
    where j.job_id = l.job_id and l.verdict = 'apply' and j.run = l.run and j.status = l.was
    returning j.job_id, j.user_id, j.status, j.run, j.attempt, j.max_attempts, j.run_at, j.queue, j.ordering_key, j.line_limit
),
n as (
    insert into line_turns (queue, ordering_key)
    select queue, ordering_key from u where line_limit is not null
),
a as (
    insert into job_actions (action_id, job_id, action, actor, user_id, reason, before, after)
    select $3, u.job_id, $4, $5, u.user_id, $6,
        jsonb_build_object('state', l.was, 'run', l.run, 'attempt', l.attempt, 'max_attempts', l.max_attempts, 'run_at', l.was_at),
        jsonb_build_object('state', u.status, 'run', u.run, 'attempt', u.attempt, 'max_attempts', u.max_attempts, 'run_at', u.run_at)
    from u join l on l.job_id = u.job_id
    returning 1
)
select l.was, l.verdict, l.attempt, l.expires_at, (select count(*) from u) as changed, (select count(*) from a) as noted from l
