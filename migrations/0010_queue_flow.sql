-- Pauses: by hand (`paused`, from the first migration) and by the system, each with its
-- reason; and how deep a backlog was when a dispatcher last looked.

alter table queues
    add column paused_by text,
    add column paused_at timestamptz,
    add column system_paused boolean not null default false,
    add column system_pause_reason text,
    add column system_paused_at timestamptz,
    -- The most jobs that may wait; null: the configuration's.
    add column max_backlog bigint check (max_backlog >= 0);

alter table lanes
    add column backlog bigint not null default 0,
    add column backlog_at timestamptz not null default '-infinity';

update schema_info set version = 10;
