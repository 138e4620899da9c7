-- The users with parked jobs, like dispatch_users, where some of them are known ($5) with the
-- last job that each has sent ($6): what stands before it in the index is not read again.
-- That is dead, and where an old transaction keeps it from being removed it is a lot.
with recursive k as materialized (
    select x.user_id, x.sent from unnest($5::text[], $6::uuid[]) x (user_id, sent) where x.user_id > $3
),
-- Between two of them others may have come.
g as materialized (
    select b.user_id as lo, lead(b.user_id) over (order by b.user_id) as hi
    from (select $3::text as user_id union all select k.user_id from k) b
),
u (user_id, hi, n) as (
    select x.user_id, g.hi, 1
    from g
    cross join lateral (
        select j.user_id from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > g.lo and j.user_id < g.hi
        order by j.user_id
        limit 1
    ) x
    where g.hi is not null
    union all
    select x.user_id, u.hi, u.n + 1
    from u
    cross join lateral (
        select j.user_id from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > u.user_id and j.user_id < u.hi
        order by j.user_id
        limit 1
    ) x
    where u.n < $4
),
-- Behind the last one.
v (user_id, n) as (
    select x.user_id, 1
    from g
    cross join lateral (
        select j.user_id from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > g.lo
        order by j.user_id
        limit 1
    ) x
    where g.hi is null
    union all
    select x.user_id, v.n + 1
    from v
    cross join lateral (
        select j.user_id from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > v.user_id
        order by j.user_id
        limit 1
    ) x
    where v.n < $4
),
a as (
    select k.user_id
    from k
    cross join lateral (
        select 1 from jobs j
        where j.parked and (j.queue, j.lane, j.user_id, j.job_id) > ($1, $2, k.user_id, k.sent)
            and (j.queue, j.lane, j.user_id) <= ($1, $2, k.user_id)
        order by j.queue, j.lane, j.user_id, j.job_id
        limit 1
    ) x
    union all
    select u.user_id from u
    union all
    select v.user_id from v
)
-- Looked up one by one: a join might read the limits of everybody.
select a.user_id, coalesce((select l.weight from user_limits l where l.user_id = a.user_id), 1) as weight
from a
order by a.user_id
limit $4
