-- The tables of the protocol. A job is the row in `jobs`; everything else either
-- guards it (processed_events, job_dedupe), keeps what it left (dead_letters,
-- job_history, job_logs, notifications, files, import_*), or steers the flow
-- (queues, lanes, job_types, user_load).

-- Raised inside a statement to make the whole of it fail.
create function tenure_fail(what text) returns bigint language plpgsql as $$
begin
    raise exception 'tenure invariant: %', what using errcode = 'TN001';
end $$;

-- One row. A binary refuses an older schema than it needs, or a min_binary above
-- its own number; never a newer schema as such.
create table schema_info (
    one boolean primary key default true check (one),
    version int not null,
    min_binary int not null
);
insert into schema_info (version, min_binary) values (1, 1);

create table queues (
    name text primary key check (name ~ '^[a-z][a-z0-9_.-]{0,63}$'),
    paused boolean not null default false,
    pause_reason text,
    created_at timestamptz not null default now()
);

-- Lanes: 1 high, 2 normal, 3 low.
create table lanes (
    queue text not null references queues (name),
    lane smallint not null check (lane between 1 and 3),
    window_msgs int not null default 128 check (window_msgs > 0),
    bundle_max int not null default 32 check (bundle_max between 1 and 32),
    bundle_changed_at timestamptz not null default now(),
    cursor_user text not null default '',
    next_tick_at timestamptz not null default now(),
    last_tick_at timestamptz not null default now(),
    last_tick_msgs int not null default 0,
    direct boolean not null default true,
    hint_at timestamptz not null default '-infinity',
    primary key (queue, lane)
);

create table job_types (
    name text primary key check (name ~ '^[a-z][a-z0-9_.-]{0,63}$'),
    description text not null default '',
    queue text not null references queues (name),
    lane smallint not null default 2 check (lane between 1 and 3),
    max_attempts int not null default 5 check (max_attempts between 1 and 100),
    backoff_ms bigint[] not null,
    timeout_ms bigint not null check (timeout_ms > 0),
    dedupe_policy text not null check (dedupe_policy in ('period', 'while_active', 'forever', 'after_end')),
    dedupe_period_ms bigint not null check (dedupe_period_ms > 0),
    max_payload_bytes int not null check (max_payload_bytes between 2 and 262144),
    updated_at timestamptz not null default now()
);

create table jobs (
    job_id uuid primary key,
    -- Hot, narrow part: what claim, renew, finish, wake and dispatch touch.
    status text not null default 'pending',
    run int not null default 1,
    life int not null default 1,
    attempt int not null default 0,
    max_attempts int not null,
    lost smallint not null default 0,
    sends smallint not null default 0,
    lane smallint not null,
    parked boolean not null default false,
    held boolean not null default false,
    rev bigint not null default 1,
    run_at timestamptz not null default now(),
    wake_at timestamptz,
    locked_by uuid,
    locked_at timestamptz,
    lease_until timestamptz,
    cancel_requested_at timestamptz,
    cancel_reason text,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    timeout_ms bigint not null,
    progress_done bigint not null default 0,
    progress_total bigint not null default 0,
    order_seq bigint,
    user_id text not null,
    queue text not null,
    job_type text not null,
    ordering_key text,
    dedupe_key text,
    submitted_by text,
    trace_parent text,
    progress_message text,
    last_error_code text,
    last_error_class text,
    last_error_message text,
    labels jsonb,
    payload bytea not null,
    result bytea,
    constraint jobs_status check (status in ('pending', 'running', 'success', 'failed', 'retrying', 'cancelled', 'timeout')),
    constraint jobs_lease check ((status = 'running') = (locked_by is not null and locked_at is not null and lease_until is not null)),
    constraint jobs_final check ((status in ('success', 'failed', 'cancelled')) = (finished_at is not null)),
    constraint jobs_wake_at check ((wake_at is null) = (finished_at is not null)),
    constraint jobs_parked check (not parked or (status = 'pending' and not held)),
    constraint jobs_attempt check (attempt between 0 and max_attempts)
) with (fillfactor = 50);

