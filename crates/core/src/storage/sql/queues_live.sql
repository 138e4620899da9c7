-- What is neither parked nor final, by the index of wake_at. Parked rows have their
-- wake_at about a day ahead; sent, running and retrying ones have it near; a row that
-- is due later has it at its time. So: the next half day, what is beyond every parked
-- row, and between them, among the parked ones, as far as the bound reaches. The parts
-- look at $1, $2 and $1 rows at most.
with live as materialized (
    (select j.queue, j.lane, j.status, j.parked, j.run_at from jobs j
        where j.wake_at is not null and j.wake_at < now() + interval '12 hours'
        order by j.wake_at limit $1)
    union all
    (select j.queue, j.lane, j.status, j.parked, j.run_at from jobs j
        where j.wake_at >= now() + interval '12 hours' and j.wake_at <= now() + interval '25 hours'
        order by j.wake_at limit $2)
    union all
    (select j.queue, j.lane, j.status, j.parked, j.run_at from jobs j
        where j.wake_at > now() + interval '25 hours'
        order by j.wake_at limit $1)
)
select queue, lane,
    count(*) filter (where status = 'pending' and run_at <= now()) as sent,
    count(*) filter (where status = 'running') as running,
    count(*) filter (where status = 'retrying' or (status = 'pending' and run_at > now())) as scheduled,
    (max(extract(epoch from now() - run_at)) filter (where status = 'pending' and run_at <= now()))::float8 as age
from live
where not parked
group by queue, lane
