-- Ends the pauses by the system that nobody has confirmed for so long ($1, milliseconds), or
-- that seem confirmed in the future: the clock was set back, and a pause that is still needed
-- is confirmed again at once.
with q as materialized (
    select name, system_pause_reason, system_paused_at from queues
    where system_paused and system_paused_at not between now() - $1 * interval '1 ms' and now() + interval '1 s'
    order by name
    for no key update skip locked
),
u as (
    update queues x
    set system_paused = false, system_pause_reason = null, system_paused_at = null
    from q
    where x.name = q.name
    returning x.name
),
n as (
    insert into job_actions (action_id, action, actor, before, after)
    select tenure_uuid7(), 'resume_queue', 'system',
        jsonb_build_object('queue', q.name, 'system_paused', true, 'reason', q.system_pause_reason, 'confirmed_at', q.system_paused_at),
        jsonb_build_object('queue', q.name, 'system_paused', false)
    from q join u on u.name = q.name
    returning 1
)
select q.name from q join u on u.name = q.name
