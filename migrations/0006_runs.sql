-- How runs end, and who runs them. The tables with short queues first: what holds the lock
-- of `jobs` ends with the transaction.

-- One row for each worker process: written by itself every few seconds, removed at an
-- orderly end. It tells; nothing is decided by it.
create table workers (
    session uuid primary key,
    name text not null,
    version text not null,
    queues text[] not null,
    job_types text[] not null,
    slots int not null,
    running int not null,
    draining boolean not null default false,
    started_at timestamptz not null default now(),
    last_contact_at timestamptz not null default now()
) with (fillfactor = 50);

-- The name of the worker beside its session, which says nothing to a reader.
alter table job_history add column worker_name text;

-- Snoozes of this life, which are bounded; and since when runs end by outages of our own
-- services, which spend no attempt for a time that is bounded as well.
alter table jobs add column snoozes int not null default 0, add column outage_since timestamptz;

update schema_info set version = 6;
