-- The rows to lock are found by their ids, from an array and not by a join: what the planner
-- believes of how many are picked where few users have most of the jobs would make it read the
-- whole table into a hash. The cast keeps it from the index of parked rows, which stale
-- statistics make look empty: it would read all of it for each. The comparisons of rows leave
-- it no index but that one for a user's jobs.
with pick as materialized (
    select p.job_id
    from unnest($3::text[], $4::int[], $6::uuid[]) u (user_id, turn, sent)
    cross join lateral (
        select j.job_id from jobs j
        where j.parked and (j.queue, j.lane, j.user_id, j.job_id) > ($1, $2, u.user_id, u.sent)
            and (j.queue, j.lane, j.user_id) <= ($1, $2, u.user_id)
        order by j.queue, j.lane, j.user_id, j.job_id
        limit u.turn
    ) p
),
l as materialized (
    select j.job_id from jobs j
    where j.job_id = any(array(select job_id from pick)) and j.parked::int = 1
    order by j.job_id
    for no key update of j skip locked
)
update jobs j
set parked = false, sends = least(j.sends + 1, 10),
    wake_at = least(case when j.started_at is null then j.expires_at end, now() + least(interval '5 s' * power(3, least(j.sends, 3)), interval '60 s'))
where j.job_id = any(array(select job_id from l))
returning j.job_id, j.run, j.attempt, j.lost, j.user_id, j.job_type, j.dedupe_key, j.created_at, j.trace_parent,
    case when octet_length(j.payload) <= $5 then j.payload end as payload
