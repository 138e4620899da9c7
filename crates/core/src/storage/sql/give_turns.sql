-- Behind the locks of the lines. Those with a turn are at the one end of their index, and
-- those that wait at the other; so neither look reads more than a limit's worth of rows. How
-- many may have a turn is what the first that waits says.
with k as materialized (
    select t.queue, t.key from unnest($1::text[], $2::text[]) t (queue, key)
),
noted as (
    delete from line_turns n using k where n.queue = k.queue and n.ordering_key = k.key
),
free as materialized (
    select k.queue, k.key, f.most - (
        select count(*) from (
            select 1 from jobs j
            where j.queue = k.queue and j.ordering_key = k.key and j.finished_at is null and j.order_seq < 0
            limit f.most) a) as n
    from k
    cross join lateral (
        select coalesce(j.line_limit, 1) as most from jobs j
        where j.queue = k.queue and j.ordering_key = k.key and j.finished_at is null and j.order_seq >= 0
        order by j.order_seq limit 1) f
    where not exists (select 1 from blocked_lines b where b.queue = k.queue and b.ordering_key = k.key)
),
-- Several may be at place 0: those that come back to a limited line.
next as materialized (
    select x.job_id, free.queue, free.key
    from free
    cross join lateral (
        select j.job_id from jobs j
        where j.queue = free.queue and j.ordering_key = free.key and j.finished_at is null and j.order_seq >= 0
        order by j.order_seq limit greatest(free.n, 0)) x
),
-- Found by an array of their ids and not by a join, as in dispatch_pick.sql: a line may have
-- most of the jobs. The coalesce keeps the planner from every other index. A submit gives turns
-- when it has locked users already, which come after the jobs (PROTOCOL.md §4): it must not
-- wait for a job. Whom somebody else has locked is left to the next who looks.
l as materialized (
    select j.job_id from jobs j
    where j.job_id = any(array(select job_id from next)) and coalesce(j.held, false) and j.status = 'pending'
    order by j.job_id
    for no key update of j skip locked
),
u as (
    update jobs j
    set held = false, order_seq = -greatest(j.order_seq, 1),
        parked = j.run_at <= now() and not (j.job_id = any($3::uuid[])),
        sends = 0,
        wake_at = least(case when j.started_at is null then j.expires_at end, case
            when j.run_at > now() then j.run_at
            when j.job_id = any($3::uuid[]) then now() + interval '5 s'
            else now() + interval '1 day'
        end)
    where j.job_id = any(array(select job_id from l))
    returning j.job_id, j.run, j.lost, j.queue, j.lane, j.job_type, j.run_at <= now() as due
)
-- One that was cancelled meanwhile leaves its turn to another: the caller comes again.
select next.job_id, next.queue as line_queue, next.key as line_key, u.run, u.lost, u.queue, u.lane, u.job_type, u.due from next left join u on u.job_id = next.job_id
