-- Counts the jobs of users and sets their credit by it. The rows are locked by an earlier
-- statement, so that this one's snapshot has all jobs that were added under those locks.
-- The count of a user ends behind the limit, or behind $3, where the outcome is not known:
-- a negative credit.
with m as materialized (
    select u.user_id, least(coalesce((select s.max_jobs from user_limits s where s.user_id = u.user_id), $2), 1000000000)::int as max_jobs
    from unnest($1::text[]) u (user_id)
),
c as materialized (
    select m.user_id, m.max_jobs,
        (select count(*)::int from (
            select 1 from jobs j
            where j.user_id = m.user_id and j.finished_at is null
            limit least(m.max_jobs, $3) + 1
        ) x) as live
    from m
)
insert into user_load as l (user_id, job_limit, credit)
select c.user_id, c.max_jobs, case when c.live > $3 and c.max_jobs > $3 then -1 else greatest(c.max_jobs - c.live, 0) end
from c
order by c.user_id
on conflict (user_id) do update set job_limit = excluded.job_limit, credit = excluded.credit
returning l.user_id, l.job_limit, l.credit
