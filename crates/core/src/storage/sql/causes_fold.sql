-- Counts letters under their causes: adds the notes of what changed up, the oldest first, and
-- removes them. One caller at a time, by an advisory lock that was taken in a statement before;
-- so what is read of the causes here is what they are.
with picked as materialized (
    select ctid as place, letter_id, n, cause_id as own, status, queue_name, job_type, error_code, error_class, error_message,
        first_seen, last_failed_at
    from dead_letter_counts order by count_id limit $1
),
-- Looked up one by one: a guess of how many there are could make it read all causes.
fresh as materialized (
    select own, queue_name, job_type, error_code, first_seen
    from (
        select own, queue_name, job_type, error_code, min(first_seen) as first_seen
        from picked group by own, queue_name, job_type, error_code
    ) g
    where (select true from dead_letter_causes c where c.cause_id = g.own) is null
),
known as (
    select queue_name, job_type, error_code,
        (select count(*) from dead_letter_causes c where c.queue_name = g.queue_name and c.job_type = g.job_type
            and c.error_code = g.error_code and not c.other) as causes
    from (select distinct queue_name, job_type, error_code from fresh) g
),
-- Messages that no rule makes alike must not become a cause each. No cause is ever removed, so
-- what is refused once always is, and is found among the others when it leaves.
placed as materialized (
    select f.own, k.causes + row_number() over (partition by queue_name, job_type, error_code order by f.first_seen, f.own) > $2 as refused
    from fresh f join known k using (queue_name, job_type, error_code)
),
-- Their letters are to be found among the others. Whoever has one locked may have locked more:
-- nobody is waited for, and their notes stay for the next time.
strays as materialized (
    select distinct letter_id from picked where n > 0 and own in (select own from placed where refused)
),
held as materialized (
    select d.id from dead_letters d where d.id = any(array(select letter_id from strays))
    order by d.id for no key update skip locked
),
busy as materialized (
    select d.id from dead_letters d where d.id = any(array(select letter_id from strays))
        and d.id not in (select id from held)
),
ready as materialized (
    select p.*, f.own is not null as fresh, coalesce(f.refused, false) as other,
        case when f.refused then tenure_other_cause(p.queue_name, p.job_type, p.error_code) else p.own end as cause
    from picked p left join placed f on f.own = p.own
    where p.letter_id not in (select id from busy)
),
moved as (
    update dead_letters d set cause_id = r.cause
    from ready r
    where d.id = any(array(select id from held)) and r.letter_id = d.id and r.n > 0 and r.other and d.cause_id = r.own
),
gone as (
    delete from dead_letter_counts where ctid = any(array(select place from ready))
),
latest as materialized (
    select distinct on (cause) cause, queue_name, job_type, error_code, error_class, error_message, letter_id, last_failed_at
    from ready where n > 0 order by cause, last_failed_at desc, letter_id desc
),
sums as materialized (
    select cause, bool_or(fresh) as fresh, bool_or(other) as other, coalesce(sum(n) filter (where status = 'open'), 0) as open,
        coalesce(sum(n) filter (where status = 'ignored'), 0) as ignored,
        coalesce(sum(n) filter (where status = 'replayed'), 0) as replayed,
        coalesce(sum(n) filter (where status = 'resolved'), 0) as resolved, min(first_seen) as first_seen
    from ready group by cause
),
totals as materialized (
    select s.*, l.queue_name, l.job_type, l.error_code, l.error_class, l.error_message, l.letter_id, l.last_failed_at,
        case when s.other then (select true from dead_letter_causes c where c.cause_id = s.cause) is null
            else s.fresh end as is_new
    from sums s left join latest l on l.cause = s.cause
),
old as (
    update dead_letter_causes c
    set open = c.open + t.open, ignored = c.ignored + t.ignored, replayed = c.replayed + t.replayed,
        resolved = c.resolved + t.resolved, first_failed_at = least(c.first_failed_at, t.first_seen),
        last_failed_at = greatest(c.last_failed_at, t.last_failed_at),
        -- The sample is the one that failed last, with its own message.
        sample_letter_id = case when t.last_failed_at > c.last_failed_at then t.letter_id else c.sample_letter_id end,
        error_message = case when t.last_failed_at > c.last_failed_at and not c.other then t.error_message else c.error_message end,
        error_class = case when t.last_failed_at > c.last_failed_at then t.error_class else c.error_class end
    from totals t
    where c.cause_id = t.cause and not t.is_new
),
new as (
    insert into dead_letter_causes (cause_id, queue_name, job_type, error_code, error_class, error_message, other, open,
        ignored, replayed, resolved, first_failed_at, last_failed_at, sample_letter_id)
    select cause, queue_name, job_type, error_code, error_class, case when other then 'other messages' else error_message end,
        other, open, ignored, replayed, resolved, first_seen, last_failed_at, letter_id
    from totals where is_new and letter_id is not null
    returning 1
)
select (select count(*) from ready) as changes, (select count(*) from new) as causes
