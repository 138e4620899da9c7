-- Sets ($2) or takes back the pause by hand of a queue, and notes who did it where that
-- changed anything. No row: there is no such queue. The first pause's time stays.
with q as materialized (
    select name, paused, pause_reason, paused_by, paused_at from queues where name = $1 for no key update
),
u as (
    update queues x
    set paused = $2, pause_reason = $3, paused_by = $4,
        paused_at = case when not $2 then null when q.paused then coalesce(q.paused_at, now()) else now() end
    from q
    where x.name = q.name
        and (q.paused, q.pause_reason, q.paused_by) is distinct from ($2, $3::text, $4::text)
    returning x.name
),
n as (
    insert into job_actions (action_id, action, actor, reason, before, after)
    select $5, case when $2 then 'pause_queue' else 'resume_queue' end, $6, $3,
        jsonb_build_object('queue', q.name, 'paused', q.paused, 'reason', q.pause_reason, 'paused_by', q.paused_by, 'paused_at', q.paused_at),
        jsonb_build_object('queue', q.name, 'paused', $2, 'reason', $3, 'paused_by', $4)
    from q join u on u.name = q.name
    returning 1
)
select q.name, (select count(*) from n) > 0 as changed from q
