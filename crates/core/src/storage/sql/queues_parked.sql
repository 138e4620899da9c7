-- Per lane: how many jobs are parked, up to $1, from the index alone; and since when
-- the oldest is ready. The index has the jobs in the order of their users, so the
-- oldest is looked for among the first job of each user, for up to $2 users. The order
-- in the count keeps the planner from collecting the whole backlog before the limit.
select l.queue, l.lane, c.n as parked, o.age
from lanes l
cross join lateral (
    select count(*) as n
    from (select 1 from jobs j where j.parked and j.queue = l.queue and j.lane = l.lane
        order by j.user_id, j.job_id limit $1) x
) c
left join lateral (
    with recursive first_of as (
        (select j.user_id, j.job_id, 1 as nth from jobs j
            where j.parked and j.queue = l.queue and j.lane = l.lane
            order by j.user_id, j.job_id limit 1)
        union all
        select n.user_id, n.job_id, f.nth + 1 from first_of f
        cross join lateral (
            select j.user_id, j.job_id from jobs j
            where j.parked and j.queue = l.queue and j.lane = l.lane and j.user_id > f.user_id
            order by j.user_id, j.job_id limit 1
        ) n
        where f.nth < $2
    )
    select max(extract(epoch from now() - j.run_at))::float8 as age
    from first_of f join jobs j on j.job_id = f.job_id
) o on c.n > 0
order by l.queue, l.lane
