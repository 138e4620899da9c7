-- The most starts of a job that has not ended. One that waits will be claimed once more at
-- least, so it needs one above those that were spent (V6).
with l as materialized (
    select j.job_id, j.run, j.status as was, j.run_at, j.attempt, j.max_attempts, null::timestamptz as expires_at,
        case
            when j.finished_at is not null then 'state'
            when j.max_attempts = $2 then 'same'
            when $2 < j.attempt + (j.status <> 'running')::int then 'low'
            else 'apply'
        end as verdict
    from jobs j where j.job_id = $1
    for no key update
),
u as (
    update jobs j
    set max_attempts = $2, rev = j.rev + 1
    from l
    where j.job_id = l.job_id and l.verdict = 'apply' and j.run = l.run and j.status = l.was
    returning j.job_id, j.user_id
),
a as (
    insert into job_actions (action_id, job_id, action, actor, user_id, reason, before, after)
    select $3, u.job_id, $4, $5, u.user_id, $6,
        jsonb_build_object('state', l.was, 'run', l.run, 'attempt', l.attempt, 'max_attempts', l.max_attempts, 'run_at', l.run_at),
        jsonb_build_object('state', l.was, 'run', l.run, 'attempt', l.attempt, 'max_attempts', $2, 'run_at', l.run_at)
    from u join l on l.job_id = u.job_id
    returning 1
)
select l.was, l.verdict, l.attempt, l.expires_at, (select count(*) from u) as changed, (select count(*) from a) as noted from l
