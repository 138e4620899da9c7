-- Replays jobs whose rows and letters are locked and whose keys are bound: another life,
-- and with it all attempts again. The run grows, so that whatever is still under way for an
-- earlier one does nothing, and so does the revision.
with i as materialized (
    select * from unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::uuid[])
        i (letter_id, job_id, run, before, replay_id)
),
u as (
    update jobs j
    set status = 'pending', run = j.run + 1, life = j.life + 1, attempt = 0, lost = 0, snoozes = 0, sends = 0,
        outage_since = null, cancel_requested_at = null, cancel_reason = null, finished_at = null, result = null,
        parked = j.ordering_key is null, held = j.ordering_key is not null, run_at = now(),
        -- An expiry that has passed would end it again before it starts.
        expires_at = case when j.expires_at > now() then j.expires_at end,
        wake_at = least(case when j.started_at is null and j.expires_at > now() then j.expires_at end, now() + case when j.ordering_key is null then interval '1 day' else interval '5 min' end),
        -- At the tail of its line; but one that blocks it is what those behind it wait for, and
        -- has its old number again.
        order_seq = case when j.ordering_key is null then null when j.line_block then abs(coalesce(j.order_seq, 0)) else nextval('job_order_seq') end,
        rev = j.rev + 1
    from i
    where j.job_id = i.job_id and j.run = i.run and j.status = 'failed'
    returning j.job_id, j.run, j.life, i.letter_id, i.before, i.replay_id, j.queue, j.ordering_key
),
b as (
    delete from blocked_lines b using u where b.job_id = u.job_id
),
n as (
    insert into line_turns (queue, ordering_key)
    select distinct queue, ordering_key from u where ordering_key is not null
),
p as (
    update processed_events p set status = 'retryable', processed_at = now()
    from u where p.event_id = u.job_id and p.status = 'failed' and p.run < u.run
    returning 1
),
d as (
    update dead_letters d set status = 'replayed', status_changed_at = now(), replay_id = u.replay_id, bulk_replay_id = $8
    from u where d.id = u.letter_id and d.status = u.before
    returning d.id, d.user_id, u.before, u.replay_id
),
r as (
    insert into replays (replay_id, letter_id, job_id, event_id, run, life, actor, bulk_replay_id)
    select replay_id, letter_id, job_id, job_id, run, life, $6, $8 from u
    returning 1
),
a as (
    insert into dead_letter_actions (action_id, letter_id, action, actor, user_id, reason, status_before, status_after,
        replay_id, bulk_replay_id)
    select tenure_uuid7(), id, 'replay', $6, user_id, $7, before, 'replayed', replay_id, $8 from d
    returning 1
),
h as (
    insert into job_history (job_id, run, at, entry_id, from_state, to_state, attempt, error_message)
    select job_id, run - 1, now(), replay_id, 'failed', 'pending', 0, 'replayed from the dead letters' from u
)
select case when (select count(*) from i) <> (select count(*) from u) or (select count(*) from u) <> (select count(*) from p)
        or (select count(*) from u) <> (select count(*) from d) or (select count(*) from u) <> (select count(*) from r)
        or (select count(*) from u) <> (select count(*) from a)
    then tenure_fail('replay: job, ledger and dead letter disagree') end