-- `status` and `lease_until` stand in no index and no predicate: claim and renewal stay HOT.
create index jobs_wake on jobs (wake_at) where wake_at is not null;
create index jobs_parked on jobs (queue, lane, user_id, job_id) where parked;
create index jobs_user on jobs (user_id, job_id);
create index jobs_live on jobs (user_id) where finished_at is null;
create index jobs_order on jobs (queue, ordering_key, order_seq) where ordering_key is not null and finished_at is null;
create sequence job_order_seq;

-- The ledger of E1: one row per event that was ever claimed. It outlives the job
-- and vetoes a second claim. Written only by a transaction that holds the job's lock.
create table processed_events (
    event_id uuid primary key,
    run int not null,
    status text not null check (status in ('running', 'done', 'retryable', 'failed', 'cancelled')),
    worker uuid,
    error_code text,
    processed_at timestamptz not null default now()
) with (fillfactor = 50);

-- Dedupe keys (scope = job type) and request ids (scope = '').
create table job_dedupe (
    user_id text not null,
    scope text not null,
    key text not null,
    job_id uuid not null,
    fingerprint bytea not null,
    bound_until timestamptz not null,
    -- Added to the end of the job; null where only bound_until counts.
    after_end interval,
    primary key (user_id, scope, key)
);

create table user_load (
    user_id text primary key,
    job_limit int not null,
    credit int not null default 0
) with (fillfactor = 50);

create table dead_letters (
    id uuid primary key,
    job_id uuid unique,
    -- The job's event_id, or the digest of (queue, body) of an unreadable message.
    message_key text not null unique,
    queue_name text not null,
    job_type text,
    user_id text,
    labels jsonb,
    payload bytea not null,
    error_code text not null,
    error_class text not null check (error_class in ('temporary', 'permanent')),
    error_message text,
    attempts int not null,
    failures int not null default 1,
    replayable boolean not null,
    status text not null default 'open' check (status in ('open', 'ignored', 'replayed', 'resolved')),
    first_failed_at timestamptz not null default now(),
    last_failed_at timestamptz not null default now()
);
create index dead_letters_recent on dead_letters (last_failed_at desc, id desc);

-- The unhappy transitions of a job; the happy path is told by its timestamps.
create table job_history (
    job_id uuid not null,
    run int not null,
    at timestamptz not null,
    entry_id uuid not null,
    from_state text not null,
    to_state text not null,
    attempt int not null,
    worker uuid,
    error_code text,
    error_message text,
    primary key (job_id, at, entry_id)
);

create table job_logs (
    job_id uuid not null,
    run int not null,
    at timestamptz not null,
    entry_id uuid not null,
    level text not null check (level in ('DEBUG', 'INFO', 'WARN', 'ERROR')),
    message text not null,
    primary key (job_id, at, entry_id)
);

create table notifications (
    id uuid primary key,
    user_id text not null,
    template text not null,
    dedupe_key text not null,
    job_id uuid,
    data jsonb not null,
    created_at timestamptz not null default now(),
    read_at timestamptz,
    unique (user_id, template, dedupe_key)
);

-- Content lives in the object store under `file_id`; a row appears when it is whole.
create table files (
    file_id uuid primary key,
    user_id text not null,
    name text not null,
    content_type text not null,
    size_bytes bigint not null check (size_bytes >= 0),
    sha256 bytea not null,
    kind text not null check (kind in ('upload', 'report', 'rejects')),
    job_id uuid,
    created_at timestamptz not null default now(),
    expires_at timestamptz
);
create index files_user on files (user_id, file_id);
create index files_same on files (user_id, sha256) where kind = 'upload';

-- Where an import is: written in the same transaction as the rows of its last batch.
create table import_checkpoints (
    job_id uuid primary key,
    byte_offset bigint not null,
    line_no bigint not null,
    batch_no int not null,
    rows_accepted bigint not null,
    rows_rejected bigint not null,
    -- What was decided once and must not be decided anew: delimiter, columns, warnings.
    plan jsonb not null,
    updated_at timestamptz not null default now()
);

create table import_rows (
    job_id uuid not null,
    line_no bigint not null,
    data jsonb not null,
    primary key (job_id, line_no)
);

create table import_rejects (
    job_id uuid not null,
    line_no bigint not null,
    column_name text not null,
    reason text not null,
    message text not null,
    value text,
    primary key (job_id, line_no)
);
