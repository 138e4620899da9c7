with recursive u (user_id, n) as (
    (
        select j.user_id, 1 from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > $3
        order by j.user_id
        limit 1
    )
    union all
    select x.user_id, u.n + 1
    from u
    cross join lateral (
        select j.user_id from jobs j
        where j.parked and j.queue = $1 and j.lane = $2 and j.user_id > u.user_id
        order by j.user_id
        limit 1
    ) x
    where u.n < $4
)
-- Looked up one by one: a join might read the limits of everybody.
select u.user_id, coalesce((select l.weight from user_limits l where l.user_id = u.user_id), 1) as weight from u
