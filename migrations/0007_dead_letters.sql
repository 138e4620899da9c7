-- What is done about dead letters: replays, decisions and who made them, causes with
-- counts, and replays of everything that a filter matches. `dead_letters` itself comes
-- last: what holds its lock ends with the transaction.

-- A UUIDv7, for rows that a statement makes by itself.
create function tenure_uuid7() returns uuid language sql volatile parallel safe as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid
$$;

-- An error's message without what differs from one job to the next: quoted texts, ids,
-- numbers. Its work is bounded by the part of the message that it looks at.
create function tenure_cause_text(message text) returns text language sql immutable parallel safe as $$
    select left(btrim(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
        left(coalesce(message, ''), 1000),
        '"[^"]*"|`[^`]*`', '<text>', 'g'),
        '(^|[^A-Za-z0-9])''[^'']*''(?![A-Za-z0-9])', '\1<text>', 'g'),
        '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<id>', 'g'),
        '\m(0x)?(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}\M', '<id>', 'g'),
        '[0-9]+([.,:][0-9]+)*', '#', 'g'),
        '\s+', ' ', 'g')), 200)
$$;

-- The fingerprint of a cause. A message can hold no control character, so that the parts
-- cannot run into each other.
create function tenure_cause(queue text, job_type text, code text, message text) returns uuid
    language sql immutable parallel safe as $$
    select md5(queue || chr(31) || coalesce(job_type, '') || chr(31) || code || chr(31) || tenure_cause_text(message))::uuid
$$;

-- The cause of letters whose message is one too many of its queue, type and code.
create function tenure_other_cause(queue text, job_type text, code text) returns uuid
    language sql immutable parallel safe as $$
    select md5(queue || chr(31) || coalesce(job_type, '') || chr(31) || code || chr(30))::uuid
$$;

-- Letters that have one cause. The counts follow the letters within seconds.
create table dead_letter_causes (
    cause_id uuid primary key,
    queue_name text not null,
    -- Empty for messages that could not be read.
    job_type text not null,
    error_code text not null,
    error_class text not null,
    -- The message of one of the letters.
    error_message text,
    -- Whether it collects what is too various to be counted one by one.
    other boolean not null default false,
    open bigint not null default 0,
    ignored bigint not null default 0,
    replayed bigint not null default 0,
    resolved bigint not null default 0,
    first_failed_at timestamptz not null,
    last_failed_at timestamptz not null,
    created_at timestamptz not null default now(),
    sample_letter_id uuid not null
) with (fillfactor = 50);
create index dead_letter_causes_group on dead_letter_causes (queue_name, job_type, error_code);

-- Each replay of a job. The event keeps its id: what is new is the replay's.
create table replays (
    replay_id uuid primary key,
    letter_id uuid not null,
    job_id uuid not null,
    event_id uuid not null,
    run int not null,
    life int not null,
    actor text not null,
    bulk_replay_id uuid,
    at timestamptz not null default now()
);
create index replays_job on replays (job_id, at);

-- Who did what to which letter, and why. Kept for good.
create table dead_letter_actions (
    action_id uuid primary key,
    letter_id uuid not null,
    action text not null check (action in ('replay', 'ignore', 'resolve', 'reopen', 'succeeded', 'cancelled', 'failed_again')),
    at timestamptz not null default now(),
    -- Null: the system.
    actor text,
    -- The owner of the job for whom it was done.
    user_id text,
    reason text not null default '',
    status_before text not null,
    status_after text not null,
    replay_id uuid,
    bulk_replay_id uuid
);
create index dead_letter_actions_letter on dead_letter_actions (letter_id, at, action_id);

-- A replay of every letter that matched a filter at its start, and how far it is.
create table bulk_replays (
    bulk_replay_id uuid primary key,
    state text not null default 'running' check (state in ('running', 'paused', 'done', 'cancelled')),
    filter jsonb not null,
    rate int not null check (rate between 1 and 5000),
    reason text not null,
    actor text not null,
    request_id text,
    started_at timestamptz not null default now(),
    ended_at timestamptz,
    progress_at timestamptz,
    -- When its next step is due.
    next_at timestamptz not null default now(),
    -- The last letter that it has come to; null: it has not begun.
    cursor_failed_at timestamptz,
    cursor_id uuid,
    matching bigint not null default 0,
    examined bigint not null default 0,
    replayed bigint not null default 0,
    already_done bigint not null default 0,
    key_taken bigint not null default 0,
    not_replayable bigint not null default 0,
    changed bigint not null default 0,
    unique (actor, request_id)
) with (fillfactor = 50);
create index bulk_replays_due on bulk_replays (next_at) where state = 'running';

-- Who steered a bulk replay, and why. Kept for good.
create table bulk_replay_actions (
    action_id uuid primary key,
    bulk_replay_id uuid not null,
    action text not null check (action in ('start', 'pause', 'resume', 'cancel', 'set_rate')),
    at timestamptz not null default now(),
    actor text not null,
    reason text not null,
    rate int not null,
    state_before text not null,
    state_after text not null
);
create index bulk_replay_actions_of on bulk_replay_actions (bulk_replay_id, at);

create table bulk_replay_outcomes (
    bulk_replay_id uuid not null,
    -- In the order in which it came to them, from 1 on.
    position bigint not null,
    letter_id uuid not null,
    job_id uuid,
    outcome text not null check (outcome in ('done', 'already_done', 'key_taken', 'not_replayable', 'changed')),
    replay_id uuid,
    message text not null default '',
    primary key (bulk_replay_id, position)
);

-- The previous release writes letters without these columns, which is why nothing here has
-- to be set: what is counted under its cause is compared with what the letter says now, so
-- its letters, and those that were there before, are counted like all others.
alter table dead_letters
    add column trace_parent text,
    add column status_changed_at timestamptz,
    add column replay_id uuid,
    add column bulk_replay_id uuid,
    add column cause_id uuid,
    add column counted_status text,
    add column counted_failures int;

-- The filters that are likely to match few letters among many, and what is still to be
-- done: the open ones, by age.
create index dead_letters_open on dead_letters (last_failed_at, id) where status = 'open';
create index dead_letters_cause on dead_letters (cause_id, last_failed_at, id);
create index dead_letters_type on dead_letters (job_type, last_failed_at, id);
create index dead_letters_user on dead_letters (user_id, last_failed_at, id);
create index dead_letters_replayed on dead_letters (id) where status = 'replayed';
create index dead_letters_uncounted on dead_letters (id)
    where status is distinct from counted_status or failures is distinct from counted_failures;

update schema_info set version = 7;
