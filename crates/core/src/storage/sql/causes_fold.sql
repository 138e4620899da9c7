-- Counts letters under their causes: what each says now is compared with what was counted
-- of it. One caller at a time, by an advisory lock that was taken in a statement before;
-- so what is read of the causes here is what they are.
with picked as materialized (
    select id, queue_name, coalesce(job_type, '') as job_type, error_code, error_class, error_message, status, failures,
        case when failures = 1 then first_failed_at else last_failed_at end as first_seen, last_failed_at,
        cause_id as counted_cause, counted_status,
        tenure_cause(queue_name, job_type, error_code, error_message) as own
    from dead_letters
    where status is distinct from counted_status or failures is distinct from counted_failures
    order by id limit $1
    for no key update skip locked
),
fresh as (
    select own, queue_name, job_type, error_code, min(first_seen) as first_seen
    from picked p where not exists (select 1 from dead_letter_causes c where c.cause_id = p.own)
    group by own, queue_name, job_type, error_code
),
known as (
    select queue_name, job_type, error_code,
        (select count(*) from dead_letter_causes c where c.queue_name = g.queue_name and c.job_type = g.job_type
            and c.error_code = g.error_code and not c.other) as causes
    from (select distinct queue_name, job_type, error_code from fresh) g
),
-- Messages that no rule makes alike must not become a cause each.
refused as (
    select own from (
        select f.own, k.causes + row_number() over (partition by queue_name, job_type, error_code order by f.first_seen, f.own) as place
        from fresh f join known k using (queue_name, job_type, error_code)
    ) n where place > $2
),
assigned as materialized (
    select p.*, r.own is not null as other,
        case when r.own is null then p.own else tenure_other_cause(p.queue_name, p.job_type, p.error_code) end as cause
    from picked p left join refused r on r.own = p.own
),
moved as (
    update dead_letters d set cause_id = a.cause, counted_status = a.status, counted_failures = a.failures
    from assigned a where d.id = a.id
    returning 1
),
sums as materialized (
    select cause, coalesce(sum(n) filter (where status = 'open'), 0) as open,
        coalesce(sum(n) filter (where status = 'ignored'), 0) as ignored,
        coalesce(sum(n) filter (where status = 'replayed'), 0) as replayed,
        coalesce(sum(n) filter (where status = 'resolved'), 0) as resolved
    from (
        select cause, status, 1 as n from assigned
        union all
        select counted_cause, counted_status, -1 from assigned where counted_status is not null
    ) x group by cause
),
latest as materialized (
    select distinct on (cause) cause, queue_name, job_type, error_code, error_class, error_message, other, id,
        min(first_seen) over (partition by cause) as first_seen, last_failed_at
    from assigned order by cause, last_failed_at desc, id desc
),
old as (
    update dead_letter_causes c
    set open = c.open + s.open, ignored = c.ignored + s.ignored, replayed = c.replayed + s.replayed,
        resolved = c.resolved + s.resolved, first_failed_at = least(c.first_failed_at, l.first_seen),
        last_failed_at = greatest(c.last_failed_at, l.last_failed_at),
        -- The sample is the one that failed last, with its own message.
        sample_letter_id = case when l.last_failed_at > c.last_failed_at then l.id else c.sample_letter_id end,
        error_message = case when l.last_failed_at > c.last_failed_at and not c.other then l.error_message else c.error_message end,
        error_class = case when l.last_failed_at > c.last_failed_at then l.error_class else c.error_class end
    from sums s left join latest l on l.cause = s.cause
    where c.cause_id = s.cause
    returning 1
),
new as (
    insert into dead_letter_causes (cause_id, queue_name, job_type, error_code, error_class, error_message, other, open,
        ignored, replayed, resolved, first_failed_at, last_failed_at, sample_letter_id)
    select l.cause, l.queue_name, l.job_type, l.error_code, l.error_class,
        case when l.other then 'other messages' else l.error_message end, l.other, s.open,
        s.ignored, s.replayed, s.resolved, l.first_seen, l.last_failed_at, l.id
    from latest l join sums s on s.cause = l.cause
    where not exists (select 1 from dead_letter_causes c where c.cause_id = l.cause)
    returning 1
)
select (select count(*) from moved) as letters, (select count(*) from new) as causes
