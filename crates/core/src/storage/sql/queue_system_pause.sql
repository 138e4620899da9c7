-- Keeps up, or sets and notes, the pause by the system of some queues ($1, with an id each
-- for the note, $3). Answers those that were not paused so before. A pause that was
-- confirmed a moment ago is left alone, since many workers may say the same.
with q as materialized (
    select q.name, q.system_paused, t.note
    from unnest($1::text[], $3::uuid[]) t (name, note) join queues q on q.name = t.name
    -- One that lies ahead was confirmed before the clock was set back.
    where not q.system_paused or q.system_paused_at not between now() - interval '1 s' and now()
    order by q.name
    for no key update of q skip locked
),
u as (
    update queues x
    set system_paused = true, system_pause_reason = $2, system_paused_at = now()
    from q
    where x.name = q.name
    returning x.name
),
n as (
    insert into job_actions (action_id, action, actor, reason, before, after)
    select q.note, 'pause_queue', 'system', $2,
        jsonb_build_object('queue', q.name, 'system_paused', false),
        jsonb_build_object('queue', q.name, 'system_paused', true, 'reason', $2)
    from q join u on u.name = q.name
    where not q.system_paused
    returning 1
)
select q.name from q join u on u.name = q.name where not q.system_paused
